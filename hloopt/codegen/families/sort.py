"""Sorting networks.

A step of a network compares the places ``i`` and ``j``: of a size ``reach``, the first step has ``j`` as the
mirror image of ``i`` in its block of ``reach`` places, every further one ``half`` places behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from hloopt.analysis.index import Index, Indices, Symbol, delinearize
from hloopt.codegen.emission import Asking
from hloopt.codegen.families.loop import strided
from hloopt.codegen.writer import FunctionWriter
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import (
    Array,
    Call,
    Expr,
    Operand,
    Select,
    Var,
    as_expr,
    both,
    either,
    eq,
)
from hloopt.kernel_ir.types import INT
from hloopt.kernels.families.sort import carries_positions, rows_of, sort_of
from hloopt.types import DType, dtype

__all__ = ["EMITTERS", "index_in_row", "place_of"]


class _Places:
    """The arrays that are sorted, in shared or global memory, the positions last where they are carried."""

    def __init__(self, f: FunctionWriter, arrays: Sequence[Array]) -> None:
        self.f = f
        self.sort = _sort(f)
        self.arrays = list(arrays)
        self.carries = carries_positions(self.sort)

    def compare(self, i: Expr, j: Expr) -> None:
        """Swap the elements at ``i`` and ``j`` where the one behind belongs in front."""
        self.f.elements.run(self._compare(i, j))

    def _compare(self, i: Expr, j: Expr) -> Asking:
        e = self.f.elements
        first, second = (
            [e.scope.declare(array.element, array[place], hint) for array in self.arrays]
            for place, hint in ((i, "first"), (j, "second"))
        )
        values = len(self.sort.operands)
        comparator = self.sort.attributes["to_apply"]
        mixed = [name for pair in zip(second, first, strict=True) for name in pair][: 2 * values]
        (swap,) = yield from e.call(comparator, mixed)
        if self.carries:
            straight = [name for pair in zip(first, second, strict=True) for name in pair]
            (stays,) = yield from e.call(comparator, straight[: 2 * values])
            swap = either([swap, both([stays.negated(), second[-1] < first[-1]])])
        with e.when(swap) as block:
            for array, one, other in zip(self.arrays, first, second, strict=True):
                block.set(array[i], other)
                block.set(array[j], one)


def _kinds(sort: Instruction) -> list[DType]:
    kinds = [operand.array.dtype for operand in sort.operands]
    return [*kinds, dtype("s32")] if carries_positions(sort) else kinds


def _sort(f: FunctionWriter) -> Instruction:
    sort = sort_of(f.region)
    assert sort is not None
    return sort


def _power(count: int) -> int:
    return 1 << max(0, count - 1).bit_length()


def _shared(f: FunctionWriter, size: int, hint: str) -> _Places:
    kinds = _kinds(_sort(f))
    return _Places(f, [f.shared(f.uses.type(kind), (size,), hint) for kind in kinds])


def _global(f: FunctionWriter) -> list[Array]:
    sort = _sort(f)
    arrays = [f.result(number).memory for number, _ in enumerate(sort.operands)]
    return [*arrays, f.scratch(0).memory] if carries_positions(sort) else arrays


def _threads(f: FunctionWriter, count: int, hint: str) -> AbstractContextManager[Index]:
    """The threads of the block share ``count`` items by stride."""
    return f.elements.counting(f.thread(), count, hint, f.launch.block[0], type=INT)


def _pair(f: FunctionWriter, pair: Index, reach: Expr, half: Expr) -> tuple[Var, Var]:
    scope, p = f.elements.scope, as_expr(pair)
    # p / half * (2 * half) + p % half of a power of two, without dividing.
    i = scope.declare(INT, 2 * p - (p & (half - 1)), "left")
    behind = Select.of(eq(2 * half, reach), i ^ (reach - 1), i + half)
    return i, scope.declare(INT, behind, "right")


def _emit_block(f: FunctionWriter) -> None:
    """Load a row, run the whole network, store the row."""
    sort = _sort(f)
    _, length, _ = rows_of(sort)
    places = _shared(f, length, "row")
    row = f.block()
    with _threads(f, length, "at") as at:
        scope = f.elements.scope
        index = index_in_row(sort, row, at)
        for array, operand in zip(places.arrays, sort.operands, strict=False):
            scope.set(array[at], f.elements.value(operand, index))
        if places.carries:
            scope.set(places.arrays[-1][at], at)
    f.barrier()
    _network(f, places, _power(length), length)
    with _threads(f, length, "at") as at:
        linear = place_of(sort, row, at)
        for number, _ in enumerate(sort.operands):
            f.store(f.result(number), linear, places.arrays[number][at])


def _network(
    f: FunctionWriter, places: _Places, last: int, limit: Operand, merging: Expr | None = None
) -> None:
    """All steps of sizes up to ``last`` over places in shared memory, a barrier after each.

    Where ``merging``, all of them are short ones of a size above ``last``: none is reversed.
    """
    if last < 2:
        return
    e = f.elements
    first = 2 if merging is None else Select.of(merging, last, 2)
    sizes, reach = e.scope.loop(first, last, "reach", INT, 2, test="<=", change="*=")
    steps, half = sizes.loop(reach / 2, 0, "half", INT, 2, test=">", change="/=")
    with e.within(steps):
        if merging is not None:
            reach = steps.declare(INT, Select.of(merging, 0, reach), "turned")
        with _threads(f, last // 2, "pair") as pair:
            i, j = _pair(f, pair, reach, half)
            with e.when(j < limit):
                places.compare(i, j)
        f.barrier()


def index_in_row(sort: Instruction, row: Index, at: Index) -> Indices:
    """The index of element ``at`` of a row."""
    dims = sort.operands[0].array.dims
    axis = sort.attributes["dimensions"][0]
    others = delinearize(row, (*dims[:axis], *dims[axis + 1 :]))
    return (*others[:axis], at, *others[axis:])


def place_of(sort: Instruction, row: Index, at: Index) -> Index:
    """Where in memory element ``at`` of a row lies, in elements."""
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
            f.store(f.scratch(0), thread, index[axis])


def _tile(f: FunctionWriter) -> None:
    """A tile in shared memory: the whole network of its size, or the short steps of a larger one."""
    sort = _sort(f)
    _, length, _ = rows_of(sort)
    size = f.tile["tile"]
    tiles = -(-length // size)
    places = _shared(f, size, "tile")
    row, number = f.block() // tiles, f.block() % tiles
    start = number * size
    count: Operand = size
    if length % size:
        least = Call("min", (as_expr(size), as_expr(Index(length) - start)), INT)
        count = f.scope.declare(INT, least, "count")
    for loading in (True, False):
        with (
            _threads(f, size, "at") as at,
            f.elements.when(*[as_expr(at) < count] if length % size else []) as inside,
        ):
            place = inside.declare(INT, place_of(sort, row, start + at), "place")
            for shared, memory in zip(places.arrays, _global(f), strict=True):
                if loading:
                    inside.set(shared[at], memory[place])
                else:
                    inside.set(memory[place], shared[at])
        if loading:
            f.barrier()
            _network(f, places, size, count, as_expr(f.scalars[0].index))


def _long_step(f: FunctionWriter) -> None:
    """One step in global memory: a thread for each pair of each row."""
    sort, e = _sort(f), f.elements
    rows, length, _ = rows_of(sort)
    half_row = _power(length) // 2
    reach, half = (as_expr(symbol.index) for symbol in f.scalars)
    with strided(f, rows * half_row) as thread:
        pair = e.symbol(thread % half_row, "pair", 0, half_row - 1)
        row = e.symbol(thread // half_row, "row", 0, rows - 1)
        i, j = _pair(f, pair, reach, half)
        with e.when(j < length) as inside:
            left, right = (
                inside.declare(
                    INT, place_of(sort, row, Symbol(var.name, 0, length - 1).index), "place"
                )
                for var in (i, j)
            )
            _Places(f, _global(f)).compare(left, right)


EMITTERS = {"block-sort": _emit_block, "bitonic-sort": _emit_bitonic}
