"""A model's tokenizer, without torch and transformers: from the tokenizer.json that a model folder holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jobs.data.extra import library
from jobs.data.template import Template
from jobs.failure import JobError


class Tokens:
    """`template` is None for base models; `end` is the text of the token that ends an answer."""

    def __init__(self, folder: Path) -> None:
        """Raises JobError where the folder has no tokenizer that can be read."""
        file = folder / "tokenizer.json"
        hint = "Name a model's folder: --tokenizer FOLDER with tokenizer.json in it."
        if not file.is_file():
            raise JobError(f"{folder} holds no tokenizer.json", hint)
        kept = library("tokenizers", "counting tokens")
        try:
            # whatever is wrong with the file, this library raises plain Exception
            self._tokenizer: Any = kept.Tokenizer.from_file(str(file))
        except Exception as wrong:
            raise JobError(f"{file} is no tokenizer: {wrong}", hint) from wrong
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        config = _config(folder)
        words = {key: _word(value) for key, value in config.items() if key.endswith("_token")}
        self.words = {key: word for key, word in words.items() if word}
        self.start, self.end = self.words.get("bos_token", ""), self.words.get("eos_token", "")
        source = _template(folder, config)
        self.template = Template(source, self.words) if source else None

    def count(self, text: str) -> int:
        """Tokens of a piece of text, without any added around it."""
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)


def _config(folder: Path) -> dict[str, Any]:
    file = folder / "tokenizer_config.json"
    if not file.is_file():
        return {}
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as wrong:
        raise JobError(f"{file} cannot be read: {wrong}", "Get the model's files again.") from wrong
    return value if isinstance(value, dict) else {}


def _word(value: Any) -> str:
    """The text of a special token: plain, or in the object that older files have."""
    found = value.get("content") if isinstance(value, dict) else value
    return found if isinstance(found, str) else ""


def _template(folder: Path, config: dict[str, Any]) -> str:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    found = config.get("chat_template")
    if isinstance(found, list):
        found = next((entry.get("template") for entry in found if entry.get("name") == "default"), None)
    return found if isinstance(found, str) else ""
