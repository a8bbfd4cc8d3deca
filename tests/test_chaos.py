"""Ten kills of what keeps a run alive: each time it goes on bit for bit, nothing is lost and nothing left."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests import trainings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_ten_kills_are_survived() -> None:
    command = [sys.executable, "-m", "tests.bench.chaos", "--kills", "10", "--seed", "7"]
    done = subprocess.run(command, cwd=trainings.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    row = next(line for line in done.stdout.splitlines() if line.startswith("all"))
    assert row.split()[1:6] == ["10", "10", "0", "0", "0"], done.stdout
