"""`tunedeck bench allreduce`: how fast the GPUs of a node talk to each other, as a run of its own kind."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import yaml

from agent import wire
from console.commands.reach import answer, only_node, opened, turn_until
from console.commands.table import lines
from console.config import folders
from console.fabric import Baselines, Past, against_links, against_past
from console.failure import Failure
from console.fleet import Node
from console.format import clock
from console.session import Session
from console.strings import _
from jobs.fabric.collectives import COLLECTIVES, HEADER, UNITS, Row, cells
from jobs.fabric.expected import FAULT, Grade

WORDS = {name.replace("_", ""): name for name in COLLECTIVES}
LAUNCH_S = 120.0
CPU_RANKS = 2
LONGEST_S = 7200.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=[*WORDS, "all"], help=_("the collective to measure; all five with `all`"))
    parser.add_argument("--on", metavar="NODE", help=_("the node to measure on; needed when there is more than one"))
    parser.add_argument(
        "--ranks", type=int, metavar="N", help=_("processes, with CUDA one GPU each (all GPUs; 2 on a CPU)")
    )
    parser.add_argument(
        "--largest-mib", type=int, metavar="MIB", default=8192, help=_("largest size, if memory allows (8192)")
    )
    parser.add_argument(
        "--device", choices=["auto", "cpu", "cuda"], default="auto", help=_("NCCL on cuda, gloo on cpu")
    )
    parser.add_argument("--python", metavar="PATH", help=_("the node's interpreter that has torch"))
    parser.add_argument(
        "--force", action="store_true", help=_("measure although GPUs are busy, which disturbs who uses them")
    )


def run(args: argparse.Namespace) -> int:
    with opened(args) as session:
        node = only_node(session, args.on, args.timeout)
        text = spec_text(args, session)
        reply = answer(session, node, wire.Launch(text, "bench.yaml", args.force), LAUNCH_S)
        started = str(reply.result["run"])
        print(_("measuring on {node} as {run}").format(node=node, run=started), file=sys.stderr, flush=True)
        try:
            records = awaited(session, node, started)
        except KeyboardInterrupt:
            answer(session, node, wire.Kill(started, grace_s=5.0), LAUNCH_S)
            raise
        state = session.fleet.nodes[node].state.runs.get(started)
        if state is None or state.reason != "completed":
            detail = state.detail if state is not None else ""
            hint = _("`tunedeck logs {run}` shows why.").format(run=started)
            raise Failure(_("{node}: the measurement did not complete: {why}").format(node=node, why=detail), hint)
        return told(args, session.fleet.nodes[node], started, records)


def spec_text(args: argparse.Namespace, session: Session) -> str:
    """The spec of the run; without --ranks, one for each real GPU of the node."""
    node = next(iter(session.fleet.nodes.values())) if args.on is None else session.fleet.nodes[args.on]
    real = sum(not gpu.simulated and not gpu.lost for gpu in node.state.gpus.values())
    ranks = args.ranks or (real if real and args.device != "cpu" else CPU_RANKS)
    spec: dict[str, Any] = {
        "name": f"bench-{args.what}",
        "kind": "bench",
        "hardware": {"processes": ranks, "device": args.device},
        "bench": {
            "collectives": list(COLLECTIVES) if args.what == "all" else [WORDS[args.what]],
            "largest_mib": args.largest_mib,
        },
    }
    if args.python:
        spec["python"] = str(Path(args.python))
    return yaml.safe_dump(spec, sort_keys=False)


def awaited(session: Session, node: str, run: str) -> list[dict[str, Any]]:
    """All that the run said, once it has ended; lost links are waited out."""

    def ended() -> bool:
        state = session.fleet.nodes[node].state.runs.get(run)
        return state is not None and state.phase == "ended"

    if not turn_until(session, ended, LONGEST_S):
        raise Failure(_("{node}: {run} has not ended after two hours").format(node=node, run=run))
    records: list[dict[str, Any]] = []
    offset = 0
    while True:
        result = answer(session, node, wire.Progress(run, offset)).result
        records += result["records"]
        if int(result["next"]) >= int(result["size"]) or int(result["next"]) == offset:
            return records
        offset = int(result["next"])


def told(args: argparse.Namespace, node: Node, run: str, records: list[dict[str, Any]]) -> int:
    """Print what was measured and what it means. 1 for wrong values and for a fault."""
    rows = [Row.from_json(record) for record in records if record.get("kind") == "bench"]
    start = next((r for r in records if r.get("kind") == "bench_start"), {})
    about = {"node": node.name, "run": run, **{k: start.get(k) for k in ("ranks", "backend", "device", "card")}}
    before = Baselines.read(folders(os.environ)[1])
    past = against_past(rows, node.name, str(about["backend"]), before)
    links = against_links(rows, node.state)
    before.save()
    if args.json:
        for row in rows:
            print(json.dumps({**about, **row.to_json()}))
    else:
        print(heading(about))
        print("\n".join(lines(HEADER, [list(UNITS), *cells(rows)])))
        print("\n".join(meaning(links, past)))
    for one in (r for r in records if r.get("kind") == "bench_absent"):
        words = _("{collective} was not measured: {why}")
        print(words.format(collective=one.get("collective"), why=one.get("why")), file=sys.stderr)
    wrong = [row for row in rows if row.wrong]
    if wrong:
        words = _("{count} results hold WRONG VALUES: do not train on this node before that is explained")
        print(words.format(count=len(wrong)), file=sys.stderr)
    fault = any(one.grade == FAULT for one in (links, *past.values()) if one is not None)
    return 1 if wrong or fault else 0


def meaning(links: Grade | None, past: dict[str, Past]) -> list[str]:
    """The all-reduce against what the links should give, and each collective against this node's own past."""
    said = [_("links: not judged; that takes two GPUs of a known kind and a size of 1 GiB")]
    if links is not None:
        said = [_("links: {words}").format(words=links.words)]
        said.append(_("  by: {source}").format(source=links.expected.source))
    words = _("past: {collective} {grade}: {percent:.0f}% of the median of {times} measurements since {since}")
    for collective, one in past.items():
        since = clock(one.since_unix)
        said.append(
            words.format(collective=collective, grade=one.grade, percent=one.percent, times=one.times, since=since)
        )
    if not past:
        said.append(_("past: too few measurements of this node with these ranks and sizes to compare with"))
    return said


def heading(about: dict[str, Any]) -> str:
    words = _("{ranks} ranks on {node}, {backend}, {device}; GB/s are 10⁹ bytes, Gb/s 10⁹ bits a second")
    return words.format(**{**about, "device": about["card"] or about["device"]})
