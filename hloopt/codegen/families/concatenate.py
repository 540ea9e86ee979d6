"""Concatenate, operand by operand."""

from __future__ import annotations

from hloopt.analysis.index import Index, delinearize, linearize, narrowed
from hloopt.codegen.families.loop import store_run, strided
from hloopt.codegen.writer import FunctionWriter
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import Expr, as_expr
from hloopt.kernel_ir.statements import Block
from hloopt.kernels.families.concatenate import concatenate_of, largest

__all__ = ["emit"]


def emit(f: FunctionWriter) -> None:
    """A thread: for each operand that has its elements, compute and store them."""
    hero = concatenate_of(f.region)
    assert not isinstance(hero, str), hero
    (axis,) = hero.attributes["dimensions"]
    unroll = f.tile["unroll"]
    groups = largest(hero) // unroll
    offset = 0
    with strided(f, groups) as thread:
        for operand in hero.operands:
            if own := operand.array.elements // unroll:
                scope = f.elements.scope
                if own < groups:
                    scope = scope.when(as_expr(thread) < own)
                elif len(hero.operands) > 1:
                    scope = scope.open(Block(()))
                with f.elements.within(scope):
                    first = narrowed(thread, own) * unroll
                    _store(f, hero, operand, (axis, offset), first, unroll)
            offset += operand.array.dims[axis]


def _store(
    f: FunctionWriter,
    hero: Instruction,
    operand: Instruction,
    place: tuple[int, int],
    first: Index,
    unroll: int,
) -> None:
    """An operand's elements from ``first`` on; ``place`` is the dimension and the operand's start in it."""
    axis, offset = place
    result = f.region.results[0]
    values: list[Expr] = []
    start = Index(0)
    for lane in range(unroll):
        inside = delinearize(first + lane, operand.array.dims)
        index = (*inside[:axis], inside[axis] + offset, *inside[axis + 1 :])
        linear = linearize(index, hero.array.dims)
        if not lane:
            start = linear
        f.elements.remember(hero, index, 0, f.elements.value(operand, inside))
        root = delinearize(linear, result.shape.dims)
        values.append(f.elements.value(result.instruction, root, result.leaf))
    store_run(f, f.result(0), start, values, result.shape.elements)
