"""Plain columns for the terminal, aligned by what characters really occupy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len

from agent import wire


def lines(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Left-aligned columns two spaces apart."""
    table = [list(header), *(list(row) for row in rows)]
    widths = [max(cell_len(row[i]) for row in table) for i in range(len(header))]
    return [
        "  ".join(cell + " " * (w - cell_len(cell)) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]


def show(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print("\n".join(lines(header, rows)))


def show_json(value: Any) -> None:
    """One JSON document; NaN and infinities, which JSON lacks, as tagged values."""
    print(json.dumps(wire.pack(value, tagged=False), ensure_ascii=False, indent=2))
