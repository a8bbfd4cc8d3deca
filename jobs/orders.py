"""Orders to a running job: a file each, answered by a file beside it.

A file needs no port and no thread in the job, survives a restart of the agent, and shows afterwards who asked what.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from jobs.durable import read_json, write_json
from jobs.run_folder import ORDER_ID, RunFolder

VERBS = ("stop", "pause", "snapshot", "rollback")
_RESULT = ".result.json"


@dataclass(frozen=True, slots=True)
class Order:
    """`args`: rollback takes ``step`` (int), ``lr`` (float), ``skip_data`` (bool); snapshot takes ``pin`` (bool)."""

    id: str
    verb: str
    args: dict[str, Any] = field(default_factory=dict)


def post(folder: RunFolder, order: Order) -> None:
    """Lays an order before the job. The same id again is the same order, so a repeated post changes nothing.

    Raises ValueError for an unknown verb or an unusable id.
    """
    if order.verb not in VERBS:
        raise ValueError(f"{order.verb!r} is not an order; a job takes {', '.join(VERBS)}")
    path = folder.order(order.id)
    if not path.exists():
        write_json(path, {"id": order.id, "verb": order.verb, "args": order.args, "posted_unix": time.time()})


def answer(folder: RunFolder, order_id: str) -> dict[str, Any] | None:
    """The job's answer, ``{"outcome", "message", "step", ...}``; None while there is none."""
    return read_json(folder.answer(order_id))


def reply(folder: RunFolder, order_id: str, outcome: str, message: str, step: int, **more: Any) -> None:
    """The job's side: `outcome` is "done", "failed" or "refused"."""
    write_json(
        folder.answer(order_id),
        {"outcome": outcome, "message": message, "step": step, "time_unix": time.time(), **more},
    )


def names(folder: RunFolder) -> list[str]:
    """Ids of all orders not yet answered, unordered. One listing of the folder: cheap enough between steps."""
    found = set(os.listdir(folder.orders))  # noqa: PTH208 - half the cost of iterdir, and it runs between all steps
    ids = (name[: -len(".json")] for name in found if name.endswith(".json") and not name.endswith(_RESULT))
    return [name for name in ids if name + _RESULT not in found and ORDER_ID.fullmatch(name)]


def waiting(folder: RunFolder) -> bool:
    """Whether some order is not answered yet."""
    return folder.orders.is_dir() and bool(names(folder))


def pending(folder: RunFolder, seen: Collection[str] = ()) -> list[Order]:
    """Unanswered orders not in `seen`, oldest first. A file that holds no order is answered as refused."""
    waiting: list[tuple[float, Order]] = []
    for name in names(folder):
        if name in seen:
            continue
        try:
            body = read_json(folder.order(name)) or {}
            order = Order(name, str(body["verb"]), dict(body.get("args") or {}))
            waiting.append((float(body.get("posted_unix", 0)), order))
        except (ValueError, KeyError, TypeError) as wrong:
            reply(folder, name, "refused", f"the order file is unreadable: {wrong}", 0)
    return [order for _, order in sorted(waiting, key=lambda pair: (pair[0], pair[1].id))]
