"""The wheel, installed alone in an empty environment: it starts, finds its files and says what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel and its base dependencies only."""
    folder = tmp_path_factory.mktemp("package")
    source = folder / "source"
    tracked = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT).decode().split("\0")
    for name in filter(None, tracked):
        if (ROOT / name).is_file():
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    run = [sys.executable, "-m"]
    subprocess.run([*run, "build", "--wheel", "--outdir", str(folder), str(source)], check=True, capture_output=True)
    subprocess.run([*run, "venv", str(folder / "env")], check=True)
    inside = folder / "env" / "bin" / "python"
    wheel = next(folder.glob("*.whl"))
    subprocess.run([inside, "-m", "pip", "install", "-q", str(wheel)], check=True, capture_output=True)
    return inside


def outside(python: Path, *argv: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run away from the checkout, so that only what was installed can be found."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(cwd), "TERM": "dumb"}
    return subprocess.run([python, *argv], capture_output=True, text=True, cwd=cwd, env=environ, timeout=60)


def test_the_command_starts(python: Path, tmp_path: Path) -> None:
    done = outside(python, "-m", "console", "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "tunedeck" in done.stdout
    assert subprocess.run([python.with_name("tunedeck"), "-V"], cwd=tmp_path).returncode == 0


def test_every_shipped_config_is_there_and_loads(python: Path, tmp_path: Path) -> None:
    code = (
        "import configs, json, yaml; files = [p for p in configs.FOLDER.rglob('*') if p.is_file()]\n"
        "for p in files:\n"
        "    if p.suffix == '.yaml': yaml.safe_load(p.read_text())\n"
        "    if p.suffix == '.json': json.loads(p.read_text())\n"
        "print(json.dumps(sorted(str(p.relative_to(configs.FOLDER)) for p in files)))"
    )
    done = outside(python, "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    tracked = subprocess.check_output(["git", "ls-files", "configs"], cwd=ROOT, text=True).splitlines()
    missing = [name for name in tracked if not name.endswith(".py") and f'"{name[8:]}"' not in done.stdout]
    assert missing == []


def test_packages_come_from_the_wheel(python: Path, tmp_path: Path) -> None:
    """The generic names console, agent, jobs and configs must not be picked up from somewhere else."""
    code = "import agent, configs, console, jobs; print(*(m.__file__ for m in (agent, configs, console, jobs)))"
    done = outside(python, "-c", code, cwd=tmp_path)
    prefix = str(python.parent.parent)
    assert all(file.startswith(prefix) for file in done.stdout.split()), done.stdout + done.stderr


def test_without_the_console_extra_it_says_what_to_install(python: Path, tmp_path: Path) -> None:
    done = outside(python, "-m", "console", "-w", "somewhere", "nodes", cwd=tmp_path)
    assert done.returncode == 2
    assert "tunedeck[console]" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_agent_measures_with_base_dependencies_alone(python: Path, tmp_path: Path) -> None:
    done = outside(python, "-m", "agent", "probe", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert '"cpu_percent"' in done.stdout
