"""Rules for gathers of whole rows of a product: only the rows that are read are computed."""

from __future__ import annotations

from typing import Final

from hloopt.ir import Instruction
from hloopt.rewrite import Match, Rule, op, own_attributes, splat_literal, used_once, variables
from hloopt.simplify.data_movement import (
    PASSABLE,
    dimensions,
    moved,
    with_dims,
    without_sparsity,
)
from hloopt.simplify.predicates import exact_or_fast, resized
from hloopt.types import DotDims, GatherDims

__all__ = ["RULES"]

A, B, INDICES = variables("A B I")
_MOST: Final = 8
"""How many elementwise ops may follow the product, one after the other."""


def _reads_fewer_rows(gather: Instruction) -> bool:
    """Whether a gather reads fewer rows than there are, with its indices in the place of their dimension."""
    operand, indices = gather.operands
    dims = GatherDims.of(gather.attributes)
    if dims.operand_batching_dims or len(dims.start_index_map) != 1:
        return False
    (row,) = dims.start_index_map
    count = gather.array.rank - operand.array.rank + 1
    sizes = [1 if dim == row else size for dim, size in enumerate(operand.array.dims)]
    return (
        dims.collapsed_slice_dims == (row,)
        and list(dims.slice_sizes) == sizes
        and dims.offset_dims == _around(row, count, gather.array.rank)
        and 0 < gather.array.elements < operand.array.elements
        and indices.array.elements > 0
    )


def _around(row: int, count: int, rank: int) -> tuple[int, ...]:
    return tuple(dim for dim in range(rank) if not row <= dim < row + count)


def _leads_to_product(value: Instruction, most: int = _MOST) -> bool:
    if not used_once(value):
        return False
    if value.opcode == "dot":
        return True
    return (
        most > 0
        and value.opcode in PASSABLE
        and any(_leads_to_product(operand, most - 1) for operand in value.operands)
    )


def _before_elementwise(match: Match) -> Instruction | None:
    """The rows of each operand; what is the same in all rows is repeated for fewer."""
    gather, computed, sizes = match.root, match.inner, match.array.dims
    (row,) = GatherDims.of(gather.attributes).start_index_map
    shift = len(sizes) - computed.array.rank

    def read(operand: Instruction) -> Instruction:
        literal = splat_literal(operand)
        if literal is not None:
            return match.splat_of(resized(operand.array, sizes), literal)
        shape = with_dims(operand.array, sizes)
        if operand.opcode == "broadcast" and row not in dimensions(operand):
            places = tuple(dim + shift * (dim > row) for dim in dimensions(operand))
            return match.make("broadcast", operand.operands[0], shape=shape, dimensions=places)
        return match.make(
            "gather", operand, gather.operands[1], shape=shape, **own_attributes(gather)
        )

    return moved(match, computed, read, with_dims(computed.array, sizes))


def _before_dot(match: Match) -> Instruction | None:
    """The rows of the factor that has them, times the other one."""
    gather, dot = match.root, match.inner
    if not without_sparsity(dot):
        return match.refuse("the dot has sparse operands")
    (row,) = GatherDims.of(gather.attributes).start_index_map
    sides = list(dot.operands)
    places = DotDims.of(dot.attributes).places(*(side.array.rank for side in sides))
    having = [(at, dim) for at in (0, 1) for dim, place in places[at].items() if place == row]
    if len(having) != 1:
        return match.refuse("the rows are of a dimension that both factors have")
    ((at, dim),) = having
    given = sides[at].array
    count = gather.array.rank - dot.array.rank + 1
    indexed = gather.array.dims[row : row + count]
    dims = (*given.dims[:dim], *indexed, *given.dims[dim + 1 :])
    attributes = own_attributes(gather) | {
        "offset_dims": _around(dim, count, len(dims)),
        "collapsed_slice_dims": (dim,),
        "start_index_map": (dim,),
        "slice_sizes": tuple(1 if d == dim else size for d, size in enumerate(given.dims)),
    }
    shape = with_dims(given, dims)
    sides[at] = match.make("gather", sides[at], gather.operands[1], shape=shape, **attributes)
    numbers = own_attributes(dot)
    for name in ("contracting", "batch"):
        key = f"{('lhs', 'rhs')[at]}_{name}_dims"
        if key in numbers:
            numbers[key] = tuple(d + (count - 1) * (d > dim) for d in numbers[key])
    return match.result("dot", *sides, **numbers)


RULES = (
    Rule(
        "gather(f(dot(A, B), C), I) => f(gather(dot(A, B), I), gather(C, I))",
        op("gather", op(PASSABLE).where(_leads_to_product), INDICES).where(_reads_fewer_rows),
        _before_elementwise,
        when=exact_or_fast,
    ),
    Rule(
        "gather(dot(A, B), I) => dot(gather(A, I), B)",
        op("gather", op("dot", A, B).where(used_once), INDICES).where(_reads_fewer_rows),
        _before_dot,
        when=exact_or_fast,
    ),
)
