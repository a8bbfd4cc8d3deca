"""Threads with little stack and files enough: a thousand links run into limits that were made for a few."""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable

STACK_BYTES = 512 * 1024
_lock = threading.Lock()


def allow_files(wanted: int) -> None:
    """Raise the soft limit of open files as far as that takes and the hard one lets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


def start_small(start: Callable[[], None]) -> None:
    """Call a thread's `start`; it gets STACK_BYTES of stack."""
    with _lock:
        usual = threading.stack_size(STACK_BYTES)
        try:
            start()
        finally:
            threading.stack_size(usual)
