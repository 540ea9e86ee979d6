"""A sort in a block: each element counts those that belong before it, and goes to that place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hloopt.analysis.index import Index, Symbol, delinearize, linearize
from hloopt.codegen.emission import Asking, At, each
from hloopt.kernel_ir.expressions import Var, as_expr, both, either
from hloopt.kernel_ir.types import INT

if TYPE_CHECKING:
    from hloopt.analysis.parallel_loop.block_stages import Item
    from hloopt.codegen.loops.block import BlockLoop

__all__ = ["rank_sort"]


def rank_sort(block: BlockLoop, item: Item) -> None:
    """Write a sort: stable whether it must be or not; the comparator must be an order, as HLO has it.

    Each of n elements is compared with all others of its row: fewer steps than a network's barriers take up
    to some hundreds of elements, and more above.
    """
    value = item.values[0]
    e, sort, flow = block.e, value.instruction, block.flow
    along: int = sort.attributes["dimensions"][0]
    axes, dims = flow.axes(value), flow.local(value)
    local_along = sum(1 for axis in axes[:along] if axis is None)
    elements = flow.elements(value)
    for _, local, tests in block.threads.each(elements):
        with e.within(e.scope.braces()), block.inside(block.frame(value.path)):
            index = block.index(value, local)
            rank = e.scope.variable(INT, "rank", 0)
            e.run(_count(block, item, index, along, rank))
            place = Symbol(rank.name, 0, value.shape.dims[along] - 1).index
            target = list(delinearize(local, dims))
            target[local_along] = place
            at = linearize(target, dims)
            names = [e.value(operand, index) for operand in sort.operands]
            with e.when(*tests):
                for leaf in item.values:
                    e.scope.set(block.arrays[leaf].at(at), names[leaf.leaf])


def _count(block: BlockLoop, item: Item, index: Sequence[Index], along: int, rank: Var) -> Asking:
    """``rank`` is how many elements belong before the one at ``index``."""
    e, sort = block.e, item.instruction
    comparator = sort.to_apply
    own = yield from each(At(operand, tuple(index)) for operand in sort.operands)
    loop, other = e.loop(sort.operands[0].array.dims[along], "other")
    with e.within(loop):
        there = tuple(other if at == along else one for at, one in enumerate(index))
        others = yield from each(At(operand, there) for operand in sort.operands)
        before = [name for pair in zip(others, own, strict=True) for name in pair]
        behind = [name for pair in zip(own, others, strict=True) for name in pair]
        (is_before,) = yield from e.call(comparator, before)
        (is_behind,) = yield from e.call(comparator, behind)
        tie = both([is_behind.negated(), as_expr(other) < index[along]])
        e.scope.set(rank, either([is_before, tie]), "+")
