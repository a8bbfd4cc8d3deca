"""As a forced command of sshd the agent is all that a key may run; what the console asked for is only looked at.

`command="python3 $(ls -td ~/.tunedeck/bundles/*/enter.py | head -1) attach --read-only",restrict ssh-ed25519 …`
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping

NONCE = re.compile(r"\ba=(td[0-9a-f]{1,64}); b=([0-9a-f]{1,64});")


def greeting(environ: Mapping[str, str]) -> bytes:
    """The line that the console's own command would have answered; empty where there was none to replace."""
    found = NONCE.search(environ.get("SSH_ORIGINAL_COMMAND", ""))
    version = sys.version.split()[0]
    return f"{found[1]}{found[2]} ready {version} {sys.executable}\n".encode() if found else b""
