"""What `preview` and `stats` show is what training learns: the same token ids, the same loss mask, from other code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from jobs import examples
from jobs.data import mask, write
from jobs.data.example import Example, Turn
from jobs.data.reading import DataSet, Read
from jobs.data.row import Fault
from jobs.data.template import Template
from jobs.data.tokens import Tokens
from jobs.failure import JobError

MODEL = Path(__file__).parent / "corpus" / "random-llama"
ROWS = [
    {"instruction": "What does ECC protect?", "input": "", "output": "Memory."},
    {"instruction": "Explain the line", "input": "NCCL WARN  x", "output": "It <warns>.\n\nTwice."},
    {"instruction": "", "input": "only an input", "output": "then\tan answer"},
    {"instruction": "显存不足？", "input": " ", "output": "减小批大小 😀"},
    {"instruction": "long " * 300, "input": "", "output": "short"},
]
CHATML = """
{%- for message in messages %}
    {%- if loop.first and message['role'] != 'system' %}
        {{- '<|begin|>' + 'system\\nYou help.' + eos_token + '\\n' }}
    {%- endif %}
    {{- '<|begin|>' + message['role'] + '\\n' }}{% generation %}{{ message['content'] | trim }}{% endgeneration %}
    {{- eos_token + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|begin|>assistant\\n' }}{% endif %}
"""
# shows tools, refuses two turns of one role, cuts what was thought in earlier turns, leaves a loop early
STRICT = """
{%- if tools %}{% for tool in tools %}{{ tool | tojson(indent=2) }}{% endfor %}{% endif %}
{%- for message in messages %}
    {%- if loop.previtem and loop.previtem.role == message.role %}{{ raise_exception('roles!') }}{% endif %}
    {%- set said = message.content.split('</think>')[-1] if not loop.last else message.content %}
    {{- '<' + message.role + '>' + said + '\\n' }}
    {%- if loop.index > 20 %}{% break %}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<assistant>' }}{% endif %}
"""


@pytest.fixture
def chat_model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(MODEL / name, folder / name)
    (folder / "chat_template.jinja").write_text(CHATML, encoding="utf-8")
    return folder


def loaded(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(folder))


@pytest.mark.slow
def test_the_mask_is_that_of_training(chat_model: Path, tmp_path: Path) -> None:
    from jobs.train.encode import IGNORED, Encoded

    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS), encoding="utf-8")
    trained = examples.read(file).rows
    shown = [item.example for item in DataSet([file]).read() if isinstance(item, Read)]
    assert len(shown) == len(trained) == len(ROWS)
    for folder in (MODEL, chat_model):
        tokens, encoded = Tokens(folder), Encoded(trained, loaded(folder), 100_000)
        for number, example in enumerate(shown):
            pieces = mask.pieces(example, tokens)
            ids = [i for piece in pieces for i in tokens.ids(piece.text)]
            labels = [i if piece.learned else IGNORED for piece in pieces for i in tokens.ids(piece.text)]
            assert (ids, labels) == (encoded[number]["input_ids"], encoded[number]["labels"])
            assert mask.lengths(example, tokens) == (len(ids), sum(label != IGNORED for label in labels))


@pytest.mark.parametrize("source", [CHATML, STRICT], ids=["chatml", "strict"])
def test_templates_render_as_in_transformers(source: str, chat_model: Path) -> None:
    (chat_model / "chat_template.jinja").write_text(source, encoding="utf-8")
    kept, own = loaded(chat_model), Tokens(chat_model)
    assert own.template is not None
    turns = [
        Turn("user", "a <b> ü"),
        Turn("assistant", "<think>x</think>c\n"),
        Turn("user", " d"),
        Turn("assistant", "e"),
    ]
    tools = [{"type": "function", "function": {"name": "look", "description": "<&>", "parameters": {"a": 1}}}]
    for until in (1, 2, 3, 4):
        for prompt in (False, True):
            messages = write.messages(turns[:until])
            theirs = kept.apply_chat_template(messages, tools=tools, tokenize=False, add_generation_prompt=prompt)
            assert own.template.render(messages, tools, prompt) == theirs


def test_every_answer_is_learned_and_nothing_else(chat_model: Path) -> None:
    turns = (
        Turn("system", "S"),
        Turn("user", "q1"),
        Turn("assistant", "a1"),
        Turn("user", "q2"),
        Turn("assistant", "a2"),
    )
    pieces = mask.pieces(Example("chat", turns), Tokens(chat_model))
    assert [piece.text for piece in pieces if piece.learned] == ["a1<|end|>\n", "a2<|end|>\n"]
    assert "".join(piece.text for piece in pieces).count("q1") == 1


def test_a_template_that_changes_earlier_turns_leaves_the_last_answer(chat_model: Path) -> None:
    (chat_model / "chat_template.jinja").write_text(STRICT, encoding="utf-8")
    turns = (Turn("user", "q"), Turn("assistant", "<think>t</think>a"), Turn("user", "r"), Turn("assistant", "b"))
    pieces = mask.pieces(Example("chat", turns), Tokens(chat_model))
    assert [(piece.text, piece.learned) for piece in pieces] == [
        ("<user>q\n<assistant>a\n<user>r\n<assistant>", False),
        ("b\n", True),
    ]


def test_both_answers_of_a_pair_are_measured(chat_model: Path) -> None:
    tokens = Tokens(chat_model)
    pair = Example(
        "preference", (Turn("user", "q"),), (Turn("assistant", "a"),), (Turn("assistant", "a much longer b"),)
    )
    whole, learned = mask.lengths(pair, tokens)
    shorter = mask.pieces(pair, tokens, pair.chosen)
    assert whole > sum(tokens.count(piece.text) for piece in shorter) > learned > 0


def test_what_a_template_refuses_is_said(chat_model: Path) -> None:
    (chat_model / "chat_template.jinja").write_text(STRICT, encoding="utf-8")
    turns = (Turn("user", "q"), Turn("user", "r"), Turn("assistant", "b"))
    with pytest.raises(Fault, match="refuses it: roles!"):
        mask.pieces(Example("chat", turns), Tokens(chat_model))
    with pytest.raises(Fault, match="only single questions"):
        mask.pieces(Example("chat", (Turn("system", "s"), *turns[1:])), Tokens(MODEL))


def test_a_template_cannot_leave_its_sandbox() -> None:
    hostile = Template("{{ messages.__class__.__mro__[1].__subclasses__() }}", {})
    with pytest.raises(Fault, match="unsafe"):
        hostile.render([{"role": "user", "content": "x"}])
    with pytest.raises(JobError, match="chat template cannot be read"):
        Template("{% for %}", {})


def test_a_folder_without_a_tokenizer_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"holds no tokenizer\.json"):
        Tokens(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(JobError, match="is no tokenizer"):
        Tokens(tmp_path)
