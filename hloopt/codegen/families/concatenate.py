"""Concatenate, operand by operand."""

from __future__ import annotations

from hloopt.analysis.index import Index, Symbol, delinearize, linearize
from hloopt.codegen.families.loop import store_run, strided
from hloopt.codegen.writer import FunctionWriter
from hloopt.ir import Instruction
from hloopt.kernels.families.concatenate import concatenate_of, largest

__all__ = ["emit"]


def emit(f: FunctionWriter) -> None:
    """A thread: for each operand that has its elements, compute and store them."""
    hero = concatenate_of(f.region)
    assert not isinstance(hero, str), hero
    (axis,) = hero.attributes["dimensions"]
    unroll = f.tile["unroll"]
    groups = largest(hero) // unroll
    thread, scope = strided(f, groups)
    offset = 0
    for operand in hero.operands:
        own = operand.array.elements // unroll
        if own:
            block = scope
            number = thread
            if own < groups:
                block = scope.when(f"{thread} < {own}")
                number = Symbol(str(thread), 0, own - 1).index
            elif len(hero.operands) > 1:
                block = scope.block("")
            with f.elements.within(block):
                _store(f, hero, operand, (axis, offset), number * unroll, unroll)
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
    values: list[str] = []
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
