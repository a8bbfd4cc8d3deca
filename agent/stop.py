"""Ends this user's daemon on this machine. Its runs have keepers of their own and go on."""

from __future__ import annotations

import signal
import time

from agent.attach import knock
from agent.door import Door, peer_pid
from agent.refusal import Refusal
from agent.state import StateFolder
from jobs.identity import ProcessIdentity

STOP_S = 10.0


def stop(state: StateFolder) -> int:
    """Returns once the daemon is gone, also when there was none. Raises Refusal when it stays."""
    place = Door.of(state)
    place.check()
    connection = knock(place)
    if connection is None:
        return 0
    with connection:
        daemon = ProcessIdentity.of(peer_pid(connection))
    if daemon is None:
        return 0
    daemon.send(signal.SIGTERM)
    deadline = time.monotonic() + STOP_S
    while daemon.state() == "alive":
        if time.monotonic() > deadline:
            raise Refusal(f"the agent (pid {daemon.pid}) does not end", f"See {state.log}.")
        time.sleep(0.02)
    return 0
