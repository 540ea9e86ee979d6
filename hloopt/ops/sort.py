"""Sorting: sort and topk."""

from __future__ import annotations

from hloopt.ops._regions import check_predicate
from hloopt.ops.attributes import DIMENSIONS, TO_APPLY
from hloopt.ops.opdef import MANY, InferArgs, Kind, family
from hloopt.ops.shapes import (
    S32,
    array_operand,
    array_operands,
    attribute,
    braces,
    check_dimensions,
    error,
    like,
    require_same,
    row_major,
    tuple_of,
)
from hloopt.types import UNBOUNDED, Shape

__all__ = ["ROWS"]


def _sort(args: InferArgs) -> Shape:
    """The operands' shapes; the comparator sees elements a and b of each operand in turn."""
    shapes = array_operands(args)
    require_same(args, shapes)
    dims = attribute(args, "dimensions")
    if len(dims) != 1:
        raise error(args, f"dimensions={braces(dims)} must name one dimension")
    check_dimensions(args, "dimensions", dims, shapes[0].rank)
    pairs = [shape.dtype for shape in shapes for _ in range(2)]
    check_predicate(args, "to_apply", pairs)
    return like(args, shapes[0]) if len(shapes) == 1 else tuple_of(args, shapes)


def _topk(args: InferArgs) -> Shape:
    """The k first values along the last dimension, and their indices."""
    source = array_operand(args, 0)
    k = attribute(args, "k")
    if not source.rank:
        raise error(args, "operand 0 is a scalar; it needs a last dimension")
    if k < 0 or (source.dims[-1] != UNBOUNDED and k > source.dims[-1]):
        raise error(args, f"k={k} is not in [0, {source.dims[-1]}]")
    sizes = (*source.dims[:-1], k)
    marks = (*source.dynamic[:-1], False) if source.dynamic else ()
    return tuple_of(args, (row_major(kind, sizes, marks) for kind in (source.dtype, S32)))


_row = family("sort")
_STABLE = Kind.BOOL("is_stable")

ROWS = (
    _row(
        "sort",
        (1, MANY),
        _sort,
        DIMENSIONS,
        _STABLE,
        TO_APPLY,
        calls="elements",
        hero=True,
        doc="all operands reordered along a dimension by a comparator of scalars",
    ),
    _row(
        "topk",
        1,
        _topk,
        Kind.INT("k", required=True),
        Kind.BOOL("largest"),
        _STABLE,
        doc="the k largest or smallest values of the last dimension and their indices",
    ),
)
