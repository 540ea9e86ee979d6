"""The loop nest of a native kernel: its sizes, tiling, splitting into parts, and rows computed at once.

A result's elements are contiguous; a nest is a few loops over them, the innermost one over neighbours.  All
dimensions are collapsed into one loop where no operand needs a single index.  Otherwise a dimension is a
separate loop where an access needs its index: a broadcast row makes two.  Neighbouring dimensions are collapsed
as long as no index has to be divided for it, so that the innermost loop is long, over neighbours, and without
divisions: what compilers vectorise.

A loop through the parts of a concatenate is split, a loop per part, which needs no test per element.  Few rows
that are made of the same values are computed at once, in one iteration of the loop inside of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import gcd
from typing import Final

from hloopt.analysis.elementwise import is_elementwise
from hloopt.analysis.index import Index, Symbol, symbols_of
from hloopt.analysis.region import Region
from hloopt.codegen import index_at
from hloopt.codegen.device import Uses
from hloopt.codegen.elements import Elements
from hloopt.codegen.loads import Loads
from hloopt.codegen.types import is_packed
from hloopt.codegen.writer import FunctionWriter, reserved
from hloopt.dataclass import dataclass
from hloopt.kernel_ir.expressions import (
    Array,
    Binary,
    Expr,
    IndexValue,
    Number,
    subexpressions,
)
from hloopt.kernel_ir.scope import Names, Scope
from hloopt.kernel_ir.statements import Body, If, expressions_of, walk
from hloopt.types import ArrayShape

__all__ = ["TILE", "Nest", "crossed", "nest_of", "position_of", "trial", "value_at"]

# Collapsing is tried pair by pair, for at most so many dimensions.
_MOST_LEVELS = 8

# More loops than these, or more rows at once, are not worth the time to compile them.
_MOST_PARTS: Final = 16

# Rows shorter than this do not fill a vector; so many statements of a row are not worth the time to compile.
_SHORT_ROW: Final = 8
_WRITTEN_OUT: Final = 400
# So many columns compilers take from, and put into, vectors of rows, whatever else a row reads.
_INTERLEAVED: Final = (2, 3, 4)

TILE: Final = 32
"""Elements of a tile's side: 32 lines of the cache are read while each is there."""


@dataclass(frozen=True)
class Nest:
    """Loops over ``sizes``, outermost first, whose product is the number of elements.

    ``numbers`` are the result leaves.  ``tiled`` is the loop that an operand's neighbours lie along where that
    is not the innermost one: both are run tile by tile.  -1 where there is none.  ``cuts`` are the indices at
    which each loop is cut; the rows of the loop ``stacked`` are computed in one iteration of the others.
    """

    numbers: tuple[int, ...]
    sizes: tuple[int, ...]
    tiled: int = -1
    cuts: tuple[tuple[int, ...], ...] = ()
    stacked: int = -1

    def parts(self, level: int) -> list[tuple[int, int]]:
        """The beginnings and ends of what a loop is cut into."""
        cuts = self.cuts[level] if self.cuts else ()
        return list(pairwise((0, *cuts, self.sizes[level])))


def value_at(f: FunctionWriter, elements: Elements, number: int, position: Index) -> Expr:
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
        return _by_parts(f, Nest(tuple(numbers), (elements,)), whole)
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
    nest = Nest(tuple(numbers), best.sizes, best.crossing)
    return nest if best.crossing >= 0 else _by_columns(f, _by_parts(f, nest, best))


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
    cuts: tuple[tuple[int, ...], ...]


def _written(f: FunctionWriter, numbers: Sequence[int], sizes: tuple[int, ...]) -> _Written:
    symbols = [Symbol(f"at_{level}_", 0, size - 1) for level, size in enumerate(sizes)]
    at = [symbol.index for symbol in symbols]
    body, loads = trial(f, numbers, [position_of(sizes, at)])
    crossing = max((crossed(linear, symbols) for _, linear in loads), default=-1)
    cuts: dict[str, set[int]] = {symbol.name: set() for symbol in symbols}
    divisions = 0
    for statement in walk(body):
        if isinstance(statement, If):
            name, cut = _part_end(statement.test)
            cuts.get(name, set()).add(cut)
        for expr in expressions_of(statement):
            divisions += sum(
                _divisions(one.index) for one in subexpressions(expr) if isinstance(one, IndexValue)
            )
    inside = [
        tuple(sorted(cut for cut in found if 0 < cut < size))
        for size, found in zip(sizes, cuts.values(), strict=True)
    ]
    return _Written(sizes, divisions, crossing, tuple(inside))


def _part_end(test: Expr) -> tuple[str, int]:
    """Of a test for a part of a concatenate: a loop's counter, and where it leaves the part."""
    match test:
        case Binary(
            "<", IndexValue(Index(terms=((Symbol(name), 1),)) as at), Number(value=int(end))
        ):
            return name, end - at.constant
    return "", 0


