"""The one error of the planner: what is wrong, and what to do."""

from __future__ import annotations


class PlanError(ValueError):
    """A question the planner cannot answer. ``message`` says what is wrong and where, ``hint`` what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message
