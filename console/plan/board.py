"""What the plan screen shows and turns: a form, the cards it is for, and what was asked last. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import configs
from console.fleet import Fleet
from console.format import count
from console.plan import model, talk
from console.strings import _
from jobs.plan import claims, hardware
from jobs.plan.fit import Change
from jobs.plan.form import VALUES, PlanForm
from jobs.plan.hardware import Card
from jobs.plan.offers import Finding
from jobs.plan.refusal import PlanError

MODEL, CARD, SAMPLES, EPOCHS = "model", "card", "samples", "epochs"
FIRST_MODEL, FIRST_CARD = "Llama-3.1-8B", "RTX 4090"
NUMBERS: dict[str, tuple[int, ...]] = {
    SAMPLES: (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000),
    EPOCHS: (1, 2, 3, 4, 5, 10),
}
LABELS = {
    MODEL: _("model"), CARD: _("card"), "cards": _("cards"), "method": _("method"), "rank": _("rank"),
    "micro_batch": _("micro-batch"), "seq_len": _("tokens"), "checkpointing": _("checkpoints"), "loss": _("loss"),
    "optimizer": _("optimizer"), "sharding": _("sharding"), "offload": _("offload"), "kernels": _("kernels"),
    SAMPLES: _("samples"), EPOCHS: _("epochs"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """Cards to plan for. `count` None: as many as the knob says."""

    label: str
    card: Card
    count: int | None = None
    simulated: bool = False


def places(fleet: Fleet) -> list[Place]:
    """The cards of the nodes that are known, then every card that is shipped."""
    return [*of_nodes(fleet), *(Place(card.name, card) for card in hardware.cards())]


def of_nodes(fleet: Fleet) -> list[Place]:
    found = []
    for node in fleet.nodes.values():
        gpus = list(node.state.gpus.values())
        card = hardware.find(gpus[0].name) if gpus else None
        if card is None:
            continue
        seen = min((gpu.memory_total_bytes for gpu in gpus if gpu.memory_total_bytes), default=card.memory_bytes)
        label = f"{node.name}: {len(gpus)} × {card.name}"
        simulated = any(gpu.simulated for gpu in gpus)
        found.append(Place(label, replace(card, memory_bytes=seen), len(gpus), simulated))
    return found


@dataclass(frozen=True, slots=True)
class Board:
    form: PlanForm
    place: Place
    changes: Sequence[Change] | None = None
    """What made it fit; empty where nothing had to change; None when nobody asked"""
    finding: Finding | None = None

    @classmethod
    def of(cls, fleet: Fleet) -> Board:
        """With the cards of the first node that has any."""
        known = of_nodes(fleet) or [Place(FIRST_CARD, hardware.named(FIRST_CARD))]
        return cls(PlanForm(model.named(FIRST_MODEL), known[0].card), known[0]).at(known[0])

    def shown(self, knob: str) -> str:
        if knob == MODEL:
            return self.form.shape.name
        if knob == CARD:
            return self.place.label
        return count(getattr(self.form, knob)) if knob in NUMBERS else str(self.form.value(knob))

    def at(self, place: Place) -> Board:
        """For other cards."""
        board = replace(self, place=place, form=replace(self.form, card=place.card), changes=None)
        return board.counted(place.count) if place.count else board

    def counted(self, cards: int) -> Board:
        """With so many cards, shared by what suits them: nothing to share on one."""
        form = self.form.set("cards", cards)
        if cards == 1:
            form = form.set("offload", "none").set("sharding", "none")
        elif form.value("sharding") == "none":
            form = form.set("sharding", "zero3" if form.value("method") == "full" else "ddp")
        return replace(self, form=form, changes=None)

    def turn(self, knob: str, step: int, fleet: Fleet) -> Board:
        """One place up or down; it stops at the ends."""
        if knob == MODEL:
            names = list(configs.load("models.yaml"))
            return self.typed(MODEL, _stepped(names, self.form.shape.name, step))
        if knob == CARD:
            known = places(fleet)
            labels = [place.label for place in known]
            return self.at(known[labels.index(_stepped(labels, self.place.label, step))])
        if knob in NUMBERS:
            now = getattr(self.form, knob)
            near = min(NUMBERS[knob], key=lambda value: abs(value - now))
            return self.typed(knob, str(_stepped(NUMBERS[knob], near, step)))
        if knob == "cards":
            return self.counted(self.form.turn(knob, step).value(knob))
        return replace(self, form=self.form.turn(knob, step), changes=None)

    def typed(self, knob: str, text: str) -> Board:
        """The board with a knob at what was typed. Raises PlanError for what is not understood."""
        text = text.strip()
        if knob == MODEL:
            return replace(self, form=replace(self.form, shape=model.named(text)), changes=None)
        if knob == CARD:
            card = hardware.named(text)
            return self.at(Place(card.name, card))
        if knob in NUMBERS:
            return self.numbered(knob, _number(knob, text))
        if knob == "cards" and text.isdigit():
            return self.counted(int(text))
        return replace(self, form=talk.changed(self.form, knob, text), changes=None)

    def numbered(self, knob: str, value: float) -> Board:
        form = self.form
        counted = replace(form, samples=max(1, round(value))) if knob == SAMPLES else replace(form, epochs=value)
        return replace(self, form=counted, changes=None)

    def fitted(self) -> Board:
        """After the least harmful changes with which it fits. Raises PlanError where there are none."""
        if self.form.problem:
            raise PlanError(self.form.problem)
        found = self.form.fitted()
        if found is None:
            raise PlanError(f"nothing makes it fit {self.place.label}", "choose a larger card or more of them")
        return replace(self, form=found[0], changes=found[1])

    def held(self, claim: str) -> Board:
        """With what arithmetic says to a claim. Raises PlanError where it says nothing."""
        return replace(self, finding=claims.examine(claim))


KNOBS = (MODEL, CARD, "cards", *(knob for knob in VALUES if knob != "cards"), SAMPLES, EPOCHS)


def _stepped(values: Sequence[Any], now: Any, step: int) -> Any:
    at = values.index(now) + step if now in values else 0
    return values[max(0, min(len(values) - 1, at))]


def _number(knob: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise PlanError(f"{knob} {text!r}", "give a number") from error
    if not 0 < value <= 1e12:
        raise PlanError(f"{knob} is {text}", "it must be above 0")
    return value
