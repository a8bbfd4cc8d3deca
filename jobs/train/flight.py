"""What a rank was doing: its last collectives and the stacks of its threads, written down when it is asked.

A thread looks once a second whether a request lies in the run folder, so it also answers while the main thread waits in
a collective or sleeps in Python. When the interpreter itself is held, SIGUSR2 still gets the stacks: that handler is
C code. Nothing is done between two requests but one stat.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
import time
from typing import Any

from jobs import durable
from jobs.durable import DISK_FULL, FILE_MODE
from jobs.run_folder import RunFolder

LOOK_EVERY_S = 1.0
_MOST_ENTRIES = 256
_KEPT = (
    "collective_seq_id", "p2p_seq_id", "is_p2p", "pg_id", "process_group", "profiling_name", "input_sizes",
    "output_sizes", "input_dtypes", "state", "retired", "time_created_ns", "timeout_ms",
)  # fmt: skip


class Flight:
    """Of one rank. `start` costs a thread and an open file for the rest of the process."""

    def __init__(self, folder: RunFolder, number: int, world: int) -> None:
        self._folder, self._number, self._world = folder, number, world
        self._stacks = -1

    def start(self) -> None:
        """Before torch is imported: it reads where to put its own dumps then."""
        self._folder.flight.mkdir(mode=durable.FOLDER_MODE, exist_ok=True)
        own = str(self._folder.flight / "torch-rank-")
        for name in ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"):
            os.environ[name] = own
        path = self._folder.flight_stacks(self._number)
        self._stacks = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
        faulthandler.register(signal.SIGUSR2, file=self._stacks, all_threads=True)
        threading.Thread(target=self._listen, args=(self._stamp(),), name="flight", daemon=True).start()

    def _stamp(self) -> int:
        try:
            return self._folder.flight_request.stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def _listen(self, seen: int) -> None:
        while True:
            time.sleep(LOOK_EVERY_S)
            stamp = self._stamp()
            if stamp and stamp != seen:
                seen = stamp
                try:
                    self.write()
                except OSError as wrong:
                    if wrong.errno not in DISK_FULL:
                        raise

    def write(self) -> None:
        """The stacks first: they need nothing of torch. Raises OSError."""
        os.ftruncate(self._stacks, 0)
        faulthandler.dump_traceback(self._stacks, all_threads=True)
        about = {"rank": self._number, "world": self._world, "pid": os.getpid(), "unix": time.time()}
        durable.write_json(self._folder.flight_dump(self._number), about | recorded())


def recorded() -> dict[str, Any]:
    """Torch's own record: `entries`, oldest first, and `pg_status`. No entries before torch is there."""
    # looked up, not imported: the main thread may hold the import lock for ever
    library = getattr(getattr(sys.modules.get("torch"), "_C", None), "_distributed_c10d", None)
    dump = getattr(library, "_dump_fr_trace_json", None)
    if dump is None:
        return {"entries": [], "note": "torch.distributed is not loaded"}
    told = json.loads(dump())
    entries = told.get("entries") or []
    return {
        "entries": [{key: one[key] for key in _KEPT if key in one} for one in entries[-_MOST_ENTRIES:]],
        "pg_status": told.get("pg_status") or {},
        "version": told.get("version"),
    }
