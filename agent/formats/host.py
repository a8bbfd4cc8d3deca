"""Small facts about a host: addresses, limits, modules, bindings, disks, services, listeners, firewalls."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agent.formats.event import Event, make, said
from agent.formats.line import Document, Line

HOSTS = re.compile(r"^(?P<addr>\d+\.\d+\.\d+\.\d+)\s+(?P<host>[A-Za-z][\w.-]*)(?:\s+slots=\d+)?\s*$")
POD = re.compile(r"^(?P<host>[a-z0-9][a-z0-9.-]*) +\d+/\d+ +(?P<status>[A-Z]\w+) .*?(?P<addr>\d+\.\d+\.\d+\.\d+)")
BRIEF = re.compile(r"^(?P<iface>[\w.-]+)(?:@\w+)?\s+(?:UP|DOWN|UNKNOWN)\s+(?P<addr>\d+\.\d+\.\d+\.\d+)(?:/\d+)?\b")
LINK = re.compile(r"^\d+: (?P<iface>[\w.-]+)(?:@\w+)?: <(?P<flags>[\w,-]+)> mtu (?P<mtu>\d+)")
SHM = re.compile(r"^(?:shm|tmpfs|none)\s+(?P<size>\S+)\s+\S+\s+\S+\s+(?P<used>\d+)%\s+/dev/shm")
DISK = re.compile(r"^(?!Filesystem)\S+\s+[\d.]+\S*\s+[\d.]+\S*\s+[\d.]+\S*\s+(?P<used>\d+)%\s+(?P<mount>/\S*)\s*$")
MODULE = re.compile(r"^(?P<module>\w+)\s+\d{4,}\s+-?\d+(?:\s+[\w,-]+)?\s*$")
MCW = re.compile(
    r"\[(?P<host>[\w.-]+):\d+\] (?:MCW )?[Rr]ank (?P<rank>\d+) (?:is )?bound to "
    r"(?P<where>(?:socket|package)\S*.*?)(?:: |$)"
)
CPU_BIND = re.compile(r"cpu[-_]bind=\S* - (?P<host>[\w.-]+), task +(?P<rank>\d+) .*mask (?P<where>0x[0-9a-fA-F]+) set")
TASKSET = re.compile(r"pid (?P<pid>\d+)'s current affinity list: (?P<where>\S+)$")
LISTEN = re.compile(r"^(?:tcp\s+)?LISTEN\s+\d+\s+\d+\s+\S*:(?P<port>\d+)\s")
ULIMIT = re.compile(r"ulimit -(?P<which>[ln])\b")
LIMIT_VALUE = re.compile(r"^\s*(?:\d+\s+)?(?P<value>unlimited|\d+)\s*$")
LIMIT_TABLE = re.compile(
    r"(?i)^(?P<which>max locked memory|max open files|open files)\b.*?"
    r"(?P<value>unlimited|\d+)(?:\s+(?:unlimited|\d+))?(?:\s+(?:bytes"
    r"|files))?\s*$"
)
LOSS = re.compile(r"(?P<loss>\d+)% packet loss")
NODE_GPU_LS = re.compile(r"^\$ ls (?P<path>/(?:dev/infiniband|sys/class/infiniband))/?\s*$")
SERVICE = re.compile(r"(?P<unit>[\w@.-]+)\.service\b")
ACTIVE = re.compile(r"^\s*Active: (?P<state>\w+)")
POWER = re.compile(
    r"(?i)\b(?:AC lost|power (?:unit|supply).*(?:failure|lost)|Failure detected|power loss|chassis power (?:is )?off)"
)
FIREWALL = re.compile(
    r"^(?:REJECT|DROP)\s+\S+\s+.*|^\s*(?:iptables )?-A INPUT .*-j (?:REJECT"
    r"|DROP)|Chain INPUT \(policy (?:DROP|REJECT)\)|^\s*(?:reject|drop)\s*$"
    r"|^Status: active"
)
# kind, what every such line contains, the expression
FACTS = (
    ("host.address", "", HOSTS),
    ("host.address", "/", POD),
    ("host.own_address", " UP ", BRIEF),
    ("host.own_address", " UNKNOWN ", BRIEF),
    ("host.iface", "> mtu ", LINK),
    ("host.shm", "/dev/shm", SHM),
    ("host.disk", "% ", DISK),
    ("host.binding", "bound to ", MCW),
    ("host.binding", "cpu", CPU_BIND),
    ("host.binding", "affinity list", TASKSET),
    ("host.listen", "LISTEN", LISTEN),
    ("host.loss", "% packet loss", LOSS),
    ("host.power", "lost", POWER),
    ("host.power", "ailure", POWER),
    ("host.power", "ower", POWER),
    ("host.firewall", "REJECT", FIREWALL),
    ("host.firewall", "DROP", FIREWALL),
    ("host.firewall", "reject", FIREWALL),
    ("host.firewall", "drop", FIREWALL),
    ("host.firewall", "Status: active", FIREWALL),
)
LITERALS = ("% packet loss", "bound to socket", "bound to package", "AC lost", "/dev/shm")
SMALL = 400  # lines; `lsmod`, `ulimit`, `ls` and service tables are short, logs are not


def read(document: Document) -> Iterator[Event]:
    """The facts of one document; those of several lines (`ulimit`, `ls`, `systemctl`) included."""
    for line in document.lines:
        for kind, literal, expression in FACTS:
            if literal in line.body and (m := expression.search(line.body)) is not None:
                yield _placed(make(kind, line, said(m)), document)
                break
    if len(document.lines) <= SMALL:
        yield from _modules(document)
    yield from _limits(document)
    yield from _listings(document)
    yield from _services(document)


def _placed(event: Event, document: Document) -> Event:
    return event if event.node else event.at(document.node)


def _modules(document: Document) -> Iterator[Event]:
    for line in document.lines:
        if (m := MODULE.match(line.body)) is not None:
            yield _placed(make("host.module", line, said(m)), document)


def _limits(document: Document) -> Iterator[Event]:
    which = ""
    for line in document.lines:
        table = LIMIT_TABLE.match(line.body) if " files" in line.body or "locked" in line.body else None
        if table is not None:
            name = "l" if "locked" in table["which"].lower() else "n"
            yield _limit(line, document, name, table["value"])
            continue
        asked = ULIMIT.search(line.body) if "ulimit" in line.body else None
        value = LIMIT_VALUE.match(line.body) if which else None
        if asked is not None:
            which = asked["which"]
        elif which and value is not None:
            yield _limit(line, document, which, value["value"])
        else:
            which = ""


def _limit(line: Line, document: Document, which: str, value: str) -> Event:
    kind = "limit.memlock" if which == "l" else "limit.nofile"
    return Event(kind, line, line.node or document.node, detail={"value": value})


def _listings(document: Document) -> Iterator[Event]:
    """`host.listing` events: path and the names that `ls` printed below it."""
    path = ""
    for line in document.lines:
        m = NODE_GPU_LS.match(line.body) if line.body.startswith("$ ls") else None
        if m is not None:
            path = m["path"]
        elif path:
            missing = "cannot access" in line.body
            detail = {"path": path, "names": "" if missing else line.body.strip(), "missing": "yes" if missing else ""}
            yield Event("host.listing", line, line.node or document.node, detail=detail)
            path = ""


def _services(document: Document) -> Iterator[Event]:
    unit, since = "", 0
    for line in document.lines:
        m = SERVICE.search(line.body) if ".service" in line.body else None
        if m is not None:
            unit, since = m["unit"], line.number
        active = ACTIVE.match(line.body)
        if active is not None and unit and line.number - since <= 6:
            detail = {"unit": unit, "state": active["state"]}
            yield Event("host.service", line, line.node or document.node, detail=detail)
