"""Loop nests over the elements of results: which dimensions are loops of their own, and who runs which part.

Where everything that is read lies as the results do, all elements are one loop.  A dimension is a loop of its
own where an access needs its index: a broadcast row makes two.  Neighbouring dimensions are merged as long as
no index has to be divided for it, so that the innermost loop is long, over neighbours, and without divisions:
what compilers make vectors of.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from math import prod

from hloopt.analysis.elementwise import is_elementwise
from hloopt.analysis.index import Index, Symbol, delinearize
from hloopt.analysis.region import Region
from hloopt.codegen.device import Uses
from hloopt.codegen.elements import Elements
from hloopt.codegen.loads import Loads
from hloopt.codegen.positions import index_at
from hloopt.codegen.scalars import load, store
from hloopt.codegen.scope import Names, Scope
from hloopt.codegen.types import is_packed
from hloopt.codegen.writer import FunctionWriter
from hloopt.dataclass import dataclass
from hloopt.types import ArrayShape

__all__ = ["Nest", "loop", "nest_of", "simd", "tasks", "value_at", "write_nest"]

# What an index that has to be taken apart looks like.
_DIVISION = re.compile(r" [/%] \d+\)")
_LOOPS = re.compile(r"\b(for|while|switch) \(")

# Merging is tried pair by pair; so many dimensions are told apart at most.
_MOST_LEVELS = 8

# Elements of a tile's side: 32 lines of the cache are read while each is there.
_TILE = 32


@dataclass(frozen=True)
class Nest:
    """Loops over ``sizes``, outermost first, whose product is the number of elements.

    ``numbers`` are the result leaves.  ``tiled`` is the loop that an operand's neighbours lie along where that
    is not the innermost one: both are run tile by tile.  -1 where there is none.
    """

    numbers: tuple[int, ...]
    sizes: tuple[int, ...]
    tiled: int = -1


def value_at(f: FunctionWriter, elements: Elements, number: int, position: Index) -> str:
    """Write the element of result leaf ``number`` at a position of its memory."""
    result = f.region.results[number]
    return elements.value(result.instruction, index_at(position, result.shape), result.leaf)


def nest_of(f: FunctionWriter, numbers: Sequence[int]) -> Nest:
    """The loops for result leaves with as many elements each."""
    elements = f.region.results[numbers[0]].shape.elements
    if _is_flat(f.region):
        return Nest(tuple(numbers), (elements,))
    whole = _written(f, numbers, (elements,))
    if not whole.divisions:
        return Nest(tuple(numbers), (elements,))
    sizes = _finest(f.region, numbers, elements)
    best = _written(f, numbers, sizes)
    at = len(sizes) - 2
    while at >= 0:
        merged = (*best.sizes[:at], best.sizes[at] * best.sizes[at + 1], *best.sizes[at + 2 :])
        tried = _written(f, numbers, merged)
        if tried.divisions <= best.divisions:
            best = tried
        at -= 1
    if best.divisions >= whole.divisions:
        best = whole
    return Nest(tuple(numbers), best.sizes, best.crossing)


def _is_flat(region: Region) -> bool:
    """Whether each element is computed from those at its own place, as is plain to see."""
    dims = region.results[0].shape.dims
    if not region.is_fusion:
        return is_elementwise(region.instruction)
    for inner in region.body:
        shape = inner.shape
        if not isinstance(shape, ArrayShape):
            return False
        if inner.opcode == "constant":
            if shape.elements != 1:
                return False
        elif shape.dims and shape.dims != dims:
            return False
        elif inner.opcode == "broadcast":
            if inner.operands[0].array.dims:
                return False
        elif not is_elementwise(inner):
            return False
    return True


@dataclass
class _Written:
    """A trial: what was written for some sizes."""

    sizes: tuple[int, ...]
    divisions: int
    crossing: int


def _written(f: FunctionWriter, numbers: Sequence[int], sizes: tuple[int, ...]) -> _Written:
    symbols = [Symbol(f"at_{level}_", 0, size - 1) for level, size in enumerate(sizes)]
    at = [symbol.index for symbol in symbols]
    text, loads = _trial(f, numbers, _position(sizes, at))
    crossing = max((_crossed(linear, symbols) for _, linear in loads), default=-1)
    return _Written(sizes, len(_DIVISION.findall(text)), crossing)


def _trial(
    f: FunctionWriter, numbers: Sequence[int], position: Index
) -> tuple[str, list[tuple[str, Index]]]:
    """What would be written for a position, and the places of memory that would be read, whole bytes each."""
    scope = Scope(Names())
    loads = Loads(f.loads.index_type)
    elements = Elements(f.region, f.elements.pointers, Uses(native=True), scope, loads)
    for number in numbers:
        value_at(f, elements, number, position)
    packed = {one.name for one in f.pointees.values() if is_packed(one.shape.dtype)}
    read = sorted((place for place in loads.now if place[0] not in packed), key=str)
    return "\n".join(scope.text()), read


def _crossed(linear: Index, symbols: Sequence[Symbol]) -> int:
    """The loop that the neighbours of what is read lie along, where the innermost one leaps; or -1."""
    counts = dict(linear.terms)
    inner = symbols[-1]
    if inner.high + 1 < _TILE or counts.get(inner, 0) < _TILE:
        return -1
    for level, symbol in enumerate(symbols[:-1]):
        if counts.get(symbol) == 1 and symbol.high + 1 >= _TILE:
            return level
    return -1


def _position(sizes: Sequence[int], at: Sequence[Index]) -> Index:
    total = Index(0)
    for size, index in zip(sizes, at, strict=True):
        total = total * size + index
    return total


def _finest(region: Region, numbers: Sequence[int], elements: int) -> tuple[int, ...]:
    """Every dimension that a result or an array as large as it has, as far as they divide each other."""
    shapes = [region.results[number].shape for number in numbers]
    shapes += [
        shape
        for inner in region.body
        for shape in region.arrays_of(inner)
        if shape.elements == elements
    ]
    strides = [elements, 1]
    for shape in shapes:
        stride = 1
        for size in reversed(shape.dims):
            stride *= size
            if len(strides) > _MOST_LEVELS:
                break
            if stride not in strides and _fits(strides, stride):
                strides = sorted((*strides, stride), reverse=True)
    return tuple(large // small for large, small in pairwise(strides))


def _fits(strides: Sequence[int], stride: int) -> bool:
    return all(other % stride == 0 if other > stride else stride % other == 0 for other in strides)


def simd(block: Scope) -> bool:
    """Whether a loop's body holds no loop: then ``#pragma omp simd`` may stand before it."""
    return not any(_LOOPS.search(line) for line in block.text())


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
    sizes, elements = nest.sizes, prod(nest.sizes)
    if nest.tiled >= 0:
        _by_tiles(f, nest, body)
        return
    first = len(sizes)
    while first and each % prod(sizes[first - 1 :]) == 0:
        first -= 1
    if each >= elements:
        _whole(f, sizes, [], body)
    elif first < len(sizes):
        unit = prod(sizes[first:])
        with tasks(f, "u", each // unit, elements // unit) as outer:
            _whole(f, sizes, _apart(f, outer, sizes[:first]), body)
    elif len(sizes) == 1:
        with tasks(f, "i", each, elements, innermost=True) as position:
            body(position)
    else:
        _partial_rows(f, sizes, each, body)


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


def _whole(f: FunctionWriter, sizes: Sequence[int], outer: list[Index], body: Body) -> None:
    """The loops inside of ``outer``, from beginning to end."""
    at = list(outer)
    with ExitStack() as blocks:
        at += [
            _counter(f, blocks, sizes[level], innermost=level == len(sizes) - 1)
            for level in range(len(outer), len(sizes))
        ]
        body(_position(sizes, at))


def _by_tiles(f: FunctionWriter, nest: Nest, body: Body) -> None:
    """Two loops that cross by tiles: what is read across is copied first, by its own neighbours.

    Else each line of the cache would be met once for each of its elements, and lines whole powers of two
    apart would push each other out.
    """
    sizes, last, kind = nest.sizes, len(nest.sizes) - 1, f.loads.index_type
    rows = -(-sizes[nest.tiled] // _TILE)
    outer = [level for level in range(last) if level != nest.tiled]
    counts = [*(sizes[level] for level in outer), rows]
    units, grid = prod(counts), f.launch.grid[0]
    with tasks(f, "u", -(-units // grid), units) as unit:
        *found, tile_row = _apart(f, unit, counts)
        at = dict(zip(outer, found, strict=True))
        block = f.elements.scope
        start = block.declare(kind, str(tile_row * _TILE), "row")
        stop = _tile_end(f, start, sizes[nest.tiled])
        name = f.scope.names.fresh("column")
        with loop(f, f"for ({kind} {name} = 0; {name} < {sizes[last]}; {name} += {_TILE})"):
            end = _tile_end(f, name, sizes[last])
            row = Symbol(f.scope.names.fresh("i"), 0, sizes[nest.tiled] - 1)
            column = Symbol(f.scope.names.fresh("i"), 0, sizes[last] - 1)
            at[nest.tiled], at[last] = row.index, column.index
            position = _position(sizes, [at[level] for level in range(last + 1)])
            down = f"for ({kind} {row.name} = {start}; {row.name} < {stop}; ++{row.name})"
            across = f"for ({kind} {column.name} = {name}; {column.name} < {end}; ++{column.name})"
            symbols = (row, column)
            copied = [
                (
                    pointer,
                    linear,
                    _copied(f, pointer, linear, (across, down), symbols, (start, name)),
                )
                for pointer, linear in _trial(f, nest.numbers, position)[1]
                if _crossed(linear, symbols) == 0
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
    stride = _TILE + 1
    row, column = (
        f"({symbol.name} - {start})" for symbol, start in zip(symbols, starts, strict=True)
    )
    at, kind = f"{column} * {stride} + {row}", pointee.shape.dtype
    f.elements.scope.line(f"alignas(64) {f.uses.storage(kind)} {tile}[{_TILE * stride}];")
    with loop(f, headers[0]), loop(f, headers[1], innermost=True) as inner:
        inner.line(store(tile, at, load(pointer, str(linear), kind, f.uses), kind, f.uses))
    return load(tile, at, kind, f.uses)


def _tile_end(f: FunctionWriter, start: str, size: int) -> str:
    reach = f"{start} + {_TILE}"
    if size % _TILE:
        reach = f"{reach} < {size} ? {reach} : {size}"
    return f.elements.scope.declare(f.loads.index_type, reach, "stop")


def _counter(
    f: FunctionWriter,
    blocks: ExitStack,
    size: int,
    *,
    start: str = "0",
    stop: str = "",
    innermost: bool = False,
) -> Index:
    if size == 1:
        return Index(0)
    kind, name = f.loads.index_type, f.scope.names.fresh("i")
    header = f"for ({kind} {name} = {start}; {name} < {stop or size}; ++{name})"
    blocks.enter_context(loop(f, header, innermost=innermost))
    return Symbol(name, 0, size - 1).index


def _partial_rows(f: FunctionWriter, sizes: Sequence[int], each: int, body: Body) -> None:
    """Rows of the innermost dimension, of which a task's first and last may not be whole."""
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
        with ExitStack() as blocks:
            inner = _counter(f, blocks, row, start=start, stop=stop, innermost=True)
            body(_position(sizes, [*outer, inner]))
