"""Which chart the Run screen should use: our braille chart against the kept libraries, at 8 charts × 1 Hz.

    python -m tests.bench.charts          what is installed of plotext, textual-plot
    python -m tests.bench.charts --bar    only ours, against its target

Per frame: CPU time to lay out 8 charts of 1,000 points and paint a 160×50 screen, headless. Import: a fresh process.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import math
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from textual.app import App, ComposeResult
from textual.widget import Widget
from textual.widgets import Static

from console.widgets.chart import Chart, Curve

CHARTS, POINTS, FRAMES = 8, 1000, 20
TARGET_FRAME_MS = 60.0
TARGET_IMPORT_MS = 30.0
Make = Callable[[int], tuple[Widget, Callable[[int], None]]]


STEPS = list(range(POINTS + FRAMES))
NOISE = random.Random(1)
LOSSES = [[3 * math.exp(-x / 300) + 0.3 * NOISE.random() for x in STEPS] for _chart in range(CHARTS)]


def points(frame: int, chart: int) -> tuple[list[int], list[float]]:
    return STEPS[: POINTS + frame], LOSSES[chart][: POINTS + frame]


def ours(chart: int) -> tuple[Widget, Callable[[int], None]]:
    held = Curve("loss", points(0, chart), smooth=True)
    widget = Chart(lambda: held)

    def update(frame: int) -> None:
        nonlocal held
        held = Curve("loss", points(frame, chart), smooth=True)
        widget.renew()

    return widget, update


def textual_plot(chart: int) -> tuple[Widget, Callable[[int], None]]:
    library: Any = importlib.import_module("textual_plot")
    widget = library.PlotWidget()

    def update(frame: int) -> None:
        widget.clear()
        widget.plot(*points(frame, chart), hires_mode=library.HiResMode.BRAILLE)

    return widget, update


def plotext(chart: int) -> tuple[Widget, Callable[[int], None]]:
    library: Any = importlib.import_module("plotext")
    text: Any = importlib.import_module("rich.text").Text
    widget = Static()

    def update(frame: int) -> None:
        library.clear_figure()
        library.plotsize(max(widget.size.width, 10), max(widget.size.height, 5))
        library.plot(*points(frame, chart), marker="braille")
        widget.update(text.from_ansi(library.build()))

    return widget, update


class Bench(App[None]):
    CSS = "Screen { layout: grid; grid-size: 2 4; } Widget { height: 1fr; }"

    def __init__(self, make: Make) -> None:
        super().__init__()
        self.charts = [make(i) for i in range(CHARTS)]

    def compose(self) -> ComposeResult:
        yield from (widget for widget, _update in self.charts)


async def frame_ms(make: Make) -> float:
    """Median CPU milliseconds of one frame with all charts changed."""
    app = Bench(make)
    async with app.run_test(size=(160, 50)) as pilot:
        spent = []
        for frame in range(FRAMES):
            await pilot.pause()
            began = time.process_time()
            for _widget, update in app.charts:
                update(frame)
            await pilot.pause()
            spent.append((time.process_time() - began) * 1000)
    return statistics.median(spent[2:])


def import_ms(module: str) -> float:
    """Median over five fresh processes of what importing it adds to textual."""
    clock = "time.perf_counter()"
    code = f"import textual.app, textual.scroll_view, time; t={clock}; import {module}; print({clock}-t)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _i in range(5)]
    return statistics.median(float(run.stdout) for run in runs) * 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bar", action="store_true")
    bar = parser.parse_args().bar
    cases: list[tuple[str, str, Make]] = [("console.widgets.chart", "ours", ours)]
    if not bar:
        cases += [("textual_plot", "textual-plot", textual_plot), ("plotext", "plotext", plotext)]
    figures: dict[str, tuple[float, float]] = {}
    for module, name, make in cases:
        try:
            figures[name] = asyncio.run(frame_ms(make)), import_ms(module)
        except ImportError:
            print(f"{name:<14} not installed")
    base = figures["ours"][0]
    for name, (frame, load) in figures.items():
        print(f"{name:<14} {frame:7.1f} ms/frame ({frame / base:4.1f}×)   import {load:6.1f} ms")
    frame, load = figures["ours"]
    print(f"target         frame {frame:.1f} ≤ {TARGET_FRAME_MS:.0f} ms, import {load:.1f} ≤ {TARGET_IMPORT_MS:.0f} ms")
    return int(bar and (frame > TARGET_FRAME_MS or load > TARGET_IMPORT_MS))


if __name__ == "__main__":
    sys.exit(main())
