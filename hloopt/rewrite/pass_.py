"""What a pass is.

A pass is a frozen dataclass; its fields are its options, and ``name{key=value}`` text round-trips to it.
Its contract: a valid module in, a valid module out, and an honest answer whether anything changed.  The
runner verifies, times, prints and counts, so that a pass knows none of that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar

from hloopt.ir import Module

__all__ = ["Pass", "PassLog"]


@dataclass
class PassLog:
    """What a pass tells about itself while it runs: how often each rule or step applied."""

    hits: Counter[str] = field(default_factory=Counter)

    def hit(self, rule: str, count: int = 1) -> None:
        """Count an application of a rule, named by its equation, or of a step of the pass."""
        self.hits[rule] += count


class Pass(ABC):
    """Base of all passes.  The first line of the docstring is what ``hloopt passes`` shows."""

    name: ClassVar[str]

    @abstractmethod
    def run(self, module: Module, log: PassLog) -> bool:
        """Change the module in place; say whether it changed."""
