"""CUDA C from kernel specs: tables and rendering, no decisions.

Here: where an element lies in memory.  Layouts are respected, so that positions count elements physically.
"""

from __future__ import annotations

from collections.abc import Sequence

from hloopt.analysis.index import Index, Indices, delinearize, linearize
from hloopt.analysis.layout import is_descending, major_to_minor, physical_dims
from hloopt.kernel_ir.expressions import Expr, as_expr, eq
from hloopt.types import ArrayShape

__all__ = ["index_at", "inside", "position_of"]


def position_of(index: Sequence[Index], shape: ArrayShape) -> Index:
    """The position of an index in an array's memory."""
    if is_descending(shape):
        return linearize(index, shape.dims)
    order = major_to_minor(shape)
    return linearize([index[dimension] for dimension in order], physical_dims(shape))


def inside(at: Index, last: int, step: int = 1) -> list[Expr]:
    """The tests that a position lies from 0 to ``last`` and is a multiple of ``step``."""
    tests = [as_expr(at) >= 0] if at.low < 0 else []
    if at.high > last:
        tests.append(as_expr(at) <= last)
    if step > 1:
        tests.append(eq(at % step, 0))
    return tests


def index_at(position: Index, shape: ArrayShape) -> Indices:
    """The index of the element at a position of an array's memory."""
    if is_descending(shape):
        return delinearize(position, shape.dims)
    index = [Index(0)] * shape.rank
    parts = delinearize(position, physical_dims(shape))
    for dimension, part in zip(major_to_minor(shape), parts, strict=True):
        index[dimension] = part
    return tuple(index)
