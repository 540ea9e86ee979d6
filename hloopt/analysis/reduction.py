"""The physical form of a reduce, and whether a tiled (block-level) kernel pays off for it.

Constants are XLA's (``reduction_utils``): a warp is 32 threads, a row kernel has at most 1024.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hloopt.analysis.layout import major_to_minor
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.types import ArrayShape

__all__ = [
    "WARP_SIZE",
    "ReductionDims",
    "is_fast_row",
    "is_race_free",
    "is_unnested",
    "reduction_dims",
]

WARP_SIZE = 32
_MAX_ROW_ELEMENTS = 1024 * 16
_MAX_ROW_BATCH = 8
_MAX_COLUMN_ELEMENTS = WARP_SIZE * 128


@dataclass(frozen=True, slots=True)
class ReductionDims:
    """A reduce as three merged dimensions, slowest first.

    row     ``(major reduced, kept, minor reduced)``
    column  ``(major kept, reduced, minor kept)``
    """

    is_row: bool
    dims: tuple[int, int, int]


def reduction_dims(reduce: Instruction) -> ReductionDims | None:
    """The merged form, or None when neither kept nor reduced dimensions are consecutive in memory.

    Layouts are respected; ``reduce`` may be variadic (its first input counts).
    """
    shape = reduce.operands[0].shape
    if not isinstance(shape, ArrayShape):
        return None
    reduced = set(reduce.dimensions)
    order = major_to_minor(shape)
    kept_at = [at for at, dimension in enumerate(order) if dimension not in reduced]
    if not kept_at:
        return ReductionDims(True, (1, 1, shape.elements))
    sizes = [shape.dims[dimension] for dimension in order]
    if _consecutive(kept_at):
        major, kept, minor = _split(sizes, kept_at)
        if kept == 1:
            return ReductionDims(True, (1, 1, major * minor))
        if minor == 1:
            return ReductionDims(False, (1, major, kept))
        return ReductionDims(True, (major, kept, minor))
    reduced_at = [at for at, dimension in enumerate(order) if dimension in reduced]
    if not reduced_at or not _consecutive(reduced_at):
        return None
    major, middle, minor = _split(sizes, reduced_at)
    if minor == 1:
        return ReductionDims(True, (1, major, middle))
    return ReductionDims(False, (major, middle, minor))


def is_unnested(reduce: Instruction) -> bool:
    """Whether a reduce gets a tiled kernel instead of a serial loop per result."""
    form = reduction_dims(reduce)
    if form is None:
        return False
    if form.is_row:
        return is_fast_row(form.dims[2:])
    _, reduced, minor = form.dims
    return not (
        reduced < WARP_SIZE
        or (reduced < 2 * WARP_SIZE and minor < WARP_SIZE)
        or (reduced < 4 * WARP_SIZE and minor < 8)
        or (reduced < 8 * WARP_SIZE and minor < 3)
    )


def is_fast_row(reduced: Sequence[int]) -> bool:
    """Whether rows of these sizes fill a warp, or several of them one."""
    size = prod(reduced)
    return size >= WARP_SIZE or (size > 0 and WARP_SIZE % size == 0)


def is_race_free(reduce: Instruction) -> bool:
    """Whether one block can finish each result alone, without atomics or a second pass."""
    form = reduction_dims(reduce)
    if form is None:
        return False
    if form.is_row:
        return form.dims[2] <= _MAX_ROW_ELEMENTS and form.dims[0] <= _MAX_ROW_BATCH
    return form.dims[1] <= _MAX_COLUMN_ELEMENTS


def _consecutive(positions: list[int]) -> bool:
    return positions[-1] - positions[0] == len(positions) - 1


def _split(sizes: list[int], middle: list[int]) -> tuple[int, int, int]:
    first, last = middle[0], middle[-1] + 1
    return prod(sizes[:first]), prod(sizes[first:last]), prod(sizes[last:])
