"""What a command says when it cannot go on: what is wrong, where, and what to do."""

from __future__ import annotations

USAGE = 2
SSH = 255


class Failure(Exception):
    """Ends a command with one clear message. `status` is 1 for a failure, 2 for usage or configuration, 255 for SSH."""

    def __init__(self, message: str, hint: str = "", status: int = 1) -> None:
        super().__init__(message)
        self.message, self.hint, self.status = message, hint, status

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message
