"""The run spec: what a user asks for, checked before anything starts."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import configs
from jobs.fabric.collectives import Bench
from jobs.section import Section
from jobs.section import SpecError as SpecError
from jobs.settings import Data, Hardware, Lora, Rules, Snapshots, Train

TRAIN, BENCH = KINDS = ("train", "bench")
METHODS = ("lora", "full")
PLANNED_METHODS = ("qlora", "dora")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")


@dataclass(frozen=True, slots=True)
class Spec:
    name: str
    model: str
    data: Data
    python: str | None = None
    method: str = "lora"
    lora: Lora = field(default_factory=Lora)
    train: Train = field(default_factory=Train)
    hardware: Hardware = field(default_factory=Hardware)
    snapshots: Snapshots = field(default_factory=Snapshots)
    rules: Rules = field(default_factory=Rules)
    kind: str = TRAIN
    """A bench measures collectives: it has no model and no data, and its method says so."""
    bench: Bench = field(default_factory=Bench)
    file: str = field(default="spec.yaml", compare=False)
    lines: Mapping[str, int] = field(default_factory=dict, compare=False)

    @classmethod
    def parse(cls, text: str, name: str = "spec.yaml") -> Spec:
        """Reads a spec. `name` is the file's name, for messages and as the run's default name. Raises SpecError."""
        top = Section.parse(text, name)
        if top.choice("kind", TRAIN, KINDS) == BENCH:
            return cls._of_bench(top, name)
        lines: dict[str, int] = {}
        parts = {key: top.part(key) for key in ("data", "lora", "train", "hardware", "snapshots", "rules")}
        method = _method(top)
        spec = cls(
            name=_name(top, name),
            model=_model(top),
            python=top.text("python"),
            method=method,
            data=Data.read(parts["data"]),
            lora=Lora.read(parts["lora"]),
            train=Train.read(parts["train"], method),
            hardware=Hardware.read(parts["hardware"]),
            snapshots=Snapshots.read(parts["snapshots"]),
            rules=Rules.read(parts["rules"]),
            file=name,
            lines=lines,
        )
        for section in (*parts.values(), top):
            lines.update(section.close())
        return spec

    @classmethod
    def _of_bench(cls, top: Section, name: str) -> Spec:
        hardware, bench = top.part("hardware"), top.part("bench")
        spec = cls(
            name=_name(top, name),
            model="",
            data=Data(),
            python=top.text("python"),
            method=BENCH,
            hardware=Hardware.read(hardware),
            kind=BENCH,
            bench=Bench.read(bench),
            file=name,
            lines=(lines := dict[str, int]()),
        )
        for section in (hardware, bench, top):
            lines.update(section.close())
        return spec

    def error(self, key: str, message: str, hint: str) -> SpecError:
        """An error about `key` ("data.path") at the line where the user wrote it."""
        return SpecError(f"{key} {message}", self.file, self.lines.get(key, 0), hint)

    def deciding(self) -> dict[str, Any]:
        """Everything that decides what is computed: two specs that differ here train differently.

        Name, interpreter, number of ranks, snapshot keeping and rules may change without making it another training.
        """
        return {
            "model": self.model,
            "method": self.method,
            "data": asdict(self.data),
            "lora": asdict(self.lora) if self.method == "lora" else None,
            "train": asdict(self.train),
        }

    def model_folder(self, home: Path) -> Path | None:
        """The model as a folder on the node; None when it is a hub id."""
        return expand(self.model, home) if _is_path(self.model) else None

    def data_file(self, home: Path) -> Path:
        """The data on the node. ``example:NAME`` is a data set that comes along with this code."""
        shipped = self.data.path.removeprefix("example:")
        if shipped == self.data.path:
            return expand(self.data.path, home)
        if not re.fullmatch(r"[a-z0-9-]+", shipped):
            raise self.error("data.path", f"is {self.data.path!r}", "Write `example:NAME`, for example example:faults.")
        return configs.FOLDER / "examples" / f"{shipped}.jsonl"

    def check_files(self, home: Path) -> None:
        """On the node: model folder, data and interpreter are there and readable. Raises SpecError."""
        if self.kind == TRAIN:
            self._check_model_and_data(home)
        if self.python is not None and not os.access(expand(self.python, home), os.X_OK):
            raise self.error("python", f"{self.python} cannot be executed", "Give the interpreter that has torch.")

    def _check_model_and_data(self, home: Path) -> None:
        folder = self.model_folder(home)
        if folder is not None and not (folder / "config.json").is_file():
            missing = "has no config.json" if folder.is_dir() else "does not exist on this node"
            raise self.error("model", f"{folder} {missing}", "Give a folder made by save_pretrained, or a hub id.")
        data = self.data_file(home)
        if not data.is_file():
            raise self.error("data.path", f"{data} is not a file on this node", "Copy it there or correct the path.")
        if not os.access(data, os.R_OK):
            raise self.error("data.path", f"{data} cannot be read", "Change its permissions.")
        if data.stat().st_size == 0:
            raise self.error("data.path", f"{data} is empty", "Give a file with at least one example.")


def expand(path: str, home: Path) -> Path:
    """A path of the spec on the node: ``~/`` and relative paths start at the home folder."""
    return home / path.removeprefix("~/") if path != "~" else home


def _is_path(model: str) -> bool:
    return model.startswith(("/", "~", ".")) or model.count("/") > 1


def _name(top: Section, file: str) -> str:
    default = Path(file).stem
    name = top.text("name") or (default if _NAME.fullmatch(default) else "run")
    if not _NAME.fullmatch(name):
        raise top.wrong("name", f"is {name!r}", "Use 1 to 64 letters, digits, spaces, '.', '_' and '-'.")
    return name


def _model(top: Section) -> str:
    model = top.required("model", "Add `model: ~/models/NAME`, a folder on the node, or a hub id.")
    if not _is_path(model) and not _HUB_ID.fullmatch(model):
        raise top.wrong("model", f"is {model!r}", "Give a folder (with a / in front, or ~/) or a hub id like org/name.")
    return model


def _method(top: Section) -> str:
    method = top.choice("method", "lora", (*METHODS, *PLANNED_METHODS))
    if method in PLANNED_METHODS:
        raise top.wrong("method", f"{method} is not supported yet", "Use `method: lora` or `method: full`.")
    return method
