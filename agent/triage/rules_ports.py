"""A machine that cannot reach its own ports, in a run that never leaves it: which port, on which interface."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agent.formats.event import Event
from agent.triage.case import Case
from agent.triage.rule import REFUSED, Finding, finding, listed, rule

LOOPBACK = re.compile(r"127\..*|::1|localhost")
UNANSWERED = re.compile(r"(?i)timed? ?out|no route|prohibited|unreachable")


@rule("A machine reaches itself whatever its network does: a port of its own that does not answer is filtered there.")
def own_ports(case: Case) -> Iterator[Finding]:
    if not case.alone():
        return
    tries = [e for e in case.of("c10d.gloo", "c10d.client_timeout") if e.get("peer") and (e.number("port") or 0) > 0]
    tries = [e for e in tries if _own(case, e) and UNANSWERED.search(e.line.body)]
    if tries and not case.has("app.train"):
        ends = list(dict.fromkeys(f"{port(e)} of {e.get('peer')}" for e in tries))
        nics = list(dict.fromkeys(name for e in tries if (name := interface(case, e.get("peer")))))
        on = f" on {listed(nics)}" if nics else ""
        yield finding("net.port-blocked", REFUSED + 1, tries[:2], nodes=[case.layout.sole_node()], nics=nics,
                      why=f"nothing gets through to port {listed(ends)}{on}, which is the machine's own",
                      confidence=0.9)  # fmt: skip


def _own(case: Case, event: Event) -> bool:
    peer = event.get("peer")
    return LOOPBACK.fullmatch(peer) is not None or case.layout.resolve(peer) == case.layout.sole_node()


def port(event: Event) -> int:
    """gloo swaps the bytes of a port that it prints with the number of a pair, as in 397$0 for 36097."""
    said = int(event.get("port")) & 0xFFFF
    return int.from_bytes(said.to_bytes(2, "little"), "big") if event.get("pair") else said


def interface(case: Case, address: str) -> str:
    """The name of the interface that has this address; empty where the node did not say."""
    if LOOPBACK.fullmatch(address):
        return "lo"
    return next((e.get("iface") for e in case.of("host.own_address") if e.get("addr") == address), "")
