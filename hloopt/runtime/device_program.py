"""A plan executed on a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from hloopt.codegen.program import KernelProgram
from hloopt.errors import UsageError
from hloopt.interpret import EVALUATORS, Host
from hloopt.interpret.context import leaf_arrays
from hloopt.interpret.control import branch_number, check_progress
from hloopt.interpret.dynamic import evaluator
from hloopt.interpret.interpreter import Interpreter
from hloopt.interpret.progress import Progress
from hloopt.interpret.values import parameter_values
from hloopt.ir import Module
from hloopt.kernels.plan import (
    Allocation,
    ConditionalStep,
    HostStep,
    KernelStep,
    Move,
    Plan,
    PlanBuffer,
    PlanStep,
    WhileStep,
    function_name,
    walk_steps,
)
from hloopt.kernels.spec import Copy, Fill, Launch, LeafPlace
from hloopt.runtime import library_numpy
from hloopt.runtime.device import (
    Device,
    Pointer,
    PointerArgument,
    array_of_bytes,
    bytes_of_array,
    empty,
    value_of_leaves,
)
from hloopt.runtime.planned_program import PlannedProgram
from hloopt.runtime.segments import PlanPart, PlanSegment, grouped
from hloopt.types import Array, Literal

__all__ = ["DeviceProgram", "descriptions"]

# From this iteration on, at powers of two, loops of unknown trip count are checked for progress: a download.
_FIRST_CHECK = 1024
# Graphs of one row of steps: programs whose memory is lent to them have one for each place that is often used.
_MOST_GRAPHS = 16


def descriptions(plan: Plan) -> dict[str, str]:
    """The instruction of each CUDA function, as errors name it."""
    found: dict[str, str] = {}
    for step in walk_steps(plan.steps):
        if isinstance(step, KernelStep):
            for part in step.spec.steps:
                if isinstance(part, Launch):
                    found[function_name(step, part)] = step.instruction.name
    return found


class DeviceProgram(PlannedProgram):
    """A module, made ready and planned, on a device that has loaded ``source``.

    Memory is allocated and constants are uploaded once; each run uploads its inputs, walks the steps and
    downloads the results.  A loop of unknown trip count waits for its predicate each iteration, a conditional
    for its selector; all else is only enqueued on the device.  Where the device can capture
    (``begin_capture``, ``end_capture``, ``replay``), steps in a row are captured the second time and played
    after that.

    Raises what ``device`` raises, ``UsageError`` for several participants.
    """

    def __init__(
        self,
        module: Module,
        plan: Plan,
        device: Device,
        source: KernelProgram | str,
        describe: Mapping[str, str] | None = None,
    ) -> None:
        for name in ("replica_count", "num_partitions"):
            count = module.attributes.get(name, 1)
            if count != 1:
                raise UsageError(
                    f"{name}={count}: a device runs one participant; see --device cpu and native"
                )
        super().__init__(module, plan)
        self.device = device
        self.progress = Progress()
        self._parts: dict[int, list[PlanPart]] = {}
        self._calls: dict[int, tuple[Callable[[], None], ...]] = {}
        self._captures = all(
            hasattr(device, name) for name in ("begin_capture", "end_capture", "replay")
        )
        self._numbers: dict[Allocation, int] = {}
        self._places: tuple[int, ...] = ()
        self._host = Host()
        device.load(source, dict(describe) if describe is not None else descriptions(plan))
        for allocation in plan.allocations:
            if allocation.byte_size:
                self._numbers[allocation] = self._allocated(allocation)
        self._upload_constants()
        self._prepare_libraries()

    def run(self, inputs: Sequence[Array], host: Host | None = None) -> list[Array]:
        """Run the entry on arrays in parameter order."""
        with self._running, np.errstate(all="ignore"):
            self._host = Host.given(host)
            self.upload_inputs(inputs)
            self.walk()
            return [self._download(buffer) for buffer in self.plan.results]

    def upload_inputs(self, inputs: Sequence[Array]) -> None:
        """Put a run's inputs in their places; separate, so that ``walk`` can be timed alone."""
        context = Interpreter(self.module, EVALUATORS)
        values = parameter_values(self.module.entry, inputs, context)
        for buffer, array in zip(self.plan.parameters, leaf_arrays(tuple(values)), strict=True):
            if buffer is not None:
                self._upload(buffer, array)

    def walk(self) -> None:
        """Run all steps on the inputs that are in their places, where they leave the results."""
        self.launches = 0
        try:
            parts = self._split(self.plan.steps)
            for part in self.progress.through(parts):
                self._walk(part)
        except BaseException:
            # Ctrl-C too: an unfinished capture would record all later work.
            self._abandon()
            raise

    def close(self) -> None:
        """Give the device's memory back; the program cannot be run any more."""
        self.device.close()

    # ---- memory -------------------------------------------------------------------------------------

    def _allocated(self, allocation: Allocation) -> int:
        return self.device.allocate(allocation.byte_size)

    def _upload_constants(self) -> None:
        for allocation, number in self._numbers.items():
            if allocation.kind == "constant":
                literal = _literal(allocation)
                assert literal.array is not None
                raw = bytes_of_array(literal.array, literal.shape)  # type: ignore[arg-type]
                self.device.upload(Pointer(number, 0, raw.nbytes), raw)

    def _prepare_libraries(self) -> None:
        """Handles and plans, which cannot be made while calls are captured."""
        prepare = getattr(self.device, "prepare_library", None)
        for step in walk_steps(self.plan.steps):
            if prepare is not None and isinstance(step, KernelStep) and step.spec.library:
                prepare(step.spec.library, step.instruction)

    def _upload(self, buffer: PlanBuffer, array: Array) -> None:
        if buffer.byte_size:
            self.device.upload(self._pointer(buffer), bytes_of_array(array, buffer.shape))

    def _download(self, buffer: PlanBuffer) -> Array:
        if not buffer.byte_size:
            return empty(buffer.shape)
        return array_of_bytes(self.device.download(self._pointer(buffer)), buffer.shape)

    def _pointer(self, buffer: PlanBuffer) -> Pointer:
        return Pointer(self._numbers.get(buffer.allocation, -1), buffer.offset, buffer.byte_size)

    # ---- steps --------------------------------------------------------------------------------------

    def _split(self, steps: tuple[PlanStep, ...]) -> list[PlanPart]:
        """Steps with those in a row that can be captured put together; remembered by the tuple."""
        known = self._parts.get(id(steps))
        if known is None:
            known = self._parts[id(steps)] = list(
                grouped(steps, lambda step: self._captures and self._may_capture(step))
            )
        return known

    def _may_capture(self, step: KernelStep) -> bool:
        return not step.spec.library or getattr(self.device, "captures_libraries", False)

    def _walk_all(self, steps: tuple[PlanStep, ...]) -> None:
        for part in self._split(steps):
            self._walk(part)

    def _walk(self, part: PlanPart) -> None:
        if isinstance(part, PlanSegment):
            self._play(part)
        elif isinstance(part, KernelStep):
            self._kernel(part)
        elif isinstance(part, HostStep):
            self._on_host(part)
        elif isinstance(part, WhileStep):
            self._loop(part)
        else:
            self._select(part)

    def _play(self, segment: PlanSegment) -> None:
        """Run a row; captured when it runs for the second time, played from then on.

        The first time loads what is loaded when it is first needed, which a capture may not: code of kernels
        and libraries.  What runs once is not worth a graph.
        """
        self.launches += segment.kernels
        graphs, places = segment.graphs, self._places
        if places not in graphs:
            self._enqueue_all(segment)
            graphs[places] = None
            if len(graphs) > _MOST_GRAPHS:
                forgotten = graphs.pop(next(iter(graphs)))
                if forgotten is not None:
                    self.device.forget(forgotten)  # type: ignore[attr-defined]
            return
        device, graph = self.device, graphs[places]
        if graph is None:
            device.begin_capture()  # type: ignore[attr-defined]
            self._enqueue_all(segment)
            graph = graphs[places] = device.end_capture()  # type: ignore[attr-defined]
        device.replay(graph)  # type: ignore[attr-defined]

    def _enqueue_all(self, segment: PlanSegment) -> None:
        for step in segment.unrolled():
            self._enqueue(step)

    def _abandon(self) -> None:
        abandon = getattr(self.device, "abandon_capture", None)
        if abandon is not None:
            abandon()

    def _loop(self, step: WhileStep) -> None:
        if step.iterations is not None:
            for _ in range(step.iterations):
                self._walk_all(step.body)
            return
        assert step.predicate is not None
        iterations = 0
        while True:
            self._walk_all(step.condition)
            if not self._download(step.predicate):
                return
            iterations += 1
            is_checked = iterations >= _FIRST_CHECK and iterations & (iterations - 1) == 0
            before = self._state(step) if is_checked else []
            self._walk_all(step.body)
            if is_checked and before == self._state(step):
                check_progress(step.instruction, iterations, alone=True)

    def _state(self, step: WhileStep) -> list[bytes]:
        return [self.device.download(self._pointer(buffer)).tobytes() for buffer in step.state]

    def _select(self, step: ConditionalStep) -> None:
        chosen = branch_number(self._download(step.selector), len(step.branches))
        self._walk_all(step.branches[chosen])

    def _on_host(self, step: HostStep) -> None:
        instruction = step.instruction
        arrays = iter([self._download(buffer) for buffer in step.operands])
        operands = tuple(value_of_leaves(operand.shape, arrays) for operand in instruction.operands)
        context = Interpreter(self.module, EVALUATORS)
        context.host = self._host
        evaluate = evaluator(instruction, EVALUATORS[instruction.opcode])
        result = evaluate(instruction, operands, context)
        for buffer, array in zip(step.results, leaf_arrays(result), strict=True):
            self._upload(buffer, array)
        self.launches += 1

    def _kernel(self, step: KernelStep) -> None:
        self._enqueue(step)
        self.launches += 1

    def _enqueue(self, step: KernelStep) -> None:
        calls = self._calls.get(id(step))
        if calls is None:
            # Buffers do not move: the calls of the device are the same each time.
            calls = self._calls[id(step)] = tuple(self._prepared(step))
        for call in calls:
            call()

    def _prepared(self, step: KernelStep) -> Iterator[Callable[[], None]]:
        """The device calls of a step, in order."""
        yield from map(self._moved, step.before)
        if step.spec.library:
            yield partial(self._library, step)
        for part in step.spec.steps:
            if isinstance(part, Launch):
                yield self._launched(step, part)
            elif isinstance(part, Copy):
                target, source = self._at(step, part.target), self._at(step, part.source)
                if target != source:
                    yield partial(self.device.copy, target, source)
            else:
                assert isinstance(part, Fill)
                yield partial(self.device.fill, self._at(step, part.target), part.value)
        yield from map(self._moved, step.after)

    def _moved(self, move: Move) -> Callable[[], None]:
        return partial(self.device.copy, self._pointer(move.target), self._pointer(move.source))

    def _at(self, step: KernelStep, place: LeafPlace) -> Pointer:
        buffers = {"operand": step.operands, "result": step.results, "scratch": step.scratch}
        return self._pointer(buffers[place.kind][place.number])

    def _launched(self, step: KernelStep, launch: Launch) -> Callable[[], None]:
        arguments = [
            PointerArgument(self._at(step, argument.place), argument.role, argument.partial)
            for argument in launch.arguments
        ]
        written = {argument.pointer for argument in arguments if argument.role != "in"}
        read = {argument.pointer for argument in arguments if argument.role != "out"}
        shared = {pointer for pointer in written & read if pointer.byte_size}
        arguments = [
            PointerArgument(argument.pointer, "update") if argument.pointer in shared else argument
            for argument in arguments
        ]
        name = function_name(step, launch)
        run = partial(
            self.device.launch, name, launch.grid, launch.block, arguments, launch.scalars
        )
        return partial(run, launch.shared) if launch.shared else run

    def _library(self, step: KernelStep) -> None:
        operands = [self._pointer(buffer) for buffer in step.operands]
        results = [self._pointer(buffer) for buffer in step.results]
        own = getattr(self.device, "library", None)
        if own is not None:
            own(step.spec.library, step.instruction, operands, results)
            return
        given = [self._download(buffer) for buffer in _arrays(step.operands)]
        made = library_numpy.call(step.instruction, given)
        for buffer, array in zip(_arrays(step.results), made, strict=True):
            self._upload(buffer, array)


def _arrays(buffers: Sequence[PlanBuffer]) -> list[PlanBuffer]:
    """The buffers of a flat list that are not tokens."""
    return [buffer for buffer in buffers if buffer.shape.dtype.is_array]


def _literal(allocation: Allocation) -> Literal:
    assert allocation.instruction is not None
    literal = allocation.instruction.literal
    assert literal is not None
    for number in allocation.index:
        literal = literal.elements[number]
    return literal
