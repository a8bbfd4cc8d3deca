"""nccl-tests output, old (`[0x3d]`, `error`) and new (`[0000:3d:00]`, `#wrong`), and tables of pairs of nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agent.formats.event import Event, make
from agent.formats.line import Document, Line

OPTIONS = re.compile(r"nThread \d+ nGpus (?P<ngpus>\d+) minBytes \d+ maxBytes (?P<max_bytes>\d+)")
RANK = re.compile(
    r"Rank +(?P<rank>\d+) +(?:Group +\d+ +)?Pid +(?P<pid>\d+) on +(?P<host>[\w.-]+) device +(?P<dev>\d+) "
    r"\[(?P<bus>[0-9a-fA-Fx:.]+)\] *(?P<name>.*)"
)
COLUMNS = re.compile(r"\bsize +count\b.*\bbusbw\b")
ROW = re.compile(
    r"^\s*(?P<size>\d+) +\d+ +(?P<type>[a-z]\w+) +(?:(?P<op>[a-z]\w+) +)?(?:-?\d+ +)?"
    r"[\d.]+ +[\d.]+ +(?P<out>[\d.]+) +\S+"
    r"(?: +[\d.]+ +[\d.]+ +(?P<in>[\d.]+) +\S+)?\s*$"
)
AVERAGE = re.compile(r"Avg bus bandwidth\s*: *(?P<average>[\d.]+)")
LINES = (("bench.start", "nThread", OPTIONS), ("bench.rank", "Rank ", RANK), ("bench.columns", "busbw", COLUMNS),
         ("bench.end", "Avg bus", AVERAGE))  # fmt: skip
DEVICE = re.compile(r"^\s*Device\s+: (?P<nic>\w+)")
PERFTEST_ROW = re.compile(r"^\s*\d+\s+\d+\s+[\d.]+\s+(?P<average>[\d.]+)\s+[\d.]+\s*$")
LITERALS = ("BW average", "nThread ", "Avg bus bandwidth", " Pid ", "busbw")
HOST = re.compile(r"[A-Za-z][\w.-]*\d[\w.-]*|[A-Za-z][\w.-]*-[\w.-]+")
LONGEST_PAIR_LINE = 600  # a matrix of 64 nodes
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def read(line: Line) -> Iterator[Event]:
    """The events in one line. Rows give the better of out-of-place and in-place bus bandwidth in GB/s."""
    for kind, literal, expression in LINES:
        if literal in line.body and (m := expression.search(line.body)) is not None:
            yield make(kind, line, {k: v for k, v in m.groupdict().items() if v is not None})
    m = ROW.match(line.body)
    if m is not None:
        best = max(float(m["out"]), float(m["in"] or 0))
        yield Event("bench.row", line, detail={"size": m["size"], "busbw": str(best)})


def perftest(document: Document) -> Iterator[Event]:
    """`perftest.row` events of ib_write_bw and its sisters: Gbit/s of each message size, the device, the node."""
    nic, in_mib = "", False
    for line in document.lines:
        if (m := DEVICE.search(line.body)) is not None:
            nic = m["nic"]
        elif "BW average" in line.body:
            in_mib = "MiB/sec" in line.body
        elif nic and (m := PERFTEST_ROW.match(line.body)) is not None:
            gbps = float(m["average"]) * (8.388608e-3 if in_mib else 1.0)
            yield Event("perftest.row", line, line.node or document.node, None, None, nic, {"gbps": str(gbps)})


def pairs(document: Document) -> Iterator[Event]:
    """`pair` events (node A, node B, GB/s) from a matrix with host names on both sides, or from A,B,value rows."""
    columns: list[str] = []
    for line in document.lines:
        if len(line.body) > LONGEST_PAIR_LINE:
            continue
        words = line.body.replace("|", " ").split()
        yield from _csv_pair(line)
        if len(words) >= 3 and all(HOST.fullmatch(w) for w in words):
            columns = words
        elif columns and words and words[0] in columns and len(words) == len(columns) + 1:
            yield from _matrix_row(line, words, columns)


def _csv_pair(line: Line) -> Iterator[Event]:
    cells = [c.strip() for c in line.body.split(",")] if line.body.count(",") == 2 else []
    if cells and HOST.fullmatch(cells[0]) and HOST.fullmatch(cells[1]) and NUMBER.fullmatch(cells[2]):
        yield Event("pair", line, detail={"a": cells[0], "b": cells[1], "busbw": cells[2]})


def _matrix_row(line: Line, words: list[str], columns: list[str]) -> Iterator[Event]:
    for column, value in zip(columns, words[1:], strict=True):
        if NUMBER.fullmatch(value) and column != words[0]:
            yield Event("pair", line, detail={"a": words[0], "b": column, "busbw": value})
