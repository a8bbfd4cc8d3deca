"""Orders to the running job: laid into its folder, answered by it between two steps."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

from agent import kept, wire
from agent.refusal import Refusal
from jobs import orders
from jobs.run_folder import RunFolder

POLL_S = 0.05


def natural(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def rate(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def flag(value: Any) -> bool:
    return isinstance(value, bool)


def name(value: Any) -> bool:
    return isinstance(value, str)


ARGUMENTS: dict[str, dict[str, tuple[Callable[[Any], bool], str]]] = {
    "stop": {},
    "pause": {},
    "snapshot": {"pin": (flag, "true or false")},
    "rollback": {
        "step": (natural, "a whole number from 0"),
        "lr": (rate, "a positive number"),
        "skip_data": (flag, "true or false"),
        "snapshot": (name, "a snapshot's name"),
    },
}


async def steer(folder: RunFolder, body: wire.Steer, order_id: str) -> dict[str, Any]:
    """The job's answer. Raises Refusal: nonsense, a run that is not live, or what the job would not do."""
    args = checked(body)
    said = answered(folder, body.verb, order_id)
    if said is not None:
        return said
    refuse_ended(folder, body.verb)
    await asyncio.to_thread(orders.post, folder, orders.Order(order_id, body.verb, args))
    while True:
        now = kept.read(folder)  # before the answer: one given with the last breath must not be missed
        said = answered(folder, body.verb, order_id)
        if said is not None:
            return said
        if now is not None and now.phase == "ended":
            raise Refusal(f"{folder.name} has ended ({now.reason}) without answering", "Look at its logs.")
        await asyncio.sleep(POLL_S)


def checked(body: wire.Steer) -> dict[str, Any]:
    """The arguments that were given. The job takes what it is handed, so nonsense must not get there."""
    known = ARGUMENTS.get(body.verb)
    if known is None:
        raise Refusal(f"{body.verb!r} is not an order; a job takes {', '.join(ARGUMENTS)}")
    given = {key: value for key, value in body.args.items() if value is not None}
    for key, value in given.items():
        if key not in known:
            takes = ", ".join(known) or "nothing"
            raise Refusal(f"{body.verb} knows no {key!r}", f"It takes {takes}.")
        right, words = known[key]
        if not right(value):
            raise Refusal(f"{body.verb}: {key} is {value!r}", f"Give {words}.")
    return given


def answered(folder: RunFolder, verb: str, order_id: str) -> dict[str, Any] | None:
    """The job's answer when it did what it was told, None while there is none. Raises Refusal when it did not."""
    said = orders.answer(folder, order_id)
    if said is None or said.get("outcome") == "done":
        return said
    raise Refusal(f"{verb} {said.get('outcome')}: {said.get('message')}")


def refuse_ended(folder: RunFolder, verb: str) -> None:
    """An order laid before a run that has ended would be carried out by whoever resumes it."""
    now = kept.read(folder)
    if now is not None and now.phase == "ended":
        hint = f"`tunedeck resume {folder.name}` lets it go on from a snapshot."
        raise Refusal(f"{folder.name} is not running: it has ended ({now.reason}), so it takes no {verb}", hint)
