"""Tiles of a transpose through shared memory: filled along the operand, emptied along the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from hloopt.analysis.emitters.transposes import TransposeTiling
from hloopt.analysis.index import Index, delinearize, linearize
from hloopt.codegen.families.loop import store_run
from hloopt.codegen.writer import FunctionWriter
from hloopt.ir import Instruction
from hloopt.kernels.families.transpose import heroes_of, tiling_of

__all__ = ["EMITTERS"]

_Move = Callable[[Sequence["_Place"]], None]
"""Moves places that lie next to each other where they are written, all inside if the first one is."""


class _Place:
    """An element of a tile: row, column, number in the minor dimension, and its index in the operand."""

    def __init__(
        self, tiling: TransposeTiling, base: Sequence[Index], row: Index, column: Index, minor: int
    ) -> None:
        self.tiling = tiling
        self.row, self.column, self.minor = row, column, minor
        index = list(base)
        inner = tiling.tile[tiling.column]
        index[tiling.row] += row
        index[tiling.column] += column % inner
        if tiling.outer >= 0:
            index[tiling.outer] += column // inner
        if tiling.form == "minor-kept":
            index[-1] += minor
        self.operand = tuple(index)

    @property
    def tests(self) -> list[str]:
        """What says in C that the element is inside."""
        dims = self.tiling.dims
        return [
            f"{at} < {size}" for at, size in zip(self.operand, dims, strict=True) if at.high >= size
        ]

    @property
    def shared(self) -> str:
        """Subscripts of the shared array."""
        if self.tiling.form == "packed":
            vector = self.tiling.vector
            column = (self.column + self.row // vector * vector) % (32 * vector)
            return f"[{self.row}][{column}]"
        last = f"[{self.minor}]" if self.tiling.form == "minor-kept" else ""
        return f"[{self.row}][{self.column}]{last}"

    @property
    def result(self) -> tuple[Index, ...]:
        """The index in the result's normal form."""
        return tuple(self.operand[source] for source in self.tiling.permutation)

    @property
    def result_dims(self) -> tuple[int, ...]:
        """The result's dimensions in normal form."""
        return tuple(self.tiling.dims[source] for source in self.tiling.permutation)


def _emit(f: FunctionWriter) -> None:
    heroes = heroes_of(f.region)
    assert not isinstance(heroes, str)
    tiling = tiling_of(f.region, f.tile, packed=f.spec.kernel == "packed-transpose")
    each = tuple(dict.fromkeys(heroes))
    # Elements that share a bank are written and read at once.
    aligned = tiling.form == "packed"
    tiles = {
        hero: f.shared(f.uses.type(hero.array.dtype), tiling.shared, "tile", aligned=aligned)
        for hero in each
    }
    coordinates = delinearize(f.block(), tiling.counts)
    base = [at * side for at, side in zip(coordinates, tiling.tile, strict=True)]

    def fill(run: Sequence[_Place]) -> None:
        for place in run:
            for hero in each:
                operand = hero.operands[0]
                index = delinearize(linearize(place.operand, tiling.dims), operand.array.dims)
                value = f.elements.value(operand, index)
                f.elements.scope.line(f"{tiles[hero]}{place.shared} = {value};")

    def empty(run: Sequence[_Place]) -> None:
        values: list[list[str]] = [[] for _ in f.region.results]
        for place in run:
            linear = linearize(place.result, place.result_dims)
            for hero in each:
                _take(f, hero, delinearize(linear, hero.array.dims), f"{tiles[hero]}{place.shared}")
            for stored, result in zip(values, f.region.results, strict=True):
                index = delinearize(linear, result.shape.dims)
                stored.append(f.elements.value(result.instruction, index, result.leaf))
        first = linearize(run[0].result, run[0].result_dims)
        for number, stored in enumerate(values):
            pointee = f.result(number)
            store_run(f, pointee, first, stored, pointee.shape.elements)

    _move(f, tiling, base, fill, filling=True)
    f.barrier()
    _move(f, tiling, base, empty, filling=False)


def _take(f: FunctionWriter, hero: Instruction, index: tuple[Index, ...], text: str) -> None:
    """The transpose's element comes out of shared memory."""
    name = f.elements.scope.declare(f.uses.type(hero.array.dtype), text, hero.name)
    f.elements.remember(hero, index, 0, name)


def _move(
    f: FunctionWriter, tiling: TransposeTiling, base: Sequence[Index], move: _Move, *, filling: bool
) -> None:
    """Go over the tile's elements, a thread its own."""
    with ExitStack() as blocks:
        steps = tiling.steps if filling else tiling.write_steps
        step = Index(0)
        if steps > 1:
            block, step = f.elements.loop(steps, "s")
            blocks.enter_context(f.elements.within(block))
        visit = _packed_places if tiling.form == "packed" else _places
        places = visit(f, tiling, base, step, filling=filling)
        length = 1 if filling else _written_at_once(tiling)
        for start in range(0, len(places), length):
            place = places[start]
            tests = place.tests
            if tiling.form == "packed":
                tests += _overhang(tiling, place)
            scope = f.elements.scope
            block = scope.when(f"{' && '.join(tests)}") if tests else scope
            with f.elements.within(block):
                move(places[start : start + length])


def _written_at_once(tiling: TransposeTiling) -> int:
    """Neighbours in the result that a thread of a packed tile has, if they are all inside or none is."""
    vector = tiling.vector
    if tiling.form != "packed" or tiling.dims[tiling.row] % vector or tiling.rows % vector:
        return 1
    return vector


def _overhang(tiling: TransposeTiling, place: _Place) -> list[str]:
    """A packed tile may be smaller than the threads' square."""
    pairs = ((place.row, tiling.rows), (place.column, tiling.columns))
    return [f"{at} < {size}" for at, size in pairs if at.high >= size]


def _places(
    f: FunctionWriter, tiling: TransposeTiling, base: Sequence[Index], step: Index, *, filling: bool
) -> list[_Place]:
    minor = tiling.vector if tiling.form == "minor-kept" else 1
    vector = 1 if tiling.form == "minor-kept" else tiling.vector
    first = (step * tiling.threads + f.thread()) * vector
    places = []
    for lane in range(vector):
        local = first + lane
        along = tiling.columns if filling else tiling.rows
        major, inner = local // along, local % along
        row, column = (major, inner) if filling else (inner, major)
        places += [_Place(tiling, base, row, column, number) for number in range(minor)]
    return places


def _packed_places(
    f: FunctionWriter, tiling: TransposeTiling, base: Sequence[Index], step: Index, *, filling: bool
) -> list[_Place]:
    groups, vector = tiling.threads // 32, tiling.vector
    group, lane = f.thread() // 32, f.thread() % 32
    line = step * groups + group
    if filling:
        return [_Place(tiling, base, line, lane * vector + at, 0) for at in range(vector)]
    return [
        _Place(tiling, base, lane * vector + i, line * vector + j, 0)
        for j in range(vector)
        for i in range(vector)
    ]


EMITTERS = {"transpose": _emit, "packed-transpose": _emit}
