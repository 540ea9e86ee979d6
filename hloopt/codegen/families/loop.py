"""The loop kernel."""

from __future__ import annotations

from collections.abc import Sequence

from hloopt.analysis.index import Index, Symbol
from hloopt.codegen.loads import VECTOR_BYTES
from hloopt.codegen.positions import index_at
from hloopt.codegen.scalars import literal, pack
from hloopt.codegen.types import elements_per_byte, is_packed
from hloopt.codegen.writer import FunctionWriter, Pointee
from hloopt.kernel_ir.scope import Scope

__all__ = ["emit", "store_run", "strided"]


def emit(f: FunctionWriter) -> None:
    """Each thread: ``unroll`` neighbouring elements of every result, all computed before any is stored."""
    numbers = [
        argument.place.number for argument in f.launch.arguments if argument.place.kind == "result"
    ]
    elements = f.region.results[numbers[0]].shape.elements
    unroll = f.tile["unroll"]
    thread, scope = strided(f, -(-elements // unroll))
    with f.elements.within(scope):
        _run(f, numbers, thread, elements, unroll)


def strided(f: FunctionWriter, count: int) -> tuple[Index, Scope]:
    """A number below ``count`` for each thread and the block where it holds.

    Threads beyond have left; where there are fewer threads each takes several, a grid apart.
    """
    launched = f.launch.grid[0] * f.launch.block[0]
    thread = f.global_thread("i")
    if launched < count:
        name = f.scope.names.fresh("i")
        kind = f.loads.index_type
        block = f.scope.block(
            f"for ({kind} {name} = {thread}; {name} < {count}; {name} += {launched})"
        )
        return Symbol(name, 0, count - 1).index, block
    if launched > count:
        f.scope.line(f"if ({thread} >= {count}) return;")
        thread = Symbol(str(thread), 0, count - 1).index
    return thread, f.scope


def _run(
    f: FunctionWriter, numbers: Sequence[int], group: Index, elements: int, unroll: int
) -> None:
    first = group * unroll
    certain = unroll if elements % unroll == 0 else elements % unroll
    values: dict[int, list[str]] = {number: [] for number in numbers}
    for lane in range(unroll):
        position = first + lane
        if lane < certain:
            for number in numbers:
                values[number].append(_value(f, number, position))
            continue
        names = [
            f.elements.scope.variable(
                f.uses.type(f.region.results[number].shape.dtype),
                "last",
                literal(0, f.region.results[number].shape.dtype),
            )
            for number in numbers
        ]
        with f.elements.within(f.elements.scope.when(f"{position} < {elements}")):
            for number, name in zip(numbers, names, strict=True):
                f.elements.scope.line(f"{name} = {_value(f, number, position)};")
        for number, name in zip(numbers, names, strict=True):
            values[number].append(name)
    for number in numbers:
        store_run(f, f.result(number), first, values[number], elements)


def _value(f: FunctionWriter, number: int, position: Index) -> str:
    result = f.region.results[number]
    index = index_at(position, result.shape)
    return f.elements.value(result.instruction, index, result.leaf)


def store_run(
    f: FunctionWriter, pointee: Pointee, first: Index, values: Sequence[str], elements: int
) -> None:
    """Store neighbours from ``first`` on: by vectors where they are aligned, none at or past ``elements``."""
    kind = pointee.shape.dtype
    scope = f.elements.scope
    if is_packed(kind):
        _store_packed(f, pointee, first, values, elements)
        return
    width = min(len(values), VECTOR_BYTES * 8 // kind.bits)
    if (
        width > 1
        and elements % len(values) == 0
        and len(values) % width == 0
        and (width & (width - 1) == 0 and first.is_multiple(width))
    ):
        for start in range(0, len(values), width):
            vector = f"Vector<{f.uses.storage(kind)}, {width}>"
            part = ", ".join(values[start : start + width])
            name = scope.declare(vector, f"{{{{{part}}}}}", "stored")
            at = (first + start).factor_text
            scope.line(f"{f.uses.call('store_vector', f'{pointee.name} + {at}', name)};")
        return
    certain = len(values) if elements % len(values) == 0 else elements % len(values)
    for lane, value in enumerate(values):
        if lane < certain:
            f.store(pointee, first + lane, value)
        else:
            with f.elements.within(scope.when(f"{first + lane} < {elements}")):
                f.store(pointee, first + lane, value)


def _store_packed(
    f: FunctionWriter, pointee: Pointee, first: Index, values: Sequence[str], elements: int
) -> None:
    kind = pointee.shape.dtype
    count = elements_per_byte(kind)
    scope = f.elements.scope
    for start in range(0, len(values), count):
        byte = pack(list(values[start : start + count]), kind, f.uses)
        at = (first + start) // count
        certain = elements % len(values) == 0 or start < elements % len(values)
        target = scope if certain else scope.when(f"{first + start} < {elements}")
        target.line(f"{pointee.name}[{at}] = {byte};")
