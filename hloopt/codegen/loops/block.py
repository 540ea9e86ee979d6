"""One work item of a loop, run by the threads of a block: stages with barriers between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from math import prod

from hloopt.analysis.index import Index, Indices, Symbol, delinearize, symbols_of
from hloopt.analysis.parallel_loop import Axes, Carried, local_dims, parallel_loop
from hloopt.analysis.parallel_loop.block_stages import (
    BlockPlan,
    Item,
    StagedIteration,
    StagedState,
    is_array,
)
from hloopt.analysis.parallel_loop.edges import CallPath, LoopValue
from hloopt.analysis.parallel_loop.thread_plan import HOISTED
from hloopt.analysis.reduction import WARP_SIZE
from hloopt.codegen.elemental.calls import call_frame
from hloopt.codegen.elemental.control import branch_frame, branch_tests
from hloopt.codegen.elements import Elements
from hloopt.codegen.emission import EmissionFrame, ValuePlace
from hloopt.codegen.loops.block_folds import Folding
from hloopt.codegen.loops.block_sort import rank_sort
from hloopt.codegen.loops.counting import IterationCounting
from hloopt.codegen.loops.places import KeptPlace, KnownPlace, Outside, full_index, place_state
from hloopt.codegen.loops.sharing import SharedPlace, Threads
from hloopt.codegen.writer import FunctionWriter
from hloopt.dataclass import dataclass
from hloopt.interpret.control import branches
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import TRUE, Array, Element, Expr, Number, Var
from hloopt.kernel_ir.scope import Scope
from hloopt.kernel_ir.types import INT, Type

__all__ = ["BlockLoop"]

Store = Callable[[Indices, Expr], None]
"""What stores an element at an index."""

Stream = Callable[[StagedState, EmissionFrame], "tuple[Axes, Store] | None"]
"""Where the updates of a streamed element go: their axes, and what stores the one at an index."""


@dataclass(eq=False)
class _Work:
    """Elements that a stage computes: of what, at which axes, and where each goes.

    ``to`` are registers, shared memory, or a function that stores the one at an index.
    """

    value: LoopValue
    axes: Axes
    dims: tuple[int, ...]
    to: Array | SharedPlace | Store
    guard: tuple[Expr, ...] = ()


@dataclass(eq=False)
class _Running:
    """A loop while it is written: its frame, what counts its iterations, and where its state is."""

    frame: EmissionFrame
    counting: IterationCounting
    places: dict[int, ValuePlace] = field(default_factory=dict)
    registers: dict[int, Array] = field(default_factory=dict)
    now: Var | None = None


class BlockLoop:
    """The writing of a loop for the work item of a block; ``stream`` says where updates go."""

    def __init__(self, f: FunctionWriter, plan: BlockPlan, work_item: Indices) -> None:
        self.f = f
        self.e: Elements = f.elements
        self.plan = plan
        self.flow = plan.flow
        self.work_item = work_item
        self.threads = Threads(f.elements, f.thread(), plan.threads)
        self.stream: Stream | None = None
        self.outer = f.elements.frame
        self.running: dict[tuple[CallPath, Instruction], _Running] = {}
        self.frames: dict[CallPath, EmissionFrame] = {(): self.outer}
        self.arrays: dict[LoopValue, SharedPlace] = {}
        self.folding = Folding(self)

    # ---- values -------------------------------------------------------------------------------------

    def frame(self, path: CallPath) -> EmissionFrame:
        """Where what a path leads to is written."""
        found = self.frames.get(path)
        if found is not None:
            return found
        instruction, number = path[-1]
        outer = self.frame(path[:-1])
        with self.inside(outer):
            if instruction.opcode == "conditional":
                found = branch_frame(self.e, instruction, number, branches(instruction)[number])
            else:
                found = call_frame(self.e, instruction)
        self.frames[path] = found
        return found

    @contextmanager
    def inside(self, frame: EmissionFrame) -> Iterator[None]:
        """Evaluate within a frame."""
        before, self.e.frame = self.e.frame, frame
        try:
            yield
        finally:
            self.e.frame = before

    def value(self, value: LoopValue, index: Sequence[Index] = ()) -> Expr:
        """Write what computes an element of a value, and return its variable."""
        with self.inside(self.frame(value.path)):
            return self.e.value(value.instruction, index, value.leaf)

    def index(self, value: LoopValue, local: Index) -> Indices:
        """The index in the whole array of the element at a local position."""
        axes = self.flow.axes(value)
        return full_index(axes, self.work_item, delinearize(local, self.flow.local(value)))

    def barrier(self) -> None:
        """Make the threads' writes visible to each other; a single warp synchronizes its lanes only."""
        self.e.scope.barrier("warp" if self.plan.threads <= WARP_SIZE else "block")

    # ---- memory -------------------------------------------------------------------------------------

    def declare(self) -> None:
        """The arrays of all loops, at the head of the function."""
        self._declare(self.plan.iteration)

    def _declare(self, iteration: StagedIteration) -> None:
        for state in iteration.states:
            copies = {"single": 1, "double": 2}.get(state.kind, 0)
            if copies and self.flow.elements(state.value):
                self._array(state.value, f"state_{state.number}", copies)
        aliases = {state.next for state in iteration.states if state.alias}
        for item in iteration.items:
            if item.inner is not None:
                self._declare(item.inner)
                continue
            for value in item.values:
                if value not in aliases and is_array(self.flow, item, value):
                    self._array(value, value.instruction.name, 1)
            if item.kind == "fold" and not item.lanes:
                self.folding.declare(item)

    def shared(self, kind: Type, elements: int, element_bytes: int, hint: str) -> Array:
        """Declare a shared array; in what the launch gives, where it gives anything."""
        if self.f.launch.shared:
            return self.f.shared_in_launch(kind, elements, element_bytes, hint)
        return self.f.shared(kind, [elements], hint)

    def _array(self, value: LoopValue, hint: str, copies: int) -> None:
        dims = self.flow.local(value)
        kind = value.shape.dtype
        size = max(1, copies * self.flow.elements(value))
        memory = self.shared(self.f.uses.type(kind), size, kind.bytes, hint)
        self.arrays[value] = SharedPlace(memory, kind, dims, self.flow.axes(value))

    # ---- a loop -------------------------------------------------------------------------------------

    def run(self, iteration: StagedIteration, around: Scope | None = None) -> None:
        """Write a loop: its first state, its iterations; later reads of it may be anywhere in ``around``."""
        running = self._begin(iteration, around or self.e.scope)
        e = self.e
        section = e.scope.section()
        self._place(iteration, running, section)
        iterations = running.counting.loop.iterations
        if iterations.kind == "known" and iterations.count is not None:
            if not iterations.count:
                return
            block, number = running.counting.iterations(e, iterations.count)
            running.counting.place(e, running.frame, number)
        else:
            block = e.scope.repeat(TRUE)
        with e.within(block):
            self._iteration(iteration, running, is_known=iterations.kind == "known")

    def counting(self, iteration: StagedIteration) -> IterationCounting:
        """The induction variables of a loop."""
        loop = (
            self.plan.parallel
            if not iteration.path
            else parallel_loop(iteration.loop, collect=False)
        )
        return IterationCounting(loop, self.f.loads.index_type)

    def is_invariant(self, number: int) -> bool:
        """Whether the loop only forwards an element of its state."""
        return number in self.flow.invariant(self.plan.parallel.loop)

    def last(self, carried: Carried, slot: int, index: Indices) -> Expr:
        """An element of the state after the last iteration; ``slot`` of the thread's own."""
        running = self.running[(), self.plan.parallel.loop]
        affine = running.counting.variables.get(carried.number)
        if affine is not None:
            return running.counting.last(carried.number, affine)
        register = running.registers.get(carried.number)
        if register is not None:
            return register[slot]
        return self.e.run(running.places[carried.number].element(self.e, index))

    def _begin(self, iteration: StagedIteration, around: Scope) -> _Running:
        e = self.e
        running = _Running(EmissionFrame({}), self.counting(iteration))
        self.running[iteration.path, iteration.loop] = running
        for number in (0, 1):
            self.frames[*iteration.path, (iteration.loop, number)] = running.frame
        if any(state.kind == "double" for state in iteration.states) or self.folding.has_tiles(
            iteration
        ):
            running.now = around.variable(INT, "now", 0)
        work = []
        for state in self._kept(iteration, running):
            kind = e.uses.type(state.value.shape.dtype)
            axes = self.flow.axes(state.value)
            first = LoopValue(iteration.path, iteration.loop.operands[0], state.number)
            if state.kind == "scalar":
                index = self.index(state.value, Index(0))
                name = around.variable(kind, f"state_{state.number}")
                e.scope.set(name, self.value(first, index))
                running.places[state.number] = KeptPlace(name, state.value.shape, axes)
                continue
            dims = self.flow.local(state.value)
            if state.kind == "registers":
                slots = self.threads.slots(self.flow.elements(state.value))
                registers = e.scope.array(kind, (slots,), f"state_{state.number}")
                running.registers[state.number] = registers
            else:
                now = Index(0)
                if state.kind == "double":
                    assert running.now is not None, "what is double alternates"
                    now = Symbol(running.now.name, 0, 1).index
                array = self.arrays[state.value]
                self.arrays[state.value] = SharedPlace(array.memory, array.kind, dims, axes, now)
                running.places[state.number] = self.arrays[state.value]
            work.append(_Work(first, axes, dims, self._target(state, running)))
        self._compute(work)
        if self.plan.iteration is not iteration or work:
            self.barrier()
        return running

    def _kept(self, iteration: StagedIteration, running: _Running) -> Iterator[StagedState]:
        """The states that are kept somewhere."""
        for state in iteration.states:
            is_counted = state.number in running.counting.variables
            if not is_counted and state.kind != "streamed" and self.flow.elements(state.value):
                yield state

    def _place(self, iteration: StagedIteration, running: _Running, section: Scope) -> None:
        """Register where the state is for reads in body and condition, or of the loop's result."""
        e, loop, counting = self.e, iteration.loop, running.counting
        around = self.frame(iteration.path)
        fixed = frozenset(symbols_of(self.work_item))

        def known(number: int, place: ValuePlace, after: ValuePlace) -> None:
            place_state(e, running.frame, loop, number, place)
            if iteration.path:
                e.places[around, loop, number] = after

        budget = [HOISTED]
        for number in self.flow.invariant(loop):
            outside = Outside(loop.operands[0], number, around, section, fixed, budget)
            known(number, outside, replace(outside, budget=[0]))
        for number, place in running.places.items():
            known(number, place, place)
        if iteration.path:
            for number, affine in counting.variables.items():
                e.places[around, loop, number] = KnownPlace(counting.last(number, affine))

    # ---- an iteration --------------------------------------------------------------------------------

    def _iteration(self, iteration: StagedIteration, running: _Running, *, is_known: bool) -> None:
        scalars: list[tuple[Var | Element, Expr]] = []
        begin = iteration.decides if is_known else 0
        for stage in range(begin, iteration.stages):
            if stage > begin:
                self.barrier()
                self.folding.collect(iteration, stage - 1, running.now)
            if stage == iteration.decides and not is_known:
                index = self.index(iteration.condition, Index(0))
                again = self.value(iteration.condition, index)
                self.e.scope.leave(again.negated())
            self._stage(iteration, running, stage, scalars)
        for name, value in scalars:
            self.e.scope.set(name, value)
        if running.now is not None:
            self.e.scope.set(running.now, 1 - running.now)
        if iteration.closes:
            self.barrier()

    def _stage(
        self,
        iteration: StagedIteration,
        running: _Running,
        stage: int,
        scalars: list[tuple[Var | Element, Expr]],
    ) -> None:
        items = iteration.at(stage)
        work = [self._map(iteration, item, value) for item in items for value in self._mapped(item)]
        for state in iteration.states:
            if state.stage == stage and state.kind == "streamed":
                work += self._update(state, running)
        for state in self._kept(iteration, running):
            if state.stage != stage or state.alias:
                continue
            axes = self.flow.axes(state.value)
            if state.kind == "scalar":
                place = running.places[state.number]
                assert isinstance(place, KeptPlace)
                index = self.index(state.value, Index(0))
                kind = self.e.uses.type(state.value.shape.dtype)
                value = self.value(state.next, index)
                # All next ones are computed before any is set: one may be what another was.
                scalars.append((place.place(()), self.e.scope.declare(kind, value, "next")))
            else:
                target = self._target(state, running)
                if isinstance(target, SharedPlace) and state.kind == "double":
                    target = target.other()
                work.append(_Work(state.next, axes, self.flow.local(state.value), target))
        self._compute(work, iteration, running)
        for item in items:
            around = self.e.scope.section(shared=False)
            with self.e.when(*(() if item.kind == "map" else self._guard(item))):
                if item.kind == "fold":
                    self.folding.write(item, running.now)
                elif item.kind == "sort":
                    rank_sort(self, item)
                elif item.inner is not None:
                    self.run(item.inner, around)
        for item in items:
            self._known(item)

    def _mapped(self, item: Item) -> tuple[LoopValue, ...]:
        return item.values if item.kind == "map" else ()

    def _guard(self, item: Item) -> tuple[Expr, ...]:
        """The tests that an item is wanted, which all threads agree on; none where it always is."""
        tests: list[Expr] = []
        if item.guarded:
            for guard, instruction, number in self.flow.guards(item.values[0]):
                count = len(branches(instruction))
                chosen = branch_tests(instruction.operands[0], self.value(guard), count)
                tests += [test.negated() for test in chosen[:number]]
                tests += chosen[number : number + 1]
        return tuple(tests)

    def _map(self, iteration: StagedIteration, item: Item, value: LoopValue) -> _Work:
        alias = next(
            (state for state in iteration.states if state.alias and state.next == value), None
        )
        if alias is not None:
            self.arrays[value] = self.arrays[alias.value].other()
        axes, dims = self.flow.axes(value), self.flow.local(value)
        return _Work(value, axes, dims, self.arrays[value], self._guard(item))

    def _known(self, item: Item) -> None:
        """Record that an item's values are read where they are stored."""
        if item.kind == "loop":
            return
        for value in item.values:
            array = self.arrays.get(value)
            if array is not None:
                key = self.frame(value.path), value.instruction, value.leaf
                self.e.places[key] = array

    def _target(self, state: StagedState, running: _Running) -> Array | SharedPlace:
        """Where an element of the state is kept: registers, or the copy in shared memory that is read."""
        return running.registers.get(state.number) or self.arrays[state.value]

    def _update(self, state: StagedState, running: _Running) -> Iterable[_Work]:
        found = self.stream(state, running.frame) if self.stream is not None else None
        if found is not None:
            axes, put = found
            yield _Work(state.next, axes, local_dims(state.next.shape, axes), put)

    # ---- elements -----------------------------------------------------------------------------------

    def _compute(
        self,
        work: list[_Work],
        iteration: StagedIteration | None = None,
        running: _Running | None = None,
    ) -> None:
        """Compute elements: values of the same local size together, all before any is stored."""
        groups: dict[tuple[tuple[Expr, ...], tuple[int, ...]], list[_Work]] = {}
        for one in work:
            groups.setdefault((one.guard, one.dims), []).append(one)
        for (guard, dims), group in groups.items():
            with self.e.when(*guard):
                self._compute_group(group, dims, iteration, running)

    def _compute_group(
        self,
        group: list[_Work],
        dims: tuple[int, ...],
        iteration: StagedIteration | None,
        running: _Running | None,
    ) -> None:
        for slot, local, tests in self.threads.each(prod(dims)):
            if iteration is not None and running is not None:
                self._remember(iteration, running, dims, slot, local)
            names = []
            for one in group:
                index = full_index(one.axes, self.work_item, delinearize(local, dims))
                names.append((one, index, self.value(one.value, index)))
            # A name may be a register that is set here.
            names = [(one, index, self._copied(one, name, names)) for one, index, name in names]
            for one, _, name in names:
                if isinstance(one.to, Array):
                    self.e.scope.set(one.to[slot], name)
            with self.e.when(*tests) as block:
                for one, index, name in names:
                    if isinstance(one.to, SharedPlace):
                        block.set(one.to.at(local), name)
                    elif not isinstance(one.to, Array):
                        one.to(index, name)

    def _copied(
        self, one: _Work, name: Expr, others: Sequence[tuple[_Work, Indices, Expr]]
    ) -> Expr:
        """A value that stays what it is when registers are set."""
        if isinstance(name, Var | Number) or len(others) == 1:
            return name
        return self.e.scope.declare(self.e.uses.type(one.value.shape.dtype), name, "next")

    def _remember(
        self,
        iteration: StagedIteration,
        running: _Running,
        dims: tuple[int, ...],
        slot: int,
        local: Index,
    ) -> None:
        """Record the registers of a slot under its index."""
        loop = iteration.loop
        body = loop.body.parameters[0]
        for state in iteration.states:
            registers = running.registers.get(state.number)
            if registers is not None and self.flow.local(state.value) == dims:
                index = self.index(state.value, local)
                with self.inside(running.frame):
                    self.e.remember(body, index, state.number, registers[slot])
