"""A module compiled for NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from hloopt.errors import EvaluationError
from hloopt.interpret import EVALUATORS, Host, check_inputs, supported
from hloopt.interpret.context import Evaluator, Value
from hloopt.interpret.control import branches, check_progress
from hloopt.interpret.dynamic import evaluator
from hloopt.interpret.interpreter import Interpreter
from hloopt.interpret.participants import Participant, Participants
from hloopt.interpret.progress import Progress
from hloopt.interpret.sizes import is_dynamic
from hloopt.interpret.values import flatten_results, parameter_values
from hloopt.ir import Computation, Instruction, Module
from hloopt.ir.walk import called_computations, execution_order, has_side_effect
from hloopt.runtime.kernels import is_kernel, module_kernels
from hloopt.runtime.numpy import block_limits
from hloopt.runtime.numpy.builder import Builder
from hloopt.runtime.numpy.elementwise import elementwise
from hloopt.runtime.numpy.emitters import EMITTERS
from hloopt.runtime.numpy.plan import Cases, Function, Line, Loop, Step, in_place
from hloopt.runtime.numpy.sharing import (
    give_away,
    most_alive,
    own_results,
    uncopy,
    written_inputs,
)
from hloopt.runtime.numpy.source import compile_line
from hloopt.runtime.numpy.threads import thread_count
from hloopt.runtime.numpy.values import Slots, leaf_slots, pack, unpack
from hloopt.runtime.numpy.ways import way
from hloopt.runtime.program import Array, Program
from hloopt.types import ArrayShape, Shape, TupleShape, leaves

if TYPE_CHECKING:
    from hloopt.runtime.numpy.loop_blocks import BlockedLoop, CompiledLoop
    from hloopt.runtime.numpy.loop_plan import Blocking

__all__ = ["NumpyProgram"]

_PASSED_ON = frozenset({"add-dependency", "domain", "opt-barrier"})
# A called computation of more instructions is inlined where it has one caller only.
_MOST_INLINED = 64
_WRITTEN_IN_PLACE = frozenset({"call", "conditional", "while"})


class NumpyProgram(Program):
    """Every computation compiled once; see ``plan`` for the form.

    ``loops`` says of each fused loop, by its name, in which blocks it runs, or why whole; ``blocking``
    what blocks are worth while.  ``exact`` has functions of f32 computed as the interpreter does, which errs
    less and takes longer (``quick_math``).  ``threads`` share large elementwise work (``blocks``): as many
    as ``threads.thread_count`` says.

    Raises ``UnsupportedError`` for the first instruction that cannot be run.
    """

    def __init__(
        self,
        module: Module,
        *,
        excess_precision: bool = False,
        replicas: int = 1,
        partitions: int = 1,
        blocking: Blocking | None = None,
        exact: bool = False,
        threads: int | None = None,
    ) -> None:
        supported(module, replicas, partitions)
        self._module = module
        self._replicas, self._partitions = replicas, partitions
        self._launches = [0]
        self._running = Lock()
        self.progress = Progress()
        self._compiler = _Compiler(
            module,
            self._launches,
            excess_precision=excess_precision,
            blocking=blocking,
            exact=exact,
            threads=thread_count(threads),
        )
        self.loops = self._compiler.loops
        with np.errstate(all="ignore"):
            self._entry = self._compiler.program(self.progress, keeps=replicas * partitions == 1)
        self.kernels = module_kernels(module)
        self.launches = 0

    def run(self, inputs: Sequence[Array], host: Host | None = None) -> list[Array]:
        """Run the entry on arrays in parameter order."""
        count = self._replicas * self._partitions
        if count > 1:
            raise EvaluationError(f"this program has {count} participants; see run_participants")
        # A run keeps its count, its participant and its host here: one at a time.
        with self._running:
            self._launches[0] = 0
            self._enter(Participant(), host or Host())
            outputs = self._run(inputs)
            self.launches = self._launches[0]
        return outputs

    def run_participants(
        self, inputs: Sequence[Sequence[Array]], host: Host | None = None
    ) -> list[list[Array]]:
        """Run the entry once for each participant, in lock step."""
        check_inputs(inputs, self._replicas, self._partitions)
        if len(inputs) == 1:
            return [self.run(inputs[0], host)]
        hosts = host or Host()
        counts = [0] * len(inputs)
        running = [0]

        def entered(participant: Participant) -> None:
            counts[running[0]] = self._launches[0]
            running[0] = participant.number
            self._launches[0] = counts[participant.number]
            self._enter(participant, hosts.of(participant.number))

        with self._running:
            self._launches[0] = 0
            several = Participants[list[Array]](self._replicas, self._partitions, entered)
            outputs = several.run(lambda participant: self._run(inputs[participant.number]))
            counts[running[0]] = self._launches[0]
            self.launches = counts[0]
        return outputs

    def _enter(self, participant: Participant, host: Host) -> None:
        self._compiler.participant, self._compiler.host = participant, host

    def _run(self, inputs: Sequence[Array]) -> list[Array]:
        entry = self._module.entry
        with np.errstate(all="ignore"):
            values = parameter_values(entry, inputs, self._compiler)
            flat = self._entry(*[leaf for value in values for leaf in unpack(value)])
            return self._handed_out(flat)

    def _handed_out(self, flat: Sequence[Any]) -> list[Array]:
        """The results' arrays: those that nothing else refers to as they are, copies of others."""
        found = []
        shapes = leaves(self._module.entry.result_shape)
        for array, shape, own in zip(flat, shapes, self._compiler.own_results, strict=True):
            if own and _is_whole(array, shape):
                found.append(array)
            else:
                found += flatten_results(array, shape, self._compiler)
        return found


