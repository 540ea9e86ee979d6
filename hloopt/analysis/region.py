"""What one kernel computes: the body of a fusion, or a single instruction.

What lays out or writes a kernel sees both alike: results, and the values that come from memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cached_property
from typing import Any

from hloopt.analysis.hero import find_hero, roots
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.types import ArrayShape, BufferShape, TupleShape, leaves

__all__ = ["Region", "Result", "region_of"]


@dataclass(frozen=True, slots=True)
class Result:
    """A leaf of the result: output number ``leaf`` of ``instruction`` (0 for an array)."""

    instruction: Instruction
    leaf: int
    shape: ArrayShape


@dataclass(frozen=True, eq=False)
class Region:
    """The instructions of a kernel.

    instruction  the top-level instruction
    results      the leaves of its result in flat order, each with the instruction inside that computes it
    inputs       instructions whose values lie in memory (a fusion's parameters, a lone instruction's
                 operands), each with the number of its first leaf in the flat list of operand leaves;
                 operands that occur twice count twice, and a lone instruction reads the first occurrence
    operands     the shapes of that flat list
    known        a superset of the opcodes computed, if the caller maintains one; else None
    """

    instruction: Instruction
    results: tuple[Result, ...]
    inputs: Mapping[Instruction, int]
    operands: tuple[ArrayShape, ...]
    known: AbstractSet[str] | None = None

    @property
    def is_fusion(self) -> bool:
        """Whether the instructions are a fusion's body."""
        return self.instruction.opcode == "fusion"

    def hero(self, result: Result) -> Instruction:
        """What a result is laid out for; of a lone instruction itself, since its operands are in memory."""
        return find_hero(result.instruction) if self.is_fusion else result.instruction

    @cached_property
    def _operand_leaves(self) -> tuple[tuple[Instruction, int], ...]:
        return tuple(
            (operand, leaf)
            for operand in self.instruction.operands
            for leaf, _ in enumerate(_arrays(operand))
        )

    @cached_property
    def _first_numbers(self) -> tuple[int, ...]:
        first: dict[tuple[Instruction, int], int] = {}
        return tuple(
            first.setdefault(operand, number) for number, operand in enumerate(self._operand_leaves)
        )

    def canonical(self, number: int) -> int:
        """The first operand leaf that is the same value as leaf ``number``."""
        return self._first_numbers[number]

    def inlined(self, number: int) -> Any:
        """The element of an operand leaf that is a constant of one element: code holds it, no memory does."""
        value = self._operand_leaves[number][0].constant_array
        return None if value is None or value.size != 1 else value.reshape(-1)[0]

    def operand_name(self, number: int) -> str:
        """The name of the instruction that an operand leaf comes from, with the leaf's number in a tuple."""
        operand, leaf = self._operand_leaves[number]
        return operand.name if isinstance(operand.shape, ArrayShape) else f"{operand.name}.{leaf}"

    @staticmethod
    def arrays_of(instruction: Instruction) -> tuple[ArrayShape, ...]:
        """The leaves of an instruction's shape."""
        return tuple(_arrays(instruction))

    @cached_property
    def read(self) -> tuple[int, ...]:
        """The operand leaves a kernel needs pointers to: each value once, in order, no inlined ones."""
        return tuple(
            number
            for number in range(len(self.operands))
            if self.canonical(number) == number
            and self.inlined(number) is None
            and self.operands[number].dtype.is_array
        )

    @cached_property
    def body(self) -> tuple[Instruction, ...]:
        """What is computed in the kernel, operands first; neither inputs nor the tuple of results."""
        if not self.is_fusion:
            return (self.instruction,)
        computation = self.instruction.calls
        return tuple(
            inner
            for inner in computation
            if inner.opcode != "parameter" and not (inner.opcode == "tuple" and inner.is_root)
        )

    @cached_property
    def opcodes(self) -> AbstractSet[str]:
        """Among which are those of all that is computed."""
        return self.known if self.known is not None else {inner.opcode for inner in self.body}


def region_of(instruction: Instruction, opcodes: AbstractSet[str] | None = None) -> Region:
    """The region of a top-level instruction; ``opcodes`` are its ``known``."""
    numbers: list[int] = []
    shapes: list[ArrayShape] = []
    for operand in instruction.operands:
        numbers.append(len(shapes))
        if type(operand.shape) is ArrayShape:
            shapes.append(operand.shape)
        else:
            shapes.extend(_arrays(operand))
    if instruction.opcode == "fusion":
        computation = instruction.calls
        inputs = dict(zip(computation.parameters, numbers, strict=True))
        results = tuple(result for root in roots(computation) for result in _results(root))
    else:
        inputs = {}
        for operand, number in zip(instruction.operands, numbers, strict=True):
            inputs.setdefault(operand, number)
        results = tuple(_results(instruction))
    return Region(instruction, results, inputs, tuple(shapes), opcodes)


def _results(instruction: Instruction) -> Iterator[Result]:
    for leaf, shape in enumerate(_arrays(instruction)):
        yield Result(instruction, leaf, shape)


def _arrays(instruction: Instruction) -> Iterator[ArrayShape]:
    if isinstance(instruction.shape, ArrayShape | TupleShape | BufferShape):
        for leaf in leaves(instruction.shape):
            yield leaf.element if isinstance(leaf, BufferShape) else leaf
