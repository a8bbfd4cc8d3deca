"""Changes to an incident that must not change its verdict: names, hosts, ranks, versions, noise, loss, prefixes."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from agent.triage.catalogue import load
from agent.triage.gather import gather
from tests.triage_grading import Files, Incident, write

Change = Callable[[Incident, Path], Incident]
LOGS = re.compile(
    r"(?:job|train|rank\d|pdsh|others|slurm|cluster|worker|node|upg|dmesg|journal)[\w.-]*\.(?:log|out|txt)$"
)
IPV4 = re.compile(r"(?<![\d.])(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})(?![\d.])")
KEPT_ADDRESSES = ("127.", "169.254.", "172.17.0.1", "0.0.0.0", "255.", "192.0.2.")


def _dice(incident: Incident) -> random.Random:
    return random.Random(incident.name)


def renamed(incident: Incident, _scratch: Path) -> Incident:
    """Other file names in another order; the host that a name speaks of stays in it."""
    names = list(incident.files)
    _dice(incident).shuffle(names)
    files = {f"{i:02d}_{_other(n)}": incident.files[n] for i, n in enumerate(names)}
    return replace(incident, files=files)


def _other(name: str) -> str:
    stem, _, _ = name.rpartition(".")
    return f"{stem or name}.log.txt"


@lru_cache(maxsize=256)
def _hosts(scratch: Path) -> tuple[str, ...]:
    case = gather([scratch], load())
    return tuple(case.layout.nodes)


def other_hosts(incident: Incident, scratch: Path) -> Incident:
    """Every host renamed and every address moved, in logs, file names and truth alike."""
    folder = write(incident.files, scratch / f"hosts-{incident.name}")
    truth_nodes = (incident.truth.get("culprit") or {}).get("node") or []
    told = truth_nodes if isinstance(truth_nodes, list) else [truth_nodes]
    hosts = sorted({*_hosts(folder), *map(str, told)}, key=len, reverse=True)
    table = {h: f"{'qxz'[i % 3]}ulu{i + 3}-r{(i * 7) % 40:02d}" for i, h in enumerate(hosts)}
    text = _renamer(table)
    files = {text(n): text(b.decode("utf-8")).encode() for n, b in incident.files.items()}
    return replace(incident, files=files, truth=json.loads(text(json.dumps(incident.truth, ensure_ascii=False))))


def _renamer(table: dict[str, str]) -> Callable[[str], str]:
    shapes = [
        (re.compile(rf"(?:(?<![A-Za-z0-9.-])|(?<=\x1b\[\d\dm)){re.escape(h)}(?![A-Za-z0-9])"), n)
        for h, n in table.items()
    ]

    def change(text: str) -> str:
        for shape, name in shapes:
            text = shape.sub(name, text)
        return IPV4.sub(_moved, text)

    return change


def _moved(m: re.Match[str]) -> str:
    if m[0].startswith(KEPT_ADDRESSES) or any(int(g) > 255 for g in m.groups()):
        return m[0]
    return f"{m[1]}.{(int(m[2]) + 3) % 250}.{m[3]}.{m[4]}"


def more_ranks(incident: Incident, _scratch: Path) -> Incident:
    """Further ranks that wait like one that already does."""
    text = "\n".join(b.decode("utf-8") for b in incident.files.values())
    told = _truth_ranks(incident.truth)
    waiting = sorted({int(r) for r in re.findall(r"\[Rank (\d+)\] Watchdog caught", text)} - told - {0})
    top = max([int(r) for r in re.findall(r"\b[Rr]ank ?(\d+)\b", text)] + [0])
    if not waiting or "nranks" in text or "local_rank: " in text:
        return incident
    donor = waiting[-1]
    files = {n: _cloned(b.decode("utf-8"), donor, range(top + 1, top + 5)).encode() for n, b in incident.files.items()}
    return replace(incident, files=files)


def _truth_ranks(truth: dict[str, Any]) -> set[int]:
    ranks = (truth.get("culprit") or {}).get("rank")
    return set(ranks) if isinstance(ranks, list) else {ranks} if isinstance(ranks, int) else set()


def _cloned(text: str, donor: int, extra: range) -> str:
    out = []
    for line in text.split("\n"):
        out.append(line)
        if re.search(rf"\[Rank {donor}\] Watchdog caught", line):
            out += [re.sub(rf"(?i)(rank ?|^ *){donor}(?=[\]:])", rf"\g<1>{r}", line) for r in extra]
    return "\n".join(out)


COMPLETION = re.compile(
    r"with (?:error (?P<e>\d+), opcode (?P<o>\d+), len (?P<l>\d+)|status=(?P<s>\d+) opcode="
    r"(?P<o2>\d+) len=(?P<l2>\d+)),? vendor err (?P<v>\d+)"
)
WARN = re.compile(r"(?m)^(?P<head>.*?)(?P<who>[\w.-]+:\d+:\d+ \[\d+\]) (?P<where>\S+:\d+) NCCL WARN ")
WORDS = {
    "12": "IBV_WC_RETRY_EXC_ERR",
    "5": "IBV_WC_WR_FLUSH_ERR",
    "10": "IBV_WC_REM_ACCESS_ERR",
    "1": "IBV_WC_LOC_LEN_ERR",
}


def other_version(incident: Incident, _scratch: Path) -> Incident:
    """NCCL's messages in the form of another of its versions."""
    files = {n: _reworded(b.decode("utf-8")).encode() for n, b in incident.files.items()}
    truth = json.loads(_truth_reworded(json.dumps(incident.truth, ensure_ascii=False)))
    return replace(incident, files=files, truth=truth)


