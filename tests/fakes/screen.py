"""Driving the console by its keys and reading what it paints."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from textual.pilot import Pilot

from console.app import TunedeckApp
from tests.fakes.sitting import Sitting

DEADLINE_S = 20.0


def painted(app: TunedeckApp) -> str:
    """The text on the screen in front, row by row."""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


async def until(pilot: Pilot[None], true: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < deadline, f"did not come about; on the screen:\n{painted(app_of(pilot))}"
        await pilot.pause(0.02)


def app_of(pilot: Pilot[None]) -> TunedeckApp:
    assert isinstance(pilot.app, TunedeckApp)
    return pilot.app


def told(app: TunedeckApp) -> str:
    """The notices in the corner; on the screen they are wrapped."""
    return "\n".join(notice.message for notice in app._notifications)


async def shows(pilot: Pilot[None], *texts: str) -> None:
    await until(pilot, lambda: all(text in painted(app_of(pilot)) for text in texts))


@asynccontextmanager
async def console(sat: Sitting, size: tuple[int, int] = (100, 30)) -> AsyncIterator[Pilot[None]]:
    """The console in front of these nodes, all of them heard."""
    app = TunedeckApp(lambda: sat.session)
    async with app.run_test(size=size, notifications=True) as pilot:
        await until(pilot, lambda: app.desk.session is not None)
        await until(pilot, lambda: all(node.level for node in sat.session.fleet.nodes.values()))
        await until(pilot, lambda: app.screen.query("#header"))
        app.tick()
        yield pilot
