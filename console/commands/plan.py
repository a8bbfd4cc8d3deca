"""`tunedeck plan`: what fits, on which cards, how long it takes, and what arithmetic says to a claim.

Only the parts that the question needs are loaded: an answer is to be there at once.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from console.failure import USAGE, Failure
from console.plan import model, page, record
from console.strings import _
from jobs.plan import duration, fit, hardware
from jobs.plan import workload as choices
from jobs.plan.architecture import Architecture
from jobs.plan.hardware import Card
from jobs.plan.lengths import Lengths
from jobs.plan.refusal import PlanError
from jobs.plan.workload import Workload

FIELDS = (
    "weight_format", "optimizer", "rank", "micro_batch", "seq_len", "accumulation", "checkpointing", "attention",
    "loss", "sharding", "cards", "offload", "kernels", "adapter_bytes", "tensor_parallel", "pipeline_parallel",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", nargs="?", type=Path, help=_("a run spec; flags override what it says"))
    what = parser.add_argument_group(_("what is trained"))
    what.add_argument(
        "--model", metavar="NAME|FOLDER", help=_("a public model's name, or a folder with its config.json")
    )
    what.add_argument("--size", metavar="7B", help=_("only the size is known: a usual shape is assumed"))
    what.add_argument("--method", choices=choices.METHODS)
    what.add_argument("--weights", dest="weight_format", choices=choices.WEIGHT_FORMATS)
    what.add_argument("--rank", type=int)
    what.add_argument("--targets", metavar="NAMES", help=_("all-linear, or modules: q_proj,v_proj"))
    what.add_argument("--adapter-bytes", type=int, choices=(2, 4), help=_("bytes of an adapter value (4)"))
    what.add_argument("--save-embeddings", action="store_true", default=None, help=_("train embedding and head whole"))
    how = parser.add_argument_group(_("how"))
    how.add_argument("--micro-batch", type=int)
    how.add_argument("--seq-len", type=int, metavar="TOKENS")
    how.add_argument("--accumulation", type=int)
    for name in ("optimizer", "checkpointing", "attention", "loss", "kernels"):
        how.add_argument(
            f"--{name}", choices=getattr(choices, {"loss": "LOSSES", "optimizer": "OPTIMIZERS"}.get(name, name.upper()))
        )
    where = parser.add_argument_group(_("where"))
    where.add_argument(
        "--card", metavar="NAME", help=_("for example RTX4090 or 'A100 80GB'; without it every card is judged")
    )
    where.add_argument("--cards", type=int, metavar="N")
    where.add_argument("--for", dest="host", metavar="NODE", help=_("the cards that this node has"))
    where.add_argument("--sharding", choices=choices.SHARDINGS)
    where.add_argument("--offload", choices=choices.OFFLOADS)
    where.add_argument("--tensor-parallel", type=int)
    where.add_argument("--pipeline-parallel", type=int)
    data = parser.add_argument_group(_("the data"))
    data.add_argument("--samples", type=int, help=_("examples in the data set: gives hours"))
    data.add_argument("--epochs", type=float, default=1.0)
    data.add_argument("--lengths", type=Path, metavar="FILE", help=_("token counts of the samples, one a line"))
    data.add_argument("--packed", action="store_true", help=_("samples are packed: no padding"))
    ask = parser.add_argument_group(_("other questions"))
    ask.add_argument("--make-it-fit", action="store_true", help=_("the least harmful changes after which it fits"))
    ask.add_argument("--best", action="store_true", help=_("the most faithful method that fits the given cards"))
    ask.add_argument("--claim", metavar="TEXT", help=_("hold a seller's claim against arithmetic"))
    ask.add_argument("--batch", type=Path, metavar="CSV", help=_("answer each row; one JSON object a line"))
    ask.add_argument("-i", "--interactive", action="store_true", help=_("ask, answer, change a knob, answer again"))


def run(args: argparse.Namespace) -> int:
    """0: it fits, or the question is answered; 1: it does not fit, or the claim is contradicted; 2: bad input."""
    try:
        if args.batch:
            return _batch(args.batch)
        if args.claim:
            return _claim(args.claim, args.json)
        if args.interactive:
            from console.plan import talk

            return talk.talk(architecture(args), workload(args), card_of(args)[0])
        return _plan(args)
    except PlanError as error:
        raise Failure(error.message, error.hint, USAGE) from error


def _batch(path: Path) -> int:
    from jobs.plan import batch

    wrong = 0
    for answer in batch.answers(path):
        wrong += "error" in answer
        print(json.dumps(answer))
    return 0 if not wrong else 1


def _claim(text: str, as_json: bool) -> int:
    from jobs.plan import claims

    finding = claims.examine(text)
    if as_json:
        print(json.dumps(record.finding(finding), indent=2))
    else:
        print(page.finding(finding))
    return 1 if finding.verdict == "contradicted" else 0


def _plan(args: argparse.Namespace) -> int:
    shape, work = architecture(args), workload(args)
    card, work = _placed(args, work)
    if args.best:
        work = _best(shape, work, card)
    changes = None
    if args.make_it_fit and card:
        changes = fit.make_it_fit(shape, work, card.memory_bytes)
        work = changes[-1].work if changes else work
    verdict = fit.judge(shape, work, card.memory_bytes) if card else None
    time = duration_of(args, shape, work, card) if card else None
    answer = record.answer(shape, work, card, verdict, time, changes if args.make_it_fit else None)
    if args.json:
        print(json.dumps(answer, indent=2))
    else:
        print(page.answer(shape, work, card, verdict, time, changes, args.make_it_fit))
    return 1 if verdict and not verdict.fits else 0


def _placed(args: argparse.Namespace, work: Workload) -> tuple[Card | None, Workload]:
    card, count = card_of(args)
    if count and not args.cards:
        sharding = (
            work.sharding if count == 1 or work.sharding != "none" else "zero3" if work.method == "full" else "ddp"
        )
        work = replace(work, cards=count, sharding=sharding)
    return card, work


def _best(shape: Architecture, work: Workload, card: Card | None) -> Workload:
    if card is None:
        raise PlanError("--best without cards", "name them: --card 'A100 80GB' --cards 4, or --for NODE")
    found = fit.best_for(shape, work, card, work.cards)
    if found is None:
        raise PlanError(
            f"{shape.name} does not fit {work.cards} x {card.name} with any method", "use more or larger cards"
        )
    return found


def duration_of(args: argparse.Namespace, shape: Architecture, work: Workload, card: Card) -> duration.Duration:
    """Duration where a sample count is given; else the speed alone, over one sample."""
    lengths = Lengths.read(args.lengths) if args.lengths else None
    samples = args.samples or (len(lengths.tokens) if lengths else 1)
    if samples < 1 or not 0 < args.epochs < 1e6:
        raise PlanError(f"{samples} samples, {args.epochs:g} epochs", "both must be positive")
    return duration.of(shape, work, card, samples, args.epochs, lengths, args.packed)


def architecture(args: argparse.Namespace) -> Architecture:
    """The model that flags or the spec name. Raises PlanError."""
    if args.model:
        return model.named(args.model, model.size(args.size) if args.size else None)
    if args.spec:
        from jobs.plan import from_spec

        return from_spec.architecture(_spec(args.spec), Path.home())
    if args.size:
        return model.named(f"a {args.size} model", model.size(args.size))
    raise PlanError("no model", "name one: --model Llama-3.1-8B, --model FOLDER, --size 7B or a spec file")


def workload(args: argparse.Namespace) -> Workload:
    """The workload: defaults, then the spec, then flags. Raises PlanError."""
    base = _asked(args.spec) if args.spec else Workload()
    given: dict[str, Any] = {f: getattr(args, f) for f in FIELDS if getattr(args, f, None) is not None}
    if args.method:
        given["method"] = args.method
        default = "nf4-dq" if args.method == "qlora" else "bf16"
        if args.method == "qlora" or base.quantized:
            given.setdefault("weight_format", default)
    if args.targets and args.targets != "all-linear":
        given["targets"] = tuple(word.strip() for word in args.targets.split(",") if word.strip())
    if args.save_embeddings:
        given["save_embeddings"] = True
    if (given.get("cards") or 1) > 1 and "sharding" not in given and base.sharding == "none":
        given["sharding"] = "zero3" if (args.method or base.method) == "full" else "ddp"
    return replace(base, **given)


def _asked(path: Path) -> Workload:
    from jobs.plan import from_spec

    return from_spec.workload(_spec(path))


def _spec(path: Path) -> Any:
    from jobs.spec import Spec, SpecError

    try:
        return Spec.parse(path.read_text(encoding="utf-8"), path.name)
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"{path} cannot be read: {error}", "name a run spec") from error
    except SpecError as error:
        raise Failure(str(error), status=USAGE) from error


def card_of(args: argparse.Namespace) -> tuple[Card | None, int | None]:
    """The card that flags name, or the cards of a node with their number. Raises PlanError."""
    if args.card:
        return hardware.named(args.card), None
    if args.host:
        return _cards_of_node(args)
    return None, None


def _cards_of_node(args: argparse.Namespace) -> tuple[Card, int]:
    from console.commands.reach import only_node, opened, settle

    with opened(args) as session:
        settle(session, args.timeout)
        name = only_node(session, args.host, args.timeout)
        gpus = list(session.fleet.nodes[name].state.gpus.values())
    if not gpus:
        raise PlanError(f"{name} has no cards", "name cards instead: --card RTX4090")
    card = hardware.named(gpus[0].name)
    seen = min((gpu.memory_total_bytes for gpu in gpus if gpu.memory_total_bytes), default=card.memory_bytes)
    name = f"SIMULATED {card.name}" if any(gpu.simulated for gpu in gpus) else card.name
    return replace(card, name=name, memory_bytes=seen), len(gpus)
