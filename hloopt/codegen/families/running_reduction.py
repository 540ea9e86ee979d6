"""Running reductions along rows."""

from __future__ import annotations

from collections.abc import Sequence

from hloopt.analysis.index import Index, delinearize
from hloopt.codegen.families.folding import ThreadFold, begin, identity
from hloopt.codegen.families.loop import store_run
from hloopt.codegen.families.sweeping import guarded
from hloopt.codegen.writer import FunctionWriter
from hloopt.kernel_ir.expressions import Array, Expr, Select, Var, as_expr, eq
from hloopt.kernels.families.running_reduction import RunningRows, running_rows
from hloopt.kernels.families.sweeps import WARP

__all__ = ["EMITTERS"]


def _emit(f: FunctionWriter) -> None:
    """A block: some elements of its row after the other, with what precedes them as the carry."""
    rows = running_rows(f.region)
    e = f.elements
    threads, vector = f.tile["threads"], f.tile["vector"]
    vectors = rows.minor // vector
    steps = -(-vectors // threads)
    lane = e.symbol(f.thread(), "lane", 0, threads - 1)
    row = f.block()
    carry = begin(e, rows.hero)
    (whole,) = carry.names
    tile: Array | None = None
    if threads > WARP:
        tile = e.scope.array(whole.type, (threads // WARP,), "warps", space="shared")
    with e.counting(0, steps, "step") as step:
        at = e.symbol(step * threads + lane, "at", 0, steps * threads - 1)
        own = _own(f, rows, carry, row, at)
        base = e.scope.variable(whole.type, "base", whole)
        _preceding(f, carry, base, own[-1], lane, tile, again=steps > 1)
        _store(f, rows, carry, base, own, row, at)


def _combined(f: FunctionWriter, carry: ThreadFold, left: Expr, right: Expr) -> Expr:
    (found,) = carry.reducer.combined(f.elements, [left], [right])
    return found


def _place(rows: RunningRows, row: Index, position: Index) -> Index:
    """Where an element of the row lies, by its number from where the reduction begins."""
    first = row * rows.minor
    return first + (rows.minor - 1) - position if rows.reverse else first + position


def _own(
    f: FunctionWriter, rows: RunningRows, carry: ThreadFold, row: Index, at: Index
) -> list[Var]:
    """What a thread's neighbouring elements come to, from the first of them on."""
    e, vector = f.elements, f.tile["vector"]
    (kind,) = carry.reducer.accumulators
    names = [e.variable(kind, "own", identity(carry.reducer)) for _ in range(vector)]
    (source,) = rows.hero.fold_inputs
    with guarded(f, at, rows.minor // vector) as inside:
        for number, name in enumerate(names):
            place = _place(rows, row, inside * vector + number)
            value = e.value(source, delinearize(place, source.array.dims))
            (wide,) = carry.reducer.lift(e, [value])
            e.scope.set(name, _combined(f, carry, names[number - 1], wide) if number else wide)
    return names


def _preceding(
    f: FunctionWriter,
    carry: ThreadFold,
    base: Var,
    last: Var,
    lane: Index,
    tile: Array | None,
    *,
    again: bool,
) -> None:
    """Fold into ``base`` what the threads before this one have, and into the carry what all have."""
    e = f.elements
    (whole,) = carry.names
    place = e.symbol(lane % WARP, "place", 0, WARP - 1)
    total = e.scope.variable(whole.type, "total", last)
    for distance in (1, 2, 4, 8, 16):
        other = _from_lane(f, total, place, distance)
        with e.when(as_expr(place) >= distance):
            e.scope.set(total, _combined(f, carry, other, total))
    before = _from_lane(f, total, place, 1)
    if tile is None:
        every = e.uses.call("shuffle_index", total, WARP - 1, type=total.type)
        everything = e.scope.declare(total.type, every, "everything")
        e.scope.set(whole, _combined(f, carry, whole, everything))
    else:
        warp = e.symbol(lane // WARP, "warp", 0, tile.dims[0] - 1)
        with e.when(eq(place, WARP - 1)):
            e.scope.set(tile[warp], total)
        f.barrier()
        with e.counting(0, tile.dims[0], "each") as each:
            part = e.scope.declare(total.type, tile[each], "part")
            with e.when(as_expr(each) < as_expr(warp)):
                e.scope.set(base, _combined(f, carry, base, part))
            e.scope.set(whole, _combined(f, carry, whole, part))
        if again:
            f.barrier()
    with e.when(as_expr(place) > 0):
        e.scope.set(base, _combined(f, carry, base, before))


def _from_lane(f: FunctionWriter, value: Var, place: Index, distance: int) -> Var:
    """The value of the lane so far before; of the first lane where there is none."""
    lane = Select.of(as_expr(place) >= distance, as_expr(place - distance), as_expr(0))
    found = f.uses.call("shuffle_index", value, lane, type=value.type)
    return f.elements.scope.declare(value.type, found, "other")


def _store(
    f: FunctionWriter,
    rows: RunningRows,
    carry: ThreadFold,
    base: Var,
    own: Sequence[Var],
    row: Index,
    at: Index,
) -> None:
    e, vector, hero = f.elements, f.tile["vector"], rows.hero
    with guarded(f, at, rows.minor // vector) as inside:
        stored: dict[int, list[Expr]] = {at: [] for at, _ in enumerate(f.region.results)}
        for number, name in enumerate(own):
            place = _place(rows, row, inside * vector + number)
            inits = [e.value(init) for init in hero.fold_inits]
            (first,) = carry.reducer.lift(e, inits)
            total = _combined(f, carry, first, _combined(f, carry, base, name))
            (kind,) = carry.reducer.accumulators
            (value,) = carry.reducer.lower(e, [e.declare(kind, total, "running")])
            e.remember(hero, delinearize(place, hero.array.dims), 0, value)
            for result, values in stored.items():
                found = f.region.results[result]
                index = delinearize(place, found.shape.dims)
                values.append(e.value(found.instruction, index, found.leaf))
        begin_at = _place(rows, row, inside * vector)
        for result, values in stored.items():
            pointee = f.result(result)
            store_run(f, pointee, begin_at, values, pointee.shape.elements)


EMITTERS = {"running-reduction": _emit}
