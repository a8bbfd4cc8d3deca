"""Threads with little stack: with a thousand links the default 8 MiB each runs into address space limits."""

from __future__ import annotations

import threading
from collections.abc import Callable

STACK_BYTES = 512 * 1024
_lock = threading.Lock()


def start_small(start: Callable[[], None]) -> None:
    """Call a thread's `start`; it gets STACK_BYTES of stack."""
    with _lock:
        usual = threading.stack_size(STACK_BYTES)
        try:
            start()
        finally:
            threading.stack_size(usual)
