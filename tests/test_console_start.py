"""What stands between `tunedeck` and its first paint."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_first_paint_loads_nothing_heavy() -> None:
    code = (
        "import sys, console.app\n"
        "heavy = ['paramiko', 'torch', 'numpy', 'yaml', 'psutil', 'pynvml', 'cryptography', 'console.link']\n"
        "print(sorted(m for m in heavy if m in sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
