"""Loops over the elements of results, as ``nesting.py`` says, written for compilers to make vectors of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from math import prod
from typing import Final, TypeAlias

from hloopt.analysis.index import Index, Symbol, delinearize, symbols_of
from hloopt.backends.native.codegen.nesting import TILE, Nest, crossed, position_of, trial
from hloopt.codegen.scalars import load, store
from hloopt.codegen.writer import FunctionWriter
from hloopt.dataclass import dataclass
from hloopt.kernel_ir.expressions import Array, Expr, Operand, Select, Var, as_expr
from hloopt.kernel_ir.scope import Scope
from hloopt.kernel_ir.statements import For, While, walk
from hloopt.kernel_ir.types import LONG

__all__ = ["BEGIN", "END", "least", "loop", "simd", "tasks", "write_nest"]

BEGIN: Final = Var("begin", LONG)
"""The first task of this call."""

END: Final = Var("end", LONG)
"""The end of this call's tasks."""

Reach: TypeAlias = "tuple[Expr, Expr] | None"
Body: TypeAlias = Callable[[Index], None]


def simd(block: Scope) -> bool:
    """Whether a loop's body holds no loop: then its iterations may be lanes."""
    return not any(isinstance(one, For | While) for one in walk(block.statements()))


def least(value: Operand, most: Operand) -> Expr:
    """The lesser of two numbers."""
    return Select.of(as_expr(value) < most, value, most)


@contextmanager
def loop(
    f: FunctionWriter,
    first: Operand,
    stop: Operand,
    symbol: Symbol,
    step: int = 1,
    *,
    innermost: bool = False,
) -> Iterator[Index]:
    """A loop from ``first`` to before ``stop``; an innermost one is marked as having independent iterations."""
    head = For(
        Var(symbol.name, f.loads.index_type), as_expr(first), as_expr(stop), (), as_expr(step)
    )
    with f.elements.within(f.elements.scope.open(head)) as block:
        yield symbol.index
    if innermost and simd(block):
        block.vectorize()


def write_nest(f: FunctionWriter, nest: Nest, each: int, body: Body) -> None:
    """The loops of tasks ``begin`` to before ``end``, ``each`` elements a task; ``body`` gets a position.

    Inner dimensions that fill a task run from their beginning to their end: loops of constant length.
    """
    if nest.tiled >= 0:
        _by_tiles(f, nest, body)
        return
    if nest.stacked >= 0:
        _at_once(f, nest, body)
        return

    def place(at: Sequence[Index]) -> None:
        body(position_of(nest.sizes, at))

    parts = [nest.parts(level) for level in range(len(nest.sizes))]
    _write_levels(_Levels(f, nest.sizes, parts, place), each)


