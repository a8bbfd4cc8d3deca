"""Why a run cannot go on, in words a user can act on."""

from __future__ import annotations


class JobError(Exception):
    """What is wrong, and what to do about it."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint

    def __str__(self) -> str:
        return f"{self.message}. {self.hint}"
