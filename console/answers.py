"""What the user has answered while the console is open: passphrases, passwords, host keys vouched for. Memory only."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from console.refusal import Question


class Answers:
    """Shared by all links, so that one passphrase opens a key for a thousand nodes. Thread-safe."""

    def __init__(self, fingerprints: Iterable[str] = ()) -> None:
        self._lock = threading.Lock()
        self._given: dict[tuple[str, str], str] = {("host-key", word): "yes" for word in fingerprints}
        self._waiting: dict[int, tuple[tuple[str, str], threading.Event]] = {}

    def get(self, kind: str, subject: str) -> str | None:
        with self._lock:
            return self._given.get((kind, subject))

    def give(self, question: Question, text: str) -> None:
        """Remember the answer and wake every link that waits for it."""
        key = (question.kind, question.subject)
        with self._lock:
            self._given[key] = text
            bells = [bell for asked, bell in self._waiting.values() if asked == key]
        for bell in bells:
            bell.set()

    def forget(self, kind: str, subject: str) -> None:
        """An answer that turned out wrong: it is asked again."""
        with self._lock:
            self._given.pop((kind, subject), None)

    def wait(self, question: Question | None, bell: threading.Event) -> None:
        """Ring `bell` when `question` is answered; None: not waiting any more."""
        with self._lock:
            self._waiting.pop(id(bell), None)
            if question is not None:
                self._waiting[id(bell)] = ((question.kind, question.subject), bell)
                if (question.kind, question.subject) in self._given:
                    bell.set()
