"""A launcher and its ranks without torch: real processes, real signals, the records of a real run.

    standin.py launch FOLDER RANKS MODE      standin.py rank FOLDER NUMBER MODE

Modes: obedient (steps until told to stop) · short (five steps) · deaf (heeds neither orders nor SIGTERM) · frozen
(stops itself with SIGSTOP) · orphan (obedient, with a daemonised child) · crash (fails in order) · vanish (by SIGKILL)
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from jobs import durable, orders
from jobs.identity import ProcessIdentity
from jobs.progress import Progress
from jobs.run_folder import RunFolder

STEP_S = 0.02


def launch(folder: RunFolder, ranks: int, mode: str) -> int:
    command = [sys.executable, __file__, "rank", str(folder.path)]
    children = [subprocess.Popen([*command, str(n), mode], start_new_session=True) for n in range(ranks)]

    def pass_on(*_: object) -> None:
        for child in children:
            child.terminate()

    signal.signal(signal.SIGTERM, pass_on)
    return max(abs(child.wait()) for child in children)


def rank(folder: RunFolder, number: int, mode: str) -> int:
    record(folder, number, None)
    if mode == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if mode == "orphan" and number == 0:
        daemonise_child(folder)
    if mode in ("crash", "vanish"):
        return fail(folder, number, mode)
    if mode == "frozen":
        os.kill(os.getpid(), signal.SIGSTOP)
    return steps(folder, number, mode)


def steps(folder: RunFolder, number: int, mode: str) -> int:
    progress = Progress(folder.progress) if number == 0 else None
    if progress:
        progress.write("phase", phase="training", detail="")
        progress.write("start", world_size=2, total_steps=100000, first_step=0, method="lora", model="standin")
    done = 0
    while mode != "short" or done < 5:
        done += 1
        if progress:
            progress.write("step", step=done, total_steps=100000, loss=float("nan") if done == 2 else 1 / done)
            print(f"step {done}", flush=True)
        if mode != "deaf" and any(folder.orders.iterdir()):
            return end(folder, number, progress, "stopped", done)
        time.sleep(STEP_S)
    return end(folder, number, progress, "completed", done)


def end(folder: RunFolder, number: int, progress: Progress | None, outcome: str, step: int) -> int:
    record(folder, number, outcome)
    if progress:
        for order in orders.pending(folder):
            orders.reply(folder, order.id, "done", "stopped", step)
        progress.write("end", outcome=outcome, step=step, detail="")
    return 0


def fail(folder: RunFolder, number: int, mode: str) -> int:
    if mode == "vanish":
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 0:
        Progress(folder.progress).write("error", message="CUDA out of memory", hint="Halve it.", rank=0)
    record(folder, number, "failed", {"message": f"broken {number}", "hint": "", "secondary": number == 0})
    return 1


def record(folder: RunFolder, number: int, outcome: str | None, error: dict[str, object] | None = None) -> None:
    who = ProcessIdentity.of(os.getpid())
    assert who is not None
    durable.write_json(folder.rank(number), {"identity": who.to_json(), "outcome": outcome, "error": error})


def daemonise_child(folder: RunFolder) -> None:
    """A grandchild in its own session whose parent ends at once: what escapes every process group."""
    code = (
        "import os, time\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        "open({!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(600)\n"
    )
    subprocess.run([sys.executable, "-c", code.format(str(folder.path / "orphan.pid"))], check=True)


if __name__ == "__main__":
    place = RunFolder(Path(sys.argv[2]))
    begin = launch if sys.argv[1] == "launch" else rank
    sys.exit(begin(place, int(sys.argv[3]), sys.argv[4]))
