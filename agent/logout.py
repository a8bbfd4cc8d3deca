"""Where logind ends processes at log-out (KillUserProcesses=yes, logind.conf(5)), the daemon is put out of its reach.

That takes two things (systemd-run(1)): a scope of the user's own service manager, and lingering, which keeps that
manager alive. Lingering is a setting of the machine, so it is used where it is on, and asked for where it is not.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from pathlib import Path

CONFIG = Path("/etc/systemd/logind.conf")
DROP_INS = tuple(Path(root) / "systemd/logind.conf.d" for root in ("/usr/lib", "/run", "/etc"))
LINGER = Path("/var/lib/systemd/linger")
CGROUP = Path("/proc/self/cgroup")
TRY_S = 5.0
SCOPE = ("systemd-run", "--user", "--scope", "--quiet", "--collect", "--")


def kills() -> bool:
    """logind is configured to end what is left of a session. The last file that says so counts."""
    found = False
    more = [file for folder in DROP_INS for file in folder.glob("*.conf")]
    for file in (CONFIG, *sorted(more, key=lambda file: file.name)):
        for word in re.findall(r"(?mi)^\s*KillUserProcesses\s*=\s*(\S+)", read(file)):
            found = word.lower() in ("yes", "true", "on", "1")
    return found


def in_session() -> bool:
    """This process belongs to a log-in session, and not to a service or a scope of its own."""
    return re.search(r"/session-[^/]*\.scope", read(CGROUP)) is not None


def lingers() -> bool:
    return (LINGER / pwd.getpwuid(os.getuid()).pw_name).exists()


def shelter() -> list[str]:
    """What to put before a command so that it outlives the session; empty where that is not needed or not possible."""
    if not (in_session() and kills() and lingers()) or shutil.which(SCOPE[0]) is None:
        return []
    try:
        done = subprocess.run(
            [*SCOPE, "true"], stdin=subprocess.DEVNULL, capture_output=True, timeout=TRY_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []  # `warning` then says what the user is in for
    return list(SCOPE) if done.returncode == 0 else []


def warning() -> str:
    """What the user should know of a process that could not be sheltered; empty when there is nothing."""
    if not (in_session() and kills()):
        return ""
    remedy = "`systemd-run --user` does not work here; ask the administrator for KillExcludeUsers"
    if not lingers():
        remedy = "`loginctl enable-linger`, then `agent stop` and connect again, keeps them"
    return f"this machine ends your processes when you log out (KillUserProcesses=yes), runs too: {remedy}"


def read(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
