"""XLA's algebraic simplifier, entry by entry: which rules here do the same, and what is left out."""

from hloopt.passes.simplify.xla import arithmetic, boolean, shape, slices, structure
from hloopt.passes.simplify.xla.entry import Entry

__all__ = ["ENTRIES", "Entry"]

ENTRIES: tuple[Entry, ...] = (
    *arithmetic.ENTRIES,
    *boolean.ENTRIES,
    *shape.ENTRIES,
    *slices.ENTRIES,
    *structure.ENTRIES,
)
