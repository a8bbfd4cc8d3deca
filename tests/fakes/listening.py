"""A daemon as it is, that listens to a file in place of the kernel's log device.

listening.py FILE
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from agent import door
from agent.complaints import Complaints
from agent.door import Door
from agent.kernel import KernelLog
from agent.kmsg import Kmsg
from agent.serve import Daemon
from agent.state import StateFolder


async def serve(kmsg: Path) -> None:
    os.umask(0o077)
    state = StateFolder.locate()
    state.create()
    place = Door.of(state)
    place.check()
    lock = door.hold(place.lock)
    assert lock is not None
    daemon = Daemon(state, place, 600.0)
    machine = daemon.machine
    machine.complaints = Complaints(machine.complaints.path, daemon.events, machine.runs, KernelLog([Kmsg(kmsg)]))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, daemon.over.set)
    await daemon.run()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
