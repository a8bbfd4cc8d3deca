"""The length distribution of a data set, and what padding costs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from jobs.plan.refusal import PlanError


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of each sample, sorted."""

    tokens: tuple[int, ...]

    @classmethod
    def read(cls, path: Path) -> Lengths:
        """From a file: a JSON list of numbers, or one number a line. Raises PlanError."""
        try:
            text = path.read_text(encoding="utf-8")
            values = json.loads(text) if text.lstrip().startswith("[") else [int(word) for word in text.split()]
        except OSError as error:
            raise PlanError(f"{path}: {error.strerror}", "name a file of token counts") from None
        except ValueError:
            raise PlanError(
                f"{path} is no list of token counts", "write one whole number a line, or a JSON list"
            ) from None
        if not values or not all(isinstance(v, int) and v > 0 for v in values):
            raise PlanError(f"{path} holds no positive whole numbers", "write the token count of each sample")
        return cls(tuple(sorted(values)))

    def cut(self, most: int) -> Lengths:
        """With samples longer than ``most`` tokens cut."""
        return Lengths(tuple(min(value, most) for value in self.tokens))

    @property
    def mean(self) -> float:
        return sum(self.tokens) / len(self.tokens)

    @property
    def longest(self) -> int:
        return self.tokens[-1]

    def padded_mean(self, batch: int) -> float:
        """Expected length of the longest of ``batch`` samples drawn at random: what each is padded to.

        E[max] = sum over sorted values of x_i ((i/n)^b - ((i-1)/n)^b).
        """
        n = len(self.tokens)
        return sum(x * ((i / n) ** batch - ((i - 1) / n) ** batch) for i, x in enumerate(self.tokens, 1))

    def useful_share(self, batch: int) -> float:
        """Share of computed tokens that are not padding."""
        return self.mean / self.padded_mean(batch)
