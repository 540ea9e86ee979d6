"""A module compiled for NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hloopt.interpret import EVALUATORS, supported
from hloopt.interpret.context import Value
from hloopt.interpret.control import branch_number, branches
from hloopt.interpret.interpreter import Interpreter
from hloopt.interpret.values import flatten_results, parameter_values
from hloopt.ir import Computation, Instruction, Module
from hloopt.runtime.kernels import is_kernel, module_kernels
from hloopt.runtime.numpy.lower import lower
from hloopt.runtime.numpy.plan import Line, Slots, Step, leaf_slots, pack, unpack
from hloopt.runtime.program import Array, Program
from hloopt.types import ArrayShape, Shape, TupleShape

__all__ = ["NumpyProgram"]

_PASSED_ON = frozenset({"add-dependency", "domain", "opt-barrier"})


class NumpyProgram(Program):
    """Every computation compiled once; see ``plan`` for the form and ``lower`` for the steps."""

    def __init__(self, module: Module, *, excess_precision: bool = False) -> None:
        supported(module)
        self._module = module
        self._launches = [0]
        self._compiler = _Compiler(module, self._launches, excess_precision=excess_precision)
        with np.errstate(all="ignore"):
            self._entry = self._compiler.function(module.entry, counted=True)
        self.kernels = module_kernels(module)
        self.launches = 0

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Run the entry on arrays in parameter order."""
        entry = self._module.entry
        self._launches[0] = 0
        self._compiler.memory.clear()
        with np.errstate(all="ignore"):
            values = parameter_values(entry, inputs, self._compiler)
            flat = self._entry(*[leaf for value in values for leaf in unpack(value)])
            (result,) = pack([entry.result_shape])(*flat)
            outputs = flatten_results(result, entry.result_shape, self._compiler)
        self.launches = self._launches[0]
        held = {id(array) for array in inputs}
        return [_own(output, held) for output in outputs]


def _own(output: Array, held: set[int]) -> Array:
    """The output in memory of its own: it may be an input, a constant or a view of either."""
    shared = id(output) in held or output.base is not None or not output.flags.writeable
    return output.copy() if shared else output


