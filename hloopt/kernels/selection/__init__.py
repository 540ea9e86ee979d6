"""Which kernel runs which instruction: candidates, selectors, the user's hand, and the pass."""

from __future__ import annotations

from hloopt.kernels.selection.choice import Choice, Considered
from hloopt.kernels.selection.choose import choose
from hloopt.kernels.selection.selection import KernelSelection
from hloopt.kernels.written import drop_choices, read_choice

__all__ = ["Choice", "Considered", "KernelSelection", "choose", "drop_choices", "read_choice"]