def _is_whole(array: Any, shape: Shape) -> bool:
    """Whether an array is what a result is to be: in row-major order, and of no larger one."""
    if not isinstance(array, np.ndarray) or not isinstance(shape, ArrayShape):
        return False
    base = array.base
    return (
        array.dtype == shape.dtype.numpy
        and shape.dtype.is_array
        and bool(array.flags.c_contiguous and array.flags.writeable)
        and (base is None or getattr(base, "nbytes", -1) == array.nbytes)
    )


class _Compiler(Interpreter):
    """Compiles computations, and is the context in which evaluators run the regions they apply."""

    def __init__(
        self,
        module: Module,
        launches: list[int],
        *,
        excess_precision: bool,
        blocking: Blocking | None,
        exact: bool = False,
        threads: int = 1,
    ) -> None:
        super().__init__(module, EVALUATORS, excess_precision=excess_precision)
        self.exact = exact
        self.threads = threads
        self.regions = 0
        self._launches = launches
        self._blocking = blocking
        self.loops: dict[str, str] = {}
        self.own_results: tuple[bool, ...] = ()
        self._functions: dict[tuple[Computation, bool], Function] = {}
        self._packers: dict[Computation, Function] = {}
        self._sizes: dict[Computation, int] = {}

    def call(self, computation: Computation, args: Sequence[Value]) -> Value:
        """Run a computation that a structural op calls."""
        function = self.function(computation, counted=False)
        if computation not in self._packers:
            self._packers[computation] = pack([computation.result_shape])
        result: Value = self._packers[computation](*function(*unpack(tuple(args))))[0]
        return result

    def program(self, progress: Progress, *, keeps: bool) -> Function:
        """The entry as a function that says how far it has come; ``keeps``: see ``compile_line``."""
        line = self._cut(self._line(self._module.entry, counted=True))
        self.own_results = own_results(line)
        return compile_line(line, self._launches, progress, keeps=keeps)

    def function(self, computation: Computation, *, counted: bool) -> Function:
        """The computation as a function from flat arrays to a tuple of flat arrays.

        ``counted`` says that its instructions are launches of their own.
        """
        key = (computation, counted)
        if key not in self._functions:
            line = self._cut(self._line(computation, counted=counted))
            self._functions[key] = compile_line(line, self._launches)
        return self._functions[key]

    def _line(self, computation: Computation, *, counted: bool) -> Line:
        builder = Builder(self)
        arguments = [builder.slots(parameter.shape) for parameter in computation.parameters]
        builder.line.inputs = [leaf for slots in arguments for leaf in leaf_slots(slots)]
        root = self._inline(builder, computation, arguments, counted=counted)
        builder.line.results = list(builder.all_full([(root, computation.result_shape)]))
        builder.line.drop_unused()
        uncopy(builder.line)
        return builder.line

    def _cut(self, line: Line, *, looped: bool = False) -> Line:
        """Have large elementwise work of a line, the body of a loop if ``looped``, done by blocks."""
        limits = block_limits.DEFAULT
        if limits.any_large(line.dims):
            from hloopt.runtime.numpy.blocks import by_blocks

            self.regions += by_blocks(line, self, self.threads, limits, looped=looped)
        return line

    def _inline(
        self,
        builder: Builder,
        computation: Computation,
        arguments: Sequence[Slots],
        *,
        counted: bool,
    ) -> Slots:
        """Append a computation's steps to a line; the slots of its root."""
        slots: dict[Instruction, Slots] = dict(zip(computation.parameters, arguments, strict=True))
        for instruction in execution_order(computation):
            if instruction.opcode != "parameter":
                operands = [slots[operand] for operand in instruction.operands]
                slots[instruction] = self._add(builder, instruction, operands, counted=counted)
                if counted and is_kernel(instruction):
                    builder.line.kernels += 1
        return slots[computation.root]

    def _add(
        self, builder: Builder, instruction: Instruction, operands: list[Slots], *, counted: bool
    ) -> Slots:
        opcode = instruction.opcode
        if opcode == "tuple":
            return tuple(operands)
        if opcode == "get-tuple-element":
            whole = operands[0]
            assert isinstance(whole, tuple)
            index: int = instruction.attributes["index"]
            return whole[index]
        if opcode in _PASSED_ON:
            return operands[0]
        if opcode == "constant":
            return self._constant(builder, instruction)
        if opcode == "fusion":
            return self._inline(builder, instruction.attributes["calls"], operands, counted=False)
        if opcode == "call":
            callee: Computation = instruction.attributes["to_apply"]
            if self._is_inlined(callee):
                return self._inline(builder, callee, operands, counted=counted)
            return self._several(
                builder, instruction, operands, self.function(callee, counted=counted)
            )
        if opcode == "while":
            return self._while(builder, instruction, operands, counted=counted)
        if opcode == "conditional":
            return self._conditional(builder, instruction, operands, counted=counted)
        told = way(instruction)
        if told is not None and not is_dynamic(instruction):
            return self._evaluated(builder, instruction, operands, told)
        arrays = [slots for slots in operands if isinstance(slots, int)]
        # What is planned here goes by the sizes of shapes.
        if len(arrays) == len(operands) and not is_dynamic(instruction):
            out = self._planned(builder, instruction, arrays)
            if out is not None:
                return out
        return self._evaluated(builder, instruction, operands)

    @staticmethod
    def _planned(builder: Builder, instruction: Instruction, operands: list[int]) -> Slots | None:
        """By NumPy's functions; None where it has none that do the same."""
        before = len(builder.line.steps)
        if instruction.op.is_elementwise:
            out: Slots | None = builder.folded(elementwise(builder, instruction, operands), before)
        else:
            emitter = EMITTERS.get(instruction.opcode)
            out = emitter(builder, instruction, operands) if emitter is not None else None
        for step in builder.line.steps[before:][-1:]:
            if step.outs == (out,):
                step.made, step.operands = instruction, tuple(operands)
        return out

    def _is_inlined(self, callee: Computation) -> bool:
        return len(callee.callers) == 1 or self._size(callee) <= _MOST_INLINED

    def _size(self, computation: Computation) -> int:
        """Instructions of a computation with all that is written in its place."""
        if computation not in self._sizes:
            self._sizes[computation] = len(computation) + sum(
                self._size(called)
                for instruction in computation
                if instruction.opcode in _WRITTEN_IN_PLACE
                for called in called_computations(instruction)
            )
        return self._sizes[computation]

    def _constant(self, builder: Builder, instruction: Instruction) -> Slots:
        literal = instruction.literal
        assert literal is not None
        splat = literal.splat
        if splat is not None:
            return builder.constant(self.round(splat, instruction.array.dtype))
        value = self._table["constant"](instruction, (), self)
        if isinstance(value, tuple):
            return self._constants(builder, value)
        return builder.constant(value)

    def _constants(self, builder: Builder, value: Value) -> Slots:
        if isinstance(value, tuple):
            return tuple(self._constants(builder, element) for element in value)
        return builder.constant(value)

    def _evaluated(
        self,
        builder: Builder,
        instruction: Instruction,
        operands: list[Slots],
        given: Evaluator | None = None,
    ) -> Slots:
        """Through an evaluator, the interpreter's by default; results may share memory with any operand."""
        evaluate = evaluator(instruction, given or EVALUATORS[instruction.opcode])
        packed = pack([operand.shape for operand in instruction.operands])

        def run(*flat: Any) -> Any:
            return evaluate(instruction, packed(*map(np.asarray, flat)), self)

        if isinstance(instruction.shape, TupleShape):
            return self._several(builder, instruction, operands, lambda *flat: unpack(run(*flat)))
        out = builder.slots(instruction.shape)
        assert isinstance(out, int)
        ins = self._flat(builder, instruction, operands)
        keep = has_side_effect(instruction)
        return builder.line.step(run, ins, out, view=True, keep=keep)

    def _several(
        self,
        builder: Builder,
        instruction: Instruction,
        operands: list[Slots],
        function: Function,
        **flags: Any,
    ) -> Slots:
        """A step whose function returns a tuple of the arrays of a value."""
        out = builder.slots(instruction.shape)
        ins = self._flat(builder, instruction, operands)
        keep = has_side_effect(instruction)
        outs = tuple(leaf_slots(out))
        builder.line.steps.append(
            Step(function, ins, outs, several=True, view=True, keep=keep, **flags)
        )
        return out

    @staticmethod
    def _flat(builder: Builder, instruction: Instruction, operands: list[Slots]) -> tuple[int, ...]:
        shapes = [operand.shape for operand in instruction.operands]
        return builder.all_full(zip(operands, shapes, strict=True))

    def _while(
        self, builder: Builder, instruction: Instruction, operands: list[Slots], *, counted: bool
    ) -> Slots:
        """The body may write over the parts of the state it updates in place.

        They are copied before the first trip unless this loop is the last to need them.
        """
        body = self._line(instruction.attributes["body"], counted=counted)

        def stuck(trips: int) -> None:
            check_progress(instruction, trips, alone=self.participant.count == 1)

        blocked = self._blocked(instruction, body, stuck)
        if blocked is not None:

            def choose(own: frozenset[int]) -> Function:
                return lambda *state: blocked.run(own, state)

            return self._several(
                builder, instruction, operands, in_place, writes=blocked.written, choose=choose
            )
        self._cut(body, looped=True)
        condition = self._cut(self._line(instruction.attributes["condition"], counted=counted))
        writes = self._give_away(body, len(body.inputs))
        from hloopt.analysis.trip_count import trip_count

        # A condition that does more than to answer is asked all the same.
        count = None if any(step.keep for step in condition.steps) else trip_count(instruction, 0)
        inner = Loop(condition, body, self._kept_leaves(instruction.shape), stuck, count)
        return self._several(
            builder, instruction, operands, in_place, writes=tuple(sorted(writes)), inner=inner
        )

    @staticmethod
    def _give_away(line: Line, width: int) -> frozenset[int]:
        """The positions of a flat state of ``width`` arrays that a body writes into from now on."""
        written = written_inputs(line) & set(line.inputs[:width])
        give_away(line, written)
        return frozenset(at for at in range(width) if line.inputs[at] in written)

    def _blocked(
        self, instruction: Instruction, line: Line, stuck: Callable[[int], None]
    ) -> BlockedLoop | None:
        """The loop of a fusion by blocks of its units; None for a loop that runs whole."""
        computation = instruction.computation
        assert computation is not None
        fusion = next(iter(computation.callers), None)
        if fusion is None:
            return None
        # What loops are analysed by takes longer to load than a module without such loops to compile.
        from hloopt.analysis.parallel_loop import fused_loop
        from hloopt.runtime.numpy.loop_blocks import BlockedLoop
        from hloopt.runtime.numpy.loop_plan import Blocking, plan_blocks

        fused = fused_loop(fusion)
        if fused is None or fused.loop is not instruction:
            return None
        planned = plan_blocks(
            instruction, fused.results, most_alive(line), self._blocking or Blocking()
        )
        if isinstance(planned, str):
            self.loops[fusion.name] = f"runs whole: {planned}"
            return None
        self.loops[fusion.name] = f"runs in {planned.words}"
        return BlockedLoop(planned, self._cut_loop, self, stuck, self.threads)

    def _cut_loop(
        self, condition: Computation, body: Computation, shape: TupleShape
    ) -> CompiledLoop:
        from hloopt.runtime.numpy.loop_blocks import CompiledLoop

        line = self._line(body, counted=False)
        written = self._give_away(line, len(shape.elements))
        function = compile_line(line, self._launches, looped=True)
        asked = compile_line(self._line(condition, counted=False), self._launches, looped=True)
        return CompiledLoop(asked, function, self._kept(shape), written)

    def _conditional(
        self, builder: Builder, instruction: Instruction, operands: list[Slots], *, counted: bool
    ) -> Slots:
        computations = branches(instruction)
        lines, starts, enter = [], [], []
        start = 1
        for operand, computation in zip(instruction.operands[1:], computations, strict=True):
            lines.append(self._branch(computation, counted=counted))
            starts.append(start)
            enter.append(self._kept_leaves(operand.shape))
            start += len(enter[-1])
        leave = self._kept_leaves(instruction.shape)
        inner = Cases(tuple(lines), tuple(starts), tuple(enter), leave)
        return self._several(builder, instruction, operands, in_place, inner=inner)

    def _branch(self, computation: Computation, *, counted: bool) -> Line:
        """A computation written in place, or a call of it."""
        if self._is_inlined(computation):
            return self._cut(self._line(computation, counted=counted))
        builder = Builder(self)
        inputs = [builder.slots(parameter.shape) for parameter in computation.parameters]
        builder.line.inputs = [leaf for slots in inputs for leaf in leaf_slots(slots)]
        outs = tuple(leaf_slots(builder.slots(computation.result_shape)))
        function = self.function(computation, counted=counted)
        ins = tuple(builder.line.inputs)
        builder.line.steps.append(Step(function, ins, outs, several=True, view=True, keep=True))
        builder.line.results = list(outs)
        return builder.line

    def _kept(self, shape: Shape) -> Function:
        """What a buffer of ``shape`` keeps of a value: see ``Context.materialize``."""
        if not self.excess_precision:
            return _same
        packed = pack([shape])
        return lambda flat: unpack(self.materialize(packed(*flat)[0], shape))

    def _kept_leaves(self, shape: Shape) -> tuple[Function | None, ...]:
        """The same for each array of it; None for those that are kept as they are."""
        return tuple(
            partial(self.materialize, shape=leaf)
            if isinstance(leaf, ArrayShape) and self.carrier(leaf.dtype) != leaf.dtype.numpy
            else None
            for leaf in leaves(shape)
        )


def _same(flat: tuple[Any, ...]) -> tuple[Any, ...]:
    return flat
