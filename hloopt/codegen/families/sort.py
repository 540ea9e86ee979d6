"""Sorting networks.

A step of a network compares the places ``i`` and ``j``: of a size ``reach``, the first step has ``j`` as the
mirror image of ``i`` in its block of ``reach`` places, every further one ``half`` places behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hloopt.analysis.index import Index, Symbol, delinearize
from hloopt.codegen.elements import Emission
from hloopt.codegen.families.loop import strided
from hloopt.codegen.writer import FunctionWriter
from hloopt.ir import Instruction
from hloopt.kernel_ir.scope import Scope
from hloopt.kernels.families.sort import carries_positions, rows_of, sort_of
from hloopt.types import DType, dtype

__all__ = ["EMITTERS"]

_Place = Callable[[str], str]


class _Places:
    """The arrays that are sorted, in shared or global memory, the positions last where they are carried."""

    def __init__(self, f: FunctionWriter, names: Sequence[str]) -> None:
        sort = sort_of(f.region)
        assert sort is not None
        self.f = f
        self.sort = sort
        self.names = list(names)
        self.carries = carries_positions(sort)
        self.types = [f.uses.type(kind) for kind in _kinds(sort)]

    def compare(self, i: str, j: str, at: _Place) -> None:
        """Swap the elements at ``i`` and ``j`` where the one behind belongs in front."""
        self.f.elements.run(self._compare(at(i), at(j)))

    def _compare(self, i: str, j: str) -> Emission:
        e = self.f.elements
        first, second = (
            [
                e.scope.declare(kind, f"{name}[{place}]", hint)
                for name, kind in zip(self.names, self.types, strict=True)
            ]
            for place, hint in ((i, "first"), (j, "second"))
        )
        values = len(self.sort.operands)
        comparator = self.sort.attributes["to_apply"]
        mixed = [name for pair in zip(second, first, strict=True) for name in pair][: 2 * values]
        (swap,) = yield from e.call(comparator, mixed)
        if self.carries:
            straight = [name for pair in zip(first, second, strict=True) for name in pair]
            (stays,) = yield from e.call(comparator, straight[: 2 * values])
            swap = f"{swap} || (!{stays} && {second[-1]} < {first[-1]})"
        block = e.scope.when(f"{swap}")
        for name, one, other in zip(self.names, first, second, strict=True):
            block.line(f"{name}[{i}] = {other};")
            block.line(f"{name}[{j}] = {one};")
        return ""


def _kinds(sort: Instruction) -> list[DType]:
    kinds = [operand.array.dtype for operand in sort.operands]
    return [*kinds, dtype("s32")] if carries_positions(sort) else kinds


def _sort(f: FunctionWriter) -> Instruction:
    sort = sort_of(f.region)
    assert sort is not None
    return sort


def _power(count: int) -> int:
    return 1 << max(0, count - 1).bit_length()


def _threads(f: FunctionWriter, count: int, hint: str) -> tuple[Scope, Index]:
    """Each thread of the block takes every so-manieth of ``count`` things."""
    threads = f.launch.block[0]
    name = f.scope.names.fresh(hint)
    start = f.thread()
    block = f.elements.scope.block(
        f"for (int {name} = {start}; {name} < {count}; {name} += {threads})"
    )
    return block, Symbol(name, 0, count - 1).index


def _pair(scope: Scope, p: str, reach: str, half: str) -> tuple[str, str]:
    # p / half * (2 * half) + p % half of a power of two, without dividing.
    i = scope.declare("int", f"2 * {p} - ({p} & ({half} - 1))", "left")
    j = scope.declare("int", f"2 * {half} == {reach} ? {i} ^ ({reach} - 1) : {i} + {half}", "right")
    return i, j


def _emit_block(f: FunctionWriter) -> None:
    """Load a row, run the whole network, store the row."""
    sort = _sort(f)
    _, length, _ = rows_of(sort)
    places = _Places(f, [f.shared(f.uses.type(kind), (length,), "row") for kind in _kinds(sort)])
    row = f.block()
    block, at = _threads(f, length, "at")
    with f.elements.within(block):
        index = _index(sort, row, at)
        for number, operand in enumerate(sort.operands):
            block.line(f"{places.names[number]}[{at}] = {f.elements.value(operand, index)};")
        if places.carries:
            block.line(f"{places.names[-1]}[{at}] = {at};")
    f.barrier()
    _network(f, places, 2, _power(length), lambda at: at, f"{length}")
    block, at = _threads(f, length, "at")
    with f.elements.within(block):
        linear = _linear(sort, row, at)
        for number, _ in enumerate(sort.operands):
            f.store(f.result(number), linear, f"{places.names[number]}[{at}]")


def _network(
    f: FunctionWriter, places: _Places, first: int, last: int, at: _Place, limit: str
) -> None:
    """All steps of sizes ``first`` to ``last`` over places in shared memory."""
    if last < first:
        return
    names = f.scope.names
    reach, half = names.fresh("reach"), names.fresh("half")
    sizes = f.elements.scope.block(f"for (int {reach} = {first}; {reach} <= {last}; {reach} *= 2)")
    steps = sizes.block(f"for (int {half} = {reach} / 2; {half} > 0; {half} /= 2)")
    with f.elements.within(steps):
        _step(f, places, last // 2, reach, half, at, limit)


def _step(
    f: FunctionWriter,
    places: _Places,
    pairs: int,
    reach: str,
    half: str,
    at: _Place,
    limit: str,
) -> None:
    """One step over pairs in shared memory, and a barrier."""
    outer = f.elements.scope
    block, p = _threads(f, pairs, "pair")
    i, j = _pair(block, str(p), reach, half)
    inside = block.when(f"{j} < {limit}")
    with f.elements.within(inside):
        places.compare(i, j, at)
    outer.line("__syncthreads();")


def _index(sort: Instruction, row: Index, at: Index) -> tuple[Index, ...]:
    """The index of element ``at`` of a row."""
    dims = sort.operands[0].array.dims
    axis = sort.attributes["dimensions"][0]
    others = delinearize(row, (*dims[:axis], *dims[axis + 1 :]))
    return (*others[:axis], at, *others[axis:])


def _linear(sort: Instruction, row: Index, at: Index) -> Index:
    _, length, stride = rows_of(sort)
    return row // stride * (length * stride) + row % stride + at * stride


def _emit_bitonic(f: FunctionWriter) -> None:
    {"_begin": _begin, "_tile": _tile, "_step": _long_step}[f.launch.function](f)


def _begin(f: FunctionWriter) -> None:
    """The results begin as the operands."""
    sort = _sort(f)
    dims = sort.operands[0].array.dims
    with strided(f, sort.operands[0].array.elements) as thread:
        index = delinearize(thread, dims)
        for number, operand in enumerate(sort.operands):
            f.store(f.result(number), thread, f.elements.value(operand, index))
        if carries_positions(sort):
            axis = sort.attributes["dimensions"][0]
            f.store(f.scratch(0), thread, str(index[axis]))


def _global_names(f: FunctionWriter) -> list[str]:
    sort = _sort(f)
    names = [f.result(number).name for number, _ in enumerate(sort.operands)]
    return [*names, f.scratch(0).name] if carries_positions(sort) else names


def _tile(f: FunctionWriter) -> None:
    """A tile in shared memory: the whole network of its size, or the short steps of a larger one."""
    sort = _sort(f)
    _, length, _ = rows_of(sort)
    size = f.tile["tile"]
    tiles = -(-length // size)
    names = _global_names(f)
    places = _Places(f, [f.shared(f.uses.type(kind), (size,), "tile") for kind in _kinds(sort)])
    row, number = f.block() // tiles, f.block() % tiles
    start = number * size
    count = str(size)
    if length % size:
        count = f.scope.declare("int", f"min({size}, {length} - {start.factor_text})", "count")
    for loading in (True, False):
        block, at = _threads(f, size, "at")
        inside = block.when(f"{at} < {count}") if length % size else block
        with f.elements.within(inside):
            linear = _linear(sort, row, start + at)
            place = inside.declare("int", str(linear), "place")
            for shared, name in zip(places.names, names, strict=True):
                pair = (f"{shared}[{at}]", f"{name}[{place}]")
                inside.line(f"{pair[0]} = {pair[1]};" if loading else f"{pair[1]} = {pair[0]};")
        if loading:
            f.barrier()
            _tile_network(f, places, size, count)


def _tile_network(f: FunctionWriter, places: _Places, size: int, count: str) -> None:
    merging = f.scalars[0].name
    reach, half = f.scope.names.fresh("reach"), f.scope.names.fresh("half")
    # When merging, all steps are short ones of a size beyond the tile: none is turned around.
    sizes = f.scope.block(
        f"for (int {reach} = {merging} ? {size} : 2; {reach} <= {size}; {reach} *= 2)"
    )
    steps = sizes.block(f"for (int {half} = {reach} / 2; {half} > 0; {half} /= 2)")
    turned = steps.declare("int", f"{merging} ? 0 : {reach}", "turned")
    with f.elements.within(steps):
        _step(f, places, size // 2, turned, half, lambda at: at, count)


def _long_step(f: FunctionWriter) -> None:
    """One step in global memory: a thread for each pair of each row."""
    sort = _sort(f)
    rows, length, _ = rows_of(sort)
    half_row = _power(length) // 2
    reach, half = (symbol.name for symbol in f.scalars)
    with strided(f, rows * half_row) as thread:
        scope = f.elements.scope
        pair = f.elements.symbol(thread % half_row, "pair", 0, half_row - 1)
        row = f.elements.symbol(thread // half_row, "row", 0, rows - 1)
        i, j = _pair(scope, str(pair), reach, half)
        inside = scope.when(f"{j} < {length}")
        with f.elements.within(inside):
            places = [
                inside.declare(
                    "int", str(_linear(sort, row, Symbol(name, 0, length - 1).index)), "place"
                )
                for name in (i, j)
            ]
            _Places(f, _global_names(f)).compare(places[0], places[1], lambda at: at)


EMITTERS = {"block-sort": _emit_block, "bitonic-sort": _emit_bitonic}
