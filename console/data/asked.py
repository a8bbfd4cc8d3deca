"""What the arguments of all `tunedeck data` commands say: which files, and how to read them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from console.data.progress import Progress
from console.failure import USAGE, Failure
from console.strings import _
from jobs.data import source
from jobs.data.columns import LAYOUTS
from jobs.data.reading import Choices, DataSet

ROLES = ("system", "user", "assistant", "tool")


def add_files(parser: argparse.ArgumentParser, what: str | None = None) -> None:
    """The arguments by which every command finds and reads its rows."""
    help_text = what or _("files, folders or patterns: json, jsonl, csv, tsv, txt, parquet, arrow, xlsx, also as .gz")
    parser.add_argument("paths", nargs="+", metavar="PATH", help=help_text)
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help=_("print JSON"))
    group = parser.add_argument_group(_("how to read"), _("without these it is found out, and shown"))
    group.add_argument("--format", choices=LAYOUTS, help=_("the layout of the rows"))
    group.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="FIELD=COLUMN",
        help=_("which column holds what, for example instruction=question"),
    )
    group.add_argument(
        "--role",
        action="append",
        default=[],
        metavar="WORD=ROLE",
        help=_("a speaker's name in the data, for example customer=user"),
    )
    group.add_argument("--encoding", metavar="NAME", help=_("of text files, for example gbk"))


def add_report(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(_("what to show"))
    group.add_argument("--all", action="store_true", help=_("every finding, not a few of each kind"))
    group.add_argument(
        "--report", type=Path, metavar="FILE", help=_("write every finding there, one JSON object a line")
    )


def data_set(args: argparse.Namespace, more: Sequence[str] = ()) -> tuple[DataSet, Progress]:
    """The data that was asked for, and the progress it reports to. Raises Failure and JobError."""
    choices = Choices(args.format, _pairs(args.map, "--map"), _roles(args.role), _encoding(args.encoding))
    paths = source.found([*args.paths, *more])
    _refuse_written(args, paths)
    progress = Progress()
    data = DataSet(paths, choices, progress.show)
    progress.total_bytes = data.size_bytes
    return data, progress


def _refuse_written(args: argparse.Namespace, read: Sequence[Path]) -> None:
    """What is written beside the result: nothing that is there is replaced, least of all what is read."""
    for option in ("report", "lengths"):
        path: Path | None = getattr(args, option, None)
        if path is None:
            continue
        there = path.expanduser()
        if there == getattr(args, "output", None) or any(there.exists() and there.samefile(one) for one in read):
            raise Failure(_("{path} is both read and written").format(path=path), _("Name another file."), USAGE)
        if there.is_file() and not getattr(args, "force", False):
            raise Failure(_("{path} is there already").format(path=path), _("Name another file."), USAGE)


def _pairs(words: Sequence[str], option: str) -> dict[str, str]:
    pairs = [word.partition("=") for word in words]
    for left, equals, right in pairs:
        if not (left and equals and right):
            raise Failure(_("{option} {word} is no pair").format(option=option, word=left), _("write NAME=NAME"), USAGE)
    return {left: right for left, _equals, right in pairs}


def _roles(words: Sequence[str]) -> dict[str, str]:
    roles = _pairs(words, "--role")
    for word, role in roles.items():
        if role not in ROLES:
            hint = _("roles are {roles}: --role {word}=user").format(roles=", ".join(ROLES), word=word)
            raise Failure(_("{role} is no role").format(role=role), hint, USAGE)
    return roles


def _encoding(name: str | None) -> str | None:
    if name is None:
        return None
    import codecs

    try:
        found = codecs.lookup(name)
        "".encode(found.name)  # rot13, hex and their like turn text into text, or bytes into bytes
        return found.name
    except (LookupError, UnicodeError):
        hint = _("for example utf-8, gbk, utf-16, latin-1")
        raise Failure(_("{name} is no encoding that is known").format(name=name), hint, USAGE) from None
