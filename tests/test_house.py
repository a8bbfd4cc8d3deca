"""The layer rule, kept by execution: arrows go only downward, and the lower floors stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FLOORS = ("console", "agent", "jobs", "configs")
CONSOLE_MAY_USE_OF_AGENT = ("agent.wire", "agent.formats", "agent.triage")


def modules(floor: str) -> Iterator[tuple[str, Path]]:
    for path in sorted((ROOT / floor).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


KNOWN = dict(pair for floor in FLOORS for pair in modules(floor))


def imports(name: str, path: Path) -> set[str]:
    """Own modules imported by `name`, lazy imports included."""
    found: set[str] = set()
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                stem = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*stem, base]).rstrip(".")
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                found.add(inner if inner in KNOWN else base)
    return {target for target in found if target.partition(".")[0] in FLOORS} - {name}


GRAPH = {name: imports(name, path) for name, path in KNOWN.items()}


def within(target: str, roots: tuple[str, ...]) -> bool:
    return any(target == root or target.startswith(root + ".") for root in roots)


def test_arrows_point_downward() -> None:
    wrong = []
    for name, targets in GRAPH.items():
        floor = name.partition(".")[0]
        for target in targets:
            below = target.partition(".")[0]
            allowed = (
                below in (floor, "configs")
                or (floor == "console" and below == "jobs" and not within(target, ("jobs.train",)))
                or (floor == "console" and within(target, CONSOLE_MAY_USE_OF_AGENT))
                or (floor == "agent" and below == "jobs" and not within(target, ("jobs.train",)))
            )
            if not allowed or (floor == "configs" and below != "configs"):
                wrong.append(f"{name} imports {target}")
    assert not wrong, "\n".join(wrong)


def test_torch_lives_only_in_jobs_train() -> None:
    heavy = {"torch", "transformers", "peft", "accelerate", "deepspeed", "trl", "safetensors", "bitsandbytes"}
    wrong = []
    for name, path in KNOWN.items():
        if within(name, ("jobs.train",)):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            wrong += [f"{name} imports {n}" for n in names if n.partition(".")[0] in heavy]
    assert not wrong, "\n".join(wrong)


def test_no_import_circles() -> None:
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, "circle: " + " -> ".join((*trail[trail.index(name) :], name))
        if name in done:
            return
        for target in GRAPH.get(name, ()):
            visit(target, (*trail, name))
        done.add(name)

    for name in GRAPH:
        visit(name, ())


def test_no_module_is_named_after_the_standard_library() -> None:
    clashes = [
        name
        for name in KNOWN
        if (leaf := name.rpartition(".")[2]) in sys.stdlib_module_names and leaf not in ("__main__", "formats")
    ]
    assert not clashes


@pytest.mark.parametrize("floor", ["agent", "jobs"])
def test_lower_floors_load_nothing_heavy(floor: str) -> None:
    """Imports every module that runs outside training and looks at what came along."""
    names = [n for n in KNOWN if within(n, (floor,)) and not within(n, ("jobs.train",)) and not n.endswith("__main__")]
    forbidden = ["torch", "textual", "paramiko", "transformers", "console", "rich"]
    if floor == "jobs":
        forbidden += ["agent", "psutil"]
    code = (
        "import importlib, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        f"print(sorted(m for m in {forbidden!r} if m in sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_every_package_is_listed() -> None:
    """Packages are named one by one in pyproject.toml, so a new folder must be added there."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    folders = {
        ".".join(p.parent.relative_to(ROOT).parts) for floor in FLOORS for p in (ROOT / floor).rglob("__init__.py")
    }
    assert [f for f in sorted(folders) if f'"{f}"' not in text] == []
