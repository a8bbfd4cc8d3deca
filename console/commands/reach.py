"""How commands get at the nodes: a session for as long as the command runs, and answers or one clear failure."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import configs
from agent import wire
from console.commands.asking import answer_one
from console.config import Config, ConfigError, load
from console.failure import SSH, USAGE, Failure
from console.fleet import Node, Run
from console.session import Session
from console.strings import _

TURN_S = 0.02


def configured(args: argparse.Namespace) -> Config:
    """Raises Failure for anything wrong in flags, environment or files, and when there is no node at all."""
    try:
        config = load(
            nodes=[args.nodes] if args.nodes else [],
            read_only=True if args.read_only else None,
            accept_host_keys=args.accept_host_key,
        )
    except ConfigError as error:
        raise Failure(str(error), status=USAGE) from error
    if not config.nodes:
        hint = _("Name hosts with -w host1,host2, or write {file}; {example} shows how.")
        example = configs.path("fleet.example.yaml")
        raise Failure(_("no nodes are configured"), hint.format(file=config.fleet_file, example=example), USAGE)
    return config


def session_over(config: Config) -> Session:
    """A session, not yet started, over the nodes of the configuration."""
    from console.link import connector

    return Session([target.name for target in config.nodes], connector(config))


@contextmanager
def opened(args: argparse.Namespace) -> Iterator[Session]:
    session = session_over(configured(args))
    session.start()
    try:
        yield session
    finally:
        session.close()


def turn_until(session: Session, done: Callable[[], bool], timeout_s: float) -> bool:
    """Pump until `done` or the time is over."""
    deadline = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > deadline:
            return False
        if not session.pump():
            time.sleep(TURN_S)
    return True


def settle(session: Session, timeout_s: float, only: str | None = None) -> None:
    """Wait until every node (or `only` that one) has told its state or why it cannot."""
    nodes = [n for n in session.fleet.nodes.values() if only in (None, n.name)]
    tries: Counter[tuple[str, str]] = Counter()
    turn_until(session, lambda: all(told(n) or n.link.phase == "down" for n in nodes), timeout_s)
    while answer_one(session, nodes, tries):
        turn_until(session, lambda: all(told(n) or n.link.phase == "down" for n in nodes), timeout_s)


def told(node: Node) -> bool:
    """Its state is here, GPUs included: a new agent is there before its first reading of them."""
    return node.level_at is not None and bool(node.state.gpus or node.state.host.gpu_note)


def answer(session: Session, node: str, body: wire.Body, deadline_s: float = 30.0) -> wire.Reply:
    """The node's reply to an order. Raises Failure when it refuses."""
    future = session.ask(node, body, deadline_s)
    turn_until(session, future.done, deadline_s + 5.0)
    reply = future.result(timeout=0) if future.done() else wire.Reply("", False, error=_("no answer"))
    if not reply.ok:
        status = 1 if session.fleet.nodes[node].link.phase == "live" else SSH
        raise Failure(f"{node}: {reply.error}", reply.hint, status)
    return reply


def only_node(session: Session, named: str | None, timeout_s: float) -> str:
    """The node the user means, once it answers. Raises Failure when that is unclear or it does not."""
    names = list(session.fleet.nodes)
    if named is None and len(names) > 1:
        raise Failure(_("which node? there are {names}").format(names=", ".join(names)), _("add --on NODE"), USAGE)
    name = named or names[0]
    if name not in session.fleet.nodes:
        known = _("known nodes: {names}").format(names=", ".join(names))
        raise Failure(_("there is no node called {name}").format(name=name), known, USAGE)
    settle(session, timeout_s, only=name)
    link = session.fleet.nodes[name].link
    if session.fleet.nodes[name].level_at is None:
        raise Failure(f"{name}: {link.why or _('does not answer')}", link.hint, SSH)
    return name


def located(session: Session, run: str, named: str | None, timeout_s: float) -> Run:
    """The one run the user means. Raises Failure when there is none or more than one."""
    settle(session, timeout_s, only=named)
    found = [r for r in session.fleet.find(run) if named in (None, r.node)]
    if len(found) == 1:
        return found[0]
    if found:
        listed = "\n  ".join(f"{r.state.run} on {r.node}" for r in found[:10])
        raise Failure(_("{run} may mean any of these; give the whole id:").format(run=run), listed, USAGE)
    silent = report_unreachable(session)
    hint = _("`tunedeck ps --all` lists the runs of the nodes that answer.")
    raise Failure(_("no run is called {run}").format(run=run), hint, SSH if silent else 1)


def report_unreachable(session: Session, names: Iterable[str] | None = None) -> bool:
    """Say on stderr which nodes (of those named) are missing from the answer. True when there are any."""
    asked = session.fleet.nodes.values() if names is None else [session.fleet.nodes[name] for name in names]
    silent = [n for n in asked if n.level_at is None]
    for node in silent:
        why = node.link.why or _("does not answer")
        print(f"tunedeck: {node.name}: {why}" + (f"\n  {node.link.hint}" if node.link.hint else ""), file=sys.stderr)
    return bool(silent)
