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
        self._wrong: set[tuple[str, str]] = set()
        self._waiting: dict[int, tuple[tuple[str, str], threading.Event]] = {}

    def get(self, kind: str, subject: str) -> str | None:
        with self._lock:
            return self._given.get((kind, subject))

    def give(self, question: Question, text: str) -> None:
        """Remember the answer and wake every link that waits for it."""
        key = (question.kind, question.subject)
        with self._lock:
            self._given[key] = text
            self._wrong.discard(key)
            bells = [bell for asked, bell in self._waiting.values() if asked == key]
        for bell in bells:
            bell.set()

    def forget(self, kind: str, subject: str) -> None:
        """An answer that turned out wrong: it is asked again."""
        with self._lock:
            if self._given.pop((kind, subject), None) is not None:
                self._wrong.add((kind, subject))

    def take(self, kind: str, subject: str) -> str | None:
        """An answer that serves only once."""
        with self._lock:
            return self._given.pop((kind, subject), None)

    def was_wrong(self, kind: str, subject: str) -> bool:
        """The last answer was tried and not accepted."""
        with self._lock:
            return (kind, subject) in self._wrong

    def wait(self, question: Question | None, bell: threading.Event) -> None:
        """Ring `bell` when `question` is answered; None: not waiting any more."""
        with self._lock:
            self._waiting.pop(id(bell), None)
            if question is not None:
                self._waiting[id(bell)] = ((question.kind, question.subject), bell)
                if (question.kind, question.subject) in self._given:
                    bell.set()
