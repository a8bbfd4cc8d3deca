"""GPU and PCIe tables: nvidia-smi (CSV, table, -q, topo, nvlink), lspci links and ACS."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agent.formats.event import Event, make
from agent.formats.line import Document, Line

DRIVER = re.compile(r"Driver Version: (?P<driver>[\d.]+) +CUDA Version: (?P<cuda>[\d.]+)")
SMI_GPU = re.compile(
    r"^\| +(?P<gpu>\d+) +(?P<name>[A-Z][\w .+-]*?)\s+(?:On|Off)? *\| +(?P<bus>[0-9A-Fa-f]{8}:[0-9A-Fa-f:.]+)"
)
LIST_GPU = re.compile(r"^GPU (?P<gpu>\d+): (?P<name>.+?) \(UUID")
NVLINK = re.compile(r"^\s*Link (?P<link>\d+): (?P<state><inactive>|[\d.]+ GB/s)")
Q_GPU = re.compile(r"^GPU (?P<bus>[0-9A-Fa-f]{8}:[0-9A-Fa-f:.]+)\s*$")
REASON = re.compile(
    r"^\s+(?P<reason>HW Slowdown|HW Thermal Slowdown|HW Power Brake Slowdown|SW Power Cap|SW Thermal Slowdown)"
    r"\s*: Active\b"
)
PCI_DEVICE = re.compile(r"^(?P<bus>(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.\d) (?P<name>.+)")
LINK = re.compile(
    r"Lnk(?P<what>Cap|Sta):.*?Speed (?P<speed>[\d.]+)GT/s(?P<speed_down> "
    r"\(downgraded\))?.*?Width x(?P<width>\d+)(?P<width_down> \(downgraded\))?"
)
ACS = re.compile(r"ACSCtl:\s*SrcValid(?P<source>[+-]).*?ReqRedir(?P<redirect>[+-])")
TABLES = (("smi.driver", "Driver Version", DRIVER), ("smi.gpu", "| ", SMI_GPU), ("smi.list", "(UUID", LIST_GPU))
LITERALS = ("Driver Version:", "<inactive>", "LnkSta:", "ACSCtl:", " Slowdown", "SW Power Cap")


def read(document: Document) -> Iterator[Event]:
    """`gpu.row`, `smi.driver`, `smi.gpu`, `nvlink`, `gpu.reason`, `topo`, `pcie.link` and `pcie.acs` events."""
    yield from _csv(document)
    yield from _topology(document)
    yield from _links(document)
    gpu: str | None = None
    for line in document.lines:
        for kind, literal, expression in TABLES:
            if literal in line.body and (m := expression.search(line.body)) is not None:
                yield make(kind, line, m.groupdict()).at(line.node or document.node)
        gpu = _section(line, gpu)
        if gpu is not None:
            yield from _inside(line, gpu, document.node)


def _section(line: Line, gpu: str | None) -> str | None:
    if not line.body.startswith("GPU "):
        return gpu
    m = LIST_GPU.match(line.body)
    if m is not None:
        return m["gpu"]
    m = Q_GPU.match(line.body)
    return m["bus"] if m is not None else gpu


def _inside(line: Line, gpu: str, node: str | None) -> Iterator[Event]:
    index = int(gpu) if gpu.isdecimal() else None
    if index is not None and (m := NVLINK.match(line.body)) is not None:
        yield Event("nvlink", line, line.node or node, None, index, None, m.groupdict())
    elif index is None and (m := REASON.match(line.body)) is not None:
        yield Event("gpu.reason", line, line.node or node, None, None, None, {"bus": gpu, "reason": m["reason"]})


def _csv(document: Document) -> Iterator[Event]:
    """Rows of `nvidia-smi --query-gpu=… --format=csv`, by the names in its header, units taken off."""
    header: list[str] = []
    for line in document.lines:
        if line.body.count(",") < 2 or not (header or "index" in line.body):
            continue
        cells = [c.strip() for c in line.body.split(",")]
        if "index" in cells and any("." in c for c in cells):
            header = [c.partition(" [")[0] for c in cells]
        elif header and len(cells) == len(header):
            said = dict(zip(header, (_unitless(c) for c in cells), strict=True))
            if said.get("index", "").isdecimal():
                yield Event("gpu.row", line, line.node or document.node, None, int(said["index"]), None, said)


def _unitless(cell: str) -> str:
    number, _, unit = cell.partition(" ")
    return number if unit in ("W", "MHz", "MiB", "%", "C") else cell


def _topology(document: Document) -> Iterator[Event]:
    """`topo` events: one GPU's distance to each NIC, in the words of `nvidia-smi topo -m`."""
    columns: list[str] = []
    for line in document.lines:
        words = line.body.split() if "GPU" in line.body[:12] else []
        if words[:1] == ["GPU0"] and "X" not in words[1:2]:
            columns = [w for w in words if re.fullmatch(r"(?:GPU|NIC)\d+|mlx\d_\w+", w)]
        elif columns and words and re.fullmatch(r"GPU\d+", words[0]) and len(words) > len(columns):
            cells = dict(zip(columns, words[1 : len(columns) + 1], strict=True))
            said = {c: v for c, v in cells.items() if not c.startswith("GPU")}
            if said:
                yield Event("topo", line, line.node or document.node, None, int(words[0][3:]), None, said)


def _links(document: Document) -> Iterator[Event]:
    """`pcie.link` (capability and state of one device) and `pcie.acs` events from `lspci -vv`."""
    bus, name, cap = "", "", {}  # type: tuple[str, str, dict[str, str]]
    for line in document.lines:
        if line.body[2:3] != ":" and "Lnk" not in line.body and "ACSCtl" not in line.body and line.body[4:5] != ":":
            continue
        if (m := PCI_DEVICE.match(line.body)) is not None:
            bus, name, cap = m["bus"], m["name"], {}
        elif bus and (m := LINK.search(line.body)) is not None:
            said = {k: v for k, v in m.groupdict().items() if v is not None}
            if m["what"] == "Cap":
                cap = {"cap_speed": m["speed"], "cap_width": m["width"]}
            else:
                detail = {**cap, **said, "bus": bus, "name": name}
                yield Event("pcie.link", line, line.node or document.node, None, None, None, detail)
        elif (m := ACS.search(line.body)) is not None:
            on = "yes" if m["redirect"] == "+" else ""
            yield Event("pcie.acs", line, line.node or document.node, None, None, None, {"bus": bus, "on": on})
