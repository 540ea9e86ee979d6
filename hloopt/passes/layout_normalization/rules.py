"""How each op works on arrays whose dimensions stand in another order.

A rule gets the rewriter and an instruction.  Most take the operands in the order they are in and say in which
order the result comes out; where operands disagree, they are brought into one order first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from hloopt.ir import Instruction
from hloopt.ops.traits import op_table
from hloopt.passes.layout_normalization import contractions
from hloopt.passes.layout_normalization.rewriter import Rewriter, positions
from hloopt.passes.layout_normalization.values import (
    Orders,
    Raw,
    orders_of,
    physical,
)
from hloopt.types import (
    ArrayShape,
    Dims,
    Literal,
    TupleShape,
)

__all__ = ["RULES", "pointwise"]

Rule = Callable[[Rewriter, Instruction], None]


def pointwise(rewriter: Rewriter, instruction: Instruction) -> None:
    """Elementwise ops, in the order the operands share, else in that of the result's layout."""
    order = _common_order(rewriter, instruction)
    operands = tuple(
        rewriter.operand(operand, order if rewriter.shape(operand).rank else ())  # type: ignore[union-attr]
        for operand in instruction.operands
    )
    rewriter.update(instruction, operands, order)


def _common_order(rewriter: Rewriter, instruction: Instruction) -> Dims:
    rank = instruction.array.rank
    orders = {
        rewriter.order(operand) for operand in instruction.operands if operand.array.rank == rank
    }
    if len(orders) == 1:
        return orders.pop()
    return rewriter.own_order(instruction)


def _copy(rewriter: Rewriter, instruction: Instruction) -> None:
    """A change of layout is a transpose of the descending array; any other copy stays one."""
    if not instruction.is_array:
        _pass_on(rewriter, instruction)
        return
    source, target = instruction.operands[0], instruction.shape
    order: Dims = orders_of(target)  # type: ignore[assignment]
    if orders_of(rewriter.shape(source)) == order:
        order = rewriter.order(source)
    if rewriter.order(source) == order:
        rewriter.update(instruction, (rewriter.operand(source, order),), order)
        return
    new = rewriter.make(
        "transpose",
        rewriter.operand(source, rewriter.order(source)),
        shape=physical(target, order),
        dimensions=positions(rewriter.order(source), order),
    )
    rewriter.replace(instruction, new, order)


def _transpose(rewriter: Rewriter, instruction: Instruction) -> None:
    source = instruction.operands[0]
    permutation = instruction.dimensions
    order = rewriter.own_order(instruction)
    value, plain = rewriter.values[source], tuple(range(len(order)))
    if isinstance(value, Raw) and order == plain:
        # The bytes of a parameter as they are, which is what this pass itself writes.
        rewriter.keep(instruction, (value.instruction,))
        if permutation == orders_of(value.instruction.shape):
            rewriter.remember_raw(instruction, permutation)
        return
    own = rewriter.order(source)
    if order != plain and rewriter.is_for_outside(instruction) and not isinstance(value, Raw):
        operand = rewriter.operand(source, own)
        rewriter.keep(instruction, (operand,), dimensions=positions(own, permutation))
        return
    dimensions = tuple(positions(own, (permutation[dimension],))[0] for dimension in order)
    operand = rewriter.operand(source, own)
    if dimensions == plain and rewriter.may_drop(instruction):
        rewriter.drop(instruction, operand, order)
    else:
        rewriter.update(instruction, (operand,), order, dimensions=dimensions)


def _broadcast(rewriter: Rewriter, instruction: Instruction) -> None:
    source = instruction.operands[0]
    own = rewriter.order(source)
    order = rewriter.own_order(instruction)
    targets = instruction.attributes.get("dimensions", ())
    dimensions = positions(order, tuple(targets[dimension] for dimension in own))
    rewriter.update(instruction, (rewriter.operand(source, own),), order, dimensions=dimensions)


def _iota(rewriter: Rewriter, instruction: Instruction) -> None:
    order = rewriter.own_order(instruction)
    (dimension,) = positions(order, (instruction.iota_dimension,))
    rewriter.update(instruction, (), order, iota_dimension=dimension)


def _constant(rewriter: Rewriter, instruction: Instruction) -> None:
    orders = orders_of(rewriter.shape(instruction))
    rewriter.update(instruction, (), orders)
    literal: Literal = instruction.attributes["literal"]
    if rewriter.shape(instruction) is not instruction.shape:
        rewriter.update(instruction, (), orders, literal=_turned(literal, orders))


def _turned(literal: Literal, orders: Orders) -> Literal:
    shape = physical(literal.shape, orders)
    if isinstance(shape, TupleShape):
        elements = tuple(map(_turned, literal.elements, orders))  # type: ignore[arg-type]
        return replace(literal, shape=shape, elements=elements)
    assert isinstance(shape, ArrayShape)
    array = literal.array
    if array is not None:
        order: Dims = orders  # type: ignore[assignment]
        array = np.ascontiguousarray(array.transpose(order)).reshape(shape.dims)
    return replace(literal, shape=shape, array=array)


# ---- ops that name dimensions of their operands -----------------------------------------------------


