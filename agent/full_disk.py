"""Writing where the disk may be full: what must not wait for room, and what must wait."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from agent.refusal import FULL

RETRY_S = 1.0


def attempt(write: Callable[[], None]) -> None:
    """A full disk must not hold up a start or a kill; the next state is written anyway."""
    try:
        write()
    except OSError as error:
        if error.errno not in FULL:
            raise
        print(f"not written: {error}", file=sys.stderr, flush=True)


def insist(write: Callable[[], None]) -> None:
    """A full disk must not end a keeper: it tries until there is room, for nobody else knows how the run ended."""
    while True:
        try:
            return write()
        except OSError as error:
            if error.errno not in FULL:
                raise
            time.sleep(RETRY_S)
