"""Ops that take several elements together: sort, reductions, windows, products, gather and scatter."""

from __future__ import annotations

from hloopt.ir import Instruction
from hloopt.passes.layout_normalization.dimensions import (
    conv_labels,
    gather_order,
    scatter_order,
)
from hloopt.passes.layout_normalization.rewriter import Order, Rewriter, positions
from hloopt.passes.layout_normalization.values import Orders
from hloopt.types import DotDims, GatherDims, ScatterDims, TupleShape, Window

__all__ = ["convolution", "dot", "gather", "reduce", "reduce_window", "scatter", "sort"]


def sort(rewriter: Rewriter, instruction: Instruction) -> None:
    order = rewriter.order(instruction.operands[0])
    operands = tuple(rewriter.operand(operand, order) for operand in instruction.operands)
    dimensions = positions(order, instruction.dimensions)
    orders = _each(instruction, order)
    rewriter.update(instruction, operands, orders, dimensions=dimensions)


def _each(instruction: Instruction, order: Order) -> Orders:
    """The same order for all results."""
    if isinstance(instruction.shape, TupleShape):
        return (order,) * len(instruction.shape.elements)
    return order


def reduce(rewriter: Rewriter, instruction: Instruction) -> None:
    order = rewriter.order(instruction.operands[0])
    reduced = instruction.dimensions
    kept = [dimension for dimension in order if dimension not in reduced]
    number = {dimension: at for at, dimension in enumerate(sorted(kept))}
    arrays = (rewriter.operand(operand, order) for operand in instruction.fold_inputs)
    inits = (rewriter.operand(operand, ()) for operand in instruction.fold_inits)
    rewriter.update(
        instruction,
        (*arrays, *inits),
        _each(instruction, tuple(number[dimension] for dimension in kept)),
        dimensions=tuple(sorted(positions(order, reduced))),
    )


def reduce_window(rewriter: Rewriter, instruction: Instruction) -> None:
    order = rewriter.order(instruction.operands[0])
    arrays = (rewriter.operand(operand, order) for operand in instruction.fold_inputs)
    inits = (rewriter.operand(operand, ()) for operand in instruction.fold_inits)
    turned = Window(tuple(instruction.window.dims[dimension] for dimension in order))
    attributes = {"window": turned} if "window" in instruction.attributes else {}
    rewriter.update(instruction, (*arrays, *inits), _each(instruction, order), **attributes)


# ---- products ---------------------------------------------------------------------------------------


def dot(rewriter: Rewriter, instruction: Instruction) -> None:
    """Batch dimensions in the order of the result's layout, then the free ones as the operands have them."""
    if len(instruction.operands) != 2:
        rewriter.apply_logically(instruction)
        return
    left, right = instruction.operands
    lhs, rhs = rewriter.order(left), rewriter.order(right)
    dims = DotDims.of(instruction.attributes)
    declared = rewriter.own_order(instruction)
    count = len(dims.lhs_batch)
    batches = [dimension for dimension in declared if dimension < count]
    free_left = _free(lhs, dims.lhs_batch + dims.lhs_contracting)
    free_right = _free(rhs, dims.rhs_batch + dims.rhs_contracting)
    order = (
        *batches,
        *(count + rank for rank in _ranks(free_left)),
        *(count + len(free_left) + rank for rank in _ranks(free_right)),
    )
    attributes = {
        "lhs_batch_dims": positions(lhs, tuple(dims.lhs_batch[at] for at in batches)),
        "rhs_batch_dims": positions(rhs, tuple(dims.rhs_batch[at] for at in batches)),
        "lhs_contracting_dims": positions(lhs, dims.lhs_contracting),
        "rhs_contracting_dims": positions(rhs, dims.rhs_contracting),
    }
    rewriter.update(
        instruction,
        (rewriter.operand(left, lhs), rewriter.operand(right, rhs)),
        order,
        **{name: value for name, value in attributes.items() if name in instruction.attributes},
    )


def _free(order: Order, bound: tuple[int, ...]) -> list[int]:
    return [dimension for dimension in order if dimension not in bound]


def _ranks(dimensions: list[int]) -> list[int]:
    number = {dimension: at for at, dimension in enumerate(sorted(dimensions))}
    return [number[dimension] for dimension in dimensions]


def convolution(rewriter: Rewriter, instruction: Instruction) -> None:
    left, right = instruction.operands
    lhs, rhs = rewriter.order(left), rewriter.order(right)
    order = rewriter.own_order(instruction)
    rewriter.update(
        instruction,
        (rewriter.operand(left, lhs), rewriter.operand(right, rhs)),
        order,
        dim_labels=conv_labels(instruction.attributes["dim_labels"], lhs, rhs, order),
    )


# ---- gather and scatter -----------------------------------------------------------------------------


def gather(rewriter: Rewriter, instruction: Instruction) -> None:
    source, indices = instruction.operands
    order, index_order = rewriter.order(source), rewriter.order(indices)
    if instruction.attributes.get("indices_are_sorted"):
        index_order = tuple(range(len(index_order)))
    declared = rewriter.own_order(instruction)
    dims = GatherDims.of(instruction.attributes)
    attributes, result = gather_order(dims, order, index_order, declared)
    rewriter.update(
        instruction,
        (rewriter.operand(source, order), rewriter.operand(indices, index_order)),
        result,
        **{name: value for name, value in attributes.items() if name in instruction.attributes},
    )


def scatter(rewriter: Rewriter, instruction: Instruction) -> None:
    """The indices stay in their logical order: it is the order in which updates are applied."""
    count = (len(instruction.operands) - 1) // 2
    order = rewriter.order(instruction.operands[0])
    indices = instruction.operands[count]
    dims = ScatterDims.of(instruction.attributes)
    updates = instruction.operands[count + 1 :]
    attributes, turned = scatter_order(dims, order, rewriter.order(updates[0]))
    plain = tuple(range(indices.array.rank))
    operands = (
        *(rewriter.operand(operand, order) for operand in instruction.operands[:count]),
        rewriter.operand(indices, plain),
        *(rewriter.operand(update, turned) for update in updates),
    )
    rewriter.update(
        instruction,
        operands,
        _each(instruction, order),
        **{name: value for name, value in attributes.items() if name in instruction.attributes},
    )
