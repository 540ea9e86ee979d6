"""Vector accumulators: a step accumulates neighbouring elements lane by lane; at last lanes are folded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

from hloopt.analysis.index import Index, Symbol, delinearize
from hloopt.backends.native.codegen.nest import least, loop
from hloopt.backends.native.kernels.reduction import BLOCK, Steps
from hloopt.codegen.families.folding import identity
from hloopt.codegen.reducer import ReducerCode
from hloopt.codegen.writer import FunctionWriter
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import Array, Element, Expr, eq
from hloopt.types import ArrayShape, leaves

__all__ = ["Accumulators", "Visit", "counter", "declared", "finish", "lanes_of", "take_steps"]

# Columns whose operations fill a vector of 32 bytes or more, of the types that most have.
_MOST_OF_A_VECTOR: Final = 8

Visit = Callable[[Index, Index], None]
"""Further work on each accumulated element, by its position and its distance from the first one."""


@dataclass(frozen=True)
class Accumulators:
    """An array of ``width`` lanes for each output of a reduce; ``start`` is the identity, None for none."""

    hero: Instruction
    reducer: ReducerCode
    arrays: tuple[Array, ...]
    width: int
    start: Expr | None

    def at(self, lane: Index) -> list[Element]:
        """The accumulators of a lane."""
        return [array[lane] for array in self.arrays]


def declared(f: FunctionWriter, hero: Instruction, width: int, hint: str) -> Accumulators:
    """The accumulators of a reduce, not yet initialised."""
    reducer = ReducerCode.of(hero)
    arrays = [
        f.elements.scope.array(f.uses.storage(kind), (width,), hint, align=64)
        for kind in reducer.accumulators
    ]
    return Accumulators(hero, reducer, tuple(arrays), width, identity(reducer))


@contextmanager
def lanes_of(f: FunctionWriter, width: int) -> Iterator[Index]:
    """A loop over lanes, which becomes vectors."""
    with counter(f, Index(0), Index(width), width, "lane", innermost=True) as lane:
        yield lane


@contextmanager
def _lanes_by_rows(f: FunctionWriter, lanes: int, layout: Steps) -> Iterator[Index]:
    """The lanes of a step, row by row where each row fills a vector: what all of it shares is loaded once."""
    columns = layout.keep
    if not _MOST_OF_A_VECTOR <= columns < lanes:
        with lanes_of(f, lanes) as lane:
            yield lane
        return
    with (
        counter(f, Index(0), Index(lanes // columns), lanes // columns, "row") as row,
        lanes_of(f, columns) as column,
    ):
        yield row * columns + column


@contextmanager
def counter(
    f: FunctionWriter,
    begin: Index,
    end: Index,
    count: int,
    hint: str = "step",
    step: int = 1,
    *,
    innermost: bool = False,
) -> Iterator[Index]:
    """A loop from ``begin`` to before ``end``, of numbers below ``count``; none where that is 1."""
    if count == 1 and begin == Index(0):
        yield begin
        return
    symbol = Symbol(f.scope.names.fresh(hint), 0, count - 1)
    with loop(f, begin, end, symbol, step, innermost=innermost) as at:
        yield at


def _clear(f: FunctionWriter, every: Sequence[Accumulators]) -> None:
    """Set accumulators to the identity, of all that have one."""
    starts = [(one, one.start) for one in every if one.start is not None]
    if not starts:
        return
    with lanes_of(f, every[0].width) as lane:
        for one, start in starts:
            for place in one.at(lane):
                f.elements.scope.set(place, start)


def _take(
    f: FunctionWriter,
    every: Sequence[Accumulators],
    position: Index,
    lane: Index,
    *,
    first: bool,
) -> None:
    """Take the elements at a position into a lane; the ``first`` ones are all there is."""
    e = f.elements
    taken = []
    for one in every:
        inputs = one.hero.operands[: len(one.arrays)]
        index = delinearize(position, inputs[0].array.dims)
        taken.append(one.reducer.lift(e, [e.value(part, index) for part in inputs]))
    for one, values in zip(every, taken, strict=True):
        if first and not one.start:
            for place, value in zip(one.at(lane), values, strict=True):
                e.scope.set(place, value)
        else:
            one.reducer.assign(e, one.at(lane), values)


def take_steps(
    f: FunctionWriter,
    heroes: Sequence[Instruction],
    layout: Steps,
    base: Callable[[Index], Index],
    after: Visit | None = None,
    *,
    before: Visit | None = None,
    part: Index | None = None,
) -> list[Accumulators]:
    """Declare a group's accumulators and accumulate its elements; ``base`` is the start of a batch.

    ``before`` and ``after`` write what else is done with each element.  ``part`` is the part of the steps
    that is taken, all unless given.
    """
    every = [declared(f, hero, layout.width, "lanes") for hero in heroes]
    begin, end = _bounds(f, layout, part)
    has_identities = all(one.start for one in every)
    totals = every
    if heroes and has_identities and _is_long(layout, part):
        totals = [declared(f, hero, layout.width, "totals") for hero in heroes]
    _clear(f, totals)
    with ExitStack() as blocks:
        batch = blocks.enter_context(counter(f, Index(0), Index(layout.batches), layout.batches))
        start = base(batch)

        def take(
            at: Index, lanes: int, into: Sequence[Accumulators], *, first: bool = False
        ) -> None:
            with _lanes_by_rows(f, lanes, layout) as lane:
                offset = at * layout.stride + lane
                if before is not None:
                    before(start + offset, offset)
                _take(f, into, start + offset, lane, first=first)
                if after is not None:
                    after(start + offset, offset)

        if not has_identities:
            assert layout.batches == 1, "the first step is all there is"
            take(begin, layout.width, every, first=True)
            begin = begin + 1
        with ExitStack() as loops:
            if totals is not every:
                begin = loops.enter_context(counter(f, begin, end, layout.steps, "block", BLOCK))
                end = _least(f, begin + BLOCK, end, layout.steps, "block_end")
                _clear(f, every)
            with counter(f, begin, end, layout.steps) as at:
                take(at, layout.width, every)
            if totals is not every:
                _add(f, totals, every)
        if layout.tail:
            if part is not None:
                blocks.enter_context(f.elements.when(eq(part, layout.parts - 1)))
            take(Index(layout.steps), layout.tail, totals)
    _fold(f, totals, layout)
    return totals


def _bounds(f: FunctionWriter, layout: Steps, part: Index | None) -> tuple[Index, Index]:
    """The first step of a part, and the one after its last."""
    steps = layout.steps
    if part is None:
        return Index(0), Index(steps)
    first = f.elements.scope.declare(f.loads.index_type, part * layout.part_steps, "first")
    begin = Symbol(first.name, 0, steps - 1).index
    return begin, _least(f, begin + layout.part_steps, Index(steps), steps, "last")


def _least(f: FunctionWriter, one: Index, other: Index, high: int, hint: str) -> Index:
    """The lesser of two indices, named."""
    name = f.elements.scope.declare(f.loads.index_type, least(one, other), hint).name
    return Symbol(name, 0, high).index


def _is_long(layout: Steps, part: Index | None) -> bool:
    steps = layout.steps if part is None else layout.part_steps
    return layout.batches * steps > 2 * BLOCK


def _add(f: FunctionWriter, totals: Sequence[Accumulators], others: Sequence[Accumulators]) -> None:
    with lanes_of(f, totals[0].width) as lane:
        for one, other in zip(totals, others, strict=True):
            one.reducer.assign(f.elements, one.at(lane), other.at(lane))


def _fold(f: FunctionWriter, every: Sequence[Accumulators], layout: Steps) -> None:
    """Fold the upper half of the lanes into the lower one, until those are left that are kept."""
    width = layout.width if every else layout.keep
    while width > layout.keep:
        width //= 2
        with lanes_of(f, width) as lane:
            for one in every:
                one.reducer.assign(f.elements, one.at(lane), one.at(lane + width))


def finish(f: FunctionWriter, every: Sequence[Accumulators], lane: Index, position: Index) -> None:
    """Fold the init values in, round, and record the heroes' elements at a kept position in the region."""
    e = f.elements
    for one in every:
        count = len(one.arrays)
        inits = [e.value(init) for init in one.hero.operands[count:]]
        totals = one.reducer.combined(e, one.reducer.lift(e, inits), one.at(lane))
        named = [
            e.declare(kind, total, "total")
            for kind, total in zip(one.reducer.accumulators, totals, strict=True)
        ]
        shapes = [leaf for leaf in leaves(one.hero.shape) if isinstance(leaf, ArrayShape)]
        for leaf, name in enumerate(one.reducer.lower(e, named)):
            e.remember(one.hero, delinearize(position, shapes[leaf].dims), leaf, name)
