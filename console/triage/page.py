"""A verdict as one page: plain text, Markdown, HTML. No Textual."""

from __future__ import annotations

import html
import textwrap

from agent.triage.judge import place
from agent.triage.verdict import FAULT, HEALTHY, Aside, Fault, Quote, Verdict
from console.strings import _, plural

WIDTH = 100
QUOTED = 160  # characters of a quoted line shown on the page; --json has the whole line


def headline(verdict: Verdict) -> str:
    """The first line of every form."""
    if verdict.verdict == HEALTHY and not verdict.lines:
        return _("nothing could be read, so nothing can be said")
    if verdict.verdict == HEALTHY:
        return _("healthy: nothing in these files shows a fault")
    if verdict.verdict == FAULT:
        return _("{sureness}: {cause}").format(sureness=_(verdict.faults[0].sureness()), cause=verdict.faults[0].cause)
    return _("undetermined: {cause}").format(cause=verdict.faults[0].cause)


def read_line(verdict: Verdict) -> str:
    files = plural("{n} file", "{n} files", verdict.files)
    lines = plural("{n} line", "{n} lines", verdict.lines)
    return _("read {lines} of {files}").format(lines=lines, files=files)


def shown(quote: Quote) -> str:
    """A quote with its place, cut to the page."""
    text = quote.text.strip()
    return f"{quote.file}:{quote.line}: {text[:QUOTED] + '…' if len(text) > QUOTED else text}"


def _fields(fault: Fault) -> list[tuple[str, str]]:
    where = place(fault.culprit) or _("not known")
    return [
        (_("cause"), fault.cause),
        (_("where"), where),
        (_("sureness"), _("{words} ({figure:.0%})").format(words=_(fault.sureness()), figure=fault.confidence)),
        (_("why"), fault.reason),
        (_("do"), fault.remedy),
        (_("for"), _(fault.owner)),
    ]


def _aside_text(aside: Aside) -> str:
    return _("{count} × {what}: {why}").format(count=aside.count, what=_(aside.what), why=_(aside.why))


def as_text(verdict: Verdict) -> str:
    """The page for a terminal."""
    parts = [headline(verdict), ""]
    for number, fault in enumerate(verdict.faults, 1):
        parts += _fault_text(fault, number, len(verdict.faults))
    if verdict.asides:
        parts += [_("Set aside as consequences"), *(_wrapped("- ", _aside_text(a)) for a in verdict.asides), ""]
    if verdict.following:
        parts += [_("To collect next"), *(_wrapped("- ", f) for f in verdict.following), ""]
    parts += [*(_wrapped(_("note: "), n) for n in verdict.notes), read_line(verdict)]
    return "\n".join(parts)


def _fault_text(fault: Fault, number: int, total: int) -> list[str]:
    title = f"{number}. {fault.kind}" if total > 1 else fault.kind
    lines = [title, *(_wrapped(f"  {name:<9} ", value) for name, value in _fields(fault))]
    lines += [f"  {_('evidence'):<9}", *(f"    {shown(q)}" for q in fault.evidence)]
    return [*lines, ""]


def _wrapped(first: str, text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent=first, subsequent_indent=" " * len(first), break_long_words=False)


def as_markdown(verdict: Verdict) -> str:
    """The page for an issue or a chat."""
    parts = [f"# {headline(verdict)}", ""]
    for fault in verdict.faults:
        parts += [f"## {fault.kind}", "", *(f"- **{name}**: {value}" for name, value in _fields(fault)), ""]
        parts += ["```text", *(shown(q).replace("```", "'''") for q in fault.evidence), "```", ""]
    if verdict.asides:
        parts += ["## " + _("Set aside as consequences"), "", *(f"- {_aside_text(a)}" for a in verdict.asides), ""]
    if verdict.following:
        parts += ["## " + _("To collect next"), "", *(f"- {f}" for f in verdict.following), ""]
    parts += [*(f"> {n}" for n in verdict.notes), f"_{read_line(verdict)}_"]
    return "\n".join(parts)


STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem}
pre{background:#8882;padding:.6rem;overflow-x:auto;font-size:13px}dt{font-weight:600;float:left;width:7rem}
dd{margin:0 0 .3rem 7.5rem}@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}}"""


def as_html(verdict: Verdict) -> str:
    """The page as one file without scripts or outside references."""
    e = html.escape
    parts = [f"<!doctype html><meta charset=utf-8><title>{e(headline(verdict))}</title><style>{STYLE}</style>"]
    parts.append(f"<h1>{e(headline(verdict))}</h1>")
    for fault in verdict.faults:
        rows = "".join(f"<dt>{e(name)}</dt><dd>{e(value)}</dd>" for name, value in _fields(fault))
        quotes = "\n".join(e(shown(q)) for q in fault.evidence)
        parts.append(f"<h2>{e(fault.kind)}</h2><dl>{rows}</dl><pre>{quotes}</pre>")
    parts.append(_html_list(_("Set aside as consequences"), [_aside_text(a) for a in verdict.asides]))
    parts.append(_html_list(_("To collect next"), list(verdict.following)))
    parts.append(_html_list(_("Notes"), list(verdict.notes)) + f"<p>{e(read_line(verdict))}</p>")
    return "\n".join(p for p in parts if p) + "\n"


def _html_list(title: str, items: list[str]) -> str:
    if not items:
        return ""
    return f"<h2>{html.escape(title)}</h2><ul>{''.join(f'<li>{html.escape(i)}</li>' for i in items)}</ul>"