class _Compiler(Interpreter):
    """Compiles computations, and is the context in which structural ops run theirs."""

    def __init__(self, module: Module, launches: list[int], *, excess_precision: bool) -> None:
        super().__init__(module, EVALUATORS, excess_precision=excess_precision)
        self._launches = launches
        self._functions: dict[tuple[Computation, bool], Callable[..., Any]] = {}
        self._packers: dict[Computation, Callable[..., Any]] = {}

    def call(self, computation: Computation, args: Sequence[Value]) -> Value:
        """Run a computation that a structural op calls."""
        function = self.function(computation, counted=False)
        if computation not in self._packers:
            self._packers[computation] = pack([computation.result_shape])
        result: Value = self._packers[computation](*function(*unpack(tuple(args))))[0]
        return result

    def function(self, computation: Computation, *, counted: bool) -> Callable[..., Any]:
        """The computation as a function from flat arrays to a tuple of flat arrays.

        ``counted`` says that its instructions are launches of their own.
        """
        key = (computation, counted)
        if key not in self._functions:
            line = Line()
            arguments = [line.slot(parameter.shape) for parameter in computation.parameters]
            line.inputs = [leaf for slots in arguments for leaf in leaf_slots(slots)]
            root = self._inline(line, computation, arguments, counted=counted)
            line.results = tuple(leaf_slots(root))
            self._functions[key] = line.compile(self._launches, self._carrier_of)
        return self._functions[key]

    def _carrier_of(self, shape: ArrayShape) -> Any:
        return self.carrier(shape.dtype)

    def _inline(
        self, line: Line, computation: Computation, arguments: Sequence[Slots], *, counted: bool
    ) -> Slots:
        """Append a computation's steps to a line; the slots of its root."""
        slots: dict[Instruction, Slots] = dict(zip(computation.parameters, arguments, strict=True))
        for instruction in computation:
            if instruction.opcode != "parameter":
                operands = [slots[operand] for operand in instruction.operands]
                slots[instruction] = self._add(line, instruction, operands, counted=counted)
                if counted and is_kernel(instruction):
                    line.kernels += 1
        return slots[computation.root]

    def _add(
        self, line: Line, instruction: Instruction, operands: list[Slots], *, counted: bool
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
        if opcode in ("constant", "iota"):
            return self._constant(line, instruction)
        if opcode == "call":
            callee = instruction.attributes["to_apply"]
            return self._inline(line, callee, operands, counted=counted)
        if opcode == "fusion":
            return self._inline(line, instruction.attributes["calls"], operands, counted=False)
        flat = tuple(leaf for slots in operands for leaf in leaf_slots(slots))
        if opcode == "while":
            return self._several(line, instruction, self._while(instruction, counted=counted), flat)
        if opcode == "conditional":
            function = self._conditional(instruction, counted=counted)
            return self._several(line, instruction, function, flat)
        return self._plain(line, instruction, operands, flat)

    def _constant(self, line: Line, instruction: Instruction) -> Slots:
        slots = line.slot(instruction.shape)
        arrays = unpack(self._table[instruction.opcode](instruction, (), self))
        for array in arrays:
            array.flags.writeable = False
        line.constants.update(zip(leaf_slots(slots), arrays, strict=True))
        return slots

    def _plain(
        self, line: Line, instruction: Instruction, operands: list[Slots], flat: tuple[int, ...]
    ) -> Slots:
        lowered = lower(instruction, self)
        function = lowered.function
        if not all(isinstance(slots, int) for slots in operands):
            function = _structured(function, [operand.shape for operand in instruction.operands])
        if isinstance(instruction.shape, TupleShape):
            return self._several(line, instruction, _flattened(function), flat)
        out = line.slot(instruction.shape)
        assert isinstance(out, int)
        line.steps.append(
            Step(
                function,
                flat,
                (out,),
                view=lowered.view,
                fresh=not lowered.view,
                ufunc=lowered.ufunc,
            )
        )
        return out

    def _several(
        self,
        line: Line,
        instruction: Instruction,
        function: Callable[..., Any],
        flat: tuple[int, ...],
    ) -> Slots:
        slots = line.slot(instruction.shape)
        line.steps.append(Step(function, flat, tuple(leaf_slots(slots)), several=True, view=True))
        return slots

    def _while(self, instruction: Instruction, *, counted: bool) -> Callable[..., Any]:
        condition = self.function(instruction.attributes["condition"], counted=counted)
        body = self.function(instruction.attributes["body"], counted=counted)
        kept = self._kept(instruction.shape)

        def loop(*state: Any) -> tuple[Any, ...]:
            state = kept(state)
            while condition(*state)[0]:
                state = kept(body(*state))
            return state

        return loop

    def _conditional(self, instruction: Instruction, *, counted: bool) -> Callable[..., Any]:
        computations = branches(instruction)
        functions = [self.function(computation, counted=counted) for computation in computations]
        kept = self._kept(instruction.shape)
        bounds, position = [], 1
        for operand, computation in zip(instruction.operands[1:], computations, strict=True):
            size = len(leaf_slots(Line().slot(operand.shape)))
            bounds.append((position, position + size, self._kept(computation.parameter_shapes[0])))
            position += size

        def choose(selector: Any, *arguments: Any) -> tuple[Any, ...]:
            number = branch_number(np.asarray(selector), len(functions))
            start, end, entering = bounds[number]
            taken: tuple[Any, ...] = kept(
                functions[number](*entering(arguments[start - 1 : end - 1]))
            )
            return taken

        return choose

    def _kept(self, shape: Shape) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
        """What a buffer of ``shape`` keeps of a value: see ``Context.materialize``."""
        if not self.excess_precision:
            return _same
        packed = pack([shape])
        return lambda flat: unpack(self.materialize(packed(*flat)[0], shape))


def _same(flat: tuple[Any, ...]) -> tuple[Any, ...]:
    return flat


def _structured(function: Callable[..., Any], shapes: list[Shape]) -> Callable[..., Any]:
    packed = pack(shapes)
    return lambda *flat: function(*packed(*flat))


def _flattened(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *values: unpack(function(*values))
