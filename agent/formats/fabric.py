"""RDMA ports and their state: ibstat, ibv_devinfo, ibdev2netdev, rdma, sysfs, show_gids, hardware counters."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agent.formats.event import Event, make, said
from agent.formats.line import Document, Line

CA = re.compile(r"^CA '(?P<nic>[\w-]+)'")
HCA_ID = re.compile(r"^hca_id:\s*(?P<nic>[\w-]+)")
FIELD = re.compile(r"^\s+(?P<name>[A-Za-z_ ]+?):\s*(?P<value>\S.*?)\s*$")
FIELDS = {"state": "state", "physical state": "physical", "rate": "rate", "link layer": "layer", "link_layer": "layer",
          "active_mtu": "mtu", "phys_state": "physical"}  # fmt: skip
NETDEV = re.compile(r"^(?P<nic>[\w-]+) port \d+ ==> (?P<iface>[\w.@-]+) \((?P<state>Up|Down)\)")
RDMA_LINK = re.compile(r"^link (?P<nic>[\w-]+)/\d+ state (?P<state>\w+) physical_state (?P<physical>\w+)")
SYSFS = re.compile(
    r"(?:^|(?P<host>[\w.-]+)[: ]+)/sys/class/infiniband/(?P<nic>[\w-]+)/ports/\d+/(?P<name>[\w/]+)[:= ]+(?P<value>\S.*)"
)
GID = re.compile(
    r"^(?P<nic>[\w-]+)\s+\d+\s+(?P<index>\d+)\s+(?P<gid>[0-9a-f:]{15,})\s+(?P<addr>\d+\.\d+\.\d+\.\d+)?\s*(?P<version>v[12])\s"
)
RESOURCE = re.compile(r"^\d+: (?P<nic>[\w-]+): pd \d+ cq \d+ qp (?P<qp>\d+)")
COUNTERS = (
    "out_of_sequence|packet_seq_err|local_ack_timeout_err|rnr_nak_retry_err|implied_nak_seq_err|np_cnp_sent"
    "|np_ecn_marked_roce_packets|rp_cnp_handled|[rt]x_prio\\d_pause|[rt]x_discards?_phy|rx_out_of_buffer|out_of_buffer"
    "|roce_adp_retrans|roce_slow_restart|req_transport_retries_exceeded|link_downed|link_error_recovery"
    "|symbol_error\\w*|port_rcv_errors|port_xmit_discards"
)
COUNTER = re.compile(
    rf"(?:^|\s|/)(?:(?P<nic>[a-z]\w*_?\w*\d)[\s:/]+(?:\S*/)?)?(?P<name>{COUNTERS})[\s:=]+(?P<first>\d+)(?:\s+(?:->\s*)?(?P<last>\d+))?\s*$"
)
COMMENT_HOST = re.compile(r"^#+ *(?:host |node )?(?P<host>[A-Za-z][\w.-]*(?:\d|-)[\w.-]*)\b")
ADDRESS = re.compile(
    r"^(?P<host>[A-Za-z][\w.-]*) (?P<nic>[a-z]\w*\d+) (?P<iface>[\w.@-]+) (?P<addr>\d+\.\d+\.\d+\.\d+)/(?P<bits>\d+)"
)
LAST_DIGIT = re.compile(r"\d\s*$")
FACT_WORDS = re.compile(r"==>|physical_state|/sys/class/infiniband/| v[12] |: pd |/\d\d")
LITERALS = ("CA 'mlx", "hca_id:", " ==> ", "/sys/class/infiniband/", "packet_seq_err", "local_ack_timeout_err",
            "out_of_sequence", "np_cnp_sent", "link_downed", "_pause ", "active_mtu")  # fmt: skip


def read(document: Document) -> Iterator[Event]:
    """`port` events, one per port, and facts of one line: `port.netdev`, `port.sysfs`, `gid`, `counter` and others."""
    yield from _ports(document)
    node = document.node
    for line in document.lines:
        if line.body.startswith("#") and (m := COMMENT_HOST.match(line.body)) is not None:
            node = m["host"]
        elif not LAST_DIGIT.search(line.body) and not FACT_WORDS.search(line.body):
            continue
        for event in _facts(line):
            yield event if event.node else event.at(node)


# kind, what every such line contains, the expression
FACTS = (
    ("port.netdev", " ==> ", NETDEV),
    ("port.link", "physical_state", RDMA_LINK),
    ("port.sysfs", "/sys/class/infiniband/", SYSFS),
    ("gid", " v", GID),
    ("verbs.resources", ": pd ", RESOURCE),
    ("nic.address", "/", ADDRESS),
    ("counter", "_", COUNTER),
)


def _facts(line: Line) -> Iterator[Event]:
    for kind, literal, expression in FACTS:
        if literal in line.body and (m := expression.search(line.body)) is not None:
            yield make(kind, line, said(m))
            return


def _ports(document: Document) -> Iterator[Event]:
    nic, told, first = "", {}, None  # type: tuple[str, dict[str, str], Line | None]
    worst: Line | None = None
    for line in document.lines:
        start = (CA.match(line.body) or HCA_ID.match(line.body)) if line.body[:2] in ("CA", "hc") else None
        if start is not None:
            yield from _port(nic, told, worst or first, document.node)
            nic, told, first, worst = start["nic"], {}, line, None
        elif nic and (m := FIELD.match(line.body)) is not None:
            name = FIELDS.get(m["name"].lower())
            if name:
                told[name] = m["value"]
                worst = _telling(name, m["value"], line, worst)
        elif nic and line.body.strip() and not line.body[0].isspace():
            yield from _port(nic, told, worst or first, document.node)
            nic = ""
    yield from _port(nic, told, worst or first, document.node)


def _telling(name: str, value: str, line: Line, known: Line | None) -> Line | None:
    """The line worth quoting: the physical state of a port that is not up, its MTU, else its rate."""
    if name == "physical" and value not in ("LinkUp", "LINK_UP", "LINK_UP (5)"):
        return line
    return line if known is None and name in ("rate", "mtu") else known


def _port(nic: str, said: dict[str, str], line: Line | None, node: str | None) -> Iterator[Event]:
    if nic and line is not None and said:
        yield Event("port", line, line.node or node, None, None, nic, said)
