"""Which kernel runs which instruction: candidates, what may choose among them, and the pass."""

from __future__ import annotations

from hloopt.kernels.backend_config import drop_choices, read_choice
from hloopt.kernels.selection.choice import Choice
from hloopt.kernels.selection.chooser import choose
from hloopt.kernels.selection.selection import KernelSelection

__all__ = ["Choice", "KernelSelection", "choose", "drop_choices", "read_choice"]
