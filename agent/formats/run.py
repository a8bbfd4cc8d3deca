"""A run folder's own records: who ended how, who was asked in a stall and did not answer, where each rank stood."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from agent.formats.event import Event
from agent.formats.line import Document, Line

NAMED = re.compile(r"(?:^|/)(?:state|run|node|answers|\d+)\.json$")
PROGRESS = "progress.jsonl"
THREAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+")
FRAME = re.compile(r'^\s*File "(?P<path>[^"]+)", line (?P<line>\d+) in (?P<name>.+)$')
SPIED = re.compile(r'^Thread \d+ \([^)]*\): "MainThread"')
SPIED_FRAME = re.compile(r"^    (?P<name>[^\s(].*) \((?P<path>[^():]+):(?P<line>\d+)\)$")
LIBRARY = re.compile(r"/site-packages/|/dist-packages/|/lib/python3|<frozen")
CARDS = "node/gpus.txt"
CARD = re.compile(r"^card (?P<index>\d{1,4}) (?P<uuid>\S+) (?P<bus>[0-9A-Fa-f:.]+)$")
OWN_TIME = '"forward_s":['
LITERALS = ('"kind":"error"', "most recent call first", '"MainThread"')
STATES = {
    "T": "it was stopped by a signal or a debugger",
    "t": "a debugger holds it",
    "D": "it waits in the kernel (driver, disk or network file system)",
    "R": "it computes without ever letting Python run",
    "S": "it holds Python's lock while it sleeps in a library",
}


def document(name: str, content: Any) -> list[Event] | None:
    """The events of a record of a run folder; None for a file that only bears such a name."""
    if not isinstance(content, Mapping):
        return None
    if content.get("tunedeck") == "answers":
        return list(_answers(name, content))
    if content.get("tunedeck") == "node":
        return [_node(name, content)]
    if "keeper" in content and "phase" in content:
        return [_state(name, content)]
    if "argv" in content and isinstance(content.get("world_size"), int):
        return list(_record(name, content))
    if "identity" in content and isinstance(content.get("rank"), int):
        return [_rank(name, content)]
    return None


def _record(name: str, content: Mapping[str, Any]) -> Iterator[Event]:
    world, cards = str(content["world_size"]), content.get("gpu_uuids")
    yield _event("c10d.world", name, f"world_size {world}", {"world": world})
    if isinstance(cards, list) and cards:
        yield _event("run.cards", name, f"cards {' '.join(map(str, cards))}", {"uuids": " ".join(map(str, cards))})


def _event(
    kind: str, name: str, text: str, detail: dict[str, str], rank: int | None = None, node: str | None = None
) -> Event:
    return Event(kind, Line(name, 1, text, text), node, rank, None, None, detail)


def _node(name: str, content: Mapping[str, Any]) -> Event:
    """Under the word that its user has for it, where a console gave one."""
    hostname, alias = str(content.get("hostname") or ""), str(content.get("alias") or "")
    detail = {"hostname": hostname, "alias": alias}
    return _event("run.node", name, f"node {alias or hostname}", detail, node=alias or hostname or None)


def _state(name: str, content: Mapping[str, Any]) -> Event:
    reason, said = str(content.get("reason") or ""), str(content.get("detail") or "")
    detail = {"phase": str(content["phase"]), "reason": reason, "detail": said, "signal": str(content.get("signal"))}
    return _event("run.state", name, f"run {content['phase']} {reason}: {said}".rstrip(": "), detail)


def _rank(name: str, content: Mapping[str, Any]) -> Event:
    rank, identity, error = content["rank"], content.get("identity"), content.get("error")
    error = error if isinstance(error, Mapping) else {}
    pid = str(identity.get("pid", "")) if isinstance(identity, Mapping) else ""
    outcome, message = str(content.get("outcome") or ""), str(error.get("message") or "")
    text = f"rank {rank} (pid {pid}): {outcome or 'no word about its end'}" + (f": {message}" if message else "")
    detail = {
        "pid": pid,
        "outcome": outcome,
        "message": message,
        "secondary": "yes" if error.get("secondary") else "",
        "ended_unix": str(content.get("ended_unix") or ""),
    }
    return _event("run.rank", name, text, detail, rank)


def _answers(name: str, content: Mapping[str, Any]) -> Iterator[Event]:
    if content.get("moved_unix") is not None:
        yield _event("flight.over", name, "the run moved again after its ranks were asked", {})
        return
    ranks = content.get("ranks")
    for one in ranks if isinstance(ranks, list) else ():
        if not isinstance(one, Mapping) or not isinstance(one.get("rank"), int):
            continue
        state, waits = str(one.get("state") or ""), str(one.get("waits_in") or "")
        said = "answered" if one.get("answered") else "did not answer"
        alive = bool(one.get("alive"))
        text = f"rank {one['rank']} (pid {one.get('pid')}) {said}, {'state ' + state if alive else 'gone'}"
        detail = {
            "pid": str(one.get("pid")),
            "answered": "yes" if one.get("answered") else "",
            "alive": "yes" if alive else "",
            "state": state,
            "waits_in": waits,
        }
        yield _event("flight.answer", name, text + (f" in {waits}" if waits else ""), detail, one["rank"])


def read(line: Line) -> Iterator[Event]:
    """Of one progress record: what it says of an error, or of each rank's own time. The rest there is figures."""
    timed = OWN_TIME in line.text
    if not timed and '"kind":"error"' not in line.text:
        return
    try:
        record = json.loads(line.text)
    except (ValueError, RecursionError):
        return
    if timed and isinstance(record, Mapping):
        times = _times(record)
        own = f"data {times['data_s']}, forward {times['forward_s']}"
        said = f"step {record.get('step')}: {times['step_s']} s; by rank: {own}"
        yield Event("run.step", Line(line.file, line.number, said, said), None, None, None, None, times)
    elif isinstance(record, Mapping):
        rank = record.get("rank")
        detail = {"message": str(record.get("message") or ""), "secondary": "yes" if record.get("secondary") else ""}
        yield Event("run.error", line, line.node, rank if isinstance(rank, int) else None, None, None, detail)