def _reworded(text: str) -> str:
    text = COMPLETION.sub(_newest, text)
    text = WARN.sub(r"\g<head>[2025-10-14 09:12:03] \g<who> \g<where> (ncclFunction) NCCL WARN ", text)
    text = text.replace("ncclCommInitRank comm", "comm").replace("Bootstrap : Using ", "Bootstrap: Using ")
    return text.replace("[2025-10-14 09:12:03] [2025", "[2025").replace("NET/IB : Got", "NET/IB: Got")


def _newest(m: re.Match[str]) -> str:
    status, opcode, length = m["e"] or m["s"], m["o"] or m["o2"], m["l"] or m["l2"]
    word = WORDS.get(status, "IBV_WC_GENERAL_ERR")
    return (
        f"with status={word}({status}) opcode=IBV_WC_SEND({opcode}) reqSize={length} vendor_err={m['v']} req_type=Send"
    )


def _truth_reworded(text: str) -> str:
    text = text.replace("Bootstrap : Using", "Bootstrap: Using").replace("with status=10", "(10)")
    text = re.sub(r"(\S+:\d+) NCCL WARN ", r"\1 (ncclFunction) NCCL WARN ", text)
    return text.replace("NET/IB : Got", "NET/IB: Got").replace(
        "Got completion with error 12", "Got completion with status"
    )


NOISE = (
    "{{'loss': {a}.{b}, 'grad_norm': 0.{b}, 'learning_rate': 9.{a}e-06, 'epoch': 0.{b}}}",
    "  3%|3         | {b}/32000 [{a:02d}:15<2:31:12,  2.80s/it]",
    "2025-10-14 09:13:{a:02d},{b} INFO dataloader: prefetched batch {b} in 0.{a} s",
    "[W1014 09:12:06.{b} socket.cpp:755] [c10d] The client socket cannot be initialized to "
    "connect to [h]:29500 (errno: 97 - Address family not supported by protocol).",
    "UserWarning: torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly ({b})",
    "wandb: logged {b} scalars to run-{a}",
    "INFO:tensorboard:wrote event file {b}",
)
KERNEL_NOISE = (
    "[19{b}.{b}] docker0: port {a}(veth{b}) entered forwarding state",
    "[19{b}.{b}] nvme nvme{a}: I/O tag {b} QID 4 timeout, completion polled",
    "[19{b}.{b}] perf: interrupt took too long ({b} > 3000), lowering kernel.perf_event_max_sample_rate to 52{a}00",
)


def noisy(incident: Incident, _scratch: Path) -> Incident:
    """Twenty harmless lines for every line of a log."""
    dice = _dice(incident)
    files = {n: _with_noise(n, b, dice) if LOGS.search(n) else b for n, b in incident.files.items()}
    return replace(incident, files=files)


def _with_noise(name: str, content: bytes, dice: random.Random) -> bytes:
    kinds = KERNEL_NOISE if "dmesg" in name or "journal" in name else NOISE
    out: list[str] = []
    previous = ""
    for line in content.decode("utf-8").split("\n"):
        if not _continues(previous, line):
            out += [dice.choice(kinds).format(a=dice.randrange(60), b=dice.randrange(100, 999)) for _ in range(20)]
        out.append(line)
        previous = line
    return "\n".join(out).encode()


def _continues(previous: str, line: str) -> bool:
    """A line that its tool wrote in one piece with the one before."""
    return (
        previous.startswith(("$ ", "NVRM"))
        or line[:1] in (" ", "\t")
        or bool(re.match(r"\s*(?:host|rank|exitcode) ", line))
    )


def lossy(incident: Incident, _scratch: Path) -> Incident:
    """One line of twenty lost from every file."""
    dice = _dice(incident)
    files = {n: b"\n".join(x for x in b.split(b"\n") if dice.random() >= 0.05) for n, b in incident.files.items()}
    return replace(incident, files=files)


def prefixed(incident: Incident, _scratch: Path) -> Incident:
    """Logs as a container runtime keeps them, with colour and carriage returns."""
    files = {n: _prefixed(b) if n.endswith((".log", ".out")) else b for n, b in incident.files.items()}
    return replace(incident, files=files)


def _prefixed(content: bytes) -> bytes:
    out = []
    for i, line in enumerate(content.split(b"\n")):
        stamp = b"2025-10-14T09:%02d:%02d.%09dZ stderr F " % (12 + i // 3000, i // 50 % 60, i)
        out.append(stamp + b"\x1b[36m" + line.rstrip(b"\r") + b"\x1b[0m\r")
    return b"\n".join(out)


def merged(incident: Incident, _scratch: Path) -> Incident:
    """All files in one, as `tail -n +1 *` joins them."""
    parts = [b"==> " + n.encode() + b" <==\n" + b for n, b in incident.files.items()]
    return replace(incident, files={"everything.txt": b"\n".join(parts)})


CHANGES: dict[str, Change] = {
    c.__name__: c for c in (renamed, other_hosts, more_ranks, other_version, noisy, lossy, prefixed, merged)
}


def healthy_variants(seeds: list[Incident]) -> Iterator[Files]:
    """Logs of healthy runs and endless mixtures of them with noise, loss and prefixes."""
    number = 0
    while True:
        incident = replace(seeds[number % len(seeds)], name=f"healthy-{number}")
        dice = random.Random(number)
        for change in dice.sample([lossy, prefixed, noisy, merged, renamed], k=dice.randrange(0, 3)):
            incident = change(incident, Path())
        yield incident.files
        number += 1
