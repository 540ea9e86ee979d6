"""The loop kernel, and that which goes along a dimension."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod

from hloopt.analysis.index import Index, delinearize, linearize, narrowed
from hloopt.codegen import index_at
from hloopt.codegen.loads import VECTOR_BYTES
from hloopt.codegen.scalars import literal, pack
from hloopt.codegen.types import elements_per_byte, is_packed
from hloopt.codegen.writer import FunctionWriter, Pointee
from hloopt.kernel_ir.expressions import Expr, Make, as_expr
from hloopt.kernel_ir.statements import If, Return
from hloopt.kernel_ir.types import VOID, vector
from hloopt.kernels.families.loop import group_blocks, result_groups
from hloopt.kernels.families.loop_along import loop_along, thread_sizes

__all__ = ["EMITTERS", "bounded", "emit", "store_run", "strided"]


def emit(f: FunctionWriter) -> None:
    """Each thread: ``unroll`` neighbouring elements of every result, all computed before any is stored.

    Of results with other numbers of elements a thread has those of one number, by its block.
    """
    groups = result_groups(
        f.region,
        [one.place.number for one in f.launch.arguments if one.place.kind == "result"],
    )
    unroll = f.tile["unroll"]
    sizes = [f.region.results[group[0]].shape.elements for group in groups]
    counts = [-(-elements // unroll) for elements in sizes]
    if len(groups) == 1:
        with strided(f, counts[0]) as thread:
            _run(f, groups[0], thread, sizes[0], unroll)
        return
    every, threads, begin = f.global_thread("i"), f.launch.block[0], 0
    for group, elements, count, blocks in zip(
        groups, sizes, counts, group_blocks(counts, threads), strict=True
    ):
        first = begin * threads
        begun = [as_expr(every) >= first] if first else []
        with f.elements.when(*begun, as_expr(every) < first + count):
            own = f.elements.symbol(as_expr(every - first), "own", 0, count - 1)
            _run(f, group, own, elements, unroll)
        begin += blocks


@contextmanager
def strided(f: FunctionWriter, count: int) -> Iterator[Index]:
    """A number below ``count`` for each thread, in the block where it holds.

    Threads past the end have left; where there are fewer threads each takes several, a grid apart.
    """
    launched = f.launch.grid[0] * f.launch.block[0]
    thread = f.global_thread("i")
    if launched >= count:
        yield bounded(f, thread, count)
        return
    with f.elements.counting(thread, count, "i", launched) as at:
        yield at


def bounded(f: FunctionWriter, index: Index, size: int) -> Index:
    """An index that is below ``size`` from here on: threads where it is not leave."""
    if index.high >= size:
        f.elements.scope.add(If(as_expr(index) >= size, (Return(),)))
    return narrowed(index, size)


def _run(
    f: FunctionWriter, numbers: Sequence[int], group: Index, elements: int, unroll: int
) -> None:
    e = f.elements
    first = group * unroll
    certain = unroll if elements % unroll == 0 else elements % unroll
    values: dict[int, list[Expr]] = {number: [] for number in numbers}
    for lane in range(unroll):
        position = first + lane
        if lane < certain:
            for number in numbers:
                values[number].append(_value(f, number, position))
            continue
        kinds = [f.region.results[number].shape.dtype for number in numbers]
        names = [e.scope.variable(f.uses.type(kind), "last", literal(0, kind)) for kind in kinds]
        with e.when(as_expr(position) < elements):
            for number, name in zip(numbers, names, strict=True):
                e.scope.set(name, _value(f, number, position))
        for number, name in zip(numbers, names, strict=True):
            values[number].append(name)
    for number in numbers:
        store_run(f, f.result(number), first, values[number], elements)


def _value(f: FunctionWriter, number: int, position: Index) -> Expr:
    result = f.region.results[number]
    index = index_at(position, result.shape)
    return f.elements.value(result.instruction, index, result.leaf)


def store_run(
    f: FunctionWriter, pointee: Pointee, first: Index, values: Sequence[Expr], elements: int
) -> None:
    """Store neighbours from ``first`` on: by vectors where they are aligned, none at or past ``elements``."""
    kind, memory, e = pointee.shape.dtype, pointee.memory, f.elements
    certain = elements % len(values) or len(values)
    if is_packed(kind):
        count = elements_per_byte(kind)
        for start in range(0, len(values), count):
            byte = pack(values[start : start + count], kind, f.uses)
            with e.when(*[] if start < certain else [as_expr(first + start) < elements]):
                e.scope.set(memory[(first + start) // count], byte)
        return
    width = min(len(values), VECTOR_BYTES * 8 // kind.bits)
    if (
        width > 1
        and certain == len(values)
        and len(values) % width == 0
        and (width & (width - 1) == 0 and first.is_multiple(width))
    ):
        type = vector(memory.element, width)
        for start in range(0, len(values), width):
            parts = Make(type, tuple(values[start : start + width]))
            whole = e.scope.declare(type, parts, "stored")
            target = memory.address(first + start)
            e.scope.do(f.uses.call("store_vector", target, whole, type=VOID))
        return
    for lane, value in enumerate(values):
        with e.when(*[] if lane < certain else [as_expr(first + lane) < elements]):
            f.store(pointee, first + lane, value)


def _along(f: FunctionWriter) -> None:
    """A loop over the places of the dimension, behind the values that all of them share."""
    found, tile, e = loop_along(f.region), f.tile, f.elements
    sizes = thread_sizes(found, tile)
    thread = bounded(f, f.global_thread("i"), prod(sizes))
    own = [
        e.symbol(at, "place", 0, size - 1)
        for at, size in zip(delinearize(thread, sizes), sizes, strict=True)
    ]
    e.shares = True
    with e.before(own), e.counting(0, tile["steps"], "step") as step:
        _place_along(f, own, step)


def _place_along(f: FunctionWriter, own: list[Index], step: Index) -> None:
    """A thread's elements at one place: of each part its neighbours."""
    found, tile, e = loop_along(f.region), f.tile, f.elements
    part = found.dims[-1] // found.parts
    values: dict[tuple[int, int], list[Expr]] = {}
    at = [*own]
    at[found.along] = own[found.along] * tile["steps"] + step
    first = own[-1] * tile["vector"]
    for lane in range(tile["vector"]):
        for half in range(found.parts):
            at[-1] = first + half * part + lane
            for number, result in enumerate(f.region.results):
                value = e.value(result.instruction, tuple(at), result.leaf)
                values.setdefault((number, half), []).append(value)
    for (number, half), run in values.items():
        at[-1] = first + half * part
        store_run(f, f.result(number), linearize(at, found.dims), run, prod(found.dims))


EMITTERS = {"loop": emit, "loop-along": _along}
