"""Gates of a study: how many times as fast as the baseline something has to be.

``2.7`` is for the fastest strategy of each module on each device that has times, ``NAME=28`` for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.report.study import Study
from hloopt.rewrite.spec import did_you_mean

__all__ = ["RatioGate", "Reached", "parse_gate"]


@dataclass(frozen=True, slots=True)
class Reached:
    """What one module reached on one device; None without a time, or where the results differ."""

    module: str
    device: str
    ratio: float | None
    passed: bool


@dataclass(frozen=True, slots=True)
class RatioGate:
    """The least ratio; ``strategy`` is empty where the fastest one counts."""

    text: str
    ratio: float
    strategy: str = ""

    def check_name(self, names: Sequence[str]) -> None:
        """Raise ``UsageError`` for a strategy that is not there."""
        if self.strategy and self.strategy not in names:
            hint = did_you_mean(self.strategy, names)
            raise UsageError(f"--gate {self.text}: no strategy is called '{self.strategy}'{hint}")

    def check(self, study: Study) -> list[Reached]:
        """What each module reached, where the strategy is for it and the device has times."""
        found: list[Reached] = []
        for module in study.modules:
            names = [one.name for one in study.rows(module.name)]
            if self.strategy:
                names = [name for name in names if name == self.strategy]
            for device in study.devices:
                cells = [study.cell(module.name, name, device.name) for name in names]
                there = [one for one in cells if one is not None and not one.missing]
                if not there or there[0].way == "verified":
                    continue
                cell = there[0] if self.strategy else study.best(module.name, device.name)
                ratio = None if cell is None or cell.wrong else study.over(cell).value
                passed = ratio is not None and ratio >= self.ratio
                found.append(Reached(module.name, device.name, ratio, passed))
        return found

    def line(self, reached: Reached) -> str:
        """A line about one that did not pass."""
        what = self.strategy or "the fastest"
        got = "no time" if reached.ratio is None else f"{reached.ratio:.2f}x"
        return f"{reached.module}, {reached.device}: {what}: {got}, wanted {self.ratio:g}x"

    def json(self, reached: Sequence[Reached]) -> dict[str, Any]:
        """The gate and what was reached as JSON values."""
        return {
            "gate": self.text,
            "ratio": self.ratio,
            "strategy": self.strategy or None,
            "passed": bool(reached) and all(one.passed for one in reached),
            "reached": [asdict(one) for one in reached],
        }


def parse_gate(text: str) -> RatioGate:
    """Read ``RATIO`` or ``STRATEGY=RATIO``.  Raises ``UsageError``."""
    name, _, number = text.rpartition("=")
    try:
        ratio = float(number.removesuffix("x"))
    except ValueError:
        ratio = -1.0
    if not isfinite(ratio) or ratio <= 0:
        raise UsageError(f"--gate {text}: expected RATIO or STRATEGY=RATIO, such as 2.7 or O3=28")
    return RatioGate(text, ratio, name.strip())