def _at_once(f: FunctionWriter, nest: Nest, body: Body) -> None:
    """The loops but the stacked one, whose rows are written one behind the other inside of them."""
    level = nest.stacked
    sizes = (*nest.sizes[:level], *nest.sizes[level + 1 :])

    def place(at: Sequence[Index]) -> None:
        for row in range(nest.sizes[level]):
            body(position_of(nest.sizes, [*at[:level], Index(row), *at[level:]]))

    elements, row = prod(sizes), sizes[-1] if sizes else 1
    each = -(-elements // f.launch.grid[0])
    if each > row:
        each = -(-each // row) * row
    _write_levels(_Levels(f, sizes, [[(0, size)] for size in sizes], place), each)


@dataclass(frozen=True)
class _Levels:
    """Loops over ``sizes``, each in its parts; ``place`` writes what is done at an index."""

    f: FunctionWriter
    sizes: tuple[int, ...]
    parts: Sequence[Sequence[tuple[int, int]]]
    place: Callable[[Sequence[Index]], None]


def _write_levels(levels: _Levels, each: int) -> None:
    f, sizes = levels.f, levels.sizes
    elements, first = prod(sizes), len(sizes)
    while first and each % prod(sizes[first - 1 :]) == 0:
        first -= 1
    if each >= elements:
        _inside(levels, [], [])
    elif first < len(sizes):
        unit = prod(sizes[first:])
        with tasks(f, "u", each // unit, elements // unit) as outer:
            _inside(levels, _apart(f, outer, sizes[:first]), [])
    elif len(sizes) == 1:
        _inside(levels, [], [], _bounds(f, each, elements))
    else:
        _partial_rows(levels, each)


def _inside(levels: _Levels, outer: Sequence[Index], at: list[Index], reach: Reach = None) -> None:
    """The loops inside of those whose indices ``at`` has; those of ``outer`` are there already.

    The innermost one runs from the first to before the second of ``reach``, if there is one.
    """
    level, f = len(at), levels.f
    if level == len(levels.sizes):
        levels.place(at)
        return
    size, innermost = levels.sizes[level], level == len(levels.sizes) - 1
    for part in levels.parts[level]:
        with ExitStack() as blocks:
            if level < len(outer):
                index = _narrowed(f, blocks, outer[level], part, size)
            else:
                limits = reach if innermost else None
                index = _counter(f, blocks, part, size, limits, innermost=innermost)
            _inside(levels, outer, [*at, index], reach)


def _narrowed(
    f: FunctionWriter, blocks: ExitStack, at: Index, part: tuple[int, int], size: int
) -> Index:
    """An index where it lies in a part of its loop."""
    low, high = part
    if part == (0, size) or at.is_constant:
        return at
    value = as_expr(at)
    tests = [value >= low] * (low > 0) + [value < high] * (high < size)
    blocks.enter_context(f.elements.when(*tests))
    (symbol,) = symbols_of((at,))
    return Symbol(symbol.name, low, high - 1).index


@contextmanager
def tasks(
    f: FunctionWriter, hint: str, each: int, count: int, *, innermost: bool = False
) -> Iterator[Index]:
    """A loop over this call's groups of elements, ``each`` a task of ``count`` in all; gives the group."""
    first, last = _bounds(f, each, count)
    symbol = Symbol(f.scope.names.fresh(hint), 0, count - 1)
    with loop(f, first, last, symbol, innermost=innermost) as unit:
        yield unit


def _bounds(f: FunctionWriter, each: int, count: int) -> tuple[Expr, Expr]:
    """The first group of this call's tasks, and the end."""
    kind, scope = f.loads.index_type, f.elements.scope
    if each >= count:
        return as_expr(0), as_expr(count)
    first = scope.declare(kind, (BEGIN * each).cast(kind), "first")
    return first, scope.declare(kind, least(END * each, count).cast(kind), "last")


def _apart(f: FunctionWriter, outer: Index, sizes: Sequence[int]) -> list[Index]:
    """The indices of the outer loops, each with a name."""
    return [
        f.elements.symbol(part, f"at_{level}", 0, sizes[level] - 1)
        for level, part in enumerate(delinearize(outer, sizes))
    ]


def _by_tiles(f: FunctionWriter, nest: Nest, body: Body) -> None:
    """Two loops by tiles, where an operand is transposed: its tile is first copied along its own neighbours.

    Otherwise each cache line would be loaded once for each of its elements, and lines whole powers of two
    apart would evict each other.
    """
    sizes, last, names = nest.sizes, len(nest.sizes) - 1, f.scope.names
    outer = [level for level in range(last) if level != nest.tiled]
    counts = [*(sizes[level] for level in outer), -(-sizes[nest.tiled] // TILE)]
    units, grid = prod(counts), f.launch.grid[0]
    with tasks(f, "u", -(-units // grid), units) as unit:
        *found, tile_row = _apart(f, unit, counts)
        at = dict(zip(outer, found, strict=True))
        start = f.elements.scope.declare(f.loads.index_type, tile_row * TILE, "row")
        stop = _tile_end(f, start, sizes[nest.tiled])
        first = Symbol(names.fresh("column"), 0, sizes[last] - 1)
        with loop(f, 0, sizes[last], first, TILE) as begun:
            end = _tile_end(f, as_expr(begun), sizes[last])
            row, column = (
                Symbol(names.fresh("i"), 0, sizes[level] - 1) for level in (nest.tiled, last)
            )
            at[nest.tiled], at[last] = row.index, column.index
            position = position_of(sizes, [at[level] for level in range(last + 1)])
            down, across = _Along(row, start, stop), _Along(column, as_expr(begun), end)
            copied = [
                (memory, linear, _copied(f, memory, linear, down, across))
                for memory, linear in trial(f, nest.numbers, [position])[1]
                if crossed(linear, (row, column)) == 0
            ]
            with down.loop(f), across.loop(f, innermost=True):
                for memory, linear, value in copied:
                    f.elements.scope.remember(("load", memory, linear), value)
                body(position)


@dataclass(frozen=True)
class _Along:
    """A side of a tile: its counter, where it begins, and what is behind it."""

    symbol: Symbol
    first: Expr
    stop: Expr

    def loop(self, f: FunctionWriter, *, innermost: bool = False) -> AbstractContextManager[Index]:
        """A loop along the side."""
        return loop(f, self.first, self.stop, self.symbol, innermost=innermost)

    @property
    def place(self) -> Expr:
        """How far one is from where the side begins."""
        return as_expr(self.symbol.index) - self.first


def _copied(f: FunctionWriter, memory: Array, linear: Index, down: _Along, across: _Along) -> Expr:
    """Copy a tile of what lies in memory; returns how an element is read from the copy."""
    e, uses = f.elements, f.uses
    kind = next(one.shape.dtype for one in f.pointees.values() if one.memory == memory)
    # One more than a power of two: a column's elements lie in different banks of the cache.
    stride = TILE + 1
    tile = e.scope.array(uses.storage(kind), (TILE * stride,), f"{memory.name}_tile", align=64)
    at = across.place * stride + down.place
    with across.loop(f), down.loop(f, innermost=True):
        for statement in store(tile, at, load(memory, linear, kind, uses), kind, uses):
            e.scope.add(statement)
    return load(tile, at, kind, uses)


def _tile_end(f: FunctionWriter, start: Expr, size: int) -> Expr:
    reach = start + TILE
    if size % TILE:
        reach = least(reach, size)
    return f.elements.scope.declare(f.loads.index_type, reach, "stop")


def _counter(
    f: FunctionWriter,
    blocks: ExitStack,
    part: tuple[int, int],
    size: int,
    reach: Reach,
    *,
    innermost: bool,
) -> Index:
    """A loop over a part of ``size`` indices, as far as it lies within ``reach``."""
    low, high = part
    if high - low == 1 and reach is None:
        return Index(low)
    symbol = Symbol(f.scope.names.fresh("i"), low, high - 1)
    start, stop = reach or (as_expr(low), as_expr(high))
    kind, scope = f.loads.index_type, f.elements.scope
    if reach is not None and low > 0:
        start = scope.declare(kind, Select.of(start > low, start, low), "start")
    if reach is not None and high < size:
        stop = scope.declare(kind, least(stop, high), "stop")
    return blocks.enter_context(loop(f, start, stop, symbol, innermost=innermost))


def _partial_rows(levels: _Levels, each: int) -> None:
    """Rows of the innermost dimension, of which a task's first and last may not be whole."""
    f, sizes = levels.f, levels.sizes
    kind, row, elements = f.loads.index_type, sizes[-1], prod(sizes)
    first, last = _bounds(f, each, elements)
    # Not `name * row < last`: that product could be too large where the last row ends the array.
    block, counter = f.elements.scope.loop(first / row, (last - 1) / row, "row", kind, test="<=")
    with f.elements.within(block):
        outer = _apart(f, Symbol(counter.name, 0, elements // row - 1).index, sizes[:-1])
        begun, reach = first - counter * row, last - counter * row
        start = block.declare(kind, Select.of(begun > 0, begun, 0), "start")
        stop = block.declare(kind, least(reach, row), "stop")
        _inside(levels, outer, [], (start, stop))
