"""Mutated messages to agent and console: no crash, no hang, no traceback.

python -m tests.bench.fuzz [--messages 1000000] [--seed N] [--bar]
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import logging
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BATCH = 200
HANG_S = 20.0
PAINT_EVERY = 50


def work(seed: int, messages: int) -> None:
    """Half of them to an agent, half to a console. Any exception ends it."""
    from agent.events import Events
    from tests.fakes.mutation import AgentEnd, ConsoleEnd, Mutator, batches, from_agent, from_console

    logging.getLogger("agent").setLevel(logging.CRITICAL)  # it says of each line what is wrong with it
    to_agent, to_console = Mutator(seed, from_console()), Mutator(seed + 1, from_agent())
    with tempfile.TemporaryDirectory(prefix="td-fuzz-") as place:
        agent, console = AgentEnd(Events(Path(place) / "events.jsonl")), ConsoleEnd()
        for _batch in range(0, messages, 2 * BATCH):
            faulthandler.dump_traceback_later(HANG_S, exit=True)
            asyncio.run(agent.take(batches(to_agent, BATCH)))
            for number in range(BATCH):
                console.take(to_console.line())
                if number % PAINT_EVERY == 0:
                    console.painted()
        faulthandler.cancel_dump_traceback_later()
    print(
        f"seed {seed}: {messages} lines, {agent.took} taken in by the agent, {console.took} by the console", flush=True
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--bar", action="store_true", help="exit 1 when anything but a refusal happened")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        work(options.child, options.messages)
        return 0
    workers = max(1, min(4, os.cpu_count() or 1))
    began = time.monotonic()
    seeds = [options.seed + 2 * i for i in range(workers)]
    words = ["--messages", str(options.messages // workers)]
    argv = [sys.executable, "-m", "tests.bench.fuzz", *words, "--child"]
    children = [subprocess.Popen([*argv, str(seed)], cwd=ROOT) for seed in seeds]
    bad = [seed for seed, child in zip(seeds, children, strict=True) if child.wait()]
    span = time.monotonic() - began
    verdict = f"MISS failed: seeds {bad}" if bad else "ok  "
    print(f"{verdict} {options.messages} mutated lines in {span:.0f} s")
    return int(options.bar and bool(bad))


if __name__ == "__main__":
    sys.exit(main())
