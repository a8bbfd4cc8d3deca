"""`tunedeck export RUN`: the trained adapter or model in a folder here, loaded again and compared before it left."""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent import wire
from console.commands.asking import add_run
from console.commands.reach import answer, located, opened, turn_until
from console.commands.snapshots import list_of, named
from console.commands.table import show_json
from console.failure import SSH, Failure
from console.format import figure, size
from console.session import Session
from console.strings import _
from console.transfer import SLICE_BYTES, File, Pull

MAKING_S = 3600.0
SLICE_S = 30.0
PATIENCE_S = 1800.0
"""How long a node may stay away before a transfer gives up; what has arrived is kept."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument(
        "--snapshot", metavar="NAME|STEP", help=_("a snapshot, or `newest`; without it the final result")
    )
    parser.add_argument("--out", type=Path, metavar="FOLDER", help=_("where to (./RUN-SNAPSHOT)"))


def run(args: argparse.Namespace) -> int:
    with opened(args) as session:
        found = located(session, args.run, args.on, args.timeout)
        wanted = args.snapshot
        if wanted is not None and wanted != "newest":
            wanted = named(list_of(session, found), wanted)
        say(_("{node} loads and compares the export…").format(node=found.node))
        made = answer(session, found.node, wire.Export(found.state.run, wanted), MAKING_S).result
        files = [File.listed(entry) for entry in made["files"]]
        target = args.out or Path(f"{found.state.run}-{Path(str(made['source'])).name}")
        source = FromNode(session, found.node, found.state.run, str(made["folder"]))
        fetched = Pull(source, files, target, progress if sys.stderr.isatty() else ignored).run()
        told(args, found.node, made, target, fetched)
        return 0


def told(args: argparse.Namespace, node: str, made: dict[str, Any], target: Path, fetched: int) -> None:
    total = sum(int(entry["bytes"]) for entry in made["files"])
    if args.json:
        facts = {"source": made["source"], "difference": made["difference"], "files": made["files"]}
        show_json({"node": node, "folder": str(target.absolute()), "bytes": total, "fetched_bytes": fetched, **facts})
        return
    said = _("{source} is in {target}: {count} files, {size}, every SHA-256 verified")
    print(said.format(source=made["source"], target=target, count=len(made["files"]), size=size(total)))
    said = _("loaded again on {node} in a fresh process, its logits differ by at most {difference}")
    print(said.format(node=node, difference=figure(made["difference"])))


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def progress(done: int, total: int) -> None:
    print(f"\r{size(done)} / {size(total)}  ", end="\n" if done >= total else "", file=sys.stderr, flush=True)


def ignored(_done: int, _total: int) -> None:
    return


@dataclass(slots=True)
class FromNode:
    """An export's files by ReadExport over a link that may come and go."""

    session: Session
    node: str
    run: str
    folder: str

    def ask(self, path: str, offset: int, limit_bytes: int) -> Future[wire.Reply]:
        return self.session.ask(self.node, wire.ReadExport(self.run, self.folder, path, offset, limit_bytes), SLICE_S)

    def result(self, path: str, offset: int, future: Future[wire.Reply]) -> dict[str, Any]:
        since, refused = time.monotonic(), False
        while True:
            self.wait(future)
            reply = future.result(timeout=0) if future.done() else wire.Reply("", False, error=_("no answer"))
            if reply.ok:
                return reply.result
            link = self.session.fleet.nodes[self.node].link
            if refused and link.phase == "live":
                raise Failure(f"{self.node}: {reply.error}", reply.hint)
            if time.monotonic() - since > PATIENCE_S:
                hint = _("What has arrived is kept; the same command goes on from there.")
                raise Failure(f"{self.node}: {link.why or reply.error}", hint, SSH)
            if link.phase != "live":
                self.away(link.why or reply.error)
            refused = link.phase == "live"  # the first time it may have been the deadline that passed while it was away
            future = self.ask(path, offset, SLICE_BYTES)

    def wait(self, future: Future[wire.Reply]) -> None:
        """Until the answer is there, or its deadline has passed, and what the link said with it is known."""
        turn_until(self.session, future.done, SLICE_S + 5.0)
        self.session.pump()

    def away(self, why: str) -> None:
        say(_("{node} is away ({why}); the transfer waits").format(node=self.node, why=why))
