"""Lines keep their width whatever stands in them; charts lose no spike."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from console.screens.log import log_lines, next_rank
from console.widgets.chart import TURN, Curve, Frame, bounds, dots, plot, smoothed
from console.widgets.paint import aligned, bar, cells, crop, fit, join, one_line, pairs, spread, wrapped

TEXTS = st.text(alphabet="ab z千问🚀é·", max_size=30)


@given(TEXTS, st.integers(0, 24))
def test_fit_is_exact(text: str, width: int) -> None:
    assert cell_len(fit(text, width)) == width


@given(st.lists(TEXTS, max_size=4), st.integers(0, 40), st.booleans())
def test_crop_and_aligned_are_exact(texts: list[str], width: int, right: bool) -> None:
    line = tuple((text, "text") for text in texts)
    assert cells(crop(line, width)) == width
    assert cells(aligned(line, width, right)) == width


@given(TEXTS, TEXTS, st.integers(1, 60))
def test_spread_is_exact(left: str, right: str, width: int) -> None:
    assert cells(spread(((left, "text"),), ((right, "dim"),), width)) == width


@given(TEXTS, st.integers(2, 20))
def test_wrapped_fits_and_loses_no_word(text: str, width: int) -> None:
    lines = wrapped(text, width, "text")
    assert all(cells(line) <= width for line in lines)
    assert "".join(part for line in lines for part, _role in line).replace(" ", "") == text.replace(" ", "")


@given(TEXTS, st.integers(9, 20))
def test_log_lines_fit(text: str, width: int) -> None:
    lines = log_lines([text], width)
    assert all(cells(line) <= width for line in lines)
    assert "".join(part for line in lines for part, role in line if role != "track") == text


@pytest.mark.parametrize(("fraction", "text"), [(0.0, "────"), (0.5, "━━──"), (0.6, "━━╸─"), (9.0, "━━━━")])
def test_bar(fraction: float, text: str) -> None:
    assert "".join(part for part, _role in bar(fraction, 4, "ok")) == text


def test_unknown_bar_is_no_empty_bar() -> None:
    assert bar(None, 4, "ok") != bar(0.0, 4, "ok")


def test_join_leaves_no_gap_for_what_is_not_there() -> None:
    assert join([(("a", "text"),), (), (("b", "dim"),)]) == (("a", "text"), ("  ", "text"), ("b", "dim"))


def test_pairs_fill_rows() -> None:
    rows = pairs([(str(i), (("v", "text"),)) for i in range(5)], 40, 3, columns=2)
    assert [cells(row) for row in rows] == [40, 40, 20]


def test_line_feeds_of_a_node_do_not_break_the_grid() -> None:
    assert one_line("a\nb\tc") == "a b c"


@pytest.mark.parametrize("size", [(10, 3), (13, 2), (40, 8), (160, 30), (3, 1), (40, 0)])
@pytest.mark.parametrize("ys", [[], [1.0], [2.0, 2.0], [0.0, 0.0], [1.0, math.nan, 3.0], [math.nan], [1e-9, 1e9]])
def test_a_chart_fits_its_place(size: tuple[int, int], ys: list[float]) -> None:
    width, height = size
    lines = plot(Curve("loss", (list(range(len(ys))), ys), smooth=True), width, height)
    assert len(lines) <= height
    assert all(cells(line) <= max(width, 0) for line in lines)


def test_a_single_spike_among_thousands_is_drawn() -> None:
    ys = [1.0] * 5000
    ys[2345] = 9.0
    assert any(dots(range(5000), ys, Frame(0, 4999, 1.0, 9.0, 20, 6))[0])


def test_a_hole_is_not_bridged() -> None:
    bits = dots(range(9), [1.0, 1, 1, math.nan, math.nan, math.nan, 1, 1, 1], Frame(0, 8, 0.0, 2.0, 9, 1))
    assert 0 in bits[0][2:7]


def test_abandoned_steps_are_drawn_beside_the_line_and_stretch_the_axes() -> None:
    kept, spike = (range(30), [1.0] * 30), (range(20, 41), [*[1.0] * 15, *[9.0] * 6])
    plain = plot(Curve("loss", kept), 60, 10)
    branched = plot(Curve("loss", kept, left=(spike,), turns=(20, 5)), 60, 10)
    text = ["".join(part for part, _role in line) for line in branched]
    assert text[0].strip().startswith("9")
    assert text[-1].endswith("step 40")
    assert f"{TURN} 5" in text[-1]
    assert f"{TURN} 20" in text[-1]
    assert any(role == "dim" and any(ord(char) > 0x2800 for char in part) for part, role in branched[0])
    assert plain != branched


def test_an_abandoned_line_differs_without_colour() -> None:
    """Every other dot of it is left out."""
    pieces = (list(range(40)), [1.0] * 20 + [5.0] * 20)
    full, dotted = plot(Curve("x", pieces), 49, 6), plot(Curve("x", ([], []), left=(pieces,)), 49, 6)
    ink = [
        sum((ord(c) - 0x2800).bit_count() for line in drawn for t, _r in line for c in t if ord(c) >= 0x2800)
        for drawn in (full, dotted)
    ]
    assert 0 < ink[1] < ink[0]


def test_smoothing_starts_at_the_first_value() -> None:
    assert smoothed([5.0, 5.0, 5.0]) == pytest.approx([5.0, 5.0, 5.0])


def test_bounds_have_room_around_a_flat_line() -> None:
    low, high = bounds([2.0, 2.0], from_zero=False)
    assert low < 2.0 < high
    assert bounds([5.0, 7.0], from_zero=True) == (0.0, 7.0)


def test_ranks_go_round_by_way_of_the_launcher() -> None:
    assert [next_rank(0, (0, 1), 1), next_rank(1, (0, 1), 1), next_rank(None, (0, 1), 1)] == [1, None, 0]
    assert next_rank(0, (), -1) is None
