"""The answers of `tunedeck plan` in words and bars."""

from __future__ import annotations

from collections.abc import Iterator

from console.format import count, size
from console.strings import _
from jobs.plan import advice, fit, knobs, memory, template
from jobs.plan.architecture import Architecture
from jobs.plan.duration import Duration
from jobs.plan.fit import Change, Verdict
from jobs.plan.hardware import Card
from jobs.plan.memory import Forecast
from jobs.plan.offers import Finding
from jobs.plan.workload import Workload

BAR_CELLS = 20
KNOBS_SHOWN = 6
VERDICTS = {
    "holds": _("holds"),
    "contradicted": _("contradicted by arithmetic"),
    "depends": _("true only under conditions"),
    "unchecked": _("nothing to compute"),
}


def finding(found: Finding) -> str:
    return "\n".join([f"{found.claim}: {VERDICTS[found.verdict]}", *(f"  {line}" for line in found.arithmetic)])


def answer(
    shape: Architecture,
    work: Workload,
    card: Card | None,
    verdict: Verdict | None,
    time: Duration | None,
    changes: list[Change] | None,
    asked: bool,
) -> str:
    """The whole answer, section by section."""
    forecast = verdict.forecast if verdict else memory.forecast(shape, work)
    sections = [
        [title(shape, work, card)],
        list(components(forecast, card)),
        [fits(verdict, card)] if verdict and card else [],
        list(needed(changes)) if asked and card else [],
        list(elsewhere(shape, work)),
        list(pace(time, work)) if time else [],
        list(movers(shape, work)),
        list(sharded(shape, work, card)) if card else [],
        list(claimed(work)),
        [_("assumed: {text}").format(text=text) for text in forecast.assumptions],
    ]
    return "\n\n".join("\n".join(section) for section in sections if section)


def title(shape: Architecture, work: Workload, card: Card | None) -> str:
    adapters = f" r{work.rank}" if work.adapters else ""
    batch = f"{work.micro_batch} × {work.seq_len} {_('tokens')}"
    on = f"{work.cards} × {card.name}" if card else f"{work.cards} {_('cards')}" if work.cards > 1 else _("one card")
    parts = (
        f"{shape.name} ({shape.parameters / 1e9:.2f}B)", f"{work.method}{adapters}", work.weight_format, work.optimizer,
        batch,
        _("checkpointing {c}").format(c=work.checkpointing), _("loss {loss}").format(loss=work.loss), work.sharding, on,
    )  # fmt: skip
    return " · ".join(part for part in parts if part != "none")


def components(forecast: Forecast, card: Card | None) -> Iterator[str]:
    """One line for each component, largest first, with its share of the card or of the whole."""
    whole = card.memory_bytes if card else forecast.device_bytes
    yield _("Memory of each card at its peak ({peak})").format(peak=forecast.peak)
    for part in sorted(forecast.components, key=lambda c: -c.bytes):
        share = part.bytes / whole
        filled = min(BAR_CELLS, round(share * BAR_CELLS))
        bar = "█" * filled + "·" * (BAR_CELLS - filled)
        yield f"  {part.name:<16} {size(part.bytes):>9}  {share:>4.0%} {bar} {part.why}"
    figures = (
        ("allocated", forecast.allocated_bytes),
        ("reserved", forecast.reserved_bytes),
        ("device", forecast.device_bytes),
    )
    low, high = size(forecast.low_bytes), size(forecast.high_bytes)
    band = _("band of the device figure {low} to {high}").format(low=low, high=high)
    yield "  " + " · ".join(f"{name} {size(value)}" for name, value in figures) + f" · {band}"
    if forecast.host_bytes:
        yield "  " + _("in host memory, for each card: {size}").format(size=size(forecast.host_bytes))


def fits(verdict: Verdict, card: Card) -> str:
    words = {"yes": _("fits"), "tight": _("fits, but tightly"), "no": _("does not fit")}
    left = _("{share:.0%} left").format(share=verdict.left_share)
    if verdict.left_share < 0:
        left = _("{share:.0%} short").format(share=-verdict.left_share)
    kept = _("kept") if verdict.sellers_rule else _("not kept")
    rule = _("the sellers' rule of 30 % headroom is {kept}").format(kept=kept)
    return f"{card.name} ({size(card.memory_bytes)}): {words[verdict.answer]}, {left}; {rule}"


def needed(changes: list[Change] | None) -> Iterator[str]:
    if changes is None:
        yield _("Nothing that tunedeck knows makes it fit this card.")
        return
    if not changes:
        yield _("It fits as it is; nothing needs to change.")
        return
    yield _("Changed so that it fits, least harmful first")
    for change in changes:
        yield f"  {change.text}: {change.cost}"


def elsewhere(shape: Architecture, work: Workload) -> Iterator[str]:
    by_answer: dict[str, list[str]] = {"yes": [], "tight": [], "no": []}
    for card, verdict in fit.on_cards(shape, work):
        by_answer[verdict.answer].append(card.name + (_(" (in fp16)") if fit.without_bf16(card, work) else ""))
    words = {"yes": _("fits"), "tight": _("tight"), "no": _("no")}
    yield _("On every card that tunedeck knows")
    for key, names in by_answer.items():
        if names:
            yield f"  {words[key]}: {', '.join(names)}"
    minimum = fit.minimum(shape, work)
    if minimum is None:
        yield "  " + _("not even 64 of the largest cards are enough")
    else:
        number, card, tried = minimum
        how = f" ({tried.sharding})" if number > 1 else ""
        yield "  " + _("minimum: {n} × {card}{how}").format(n=number, card=card.name, how=how)


def pace(time: Duration, work: Workload) -> Iterator[str]:
    p = time.pace
    each = _("{rate} tokens/s per card ({low} to {high}), limited by {limit}; {share:.0%} of the card's peak")
    yield _("Speed")
    yield "  " + each.format(
        rate=count(p.tokens_per_s_per_card), low=count(p.low), high=count(p.high), limit=p.limit, share=p.share
    )
    if time.useful_share < 0.995:
        yield "  " + _("{share:.0%} of computed tokens are data, the rest is padding").format(share=time.useful_share)
    if time.tokens > work.seq_len:
        text = _(
            "{hours:.2f} h ({low:.2f} to {high:.2f}): {tokens} tokens in {steps} steps, without loading and snapshots"
        )
        yield "  " + text.format(
            hours=time.hours,
            low=time.low_hours,
            high=time.high_hours,
            tokens=count(time.tokens),
            steps=count(time.steps),
        )


def movers(shape: Architecture, work: Workload) -> Iterator[str]:
    found = knobs.moves(shape, work)[:KNOBS_SHOWN]
    if found:
        yield _("Knobs that move it, each alone")
    for move in found:
        yield f"  {'−' if move.saved_bytes > 0 else '+'}{size(abs(move.saved_bytes)):>9}  {move.text}: {move.cost}"


def sharded(shape: Architecture, work: Workload, card: Card) -> Iterator[str]:
    if work.cards < 2:
        return
    chosen = template.choose(shape, work, card.memory_bytes)
    yield _("DeepSpeed template: {name}").format(name=chosen.name)
    yield f"  {chosen.reason}" + ("" if chosen.fits else _("; and even that does not fit"))


def claimed(work: Workload) -> Iterator[str]:
    entries = advice.of(work)
    if entries:
        yield _("Claimed by others, not measured by tunedeck")
    for entry in entries:
        yield f"  {entry.topic}: {entry.claim} [{entry.source}]"
