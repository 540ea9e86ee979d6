"""What a pass is.

A pass is a frozen dataclass; its fields are its options, and ``name{key=value}`` text round-trips to it.
Its contract: a valid module in, a valid module out, and an honest answer whether anything changed.  The
runner verifies, times, prints and counts, so that a pass knows none of that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar

from hloopt.ir import Module

__all__ = ["Pass", "PassLog"]


@dataclass
class PassLog:
    """What a pass tells about itself while it runs.

    ``hits`` says how often each rule or step applied; ``notes`` are sentences a user should see (a
    rule set that does not come to rest, a limit that stopped the work); ``records`` are whole plans,
    for whoever explains them.
    """

    hits: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    records: list[object] = field(default_factory=list)

    def hit(self, rule: str, count: int = 1) -> None:
        """Count an application of a rule, named by its equation, or of a step of the pass."""
        self.hits[rule] += count

    def note(self, sentence: str) -> None:
        """Tell the user something that is not a change."""
        self.notes.append(sentence)


class Pass(ABC):
    """Base of all passes.  The first line of the docstring is what ``hloopt passes`` shows.

    ``keeps_schedule`` says that the order of the instructions that stay is untouched; after any other
    pass that changed the module the runner drops ``is_scheduled``.  ``rules`` are the equations of a pass
    that applies rules, each with whether it needs the option ``fast_math``.
    """

    name: ClassVar[str]
    keeps_schedule: ClassVar[bool] = False
    rules: ClassVar[Mapping[str, bool]] = MappingProxyType({})

    @abstractmethod
    def run(self, module: Module, log: PassLog) -> bool:
        """Change the module in place; say whether it changed."""
