"""Interfaces, ports, rendezvous and stores."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from agent.formats.event import Event
from agent.triage.case import Case
from agent.triage.layout import ADDRESS
from agent.triage.rule import CONFIGURED, FAILED, REFUSED, Finding, finding, listed, minority, rule

# Interfaces that never reach another machine: loopback, container and hypervisor bridges, overlays.
LOCAL_IFACE = re.compile(
    r"lo\d*|docker.*|br-.*|virbr.*|veth.*|cni.*|flannel.*|cali.*|tunl.*|podman.*|lxc.*|lxd.*|vmnet.*|vboxnet.*|cilium.*"
    r"|kube-.*|nodelocaldns|dummy.*|tailscale.*|zt.*|wg\d*|weave.*|usb\d*|nerdctl.*"
)
LOCAL_ADDRESS = re.compile(r"127\..*|169\.254\..*|::1|fe80:.*|172\.17\.0\.1|192\.168\.122\.1")
BLOCKED = re.compile(r"No route to host|timed out|[Uu]nreachable|exceeded")
SIDECAR = re.compile(r"istio-proxy|linkerd-proxy|envoy")


def _interfaces(case: Case) -> dict[str, Event]:
    """The interface each node chose to meet the others."""
    chosen: dict[str, Event] = {}
    for event in case.of("nccl.bootstrap", "nccl.socket"):
        if event.node:
            chosen.setdefault(event.node, event)
    return chosen


def _never_met(case: Case) -> bool:
    """The job failed or hung before its ranks had all connected."""
    early = [e for e in case.timed_out().values() if (e.number("seq") or 99) <= 3]
    return not case.ran() and (case.hung_in_init() or case.has("nccl.connect", "nccl.closed") or bool(early))


def _several_nodes(case: Case) -> bool:
    started = {e.node for e in case.of("nccl.init")}
    return len(case.layout.nodes) > 1 or (
        len(started) == 1 and (case.layout.size() or 0) > len(case.layout.node_of) > 0
    )


@rule("An address that exists on several nodes, or that never leaves its machine, cannot connect nodes.")
def local_interface(case: Case) -> Iterator[Finding]:
    chosen = _interfaces(case)
    if not _never_met(case) or not _several_nodes(case):
        return
    owners: dict[str, set[str]] = defaultdict(set)
    for node, event in chosen.items():
        owners[event.get("addr")].add(node)
    bad = {
        node: e
        for node, e in chosen.items()
        if LOCAL_IFACE.fullmatch(e.get("iface"))
        or LOCAL_ADDRESS.fullmatch(e.get("addr"))
        or len(owners[e.get("addr")]) > 1
    }
    if bad:
        yield _wrong_interface(case, bad, CONFIGURED + 3, 0.95)
        return
    looped = [e for e in case.of("nccl.connect") if e.node and LOCAL_ADDRESS.fullmatch(e.get("peer"))]
    if looped:
        yield finding("net.socket-ifname-wrong", CONFIGURED, looped, nodes=case.nodes(looped), nics=["lo"],
                      why="it calls its own loopback address", confidence=0.8)  # fmt: skip


@rule("Where nodes cannot meet, a node whose interface lies in another network than the rest is the odd one.")
def odd_interface(case: Case) -> Iterator[Finding]:
    chosen = _interfaces(case)
    if not _never_met(case) or len(chosen) < 2 or not case.has("nccl.connect"):
        return
    networks: dict[object, list[str]] = defaultdict(list)
    for node, event in chosen.items():
        networks[".".join(event.get("addr").split(".")[:2])].append(node)
    odd = minority(networks)
    if odd:
        yield _wrong_interface(case, {n: chosen[n] for n in odd}, REFUSED + 1, 0.75)


def _wrong_interface(case: Case, bad: dict[str, Event], weight: float, confidence: float) -> Finding:
    names = listed([f"{n}: {e.get('iface')} {e.get('addr')}" for n, e in bad.items()])
    return finding(
        "net.socket-ifname-wrong", weight, [*bad.values(), *case.of("nccl.connect")[:2]], nodes=bad,
        nics=(e.get("iface") for e in bad.values()), why=f"the other nodes cannot reach {names}", confidence=confidence,
    )  # fmt: skip


def _warned(case: Case, expression: str) -> list[Event]:
    wanted = re.compile(expression)
    return [e for e in case.of("nccl.warn") if wanted.search(e.get("message"))]


@rule("NCCL found no address: with a name set, the name is wrong; without one, the host has no interface for it.")
def no_interface(case: Case) -> Iterator[Finding]:
    missing = _warned(case, r"family \d+ is neither AF_INET|no socket interface found|No interface (?:found|matching)")
    missing = missing or case.of("signature.no-interface")
    named = [*case.env("NCCL_SOCKET_IFNAME"), *case.of("nccl.ifname")]
    nameless = _warned(case, r"Socket creation failed ?: Address family not supported")
    if missing and (named or "family" in missing[0].get("message")):
        nics = [e.get("value").lstrip("=^").split(",")[0] for e in named[:1]]
        yield finding(
            "net.socket-ifname-missing", CONFIGURED, [*named[:1], *missing[:2]], nodes=case.nodes(missing), nics=nics,
            why="NCCL_SOCKET_IFNAME names an interface that this node does not have", confidence=0.95,
        )  # fmt: skip
    elif missing or nameless:
        yield finding(
            "net.no-ip-interface", CONFIGURED, [*nameless, *missing], nodes=case.nodes([*nameless, *missing]),
            why="there is no IP interface besides loopback", confidence=0.9,
        )  # fmt: skip


@rule("A host that answers ssh but whose port gives 'no route' or no answer is behind a filter: the listener's own.")
def port_blocked(case: Case) -> Iterator[Finding]:
    firewall = case.of("host.firewall")
    tries = [e for e in case.of("nccl.connect") if BLOCKED.search(e.get("error")) or firewall]
    tries += [e for e in case.of("c10d.client_failed") if e.get("errno") == "113"]
    if not tries or case.ran():
        return
    peers = [case.layout.resolve(e.get("peer")) for e in tries if e.get("peer")]
    nodes = list(dict.fromkeys(peers)) or case.nodes(firewall)
    if firewall and len(nodes) != 1:
        nodes = case.nodes(firewall) or nodes
    yield finding(
        "net.port-blocked", REFUSED, [*[e for e in tries if e.get("peer")][:2], *tries[:1], *firewall[:2]], nodes=nodes,
        why="connections to its ports do not get through although the host is up", confidence=0.85,
    )  # fmt: skip


@rule("A service-mesh proxy takes NCCL's raw TCP connections before they reach the rank.")
def proxy_sidecar(case: Case) -> Iterator[Finding]:
    proxies = case.of("signature.sidecar")
    if (
        proxies
        and not case.ran()
        and (case.hung_in_init() or case.stopped() or case.has("nccl.connect", "nccl.closed"))
    ):
        yield finding(
            "net.proxy-sidecar", CONFIGURED, [*proxies[:2], *case.began()[:1]], why=proxies[0].line.body.strip()
        )


@rule("A peer that is no node of the job closed or garbled a bootstrap connection: something scanned the port.")
def stray_connection(case: Case) -> Iterator[Finding]:
    garbled = _warned(case, r"(?i)\bmagic\b|wrong type|invalid (?:header|handshake)")
    strangers = [
        e for e in case.of("nccl.closed")
        if ADDRESS.fullmatch(e.get("peer")) and case.layout.addresses and not case.layout.knows(e.get("peer"))
    ]  # fmt: skip
    if (strangers and not case.ran()) or garbled:
        who = strangers[0].get("peer") if strangers else "an unknown client"
        yield finding(
            "net.stray-connection", REFUSED + 2, [*strangers, *garbled], why=f"{who} is not a node of this job"
        )


@rule("The address is taken: another process listens on the rendezvous port.")
def port_in_use(case: Case) -> Iterator[Finding]:
    taken = case.of("signature.port-in-use")
    if taken and (case.stopped() or not case.has("app.train")):
        ports = {m[1] for e in taken if (m := re.search(r":(\d{2,5})\b", e.line.body))}
        listeners = [e for e in case.of("host.listen") if e.get("port") in ports]
        yield finding(
            "rdzv.port-in-use", REFUSED + 2, [*taken[:2], *listeners], nodes=case.nodes([*taken, *listeners])[:1],
            why="another process already listens on the port", confidence=0.95,
        )  # fmt: skip


@rule("A name that does not resolve stops the rank that asks for it.")
def name_resolution(case: Case) -> Iterator[Finding]:
    names = case.of("signature.name-resolution")
    if names and case.stopped() and not case.ran():
        yield finding("rdzv.hostname-resolution", REFUSED + 1, names, nodes=case.nodes(names), ranks=_ranks(names),
                      why="the host name of the rendezvous does not resolve there")  # fmt: skip


def _ranks(events: list[Event]) -> list[int | None]:
    return [e.rank for e in events]


@rule("The store waits for clients: those that call another port, or that never call, are missing.")
def clients_missing(case: Case) -> Iterator[Finding]:
    short = [e for e in case.of("c10d.clients") if e.get("joined") != e.get("expected")]
    if not short:
        return
    ports = {e.get("port") for e in case.of("c10d.store_port")}
    tries = case.of("c10d.client_failed", "c10d.client_timeout")
    astray = [e for e in tries if e.get("port") and e.get("port") not in ports] if ports else tries
    why = "they call another port than the store's" if astray and ports else "they never reached the store"
    ranks = _ranks(astray) or _never_heard(case, short[0])
    yield finding("rdzv.clients-missing", REFUSED, [*short[:1], *astray[:2], *case.of("c10d.store_port")[:1]],
                  ranks=ranks, nodes=case.nodes(astray), why=why)  # fmt: skip


def _never_heard(case: Case, short: Event) -> list[int | None]:
    """The ranks of which no line is there, where they are exactly as many as did not join."""
    expected, joined = int(short.get("expected")), int(short.get("joined"))
    heard = case.layout.ranks | {e.rank for e in case.of("c10d.clients")}
    silent: list[int | None] = [r for r in range(expected) if r not in heard]
    return silent if len(silent) == expected - joined else []


@rule("A client that never reaches the store has a wrong address, or the store's node is out of reach.")
def master_unreachable(case: Case) -> Iterator[Finding]:
    late = case.of("c10d.client_timeout")
    if not late or case.has("c10d.clients"):
        return
    callers = case.nodes(late)
    peers = {case.layout.resolve(e.get("peer")) for e in late if e.get("peer")} & set(case.layout.nodes)
    nodes = peers if len(callers) > 1 and len(peers) == 1 else callers
    known = case.of("host.address")[:1]
    yield finding("rdzv.master-unreachable", REFUSED - 4, [*late[:2], *known, *case.of("c10d.client_failed")[:1]],
                  nodes=nodes,
                  ranks=_ranks(late), why="its rendezvous endpoint does not answer", confidence=0.8)  # fmt: skip


@rule("The store lives in rank 0: when other ranks lose it, rank 0 ended first.")
def store_lost(case: Case) -> Iterator[Finding]:
    lost = [e for e in case.of("c10d.store_lost") if e.rank != 0]
    own = [e for e in case.of("app.exception") if e.rank == 0 and not e.get("symptom")]
    if not lost or case.timed_out():
        return
    peer = next((e.get("peer").rpartition(":")[0].strip("[]") or e.get("peer") for e in lost if e.get("peer")), None)
    owner = peer if peer and peer in case.layout.nodes else case.layout.node_of.get(0) or case.layout.resolve(peer)
    yield finding(
        "app.store-lost",
        FAILED + 1 if own else 58,
        [*own[-1:], *lost[:2]],
        nodes=[owner],
        ranks=[0],
        why=("every other rank lost the store that rank 0 hosts"),
        confidence=0.85 if own else 0.65,
    )
