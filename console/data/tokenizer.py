"""Which tokenizer and cut length: named by flags, or taken from a run spec."""

from __future__ import annotations

import argparse
from pathlib import Path

from console.failure import USAGE, Failure
from console.strings import _
from jobs.data.tokens import Tokens
from jobs.spec import Spec, SpecError


def add_tokenizer(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(_("tokens, as in training"))
    group.add_argument("--tokenizer", type=Path, metavar="FOLDER", help=_("a model's folder with its tokenizer.json"))
    group.add_argument("--spec", type=Path, metavar="FILE", help=_("a run spec: its model and its max_length"))
    group.add_argument("--max-length", type=int, metavar="N", help=_("tokens at which training cuts an example"))


def asked_for(args: argparse.Namespace) -> tuple[Tokens | None, int | None]:
    """Tokenizer and cut length; None for what was not said. Raises Failure, JobError."""
    folder, longest = args.tokenizer, args.max_length
    if args.spec is not None:
        spec = _spec(args.spec)
        longest = longest or spec.data.max_length
        folder = folder or spec.model_folder(Path.home())
        if folder is None:
            hint = _("name a folder with its tokenizer: --tokenizer FOLDER")
            raise Failure(_("{model} is no folder on this machine").format(model=spec.model), hint, USAGE)
    if longest is not None and longest < 1:
        raise Failure(_("--max-length {n} is no length").format(n=longest), "", USAGE)
    return (Tokens(folder.expanduser()) if folder is not None else None), longest


def _spec(path: Path) -> Spec:
    try:
        return Spec.parse(path.read_text(encoding="utf-8"), path.name)
    except (OSError, UnicodeDecodeError) as error:
        message = _("{path} cannot be read: {why}").format(path=path, why=error)
        raise Failure(message, _("name a run spec"), USAGE) from error
    except SpecError as error:
        raise Failure(str(error), status=USAGE) from error