def _times(record: Mapping[str, Any]) -> dict[str, str]:
    """Empty for one that is not known of every rank."""
    found = {"step_s": str(record.get("step_time_s"))}
    for name in ("data_s", "forward_s"):
        figures = record.get(name)
        known = isinstance(figures, list) and all(isinstance(one, (int, float)) for one in figures)
        found[name] = " ".join(map(str, figures)) if known and figures else ""
    return found


def cards(document: Document) -> Iterator[Event]:
    """`run.card`: index, UUID and PCI bus of a card of the node."""
    if document.name.endswith(CARDS):
        for line in document.lines:
            if (m := CARD.match(line.text)) is not None:
                detail = {"uuid": m["uuid"], "bus": m["bus"]}
                yield Event("run.card", line, line.node, None, int(m["index"]), None, detail)


def stacks(document: Document) -> Iterator[Event]:
    """`stack.main`: where the main thread stood, told by faulthandler or py-spy; innermost frame and own one."""
    block: list[tuple[Line, re.Match[str]]] = []
    spied = False
    if not any(mark in line.text for line in document.lines for mark in LITERALS[1:]):
        return
    for line in document.lines:
        if THREAD.match(line.text) or SPIED.match(line.text) or not line.text:
            block, spied = [], SPIED.match(line.text) is not None
        elif (m := (SPIED_FRAME if spied else FRAME).match(line.text)) is not None:
            block.append((line, m))
            if m["name"] == "<module>":
                yield _main(block)
                block = []


def _main(block: list[tuple[Line, re.Match[str]]]) -> Event:
    own = next(((line, m) for line, m in block if not LIBRARY.search(m["path"])), block[0])
    detail = {"top": _place(block[0][1]), "own": _place(own[1])}
    return Event("stack.main", own[0], own[0].node, own[0].rank, None, None, detail)


def _place(m: re.Match[str]) -> str:
    return f"{m['name']} ({m['path'].rpartition('/')[2]}:{m['line']})"
