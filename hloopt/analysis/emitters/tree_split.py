"""Cutting a long reduction into two: the sizes of XLA's tree reduction rewriter."""

from __future__ import annotations

from math import isqrt
from typing import Final

from hloopt.analysis.reduction import ReductionDims
from hloopt.dataclass import dataclass
from hloopt.targets import Target

__all__ = [
    "SPLIT_STEPS",
    "TreeOptions",
    "TreeSplit",
    "race_free_bound",
    "split_parts",
    "tree_split",
]


SPLIT_STEPS: Final = 32
"""Reads that a thread makes one after the other though half of the cores have none, from which on blocks share
them: four at a time from memory they take longer than a second launch."""
_LEAST_STEPS: Final = 4


def split_parts(target: Target, blocks: int, threads: int, steps: int) -> int:
    """Blocks of so many threads that share the ``steps`` of a result: enough to keep all cores busy."""
    busy = target.cores * (target.threads_per_core // threads)
    return max(1, min(-(-busy // blocks), steps // _LEAST_STEPS))


@dataclass(frozen=True)
class TreeOptions:
    """What one block finishes alone.

    row_elements     of the minor reduced dimension of a row (1024 threads of 16 elements)
    row_batch        of its major reduced dimension
    column_elements  of the reduced dimension of a column (32 warps of 128 elements)
    """

    row_elements: int = 1024 * 16
    row_batch: int = 8
    column_elements: int = 32 * 128


@dataclass(frozen=True, slots=True)
class TreeSplit:
    """Two reductions in the place of one.

    The reduced dimension is padded by ``padding`` elements with the initial value and split into ``outer``
    times ``inner``; the first reduction is over ``inner`` and the other reduced dimensions, the second over
    ``outer``.  ``is_batch``: nothing is split; first the minor, then the major reduced dimension of a row goes.
    """

    outer: int
    inner: int
    padding: int = 0
    is_batch: bool = False


def race_free_bound(form: ReductionDims, options: TreeOptions | None = None) -> int:
    """The longest reduced dimension that one block finishes alone, in elements."""
    options = options or TreeOptions()
    return options.row_elements if form.is_row else options.column_elements


def tree_split(form: ReductionDims, options: TreeOptions | None = None) -> TreeSplit | None:
    """How to split; None where one block finishes each result.  To be repeated for both parts.

    The sizes are near the square root, with the least padding and then a power of two; the longer is reduced
    first where it fits into a block and vectors stay possible.
    """
    options = options or TreeOptions()
    if form.is_row and form.dims[0] > options.row_batch:
        return TreeSplit(form.dims[0], form.dims[2], is_batch=True)
    size = form.dims[2] if form.is_row else form.dims[1]
    bound = race_free_bound(form, options)
    if size <= bound:
        return None
    inner = min(isqrt(size), bound)
    padding = -size % inner
    for candidate in range(inner - 1, inner // 2, -1):
        needed = -size % candidate
        if needed < padding or (needed == padding and candidate & (candidate - 1) == 0):
            inner, padding = candidate, needed
    outer = (size + padding) // inner
    if outer <= bound and _longer_first(outer, inner, size, form):
        outer, inner = inner, outer
    return TreeSplit(outer, inner, padding)


def _longer_first(longer: int, shorter: int, size: int, form: ReductionDims) -> bool:
    """Whether reducing the longer part first keeps a row's reads vectors where they could be."""
    if not form.is_row:
        return True
    if shorter % 2 == 0 and size % 2 == 0:
        return 2 * shorter < longer or longer % 2 == 0
    return size % 2 == 0 or longer % 2 == 1
