"""The parent of one run's processes. It starts the launcher, sees every orphan, and says in the end what became of it.

Agent, console and link may die or be replaced; a run belongs to its keeper alone. A lost keeper is replaced by one that
adopts: it cannot be the parent any more, so it watches the recorded processes and believes what the ranks wrote.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import FrameType

from agent import ending, family, kept, killing, questioning
from agent.door import Door, hold
from agent.full_disk import attempt, insist
from agent.kept import Kept
from agent.reexec import RUN_MARK, environment
from agent.state import StateFolder
from agent.vigil import Vigil
from jobs import durable, orders
from jobs.identity import ProcessIdentity
from jobs.run_folder import RunFolder

PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.25
TERMINATION_S = 3.0
"""From SIGTERM to SIGKILL: torchrun needs half a second to end ranks that do not resist."""
SETTLE_S = 5.0
"""How long what the launcher left behind may take to end by itself."""
PUT_DOWN_S = 10.0
SIGNAL_GRACE_S = 20.0
"""Grace of a kill asked for by SIGTERM, which carries no figure."""


def keep(state: StateFolder, run: str, adopt: bool) -> int:
    """Keeps the run until it has ended. Returns at once when another process keeps it already."""
    folder = RunFolder.inside(state.runs, run)
    door = Door.of(state)
    door.check()
    if hold(door.keeper_lock(run)) is None:
        return 0
    keeper = Keeper(folder)
    keeper.listen()
    become_subreaper()
    if adopt:
        keeper.adopt()
    else:
        keeper.start()
    keeper.watch()
    keeper.finish()
    door.keeper_lock(run).unlink(missing_ok=True)
    return 0


def become_subreaper() -> None:
    """Orphans below this process become its children instead of init's (prctl(2)). Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


