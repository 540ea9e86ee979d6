"""One work item of a loop, run by one thread: its state in variables from iteration to iteration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from functools import partial
from typing import TypeAlias

from hloopt.analysis.index import Index, Indices, symbols_of
from hloopt.analysis.parallel_loop import Axes, Carried, ParallelLoop
from hloopt.analysis.parallel_loop.thread_plan import HOISTED, UNROLLED, ThreadPlan
from hloopt.codegen.elements import Elements
from hloopt.codegen.emission import Asking, At, Emission, EmissionFrame, each, every
from hloopt.codegen.loops.ahead import Again, Ahead
from hloopt.codegen.loops.counting import IterationCounting, IterationGroups
from hloopt.codegen.loops.lanes import LaneGroup, Lanes
from hloopt.codegen.loops.places import (
    KeptPlace,
    Outside,
    full_index,
    kept_in,
    local_indices,
    place_state,
)
from hloopt.codegen.scalars import literal
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import TRUE, Array, Element, Expr, Select, Var, eq
from hloopt.kernel_ir.scope import Scope
from hloopt.kernel_ir.statements import Declare
from hloopt.types import ArrayShape

__all__ = ["Local", "Running"]

Local: TypeAlias = Sequence[Index]


@dataclass
class Running:
    """The writing of a loop for one work item.

    loop       the parallel loop
    work_item  the index of the work item, one for each axis
    outer      the frame of the ``while``
    written    elements of the state that are not kept, since they are written to memory as they come
    kept       the variables of the others, except induction variables
    lanes      threads that compute values of some iterations at once, an iteration each
    iteration  its number, within a loop that runs a known number of times
    """

    e: Elements
    loop: ParallelLoop
    work_item: Indices
    outer: EmissionFrame
    written: frozenset[int] = frozenset()
    kept: dict[int, KeptPlace] = field(default_factory=dict)
    lanes: Lanes | None = None

    def __post_init__(self) -> None:
        self.frame = EmissionFrame({})
        self.iteration = Index(0)
        self.body = self.loop.loop.body
        self.counting = IterationCounting(self.loop, self.e.loads.index_type)
        self.e.owned.update(self.loop.owned)
        self.e.loops.update(self.loop.nested)
        self.plan = ThreadPlan(self.loop, self.e.unrolled or UNROLLED)

    def run(self, stream: Callable[[], Asking] | None = None) -> Asking:
        """Write the loop; ``stream`` writes what goes to memory in each iteration."""
        e = self.e
        yield from self._begin()
        section = e.scope.section()
        for number, kept in self.kept.items():
            place_state(e, self.frame, self.loop.loop, number, kept)
        iterations = self.loop.iterations
        if iterations.kind == "known":
            if not iterations.count:
                return
            if self.lanes is not None:
                yield from self._run_groups(section, self.lanes, iterations.count, stream)
                return
            block, self.iteration = self.counting.iterations(e, iterations.count)
            self.counting.place(e, self.frame, self.iteration)
            with e.within(block):
                head = block.section(shared=False)
                (counter,) = symbols_of((self.iteration,))
                if e.reads_ahead:
                    self.place_outside(section, Again(head), Ahead(block, section, head, counter))
                else:
                    self.place_outside(section)
                yield from self._iteration(stream)
            return
        for reduce in iterations.reduces:
            along = enumerate(self.loop.owned[reduce.operands[0], 0])
            e.alone[reduce] = {at: self.work_item[axis] for at, axis in along if axis is not None}
        with e.within(e.scope.repeat(TRUE)) as block:
            again = Again(block.section(shared=False)) if e.reads_ahead else None
            self.place_outside(section, again)
            root = iterations.own or self.loop.loop.condition.root
            axes = self.loop.owned.get((root, 0), (None,) * root.array.rank)
            local = [Index(0) for axis in axes if axis is None]
            goes_on = yield At(root, full_index(axes, self.work_item, local), 0, self.frame)
            e.scope.leave(goes_on.negated())
            yield from self._iteration(stream)

    def _run_groups(
        self, section: Scope, lanes: Lanes, count: int, stream: Callable[[], Asking] | None
    ) -> Asking:
        """Write the loop in groups of iterations; first each lane computes what its own one needs."""
        e = self.e
        groups = self.counting.groups(e, count, lanes.width)
        with e.within(groups.block) as outer:
            own = EmissionFrame({})
            lines = outer.section()
            with e.within(lines):
                iteration = groups.own(e, lanes.lane)
                self.counting.place(e, own, iteration)
                self.counting.place_turning(e, own, iteration)
                behind = groups.behind(e)
            self.place_outside(section, Again(lines), frame=own)
            with e.within(lines):
                yield from self._advance(section, lanes, groups, behind, own, iteration)
            block, self.iteration = groups.iterations(e, behind)
            self.counting.place(e, self.frame, self.iteration)
            # Written out one by one, the iterations would be more code than the first caches hold.
            block.unroll(1)
            with e.within(block):
                head = block.section()
                turn = groups.turn(self.iteration)
                LaneGroup(lanes, own, lines, head, turn, self.loop.loop).place(e, self.frame)
                (counter,) = symbols_of((self.iteration,))
                self.place_outside(section, Again(head), Ahead(block, section, head, counter))
                yield from self._iteration(stream)

    def _advance(
        self,
        section: Scope,
        lanes: Lanes,
        groups: IterationGroups,
        behind: Expr,
        own: EmissionFrame,
        mine: Index,
    ) -> Asking:
        """Go through a group with what all lanes advance; each keeps what its own iteration begins with."""
        e = self.e
        if not lanes.states:
            return
        step = EmissionFrame({})
        before = []
        for carried in lanes.states:
            kept = self.kept[carried.number]
            kind = e.uses.type(kept.shape.dtype)
            own_copy = e.scope.variable(kind, f"own_{carried.number}", kept.at(()))
            before.append(KeptPlace(own_copy, kept.shape, kept.axes))
            place_state(e, step, self.loop.loop, carried.number, kept)
            place_state(e, own, self.loop.loop, carried.number, before[-1])
        block, iteration = groups.iterations(e, behind)
        block.unroll(1)
        with e.within(block):
            self.counting.place(e, step, iteration)
            self.counting.place_turning(e, step, iteration)
            self.place_outside(section, Again(block), frame=step)
            for carried, copy in zip(lanes.states, before, strict=True):
                here = Select.of(eq(iteration, mine), self.kept[carried.number].at(()), copy.at(()))
                block.set(copy.place(()), here)
            root = self.body.root
            values = yield from each(
                At(
                    root,
                    full_index(one.axes, self.work_item, [Index(0)] * one.shape.rank),
                    one.number,
                    step,
                )
                for one in lanes.states
            )
            pairs = [
                (self.kept[one.number].place(()), value)
                for one, value in zip(lanes.states, values, strict=True)
            ]
            self._commit(pairs, [])

    def last(self, carried: Carried, local: Local) -> Expr:
        """An element of the state after the last iteration."""
        number = carried.number
        if number in self.counting.variables:
            after = self.counting.variables[number].at(self.loop.iterations.count or 0)
            return literal(after, carried.shape.dtype)
        return self.kept[number].at(local)

    def after(self, carried: Carried, index: Indices) -> Emission:
        """An element of the state after the last iteration, at an index of the whole array."""
        if carried.number in self.counting.variables:
            return self.last(carried, ())
        return (yield from self.kept[carried.number].element(self.e, index))

    # ---- before the first iteration ------------------------------------------------------------------

    def changing(self) -> Iterator[Carried]:
        """The elements of the state that are kept in variables."""
        for carried in self.loop.carried:
            known = carried.role == "invariant" or carried.number in self.counting.variables
            if not known and carried.number not in self.written:
                yield carried

    def first(self, carried: Carried, local: Local) -> At:
        """What an element of the state is before the first iteration."""
        index = full_index(carried.axes, self.work_item, local)
        return At(self.loop.loop.operands[0], index, carried.number, self.outer)

    def _begin(self) -> Asking:
        e = self.e
        for carried in self.changing():
            kind = e.uses.type(carried.shape.dtype)
            memory = e.scope.names.fresh(f"state_{carried.number}")
            kept = self.kept[carried.number] = kept_in(memory, kind, carried.shape, carried.axes)
            if kept.count > self.plan.unrolled:
                e.scope.add(Declare(kept.target))
                yield from self._fill(kept, partial(self.first, carried), self.outer)
                continue
            locals_ = local_indices(carried.shape, carried.axes)
            values = yield from each(self.first(carried, local) for local in locals_)
            if kept.count:
                e.scope.add(Declare(kept.target, tuple(values)))

    def place_outside(
        self,
        section: Scope,
        again: Again | None = None,
        ahead: Ahead | None = None,
        frame: EmissionFrame | None = None,
    ) -> None:
        """Register where what the loop only reads is; ``section`` is right before it.

        ``frame`` is that of an iteration, of this one where none is given.
        """
        fixed = frozenset(symbols_of(self.work_item))
        budget = [HOISTED]
        init = self.loop.loop.operands[0]
        for carried in self.loop.carried:
            if carried.role == "invariant":
                place = Outside(init, carried.number, self.outer, section, fixed, budget)
                if self._is_in_memory(carried.number):
                    place = replace(place, ahead=ahead, again=again)
                place_state(self.e, frame or self.frame, self.loop.loop, carried.number, place)

    def _is_in_memory(self, number: int) -> bool:
        """Whether an element of the state is read from memory, not computed."""
        init = self.loop.loop.operands[0]
        value = init.operands[number] if init.opcode == "tuple" else init
        if value in self.e.region.inputs:
            return True
        if value.opcode != "get-tuple-element":
            return False
        place = self.e.places.get((self.outer, value.operands[0], value.attributes["index"]))
        return isinstance(place, Outside) and place.ahead is not None

    # ---- an iteration --------------------------------------------------------------------------------

    def _iteration(self, stream: Callable[[], Asking] | None) -> Asking:
        yield from self._store_values()
        pairs: list[tuple[Var | Element, Expr]] = []
        copies: list[tuple[KeptPlace, KeptPlace]] = []
        advanced = {one.number for one in self.lanes.states} if self.lanes is not None else set()
        for carried in self.changing():
            if carried.number in advanced:
                continue
            kept = self.kept[carried.number]
            if kept.count > self.plan.unrolled:
                following = self._declared(f"next_{carried.number}", kept.shape, kept.axes)
                cost = self.plan.full_cost(self.body.root.operands[carried.number])
                yield from self._fill(following, partial(self.next, carried), self.frame, cost)
                copies.append((kept, following))
                continue
            locals_ = list(local_indices(carried.shape, carried.axes))
            values = yield from each(self.next(carried, local) for local in locals_)
            pairs += zip(map(kept.place, locals_), values, strict=True)
        if stream is not None:
            yield from stream()
        self._commit(pairs, copies)

    def _store_values(self) -> Asking:
        """Compute what is kept in arrays, each before what is computed from it."""
        e = self.e
        for value in self.plan.stored:
            axes = self.plan.axes((value, 0))
            assert axes is not None, "a work item has what it keeps"
            kept = self._declared(value.name, value.array, axes)
            wanted = partial(self._value, value, axes)
            yield from self._fill(kept, wanted, self.frame, self.plan.full_cost(value))
            e.places[self.frame, value, 0] = kept

    def _declared(self, hint: str, shape: ArrayShape, axes: Axes) -> KeptPlace:
        """A variable or an array for what a work item has of a value."""
        kind = self.e.uses.type(shape.dtype)
        kept = kept_in(self.e.scope.names.fresh(hint), kind, shape, axes)
        self.e.scope.add(Declare(kept.target))
        return kept

    def _value(self, value: Instruction, axes: Axes, local: Local) -> At:
        return At(value, full_index(axes, self.work_item, local), 0, self.frame)

    def next(self, carried: Carried, local: Local) -> At:
        """What an element of the state is after the iteration."""
        index = full_index(carried.axes, self.work_item, local)
        return At(self.body.root, index, carried.number, self.frame)

    def _fill(
        self, kept: KeptPlace, wanted: Callable[[Local], At], frame: EmissionFrame, cost: int = 1
    ) -> Asking:
        def one(local: Local) -> Asking:
            value = yield wanted(local)
            self.e.scope.set(kept.place(local), value)

        unroll = self._most_unrolled(kept, cost)
        yield from every(self.e, kept.dims, "j", one, unroll, self.work_item, frame)

    def _most_unrolled(self, kept: KeptPlace, cost: int) -> int:
        """How many turns a loop over an array may have to be unrolled; ``cost`` operations each."""
        small = self.plan.arrays_in_registers and self.plan.is_short(kept.count, cost)
        return kept.count if small else 0

    def _commit(
        self, pairs: list[tuple[Var | Element, Expr]], copies: list[tuple[KeptPlace, KeptPlace]]
    ) -> None:
        """The next state becomes the state: the old one is not read any more."""
        e = self.e
        gone: set[Expr] = set()
        settled = []
        for target, value in pairs:
            needed = value in gone and value != target
            settled.append(
                (target, e.scope.declare(value.type, value, "last") if needed else value)
            )
            gone.add(target)
        for target, value in settled:
            if value != target:
                e.scope.set(target, value)
        for kept, following in copies:
            block, at = e.loop(kept.count, "j")
            if self._most_unrolled(kept, 1):
                block.unroll(0)
            array, fresh = kept.memory, following.memory
            assert isinstance(array, Array)
            assert isinstance(fresh, Array)
            block.set(array[at], fresh[at])
