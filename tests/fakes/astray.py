"""An entry script by which rank 1 goes astray in the middle of a training, in place of the run's own."""

from __future__ import annotations

TURN = """
import os, pathlib, sys, time
{first}
import torch.distributed as dist
from jobs.train.exchange import Exchange

whole, count = Exchange.start, 0

def astray(self, *given):
    global count
    count += 1
    whole(self, *given)
    if count == 8 and os.environ["RANK"] == "1":
        {act}

Exchange.start = astray
from jobs.train.__main__ import main
main()
"""


def script(act: str = "pass", first: str = "") -> str:
    """`act`: what rank 1 does after its eighth exchange; `first`: what all do before they load torch."""
    return TURN.format(act=act, first=first)