def _reverse(rewriter: Rewriter, instruction: Instruction) -> None:
    order = rewriter.order(instruction.operands[0])
    dimensions = positions(order, instruction.dimensions)
    operand = rewriter.operand(instruction.operands[0], order)
    rewriter.update(instruction, (operand,), order, dimensions=tuple(sorted(dimensions)))


def _permuted(name: str) -> Rule:
    """Of ops with an entry for each dimension of the first operand; other operands are scalars."""

    def rule(rewriter: Rewriter, instruction: Instruction) -> None:
        source, *scalars = instruction.operands
        order, entries = rewriter.order(source), instruction.attributes[name]
        operands = rewriter.operand(source, order), *(rewriter.operand(one, ()) for one in scalars)
        turned = tuple(entries[dimension] for dimension in order)
        rewriter.update(instruction, operands, order, **{name: turned})

    return rule


def _concatenate(rewriter: Rewriter, instruction: Instruction) -> None:
    order = _common_order(rewriter, instruction)
    operands = tuple(rewriter.operand(operand, order) for operand in instruction.operands)
    dimensions = positions(order, instruction.dimensions)
    rewriter.update(instruction, operands, order, dimensions=dimensions)


def _dynamic_slice(rewriter: Rewriter, instruction: Instruction) -> None:
    sizes = instruction.attributes["dynamic_slice_sizes"]
    order = rewriter.order(instruction.operands[0])
    _at_places(rewriter, instruction, 1, dynamic_slice_sizes=tuple(sizes[one] for one in order))


def _dynamic_update_slice(rewriter: Rewriter, instruction: Instruction) -> None:
    _at_places(rewriter, instruction, 2)


def _at_places(rewriter: Rewriter, instruction: Instruction, count: int, **attributes: Any) -> None:
    """``count`` arrays, and a start for each of their dimensions."""
    arrays, starts = instruction.operands[:count], instruction.operands[count:]
    order = rewriter.order(arrays[0])
    if len(starts) != len(order) or any(start.array.rank for start in starts):
        rewriter.apply_logically(instruction)
        return
    operands = (
        *(rewriter.operand(array, order) for array in arrays),
        *(rewriter.operand(starts[dimension], ()) for dimension in order),
    )
    rewriter.update(instruction, operands, order, **attributes)


# ---- tuples and what passes values on ---------------------------------------------------------------


def _tuple(rewriter: Rewriter, instruction: Instruction) -> None:
    if rewriter.is_result_tuple(instruction):
        rewriter.keep(
            instruction,
            tuple(
                rewriter.declared(rewriter.values[operand], element)
                for operand, element in zip(instruction.operands, instruction.elements, strict=True)
            ),
        )
        return
    orders = tuple(rewriter.orders(rewriter.values[operand]) for operand in instruction.operands)
    operands = tuple(
        rewriter.taken(rewriter.values[operand], inner)
        for operand, inner in zip(instruction.operands, orders, strict=True)
    )
    rewriter.update(instruction, operands, orders)


def _get_tuple_element(rewriter: Rewriter, instruction: Instruction) -> None:
    value = rewriter.values[instruction.operands[0]]
    if isinstance(value, Raw):
        rewriter.keep(instruction, (value.instruction,))
        return
    whole = rewriter.taken(value, rewriter.orders(value))
    index = instruction.attributes["index"]
    rewriter.update(instruction, (whole,), rewriter.orders(value)[index])


def _pass_on(rewriter: Rewriter, instruction: Instruction) -> None:
    """The value of the first operand; others are tokens or scalars."""
    source, *others = (rewriter.values[operand] for operand in instruction.operands)
    orders = rewriter.orders(source)
    operands = (
        rewriter.taken(source, orders),
        *(rewriter.taken(other, rewriter.orders(other)) for other in others),
    )
    rewriter.update(instruction, operands, orders)


def _each_on_its_own(rewriter: Rewriter, instruction: Instruction) -> None:
    """Every operand elementwise, each to its result (all-reduce and the like)."""
    orders = tuple(map(rewriter.order, instruction.operands))
    operands = tuple(map(rewriter.operand, instruction.operands, orders))
    several = instruction.is_tuple
    rewriter.update(instruction, operands, orders if several else orders[0])


RULES: Final[Mapping[str, Rule]] = op_table({
    "add-dependency": _pass_on,
    "all-reduce": _each_on_its_own,
    "broadcast": _broadcast,
    "collective-broadcast": _each_on_its_own,
    "collective-permute": _each_on_its_own,
    "concatenate": _concatenate,
    "constant": _constant,
    "convolution": contractions.convolution,
    "copy": _copy,
    "domain": _pass_on,
    "dot": contractions.dot,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "gather": contractions.gather,
    "get-tuple-element": _get_tuple_element,
    "iota": _iota,
    "opt-barrier": _pass_on,
    "pad": _permuted("padding"),
    "reduce": contractions.reduce,
    "reduce-window": contractions.reduce_window,
    "reverse": _reverse,
    "scatter": contractions.scatter,
    "slice": _permuted("slice"),
    "sort": contractions.sort,
    "transpose": _transpose,
    "tuple": _tuple,
}, otherwise="pointwise, or with its own layouts")  # fmt: skip