@dataclass(slots=True)
class Keeper:
    folder: RunFolder
    kept: Kept = field(default_factory=lambda: Kept("starting"))
    adopted: bool = False
    launcher_status: int | None = None
    """As waitpid gave it."""
    by_signal: killing.KillRequest | None = None
    posted: bool = False
    terminated_at: float | None = None
    seen: dict[int, ProcessIdentity] = field(default_factory=dict)
    """Everything that was of this run while it was being killed."""
    waker: int = -1
    vigil: Vigil = field(init=False)

    def __post_init__(self) -> None:
        self.vigil = Vigil.from_now(self.folder)

    def listen(self) -> None:
        """Handlers, not SIG_IGN: an ignored signal would stay ignored in the launcher and all ranks."""
        self.waker, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGTERM, self.told)
        signal.signal(signal.SIGUSR1, self.told)

    def told(self, number: int, _frame: FrameType | None) -> None:
        """SIGTERM ends the run softly, SIGUSR1 hard: the way in when the disk is too full for a request."""
        hard = number == signal.SIGUSR1
        self.by_signal = killing.KillRequest(f"signal-{number}", 0.0 if hard else SIGNAL_GRACE_S, hard, time.time())

    def start(self) -> None:
        """Starts the launcher in a session of its own, its output in the run folder and no pipe of ours."""
        record = durable.read_json(self.folder.record) or {}
        self.kept = Kept("starting", keeper=ProcessIdentity.of(os.getpid()), started_unix=time.time())
        self.kept.write(self.folder)  # without room for this there is no run
        questioning.moved(self.folder)
        surroundings = environment() | {str(k): str(v) for k, v in record["environment"].items()}
        surroundings[RUN_MARK] = self.folder.name
        log = os.open(self.folder.launcher_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            launcher = subprocess.Popen(
                [str(word) for word in record["argv"]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder.path,
                env=surroundings,
                start_new_session=True,
            )
        except OSError as error:
            self.end("failed", f"the launcher could not be started: {error}")
            return
        finally:
            os.close(log)
        launcher.returncode = 0  # reaped below together with all orphans; Popen must not wait for it too
        self.kept = replace(self.kept, phase="running", launcher=ProcessIdentity.of(launcher.pid))
        if self.kept.launcher is None:  # it ended within microseconds; it is ours to reap, so the pid is still its
            self.kept = replace(self.kept, launcher=ProcessIdentity("", "", launcher.pid, 0))
        self.write()

    def adopt(self) -> None:
        """Takes over a run whose keeper is lost."""
        self.adopted = True
        before = kept.read(self.folder) or Kept("starting")
        self.kept = replace(before, keeper=ProcessIdentity.of(os.getpid()))
        self.vigil = Vigil.halfway(self.folder)
        self.write()

    def watch(self) -> None:
        """Until the launcher is gone, or a kill has made it go."""
        while self.kept.phase != "ended" and not self.launcher_gone():
            request = self.request()
            if request is not None and self.kill(request):
                return
            if request is None:
                self.vigil.look()
            self.pause()

    def launcher_gone(self) -> bool:
        self.reap()
        if self.launcher_status is not None or self.kept.launcher is None:
            return True
        return self.adopted and self.kept.launcher.state() == "gone"

    def pause(self) -> None:
        select.select([self.waker], [], [], POLL_S)
        try:
            os.read(self.waker, 512)
        except BlockingIOError:
            return

    def reap(self) -> None:
        """Collects every child that ended, adopted orphans included."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if self.kept.launcher is not None and pid == self.kept.launcher.pid and not self.adopted:
                self.launcher_status = status

    def request(self) -> killing.KillRequest | None:
        found = killing.requested(self.folder)
        if self.by_signal is not None and (found is None or (self.by_signal.hard and not found.hard)):
            return self.by_signal
        return found

    def kill(self, request: killing.KillRequest) -> bool:
        """One look at where the kill stands: ask the job, then SIGTERM, then SIGKILL. True when it came to the last."""
        self.remember()
        if self.kept.phase != "stopping":
            self.kept = replace(self.kept, phase="stopping")
            self.write()
        if not request.hard and not self.posted:
            self.posted = True
            self.ask_job(request)
        if not request.hard and time.time() < request.asked_unix + request.grace_s:
            return False
        if not request.hard and self.terminated_at is None and self.kept.launcher is not None:
            self.terminated_at = time.monotonic()
            family.send(self.kept.launcher, signal.SIGTERM)
        if not request.hard and self.terminated_at is not None:
            return time.monotonic() > self.terminated_at + TERMINATION_S
        return True

    def ask_job(self, request: killing.KillRequest) -> None:
        try:
            orders.post(self.folder, orders.Order(f"kill-{request.order}"[:64], "stop"))
        except OSError as error:
            print(f"cannot ask the job to stop: {error}", file=sys.stderr, flush=True)

    def finish(self) -> None:
        """Nothing of the run survives this; then the final word is written, as soon as the disk has room."""
        if self.kept.phase == "ended":
            return
        request = self.request()
        if not self.launcher_status and (request is None or not request.hard):
            self.settle()
        self.remember()
        while alive := family.put_down(self.find, self.reap, PUT_DOWN_S)[1]:
            attempt(self.result(alive))  # uninterruptible: they go when the driver lets go of them
        self.reap()
        insist(self.result([]))
        self.end(*ending.of(self.folder, self.launcher_status, request is not None))

    def settle(self) -> None:
        """Ranks of a launcher that ended in order may still be closing files; those of a dead one are orphans."""
        deadline = time.monotonic() + SETTLE_S
        while self.find() and time.monotonic() < deadline and self.terminated_at is None:
            self.remember()
            self.pause()
            self.reap()

    def find(self) -> list[ProcessIdentity]:
        found = family.members(self.folder.name, kept.recorded(self.folder), os.getpid())
        self.seen.update({who.pid: who for who in found})
        return found

    def remember(self) -> None:
        self.find()

    def result(self, alive: list[ProcessIdentity]) -> Callable[[], None]:
        left = {who.pid for who in alive}
        gone = tuple(pid for pid, who in sorted(self.seen.items()) if pid not in left and who.state() == "gone")
        found = killing.KillResult(gone, tuple(sorted(left)), time.time())
        return lambda: found.write(self.folder)

    def end(self, reason: str, detail: str) -> None:
        code = None if self.launcher_status is None else os.waitstatus_to_exitcode(self.launcher_status)
        self.kept = replace(
            self.kept,
            phase="ended",
            ended_unix=time.time(),
            exit_code=code if code is not None and code >= 0 else None,
            signal=-code if code is not None and code < 0 else None,
            reason=reason,
            detail=detail,
        )
        insist(lambda: self.kept.write(self.folder))

    def write(self) -> None:
        attempt(lambda: self.kept.write(self.folder))
