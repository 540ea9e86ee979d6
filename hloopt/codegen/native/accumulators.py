"""Accumulators side by side: a step takes neighbouring elements in, lane by lane; at last lanes are folded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from hloopt.analysis.index import Index, Symbol, delinearize
from hloopt.codegen.families.folding import identity
from hloopt.codegen.native.nest import loop
from hloopt.codegen.reducer import Reducer
from hloopt.codegen.writer import FunctionWriter
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.kernels.families.native_reduction import BLOCK, Steps
from hloopt.types import ArrayShape, leaves

__all__ = ["Accumulators", "Visit", "counter", "finish", "lanes_of", "take_steps"]

Visit = Callable[[Index, Index], None]
"""What else is done with each element that is taken in: its position, and how far it is from the first one."""


@dataclass(frozen=True)
class Accumulators:
    """An array of ``width`` lanes for each output of a reduce; ``start`` is the identity, empty for none."""

    hero: Instruction
    reducer: Reducer
    names: tuple[str, ...]
    width: int
    start: str

    def at(self, lane: Index) -> list[str]:
        """The accumulators of a lane."""
        return [f"{name}[{lane}]" for name in self.names]


def _declare(f: FunctionWriter, hero: Instruction, width: int, hint: str) -> Accumulators:
    reducer = Reducer.of(hero)
    names = []
    for kind in reducer.accumulators:
        names.append(f.scope.names.fresh(hint))
        f.elements.scope.line(f"alignas(64) {f.uses.storage(kind)} {names[-1]}[{width}];")
    return Accumulators(hero, reducer, tuple(names), width, identity(reducer))


@contextmanager
def lanes_of(f: FunctionWriter, width: int) -> Iterator[Index]:
    """A loop over lanes, which becomes vectors."""
    with ExitStack() as blocks:
        yield counter(f, blocks, "0", str(width), width, "lane", innermost=True)


def counter(
    f: FunctionWriter,
    blocks: ExitStack,
    begin: str,
    end: str,
    count: int,
    hint: str = "step",
    *,
    innermost: bool = False,
) -> Index:
    """A loop from ``begin`` to before ``end``, of numbers below ``count``; none where that is 1."""
    if count == 1 and begin == "0":
        return Index(0)
    kind, name = f.loads.index_type, f.scope.names.fresh(hint)
    header = f"for ({kind} {name} = {begin}; {name} < {end}; ++{name})"
    blocks.enter_context(loop(f, header, innermost=innermost))
    return Symbol(name, 0, count - 1).index


def _clear(f: FunctionWriter, every: Sequence[Accumulators]) -> None:
    """Set accumulators to the identity, of all that have one."""
    plain = [one for one in every if one.start]
    if not plain:
        return
    with lanes_of(f, plain[0].width) as lane:
        for one in plain:
            for name in one.at(lane):
                f.elements.scope.line(f"{name} = {one.start};")


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
        inputs = one.hero.operands[: len(one.names)]
        index = delinearize(position, inputs[0].array.dims)
        taken.append(one.reducer.lift(e, [e.value(part, index) for part in inputs]))
    for one, values in zip(every, taken, strict=True):
        if first and not one.start:
            for name, value in zip(one.at(lane), values, strict=True):
                e.scope.line(f"{name} = {value};")
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
    """Declare the accumulators of a unit and take its elements in; ``base`` is where a batch begins.

    ``before`` and ``after`` write what else is done with each element.  ``part`` is the part of the steps
    that is taken, all unless given.
    """
    every = [_declare(f, hero, layout.width, "lanes") for hero in heroes]
    begin, end = _bounds(f, layout, part)
    has_identities = all(one.start for one in every)
    totals = every
    if heroes and has_identities and _is_long(layout, part):
        totals = [_declare(f, hero, layout.width, "totals") for hero in heroes]
    _clear(f, totals)
    with ExitStack() as blocks:
        batch = counter(f, blocks, "0", str(layout.batches), layout.batches)
        start = base(batch)

        def take(
            at: Index, lanes: int, into: Sequence[Accumulators], *, first: bool = False
        ) -> None:
            with lanes_of(f, lanes) as lane:
                offset = at * layout.stride + lane
                if before is not None:
                    before(start + offset, offset)
                _take(f, into, start + offset, lane, first=first)
                if after is not None:
                    after(start + offset, offset)

        if not has_identities:
            assert layout.batches == 1, "the first step is all there is"
            take(_step(begin, layout), layout.width, every, first=True)
            begin = f"{begin} + 1"
        with ExitStack() as loops:
            if totals is not every:
                begin, end = _block(f, loops, begin, end, layout)
                _clear(f, every)
            with ExitStack() as inner:
                at = counter(f, inner, begin, end, layout.steps)
                take(at, layout.width, every)
            if totals is not every:
                _add(f, totals, [one.names for one in every])
        if layout.tail:
            if part is not None:
                blocks.enter_context(loop(f, f"if ({part} == {layout.parts - 1})"))
            take(Index(layout.steps), layout.tail, totals)
    _fold(f, totals, layout)
    return totals


def _bounds(f: FunctionWriter, layout: Steps, part: Index | None) -> tuple[str, str]:
    """The first step of a part, and the one behind its last."""
    if part is None:
        return "0", str(layout.steps)
    kind, scope = f.loads.index_type, f.elements.scope
    begin = scope.declare(kind, str(part * layout.part_steps), "first")
    reach = f"{begin} + {layout.part_steps}"
    return begin, scope.declare(
        kind, f"{reach} < {layout.steps} ? {reach} : {layout.steps}", "last"
    )


def _is_long(layout: Steps, part: Index | None) -> bool:
    steps = layout.steps if part is None else layout.part_steps
    return layout.batches * steps > 2 * BLOCK


def _step(name: str, layout: Steps) -> Index:
    return Index(0) if name == "0" else Symbol(name, 0, layout.steps - 1).index


def _block(
    f: FunctionWriter, loops: ExitStack, begin: str, end: str, layout: Steps
) -> tuple[str, str]:
    """A loop over blocks of steps; the bounds of a block."""
    kind, name = f.loads.index_type, f.scope.names.fresh("block")
    header = f"for ({kind} {name} = {begin}; {name} < {end}; {name} += {BLOCK})"
    block = loops.enter_context(loop(f, header))
    reach = f"{name} + {BLOCK}"
    return name, block.declare(kind, f"{reach} < {end} ? {reach} : {end}", "block_end")


def _add(
    f: FunctionWriter, totals: Sequence[Accumulators], others: Sequence[Sequence[str]]
) -> None:
    with lanes_of(f, totals[0].width) as lane:
        for one, names in zip(totals, others, strict=True):
            one.reducer.assign(f.elements, one.at(lane), [f"{name}[{lane}]" for name in names])


def _fold(f: FunctionWriter, every: Sequence[Accumulators], layout: Steps) -> None:
    """Fold the upper half of the lanes into the lower one, until those are left that are kept."""
    width = layout.width if every else layout.keep
    while width > layout.keep:
        width //= 2
        with lanes_of(f, width) as lane:
            for one in every:
                others = one.at(lane + width)
                one.reducer.assign(f.elements, one.at(lane), others)


def finish(f: FunctionWriter, every: Sequence[Accumulators], lane: Index, position: Index) -> None:
    """Fold the init values in, round, and let the region know the heroes' elements at a kept position."""
    e = f.elements
    for one in every:
        count = len(one.names)
        inits = [e.value(init) for init in one.hero.operands[count:]]
        totals = one.reducer.combined(e, one.reducer.lift(e, inits), one.at(lane))
        named = [
            e.scope.declare(e.uses.type(kind), total, "total")
            for kind, total in zip(one.reducer.accumulators, totals, strict=True)
        ]
        shapes = [leaf for leaf in leaves(one.hero.shape) if isinstance(leaf, ArrayShape)]
        for leaf, name in enumerate(one.reducer.lower(e, named)):
            e.remember(one.hero, delinearize(position, shapes[leaf].dims), leaf, name)
