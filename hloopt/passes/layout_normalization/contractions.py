"""Ops that take several elements together: sort, reductions, windows, products, gather and scatter."""

from __future__ import annotations

from hloopt.ir import Instruction
from hloopt.passes.layout_normalization.dimensions import (
    conv_labels,
    gather_order,
    ranks,
    scatter_order,
)
from hloopt.passes.layout_normalization.rewriter import Rewriter, positions
from hloopt.passes.layout_normalization.values import Orders
from hloopt.types import Dims, DotDims, GatherDims, ScatterDims, TupleShape, Window

__all__ = ["convolution", "dot", "gather", "reduce", "reduce_window", "scatter", "sort"]


def sort(rewriter: Rewriter, instruction: Instruction) -> None:
    order = rewriter.order(instruction.operands[0])
    operands = tuple(rewriter.operand(operand, order) for operand in instruction.operands)
    dimensions = positions(order, instruction.dimensions)
    orders = _each(instruction, order)
    rewriter.update(instruction, operands, orders, dimensions=dimensions)


def _each(instruction: Instruction, order: Dims) -> Orders:
    """The same order for all results."""
    if isinstance(instruction.shape, TupleShape):
        return (order,) * len(instruction.shape.elements)
    return order


def reduce(rewriter: Rewriter, instruction: Instruction) -> None:
    order = rewriter.order(instruction.operands[0])
    reduced = instruction.dimensions
    kept = [dimension for dimension in order if dimension not in reduced]
    arrays = (rewriter.operand(operand, order) for operand in instruction.fold_inputs)
    inits = (rewriter.operand(operand, ()) for operand in instruction.fold_inits)
    rewriter.update(
        instruction,
        (*arrays, *inits),
        _each(instruction, ranks(kept)),
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
    left_places, right_places = dims.places(len(lhs), len(rhs))
    order = (
        *batches,
        *(left_places[dim] for dim in lhs if left_places.get(dim, -1) >= count),
        *(right_places[dim] for dim in rhs if right_places.get(dim, -1) >= count),
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
        **attributes,
    )


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
    given = GatherDims.of(instruction.attributes)
    dims, result = gather_order(given, order, index_order, declared)
    rewriter.update(
        instruction,
        (rewriter.operand(source, order), rewriter.operand(indices, index_order)),
        result,
        **dims.attributes(),
    )


def scatter(rewriter: Rewriter, instruction: Instruction) -> None:
    """The indices stay in their logical order: it is the order in which updates are applied."""
    order = rewriter.order(instruction.operands[0])
    indices, updates = instruction.scatter_indices, instruction.scatter_updates
    given = ScatterDims.of(instruction.attributes)
    dims, turned = scatter_order(given, order, rewriter.order(updates[0]))
    operands = (
        *(rewriter.operand(operand, order) for operand in instruction.fold_inputs),
        rewriter.operand(indices, tuple(range(indices.array.rank))),
        *(rewriter.operand(update, turned) for update in updates),
    )
    rewriter.update(
        instruction,
        operands,
        _each(instruction, order),
        **dims.attributes(),
    )
