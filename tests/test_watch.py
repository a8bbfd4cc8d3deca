"""The headless console: what it hears is sent once to a real web server, and kept until it is taken."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from agent import wire
from console.document import ConfigError
from console.notify import Undelivered, Ways, load
from console.watch import Spool, Watch
from tests.fakes.node import until
from tests.fakes.sitting import Sitting, sitting


class Hook(HTTPServer):
    """Refuses the first `refusals` posts."""

    def __init__(self, refusals: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.refusals, self.taken = refusals, list[dict[str, Any]]()


class Handler(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        refused = self.server.refusals > 0
        self.server.refusals -= refused
        if not refused:
            self.server.taken.append(body)
        self.send_response(503 if refused else 204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook(refusals=1)
    thread = threading.Thread(target=made.serve_forever, args=(0.02,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def watching(
    sat: Sitting, path: Path, url: str, said: list[str], down_s: float = 60.0
) -> tuple[Watch, threading.Thread]:
    watch = Watch(sat.session, Ways(webhooks=(url,)), Spool.read(path), said.append, down_s)
    sat.session.start()
    thread = threading.Thread(target=watch.run)
    thread.start()
    return watch, thread


def stop(watch: Watch, thread: threading.Thread) -> None:
    watch.over.set()
    thread.join()
    watch.sender.join()


def raise_one(sat: Sitting, seq: int, text: str, **data: object) -> None:
    event = wire.Event("s", seq, 1e9, "alert.raised", text, "critical", None, {"id": "a", "rule": "a", **data})
    sat.session.inbox.append(("node1", event))


def test_alerts_are_sent_once_also_over_a_failure_and_a_restart(tmp_path: Path, hook: Hook) -> None:
    url, said = f"http://127.0.0.1:{hook.server_port}/secret-token", list[str]()
    sat = sitting("node1", runs=False)
    watch, thread = watching(sat, tmp_path / "watch.json", url, said)
    until(lambda: watch.spool.told.get("node1"))
    raise_one(sat, 50, "hot")
    raise_one(sat, 51, "quiet", muted_until_unix=2e9)
    until(lambda: hook.taken)
    until(lambda: not watch.spool.pending)
    stop(watch, thread)
    assert [one["text"] for one in hook.taken] == ["node1: hot"] and hook.taken[0]["rule"] == "a"
    assert any("webhook 0 failed, again in 1 s: HTTP 503" in line for line in said)
    assert not any("secret-token" in line for line in said)
    sat = sitting("node1", runs=False)
    watch, thread = watching(sat, tmp_path / "watch.json", url, said)
    raise_one(sat, 50, "hot")
    raise_one(sat, 52, "again")
    until(lambda: len(hook.taken) > 1)
    stop(watch, thread)
    assert [one["text"] for one in hook.taken] == ["node1: hot", "node1: again"]


def test_what_fires_already_when_first_watched_is_sent(tmp_path: Path) -> None:
    sat = sitting("node1", runs=False)
    said: list[str] = []
    watch = Watch(sat.session, Ways(command=("true",)), Spool.read(tmp_path / "watch.json"), said.append)
    sat.session.start()
    hot = {one: wire.Alert(one, one, "critical", one, acked_by="ann" if one == "b" else "") for one in ("a", "b")}
    sat.links["node1"].tell(replace(sat.links["node1"].state, alerts=hot))
    watch.turn()
    assert [notice["text"] for _way, notice in watch.spool.pending] == ["node1: a"]


def test_a_silent_node_is_told_and_that_it_is_back(tmp_path: Path, hook: Hook) -> None:
    hook.refusals = 0
    sat = sitting("node1", runs=False)
    watch, thread = watching(sat, tmp_path / "watch.json", f"http://127.0.0.1:{hook.server_port}/", [], 0.2)
    until(lambda: watch.spool.told.get("node1"))
    sat.links["node1"].live("down", why="connection refused")
    until(lambda: hook.taken)
    sat.links["node1"].live()
    until(lambda: len(hook.taken) == 2)
    stop(watch, thread)
    assert [one["state"] for one in hook.taken] == ["raised", "cleared"]
    assert "connection refused" in hook.taken[0]["text"]


def test_a_bad_notify_file_is_one_error_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "notify.yaml").write_text("severity: warn\nwebhook: ftp://x\n")
    with pytest.raises(ConfigError, match=r"notify.yaml:2: webhook is no web address"):
        load(tmp_path)


# apprise still imports a module of the standard library that is to go
@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")
def test_a_service_that_apprise_knows_takes_it_or_is_said_to_have_refused(hook: Hook) -> None:
    port = hook.server_address[1]
    ways = Ways(services=(f"json://127.0.0.1:{port}/alert",))
    notice = {"text": "gpu01: GPU 3 does not answer"}
    with pytest.raises(Undelivered, match="did not take it"):
        ways.send("services", notice)  # the server refuses the first
    ways.send("services", notice)
    assert [(one["title"], one["message"]) for one in hook.taken] == [("tunedeck", notice["text"])]


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")
def test_an_address_that_apprise_does_not_know_is_said_without_it() -> None:
    with pytest.raises(Undelivered) as refused:
        Ways(services=("nonsense://secret-token",)).send("services", {"text": "x"})
    assert "secret" not in str(refused.value)
