"""The truth of the corpus: how a verdict is held against it, one figure each for kind, culprit and evidence."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import yaml

from agent.triage.verdict import FAULT, HEALTHY, UNDETERMINED, Verdict

CORPUS = Path(__file__).resolve().parent / "corpus" / "triage"
Files = dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Incident:
    """Files of one case and its truth."""

    name: str
    files: Files
    truth: dict[str, Any]


def incidents() -> list[Incident]:
    """All cases of the corpus."""
    return [_incident(folder) for folder in sorted(CORPUS.iterdir()) if folder.is_dir()]


def _incident(folder: Path) -> Incident:
    files = {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p.name != "truth.yaml"}
    return Incident(folder.name, files, yaml.safe_load((folder / "truth.yaml").read_text(encoding="utf-8")))


def write(files: Files, folder: Path) -> Path:
    """The files below a new folder."""
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def _set(value: Any) -> set[str]:
    return {str(v) for v in (value if isinstance(value, list) else [value])}


def _culprit(truth: dict[str, Any], verdict: Verdict) -> bool:
    first = verdict.faults[0].culprit
    said = {"node": first.nodes, "rank": first.ranks, "gpu": first.gpus, "nic": first.nics}
    wanted = {k: _set(v) for k, v in (truth.get("culprit") or {}).items() if v is not None}
    return all({str(x) for x in said[k]} == v for k, v in wanted.items())


@dataclass(slots=True)
class Score:
    """Hits and totals by figure; `missed` names what fell short."""

    hits: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)
    missed: list[str] = field(default_factory=list)

    def count(self, figure: str, case: str, right: bool) -> None:
        self.totals[figure] += 1
        self.hits[figure] += right
        if not right:
            self.missed.append(f"{case} {figure}")

    def rate(self, figure: str) -> float:
        return self.hits[figure] / self.totals[figure] if self.totals[figure] else 1.0

    def add(self, incident: Incident, verdict: Verdict, *, same_names: bool = True) -> None:
        """Hold one verdict against its truth. `same_names`: the files still bear the names that the truth knows."""
        truth = incident.truth
        if truth.get("healthy"):
            self.count("healthy", incident.name, verdict.verdict == HEALTHY and not verdict.faults)
        elif truth["kind"] == UNDETERMINED:
            named = any(f.culprit for f in verdict.faults)
            self.count("undetermined", incident.name, verdict.verdict == UNDETERMINED and not named)
        else:
            self._add_fault(incident, verdict, same_names)

    def _add_fault(self, incident: Incident, verdict: Verdict, same_names: bool) -> None:
        truth = incident.truth
        accepted = truth.get("accept_kinds") or [truth["kind"]]
        kinds = [f.kind for f in verdict.faults] if verdict.verdict == FAULT else []
        several = "multi-fault" in f"{truth.get('source')} {truth.get('notes')}".lower()
        right = bool(kinds) and (
            set(accepted) <= set(kinds) and kinds[0] == truth["kind"] if several else kinds[0] in accepted
        )
        self.count("kind", incident.name, right)
        if truth.get("culprit"):
            self.count("culprit", incident.name, right and _culprit(truth, verdict))
        if truth.get("decisive"):
            quotes = [(PurePath(q.file).name, q.text) for f in verdict.faults for q in f.evidence]
            found = any(
                d["contains"].strip() in text and (not same_names or name == d["file"])
                for d in truth["decisive"]
                for name, text in quotes
            )
            self.count("evidence", incident.name, found)
