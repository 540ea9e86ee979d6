"""Computations as lines of steps, and these as functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hloopt.backends.numpy import block_limits
from hloopt.backends.numpy.builder import Builder
from hloopt.backends.numpy.control import Lines, add_conditional, add_while
from hloopt.backends.numpy.elementwise import elementwise
from hloopt.backends.numpy.emitters import EMITTERS
from hloopt.backends.numpy.few_elements import by_elements
from hloopt.backends.numpy.plan import Function, Line, Slots, Step, leaf_slots, pack, unpack
from hloopt.backends.numpy.sharing import own_results, uncopy
from hloopt.backends.numpy.source import compile_line
from hloopt.interpret import EVALUATORS
from hloopt.interpret.context import Value
from hloopt.interpret.dynamic import evaluator
from hloopt.interpret.interpreter import Interpreter
from hloopt.interpret.progress import Progress
from hloopt.interpret.sizes import is_dynamic
from hloopt.ir import Computation, Instruction, Module
from hloopt.ir.walk import called_computations, execution_order, has_side_effect
from hloopt.kernels import is_kernel
from hloopt.ops.traits import LIBRARY, SEQUENTIAL
from hloopt.types import TupleShape

if TYPE_CHECKING:
    from hloopt.backends.numpy.clock import LineClock
    from hloopt.backends.numpy.loop_plan import Blocking

__all__ = ["LineCompiler"]

# Evaluators whose results never share memory with an operand.
_FRESH = LIBRARY | {"rng-bit-generator", "topk"}
_PASSED_ON = frozenset({"add-dependency", "domain", "opt-barrier"})
# A called computation of more instructions is inlined where it has one caller only.
_MOST_INLINED = 64


class LineCompiler(Interpreter, Lines):
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
        clock: LineClock | None = None,
    ) -> None:
        super().__init__(module, EVALUATORS, excess_precision=excess_precision)
        self.exact = exact
        self.threads = threads
        self.clock = clock
        self.regions = 0
        self.launches = launches
        self.blocking = blocking
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
        line = self.cut(self.line(self._module.entry, counted=True))
        self.own_results = own_results(line)
        return compile_line(line, self.launches, progress, keeps=keeps, clock=self.clock)

    def function(self, computation: Computation, *, counted: bool) -> Function:
        """The computation as a function from flat arrays to a tuple of flat arrays.

        ``counted`` says that its instructions are launches of their own.
        """
        key = (computation, counted)
        if key not in self._functions:
            line = self.cut(self.line(computation, counted=counted))
            self._functions[key] = compile_line(line, self.launches, clock=self.clock)
        return self._functions[key]

    def line(self, computation: Computation, *, counted: bool) -> Line:
        builder = Builder(self)
        arguments = [builder.slots(parameter.shape) for parameter in computation.parameters]
        builder.line.inputs = [leaf for slots in arguments for leaf in leaf_slots(slots)]
        root = self._inline(builder, computation, arguments, counted=counted)
        builder.line.results = list(builder.all_full([(root, computation.result_shape)]))
        builder.line.drop_unused()
        by_elements(builder.line)
        uncopy(builder.line)
        return builder.line

    def cut(self, line: Line, *, looped: bool = False) -> Line:
        """Have large elementwise work of a line, the body of a loop if ``looped``, done by blocks."""
        limits = block_limits.DEFAULT
        if limits.any_large(line.dims):
            from hloopt.backends.numpy.blocks import by_blocks

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
                first = len(builder.line.steps)
                slots[instruction] = self._add(builder, instruction, operands, counted=counted)
                if counted:
                    builder.line.kernels += is_kernel(instruction)
                    for step in builder.line.steps[first:]:
                        step.owners = step.owners or (instruction,)
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
            if self.is_inlined(callee):
                return self._inline(builder, callee, operands, counted=counted)
            return self.several(
                builder, instruction, operands, self.function(callee, counted=counted)
            )
        if opcode == "while":
            return add_while(self, builder, instruction, operands, counted=counted)
        if opcode == "conditional":
            return add_conditional(self, builder, instruction, operands, counted=counted)
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

    def is_inlined(self, callee: Computation) -> bool:
        return len(callee.callers) == 1 or self._size(callee) <= _MOST_INLINED

    def _size(self, computation: Computation) -> int:
        """Instructions of a computation with all that is written in its place."""
        if computation not in self._sizes:
            self._sizes[computation] = len(computation) + sum(
                self._size(called)
                for instruction in computation
                if instruction.opcode in SEQUENTIAL
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
        self, builder: Builder, instruction: Instruction, operands: list[Slots]
    ) -> Slots:
        """Through the interpreter's evaluator; results of most may share memory with any operand."""
        evaluate = evaluator(instruction, EVALUATORS[instruction.opcode])
        packed = pack([operand.shape for operand in instruction.operands])
        if all(operand.is_array for operand in instruction.operands):
            packed = _tupled

        def run(*flat: Any) -> Any:
            return evaluate(instruction, packed(*map(np.asarray, flat)), self)

        view = instruction.opcode not in _FRESH
        if isinstance(instruction.shape, TupleShape):
            return self.several(
                builder, instruction, operands, lambda *flat: unpack(run(*flat)), view=view
            )
        out = builder.slots(instruction.shape)
        assert isinstance(out, int)
        ins = self._flat(builder, instruction, operands)
        keep = has_side_effect(instruction)
        return builder.line.step(run, ins, out, view=view, keep=keep)

    def several(
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
            Step(function, ins, outs, several=True, keep=keep, **{"view": True, **flags})
        )
        return out

    @staticmethod
    def _flat(builder: Builder, instruction: Instruction, operands: list[Slots]) -> tuple[int, ...]:
        shapes = [operand.shape for operand in instruction.operands]
        return builder.all_full(zip(operands, shapes, strict=True))


def _tupled(*arrays: Any) -> tuple[Any, ...]:
    return arrays
