"""NCCL RAS (`ncclras`, text and JSON) and flight recorder dumps (torchfrtrace's text, JSON, pickle)."""

from __future__ import annotations

import io
import json
import pickle
import re
from collections.abc import Iterator, Mapping
from typing import Any

from agent.formats.event import Event, match, pattern
from agent.formats.line import Line

PATTERNS = (
    pattern("ras.snapshot", "Job summary", r"^Job summary"),
    pattern("ras.missing", "missing rank", r"[Tt]he missing ranks?: (?P<ranks>\d+(?:[-, ]+\d+)*)"),
    pattern(
        "ras.process",
        "managing GPU",
        r"Process (?P<pid>\d+) on node (?P<host>[\w.:-]+) managing GPUs? (?P<gpus>\d+(?:, ?\d+)*)",
    ),
    pattern("ras.dead", "considered dead", r"(?P<count>\d+) job process(?:es)? (?:is|are) considered dead"),
    pattern(
        "ras.count",
        "launched up to operation",
        r"(?P<count>\d+) ranks? (?:has|have) launched up to operation (?P<op>\d+)",
    ),
    pattern(
        "ras.rank",
        "managed by process",
        r"Rank (?P<rank>\d+) -- GPU (?P<gpu>\d+) managed by process (?P<pid>\d+) on node (?P<host>[\w.:-]+)",
    ),
    pattern("ras.status", "RUNNING", r"\bRUNNING\s+(?P<state>OK|MISMATCH|INCOMPLETE|DEAD)\b"),
    pattern("flight.missing", "missing ranks", r"missing ranks: \{(?P<ranks>[\d, ]+)\}"),
    pattern("flight.collective", "collective: ", r"^\s*collective: (?P<op>\S+)"),
    pattern("flight.culprit", "ulprit rank", r"[Cc]ulprit ranks?:? (?P<ranks>\d+(?:, ?\d+)*)"),
    pattern("flight.loaded", "loaded ", r"^loaded (?P<count>\d+) files"),
    pattern("flight.world", "world size: ", r"^world size: (?P<world>\d+)"),
)
LITERALS = ("Job summary", "missing rank", "managing GPU", "considered dead", "launched up to operation",
            "managed by process", "ulprit rank")  # fmt: skip
RANK_IN_NAME = re.compile(r"(\d+)(?:\.(?:json|pkl|pickle|bin))?$")
COMPARED = 16  # newest collectives of a rank held against the other ranks'
DEEPEST = 40  # nesting of a dump that is still read


class NothingButData(pickle.Unpickler):
    """Reads containers, numbers and text; a pickle that names any class or function is refused."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} is not data")


def read(line: Line) -> Iterator[Event]:
    """The events in one line."""
    yield from match(PATTERNS, line, line.body)


def load_dump(raw: bytes) -> Any:
    """A dump's content, or None where the bytes are neither a plain pickle nor JSON."""
    try:
        if raw[:1] == b"\x80":
            return NothingButData(io.BytesIO(raw)).load()
        return json.loads(raw)
    except (ValueError, KeyError, IndexError, EOFError, TypeError, AttributeError, ImportError,
            MemoryError, RecursionError, OverflowError, pickle.UnpicklingError):  # fmt: skip
        return None


def dump_events(name: str, content: Any) -> Iterator[Event]:
    """`flight.last` (newest collective of each group this rank has entered) or the findings of a RAS JSON report."""
    if not isinstance(content, Mapping):
        return
    entries = content.get("entries")
    if isinstance(entries, list):
        yield from _flight(name, entries, content.get("rank"))
    else:
        yield from _ras_json(name, content, 0)


def _flight(name: str, entries: list[Any], told: object) -> Iterator[Event]:
    m = RANK_IN_NAME.search(name)
    rank = told if isinstance(told, int) else int(m[1]) if m else None
    newest: dict[str, Mapping[str, Any]] = {}
    for entry in entries:
        if isinstance(entry, Mapping) and isinstance(entry.get("collective_seq_id"), int) and not entry.get("is_p2p"):
            newest[_group(entry)] = max((newest.get(_group(entry), entry), entry), key=lambda e: e["collective_seq_id"])
    for group, entry in newest.items():
        seq, op = str(entry["collective_seq_id"]), str(entry.get("profiling_name", ""))
        sizes, state = str(entry.get("input_sizes", "")), str(entry.get("state", ""))
        text = f"rank {rank}, group {group}: newest collective {seq} {op} {sizes} {state}"
        detail = {"group": group, "seq": seq, "op": op, "sizes": sizes, "state": state}
        if isinstance(entry.get("retired"), bool):
            detail |= {"retired": "yes" if entry["retired"] else "", "calls": _calls(entries, group)}
        yield Event("flight.last", Line(name, 1, text, text), None, rank, None, None, detail)


def _calls(entries: list[Any], group: str) -> str:
    """The newest collectives of a group by number, as a JSON object: what was called with which sizes."""
    own = [e for e in entries if isinstance(e, Mapping) and not e.get("is_p2p") and _group(e) == group]
    return json.dumps(
        {
            str(e["collective_seq_id"]): f"{e.get('profiling_name')} {e.get('input_sizes')}"
            for e in own[-COMPARED:]
            if isinstance(e.get("collective_seq_id"), int)
        }
    )


def _group(entry: Mapping[str, Any]) -> str:
    found = entry.get("process_group") or entry.get("pg_name") or entry.get("pg_id") or "0"
    return str(found[0]) if isinstance(found, (list, tuple)) and found else str(found)


def _ras_json(name: str, content: object, depth: int) -> Iterator[Event]:
    if depth > DEEPEST:
        return
    if isinstance(content, Mapping):
        for key, value in content.items():
            if re.search(r"(?i)missing|dead", str(key)) and isinstance(value, list):
                yield from (_absent(name, item) for item in value if isinstance(item, Mapping) and "rank" in item)
            else:
                yield from _ras_json(name, value, depth + 1)
    elif isinstance(content, list):
        for item in content:
            yield from _ras_json(name, item, depth + 1)


def _absent(name: str, item: Mapping[Any, Any]) -> Event:
    node = item.get("host") or item.get("node")
    gpu = item.get("nvml_dev", item.get("cuda_dev"))
    text = f"missing rank: {item['rank']} on {node}"
    return Event("ras.missing", Line(name, 1, text, text), str(node) if node else None, None,
                 gpu if isinstance(gpu, int) else None, None, {"ranks": str(item["rank"])})  # fmt: skip
