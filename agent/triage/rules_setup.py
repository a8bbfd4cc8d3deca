"""Communicators that cannot form: versions, environments, messages of another job, shared devices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from agent.triage.case import Case
from agent.triage.rule import CONFIGURED, SLOW, Finding, finding, listed, minority, rule

# Variables that may well differ from node to node.
PER_NODE = frozenset(
    {"NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_TOPO_FILE", "NCCL_DEBUG_FILE", "NCCL_COMM_ID", "NCCL_IB_GID_INDEX"}
)


@rule("Nodes whose NCCL variables or networks differ do not understand each other.")
def environments(case: Case) -> Iterator[Finding]:
    if case.ran() or not (case.stopped() or case.hung_in_init()):
        return
    values: dict[str, dict[object, list[str]]] = defaultdict(lambda: defaultdict(list))
    for event in case.of("nccl.env"):
        if event.get("name") not in PER_NODE:
            _add(values[event.get("name")][event.get("value")], event.node)
    for event in case.of("nccl.network"):
        _add(values["network"][event.get("network").split()[0]], event.node)
    for name, groups in values.items():
        if len(groups) > 1 and len({n for nodes in groups.values() for n in nodes}) > 1:
            shown = [e for e in case.of("nccl.env") if e.get("name") == name] or case.of("nccl.network")
            yield finding("nccl.config-mismatch", SLOW + 4, shown, nodes=minority(groups), confidence=0.7,
                          why=f"{name} is {listed(list(groups))} on different nodes")  # fmt: skip
            return


def _add(nodes: list[str], node: str | None) -> None:
    if node and node not in nodes:
        nodes.append(node)


@rule("NCCL refuses ranks of different versions; the rarer version, or the one that differs from rank 0's, is odd.")
def versions(case: Case) -> Iterator[Finding]:
    told = case.of("nccl.versions")
    if not told:
        return
    by_version: dict[str, list[str]] = defaultdict(list)
    for event in case.of("nccl.version"):
        if event.node and event.node not in by_version[event.get("version")]:
            by_version[event.get("version")].append(event.node)
    ranks = {e.rank for e in told if e.rank not in (None, 0)} or {int(e.get("other")) for e in told}
    fewest = min(map(len, by_version.values()), default=0)
    rare = [n for nodes in by_version.values() if len(nodes) == fewest for n in nodes] if len(by_version) > 1 else []
    nodes = [n for r in ranks if (n := case.layout.node(r))] or rare
    if len(rare) and sum(map(len, by_version.values())) > 2:
        nodes = rare
    yield finding("nccl.version-mismatch", CONFIGURED, [*told[:1], *case.of("nccl.version")[:2]], nodes=nodes,
                  why="its NCCL is of another version", confidence=0.95)  # fmt: skip


@rule("Bootstrap messages of the wrong size come from another communicator or another environment.")
def truncated(case: Case) -> Iterator[Finding]:
    cut = case.of("nccl.truncated")
    if cut:
        shown = [*cut[:1], *case.of("signature.reused-id")[:1], *case.env("NCCL_COMM_ID")[:1]]
        yield finding("nccl.config-mismatch", CONFIGURED - 2, shown, nodes=case.nodes(cut), ranks=[e.rank for e in cut],
                      why="its bootstrap receives messages of another communicator")  # fmt: skip


@rule("Two ranks on one device: both are named.")
def duplicates(case: Case) -> Iterator[Finding]:
    told = case.of("nccl.duplicate")
    generic = case.of("signature.shared-gpu")
    if told or generic:
        ranks = [r for e in told for r in (e.rank, int(e.get("other")))]
        yield finding("nccl.duplicate-gpu", CONFIGURED, [*told[:4], *generic[:1]], nodes=case.nodes([*told, *generic]),
                      ranks=ranks, why="two ranks use the same GPU", confidence=0.95)  # fmt: skip
