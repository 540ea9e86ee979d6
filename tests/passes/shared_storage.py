"""A machine with one buffer for each must-alias set: what a module computes if nobody copies on his own.

Arrays lie in buffers; tuples, views, parameters, loops and branches move nothing.  A read gives whatever was
written there last.  ``run`` raises ``ClobberedError`` where that cannot be right: the buffer has other bytes, an op
writes where it still reads, a constant or somebody else's parameter is overwritten, results share a buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hloopt.analysis.aliasing import Aliasing, analyze_aliasing
from hloopt.interpret import EVALUATORS, Value
from hloopt.interpret.bitcast import bitcast
from hloopt.interpret.interpreter import Interpreter
from hloopt.ir import Computation, Instruction, Module
from hloopt.ir.walk import top_level_computations
from hloopt.types import ArrayShape, Literal, Shape, TupleShape

__all__ = ["ClobberedError", "run"]

Array = np.ndarray[Any, Any]
VIEWS = ("parameter", "tuple", "get-tuple-element", "bitcast", "opt-barrier", "constant")


class ClobberedError(Exception):
    """A buffer does not hold what somebody reads."""


def run(module: Module, arrays: Sequence[Array]) -> list[Array]:
    """The results of a module on flat inputs; raises ``ClobberedError``."""
    return _Machine(module).run(arrays)


class _Machine:
    def __init__(self, module: Module) -> None:
        self.module = module
        self.aliasing: Aliasing = analyze_aliasing(module)
        self.context = Interpreter(module, EVALUATORS)
        self.storage: dict[int, tuple[Array, ArrayShape]] = {}
        self.readonly: dict[int, Array] = {}

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        entry = self.module.entry
        donated = {
            (alias.parameter, alias.parameter_index)
            for alias in self.module.attributes.get("input_output_alias", ())
        }
        given = iter(arrays)
        for number, parameter in enumerate(entry.parameters):
            for index, shape in leaves(parameter.shape):
                array = np.array(next(given))
                self.load(parameter, index, shape, array, owned=(number, index) in donated)
        for computation in top_level_computations(self.module):
            for instruction in computation:
                if instruction.opcode == "constant":
                    assert instruction.literal is not None
                    for index, shape in leaves(instruction.shape):
                        self.load(instruction, index, shape, array_at(instruction.literal, index))
        self.execute(entry)
        self.check_results(entry.root)
        return [self.read(entry.root, index, shape) for index, shape in leaves(entry.root.shape)]

    def load(
        self,
        instruction: Instruction,
        index: tuple[int, ...],
        shape: ArrayShape,
        array: Array,
        *,
        owned: bool = False,
    ) -> None:
        number = self.buffer(instruction, index)
        if number in self.storage:
            raise ClobberedError(
                f"{instruction.name} shares its buffer with another constant or parameter"
            )
        self.storage[number] = array, shape
        if not owned:
            self.readonly[number] = np.array(array)

    def buffer(self, instruction: Instruction, index: tuple[int, ...]) -> int:
        return self.aliasing.alias_set(self.aliasing.value(instruction, index)).number

    def read(self, instruction: Instruction, index: tuple[int, ...], shape: ArrayShape) -> Array:
        found = self.storage.get(self.buffer(instruction, index))
        if found is None:
            raise ClobberedError(f"nobody has written {instruction.name}{list(index)}")
        array, held = found
        if held.byte_size != shape.byte_size:
            raise ClobberedError(f"{instruction.name}{list(index)} of {shape} lies under a {held}")
        return bitcast(array, held, shape) if held != shape else array

    def value(self, instruction: Instruction, shape: Shape, index: tuple[int, ...] = ()) -> Value:
        if isinstance(shape, TupleShape):
            return tuple(
                self.value(instruction, element, (*index, number))
                for number, element in enumerate(shape.elements)
            )
        assert isinstance(shape, ArrayShape)
        return np.array(self.read(instruction, index, shape))

    def execute(self, computation: Computation) -> None:
        for instruction in computation:
            attributes = instruction.attributes
            if instruction.opcode == "while":
                condition: Computation = attributes["condition"]
                self.execute(condition)
                while self.read(condition.root, (), condition.root.array):
                    self.execute(attributes["body"])
                    self.execute(condition)
            elif instruction.opcode == "conditional":
                self.execute(self.branch(instruction))
            elif instruction.opcode == "call":
                self.execute(attributes["to_apply"])
            elif instruction.opcode not in VIEWS:
                self.compute(instruction)

    def branch(self, conditional: Instruction) -> Computation:
        selector = conditional.operands[0]
        chosen = self.read(selector, (), selector.array)
        attributes = conditional.attributes
        if selector.array.dtype.is_pred:
            branch: Computation = attributes["true_computation" if chosen else "false_computation"]
            return branch
        branches = attributes["branch_computations"]
        number = int(chosen)
        last: Computation = branches[number if 0 <= number < len(branches) else -1]
        return last

    def compute(self, instruction: Instruction) -> None:
        operands = tuple(self.value(operand, operand.shape) for operand in instruction.operands)
        run = self.context._table[instruction.opcode]
        with np.errstate(all="ignore"):
            result = run(instruction, operands, self.context)
        written = {self.buffer(instruction, index) for index, _ in leaves(instruction.shape)}
        self.check_overlap(instruction, written)
        for index, shape in leaves(instruction.shape):
            array: Any = result
            for number in index:
                array = array[number]
            number = self.buffer(instruction, index)
            if number in self.readonly:
                raise ClobberedError(f"{instruction.name} overwrites a constant or a parameter")
            self.storage[number] = np.array(array), shape

    def check_overlap(self, instruction: Instruction, written: set[int]) -> None:
        """Only updates in place and elementwise ops may write what they read."""
        for position, operand in enumerate(instruction.operands):
            updated = instruction.opcode in ("dynamic-update-slice", "scatter") and position == 0
            updated = updated or "output_to_operand_aliasing" in instruction.attributes
            pointwise = instruction.op.is_elementwise or instruction.opcode in ("fusion", "copy")
            if updated or pointwise:
                continue
            for index, _ in leaves(operand.shape):
                if self.buffer(operand, index) in written:
                    raise ClobberedError(
                        f"{instruction.name} writes {operand.name} while it reads it"
                    )

    def check_results(self, root: Instruction) -> None:
        numbers = [self.buffer(root, index) for index, _ in leaves(root.shape)]
        if len(set(numbers)) < len(numbers):
            raise ClobberedError("two results lie in one buffer")
        if self.readonly.keys() & set(numbers):
            raise ClobberedError("a result lies in a constant or in a parameter")


def leaves(
    shape: Shape, index: tuple[int, ...] = ()
) -> Iterator[tuple[tuple[int, ...], ArrayShape]]:
    if isinstance(shape, TupleShape):
        for number, element in enumerate(shape.elements):
            yield from leaves(element, (*index, number))
    elif isinstance(shape, ArrayShape):
        yield index, shape


def array_at(literal: Literal, index: tuple[int, ...]) -> Array:
    for number in index:
        literal = literal.elements[number]
    assert literal.array is not None
    return literal.array
