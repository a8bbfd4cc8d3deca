"""The one place where text for the user is looked up in the language in force."""

from __future__ import annotations

import gettext

_CATALOGUE = gettext.NullTranslations()


def _(text: str) -> str:
    """`text` in the user's language. Placeholders are filled afterwards: ``_("{n} nodes").format(n=8)``."""
    return _CATALOGUE.gettext(text)


def plural(one: str, many: str, n: int) -> str:
    """The form for `n`, with ``{n}`` filled in."""
    return _CATALOGUE.ngettext(one, many, n).format(n=n)
