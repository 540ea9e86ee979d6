"""XLA's algebraic simplifier, entry by entry: which rules here do the same, and what is left out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hloopt.passes.simplify.xla import arithmetic, boolean, shape, slices, structure
from hloopt.passes.simplify.xla.entry import Entry

__all__ = ["ENTRIES", "Entry", "own_rules"]

ENTRIES: tuple[Entry, ...] = (
    *arithmetic.ENTRIES,
    *boolean.ENTRIES,
    *shape.ENTRIES,
    *slices.ENTRIES,
    *structure.ENTRIES,
)

_OTHER_PASSES: Final = frozenset({
    "while(A) that never runs => A", "while(A) that runs once => call(A)",
    "conditional(C, A, B) => call(A)", "constant((A, B)) => tuple(constant(A), constant(B))",
    "get-dimension-size(A) => n of a static dimension",
    "set-dimension-size(A, n) => A of a static dimension",
})  # fmt: skip
"""What other passes of XLA do that run beside its simplifier."""

_FURTHER: Final = frozenset({
    # XLA does this for its CPU only, and that where the slice runs along the concatenate only.
    "A / broadcast(B) => A * broadcast(1 / B)",
    "slice(concatenate(A, B)) => concatenate(slice(A), slice(B))",
    # On GPUs the results of conditionals are tuples when the simplifier sees them.
    "conditional(I, A, B) of scalars => select(I, A, B)",
    # XLA looks at two scalars that are less than constants.
    "A < C1 & A < C2 => A < min(C1, C2)",
    # Of a reshape XLA moves the slice of the first rows only.
    "slice(reshape(A)) => reshape(slice(A))",
})  # fmt: skip
"""What goes further than XLA's rule of its number does for GPUs."""


def own_rules(names: Iterable[str]) -> tuple[str, ...]:
    """Of the equations of rules those that XLA's simplifier for GPUs has not, or not as far."""
    had = {rule for entry in ENTRIES for rule in entry.rules} | _OTHER_PASSES
    return tuple(name for name in names if name not in had or name in _FURTHER)
