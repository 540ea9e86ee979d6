"""Loops over the elements of results, as ``nesting.py`` says, written for compilers to make vectors of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import prod

from hloopt.analysis.index import Index, Symbol, delinearize
from hloopt.codegen.native.nesting import TILE, Nest, crossed, position_of, trial
from hloopt.codegen.scalars import load, store
from hloopt.codegen.writer import FunctionWriter
from hloopt.dataclass import dataclass
from hloopt.kernel_ir.scope import Scope
from hloopt.kernel_ir.statements import For, Verbatim, While, walk

__all__ = ["loop", "simd", "tasks", "write_nest"]


def simd(block: Scope) -> bool:
    """Whether a loop's body holds no loop: then ``#pragma omp simd`` may stand before it."""
    return not any(isinstance(one, For | While | Verbatim) for one in walk(block.statements()))


Body = Callable[[Index], None]


@contextmanager
def loop(f: FunctionWriter, header: str, *, innermost: bool = False) -> Iterator[Scope]:
    """A block that statements go to; an innermost loop is said to have independent trips."""
    pragma = f.elements.scope.section()
    block = f.elements.scope.block(header)
    with f.elements.within(block):
        yield block
    if innermost and simd(block):
        pragma.line("#pragma omp simd")


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


def _inside(
    levels: _Levels, outer: Sequence[Index], at: list[Index], reach: tuple[str, str] = ("", "")
) -> None:
    """The loops inside of those whose indices ``at`` has; those of ``outer`` are there already.

    The innermost one runs from the first to before the second of ``reach``, if anything is in it.
    """
    level, f = len(at), levels.f
    if level == len(levels.sizes):
        levels.place(at)
        return
    for part in levels.parts[level]:
        with ExitStack() as blocks:
            if level < len(outer):
                index = _narrowed(f, blocks, outer[level], part, levels.sizes[level])
            else:
                innermost = level == len(levels.sizes) - 1
                limits = reach if innermost else ("", "")
                index = _counter(f, blocks, part, levels.sizes[level], limits, innermost=innermost)
            _inside(levels, outer, [*at, index], reach)


def _narrowed(
    f: FunctionWriter, blocks: ExitStack, at: Index, part: tuple[int, int], size: int
) -> Index:
    """An index where it lies in a part of its loop."""
    low, high = part
    if part == (0, size) or at.is_constant:
        return at
    tests = [f"{at} >= {low}"] * (low > 0) + [f"{at} < {high}"] * (high < size)
    blocks.enter_context(loop(f, f"if ({' && '.join(tests)})"))
    return Symbol(str(at), low, high - 1).index


@contextmanager
def tasks(
    f: FunctionWriter, hint: str, each: int, count: int, *, innermost: bool = False
) -> Iterator[Index]:
    """A loop over the units of the tasks at hand, ``each`` a task of ``count`` in all; gives the unit."""
    kind = f.loads.index_type
    first, last = _bounds(f, each, count)
    name = f.scope.names.fresh(hint)
    header = f"for ({kind} {name} = {first}; {name} < {last}; ++{name})"
    with loop(f, header, innermost=innermost):
        yield Symbol(name, 0, count - 1).index


def _bounds(f: FunctionWriter, each: int, count: int) -> tuple[str, str]:
    """The first unit of the tasks at hand, and the one behind the last."""
    kind, scope = f.loads.index_type, f.elements.scope
    if each >= count:
        return "0", str(count)
    first = scope.declare(kind, f"({kind})(begin * {each})", "first")
    last = f"end * {each} < {count} ? end * {each} : {count}"
    return first, scope.declare(kind, f"({kind})({last})", "last")


def _apart(f: FunctionWriter, outer: Index, sizes: Sequence[int]) -> list[Index]:
    """The indices of the outer loops, each with a name."""
    return [
        f.elements.symbol(part, f"at_{level}", 0, sizes[level] - 1)
        for level, part in enumerate(delinearize(outer, sizes))
    ]