def _divisions(index: Index) -> int:
    """The divisions in an index."""
    return sum(
        1 + _divisions(atom.dividend) for atom, _ in index.terms if not isinstance(atom, Symbol)
    )


def _by_parts(f: FunctionWriter, nest: Nest, found: _Written) -> Nest:
    """The nest with what it is cut into, or with rows that are computed at once."""
    if not any(found.cuts):
        return nest
    for level, cuts in enumerate(found.cuts):
        stacked = _stacked(f, nest, level, cuts) if cuts else None
        if stacked is not None:
            return stacked
    count, kept = 1, []
    for cuts in found.cuts:
        count *= len(cuts) + 1
        kept.append(cuts if count <= _MOST_PARTS else ())
    return replace(nest, cuts=tuple(kept))


def _stacked(f: FunctionWriter, nest: Nest, level: int, cuts: tuple[int, ...]) -> Nest | None:
    """The nest that computes the rows between cuts at once, where they have values in common."""
    size = nest.sizes[level]
    unit = gcd(size, *cuts)
    rows = size // unit
    if rows > _MOST_PARTS:
        return None
    inner = (unit,) if unit > 1 else ()
    sizes = (*nest.sizes[:level], rows, *inner, *nest.sizes[level + 1 :])
    at = [Symbol(f"at_{number}_", 0, one - 1).index for number, one in enumerate(sizes)]
    positions = [
        position_of(sizes, [*at[:level], Index(row), *at[level + 1 :]]) for row in range(rows)
    ]
    alone = [_statements(f, nest.numbers, [position]) for position in positions]
    if _statements(f, nest.numbers, positions) >= sum(alone) and level < len(sizes) - 1:
        return None
    return Nest(nest.numbers, sizes, stacked=level)


def _by_columns(f: FunctionWriter, nest: Nest) -> Nest:
    """The nest with columns written out where there are too few to fill a vector: rows do."""
    *outer, columns = nest.sizes
    if nest.stacked >= 0 or any(nest.cuts) or not 1 < columns < _SHORT_ROW:
        return nest
    if outer[-1] < _SHORT_ROW:
        return nest
    symbols = [Symbol(f"at_{level}_", 0, one - 1) for level, one in enumerate(outer)]
    at = [symbol.index for symbol in symbols]
    body, loads = trial(
        f, nest.numbers, [position_of(nest.sizes, [*at, Index(one)]) for one in range(columns)]
    )
    if sum(1 for _ in walk(body)) > _WRITTEN_OUT:
        return nest
    is_whole = columns in _INTERLEAVED or _are_rows(loads, symbols[-1], columns)
    return replace(nest, stacked=len(outer)) if is_whole else nest


def _are_rows(loads: Sequence[tuple[Array, Index]], row: Symbol, columns: int) -> bool:
    """Whether all that is read for a row lies side by side as its columns do, or is what all rows read."""
    found = Counter(
        array
        for array, linear in loads
        if (times := dict(linear.terms).get(row, 0)) and times >= columns
    )
    others = [1 for _, linear in loads if row in symbols_of((linear,))]
    return len(others) == found.total() and set(found.values()) <= {columns}


def _statements(f: FunctionWriter, numbers: Sequence[int], positions: Sequence[Index]) -> int:
    return sum(1 for _ in walk(trial(f, numbers, positions)[0]))


def trial(
    f: FunctionWriter, numbers: Sequence[int], positions: Sequence[Index]
) -> tuple[Body, list[tuple[Array, Index]]]:
    """What would be written for positions, and the places of memory that would be read, whole bytes each."""
    scope = Scope(Names(f.scope.names.room, reserved()))
    loads = Loads(f.loads.index_type)
    elements = Elements(f.region, f.elements.memory, Uses(native=True), scope, loads)
    elements.shares = f.elements.shares
    for position in positions:
        for number in numbers:
            value_at(f, elements, number, position)
    packed = {one.memory for one in f.pointees.values() if is_packed(one.shape.dtype)}
    read = [place for place in loads.now if place[0] not in packed]
    return scope.statements(), sorted(read, key=lambda place: (place[0].name, str(place[1])))


def crossed(linear: Index, symbols: Sequence[Symbol]) -> int:
    """The loop that the neighbours of what is read lie along, where the innermost one leaps; or -1."""
    counts = dict(linear.terms)
    inner = symbols[-1]
    if inner.high + 1 < TILE or counts.get(inner, 0) < TILE:
        return -1
    for level, symbol in enumerate(symbols[:-1]):
        if counts.get(symbol) == 1 and symbol.high + 1 >= TILE:
            return level
    return -1


def position_of(sizes: Sequence[int], at: Sequence[Index]) -> Index:
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
