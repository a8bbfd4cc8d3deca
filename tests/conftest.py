"""Fixtures that several files share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.node import Node, variables

collect_ignore = [] if os.getuid() == 0 else ["test_links_netns.py"]
"""Networks and mounts of one's own take root."""


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    """A node of the test's own; what it started is ended with it."""
    for name, value in variables(tmp_path).items():
        monkeypatch.setenv(name, value)
    made = Node(tmp_path)
    yield made
    made.close()