def _by_tiles(f: FunctionWriter, nest: Nest, body: Body) -> None:
    """Two loops that cross by tiles: what is read across is copied first, by its own neighbours.

    Else each line of the cache would be met once for each of its elements, and lines whole powers of two
    apart would push each other out.
    """
    sizes, last, kind = nest.sizes, len(nest.sizes) - 1, f.loads.index_type
    rows = -(-sizes[nest.tiled] // TILE)
    outer = [level for level in range(last) if level != nest.tiled]
    counts = [*(sizes[level] for level in outer), rows]
    units, grid = prod(counts), f.launch.grid[0]
    with tasks(f, "u", -(-units // grid), units) as unit:
        *found, tile_row = _apart(f, unit, counts)
        at = dict(zip(outer, found, strict=True))
        block = f.elements.scope
        start = block.declare(kind, str(tile_row * TILE), "row")
        stop = _tile_end(f, start, sizes[nest.tiled])
        name = f.scope.names.fresh("column")
        with loop(f, f"for ({kind} {name} = 0; {name} < {sizes[last]}; {name} += {TILE})"):
            end = _tile_end(f, name, sizes[last])
            row = Symbol(f.scope.names.fresh("i"), 0, sizes[nest.tiled] - 1)
            column = Symbol(f.scope.names.fresh("i"), 0, sizes[last] - 1)
            at[nest.tiled], at[last] = row.index, column.index
            position = position_of(sizes, [at[level] for level in range(last + 1)])
            down = f"for ({kind} {row.name} = {start}; {row.name} < {stop}; ++{row.name})"
            across = f"for ({kind} {column.name} = {name}; {column.name} < {end}; ++{column.name})"
            symbols = (row, column)
            copied = [
                (
                    pointer,
                    linear,
                    _copied(f, pointer, linear, (across, down), symbols, (start, name)),
                )
                for pointer, linear in trial(f, nest.numbers, [position])[1]
                if crossed(linear, symbols) == 0
            ]
            with loop(f, down), loop(f, across, innermost=True) as inner:
                for pointer, linear, value in copied:
                    inner.remember(("load", pointer, linear), value)
                body(position)


def _copied(
    f: FunctionWriter,
    pointer: str,
    linear: Index,
    headers: tuple[str, str],
    symbols: tuple[Symbol, Symbol],
    starts: tuple[str, str],
) -> str:
    """Copy a tile of what lies behind a pointer; returns how an element is read from the copy."""
    pointee = next(one for one in f.pointees.values() if one.name == pointer)
    tile = f.scope.names.fresh(f"{pointer}_tile")
    # One more than a power of two: a column's elements lie in different banks of the cache.
    stride = TILE + 1
    row, column = (
        f"({symbol.name} - {start})" for symbol, start in zip(symbols, starts, strict=True)
    )
    at, kind = f"{column} * {stride} + {row}", pointee.shape.dtype
    f.elements.scope.line(f"alignas(64) {f.uses.storage(kind)} {tile}[{TILE * stride}];")
    with loop(f, headers[0]), loop(f, headers[1], innermost=True) as inner:
        inner.line(store(tile, at, load(pointer, str(linear), kind, f.uses), kind, f.uses))
    return load(tile, at, kind, f.uses)


def _tile_end(f: FunctionWriter, start: str, size: int) -> str:
    reach = f"{start} + {TILE}"
    if size % TILE:
        reach = f"{reach} < {size} ? {reach} : {size}"
    return f.elements.scope.declare(f.loads.index_type, reach, "stop")


def _counter(
    f: FunctionWriter,
    blocks: ExitStack,
    part: tuple[int, int],
    size: int,
    reach: tuple[str, str],
    *,
    innermost: bool,
) -> Index:
    """A loop over a part of ``size`` indices, as far as it lies within ``reach``."""
    low, high = part
    first, last = reach
    if high - low == 1 and not first:
        return Index(low)
    kind, name = f.loads.index_type, f.scope.names.fresh("i")
    start, stop = first or str(low), last or str(high)
    if first and low > 0:
        start = f.elements.scope.declare(kind, f"{first} > {low} ? {first} : {low}", "start")
    if last and high < size:
        stop = f.elements.scope.declare(kind, f"{last} < {high} ? {last} : {high}", "stop")
    header = f"for ({kind} {name} = {start}; {name} < {stop}; ++{name})"
    blocks.enter_context(loop(f, header, innermost=innermost))
    return Symbol(name, low, high - 1).index


def _partial_rows(levels: _Levels, each: int) -> None:
    """Rows of the innermost dimension, of which a task's first and last may not be whole."""
    f, sizes = levels.f, levels.sizes
    kind, row, elements = f.loads.index_type, sizes[-1], prod(sizes)
    first, last = _bounds(f, each, elements)
    name = f.scope.names.fresh("row")
    # Not `name * row < last`: that product could be too large where the last row ends the array.
    header = f"for ({kind} {name} = {first} / {row}; {name} <= ({last} - 1) / {row}; ++{name})"
    with loop(f, header) as block:
        outer = _apart(f, Symbol(name, 0, elements // row - 1).index, sizes[:-1])
        begun, reach = f"{first} - {name} * {row}", f"{last} - {name} * {row}"
        start = block.declare(kind, f"{begun} > 0 ? {begun} : 0", "start")
        stop = block.declare(kind, f"{reach} < {row} ? {reach} : {row}", "stop")
        _inside(levels, outer, [], (start, stop))
