"""Tiles of a transpose through shared memory: filled along the operand, emptied along the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from hloopt.analysis.emitters.transposes import TransposeTiling
from hloopt.analysis.index import Index, Indices, delinearize, linearize
from hloopt.codegen.families.loop import store_run
from hloopt.codegen.writer import FunctionWriter
from hloopt.kernel_ir.expressions import Expr, Operand, below
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
    def tests(self) -> list[Expr]:
        """The tests that the element is inside; a packed tile may be smaller than the threads' square."""
        tiling = self.tiling
        bounds = list(zip(self.operand, tiling.dims, strict=True))
        if tiling.form == "packed":
            bounds += [(self.row, tiling.rows), (self.column, tiling.columns)]
        return [test for at, size in bounds for test in below(at, size)]

    @property
    def shared(self) -> tuple[Operand, ...]:
        """Where it is in the shared array."""
        if self.tiling.form == "packed":
            vector = self.tiling.vector
            column = (self.column + self.row // vector * vector) % (32 * vector)
            return self.row, column
        place = self.row, self.column
        return (*place, self.minor) if self.tiling.form == "minor-kept" else place

    @property
    def result(self) -> Indices:
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
                f.elements.scope.set(tiles[hero][place.shared], value)

    def empty(run: Sequence[_Place]) -> None:
        values: list[list[Expr]] = [[] for _ in f.region.results]
        for place in run:
            linear = linearize(place.result, place.result_dims)
            for hero in each:
                index, element = delinearize(linear, hero.array.dims), tiles[hero][place.shared]
                value = f.elements.scope.declare(element.type, element, hero.name)
                f.elements.remember(hero, index, 0, value)
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


def _move(
    f: FunctionWriter, tiling: TransposeTiling, base: Sequence[Index], move: _Move, *, filling: bool
) -> None:
    """Traverse the tile's elements, each thread its own."""
    with ExitStack() as blocks:
        steps = tiling.steps if filling else tiling.write_steps
        step = Index(0)
        if steps > 1:
            step = blocks.enter_context(f.elements.counting(0, steps, "s"))
        visit = _packed_places if tiling.form == "packed" else _places
        places = visit(f, tiling, base, step, filling=filling)
        length = 1 if filling else _written_at_once(tiling)
        for start in range(0, len(places), length):
            with f.elements.when(*places[start].tests):
                move(places[start : start + length])


def _written_at_once(tiling: TransposeTiling) -> int:
    """Neighbours in the result that a thread of a packed tile has, if they are all inside or none is."""
    vector = tiling.vector
    if tiling.form != "packed" or tiling.dims[tiling.row] % vector or tiling.rows % vector:
        return 1
    return vector


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
