"""A kernel that may be joined with others: its results, its size, who reads it."""

from __future__ import annotations

from collections.abc import Iterator

from hloopt.analysis.hero import results_of
from hloopt.analysis.layout import major_to_minor
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction
from hloopt.types import ArrayShape

__all__ = [
    "HorizontalMember",
    "arrays_in",
    "behind",
    "is_laid_out_like",
    "member_of",
    "reads_only",
]


@dataclass(frozen=True, slots=True)
class HorizontalMember:
    """An elementwise op or a fusion, and what groups are made by.

    outputs       the shapes of its results
    instructions  in its body, parameters and tuple included; 1 for an op
    """

    instruction: Instruction
    outputs: tuple[ArrayShape, ...]
    instructions: int

    @property
    def is_fusion(self) -> bool:
        """Whether it is a fusion already."""
        return self.instruction.opcode == "fusion"

    @property
    def links(self) -> int:
        """The pointers its kernel needs: operands and results."""
        return len(self.instruction.operands) + len(self.outputs)

    @property
    def order(self) -> tuple[str, int, int, int]:
        """The sort key that groups similar kernels: element type, results, instructions, elements."""
        first = self.outputs[0]
        return first.dtype.name, len(self.outputs), self.instructions, first.elements


def member_of(instruction: Instruction) -> HorizontalMember | None:
    """The member that an instruction would be; None where a result is not an array of known size."""
    outputs: list[ArrayShape] = []
    for result in results_of(instruction):
        shape = result.shape
        if not isinstance(shape, ArrayShape) or any(shape.dynamic) or not shape.elements:
            return None
        outputs.append(shape)
    if not outputs:
        return None
    body: Computation | None = instruction.calls if instruction.opcode == "fusion" else None
    return HorizontalMember(instruction, tuple(outputs), 1 if body is None else len(body))


def behind(operand: Instruction, *, through_bitcasts: bool) -> Instruction:
    """What computes an operand: through elements of tuples, and bitcasts if wanted."""
    while operand.opcode == "get-tuple-element" or (
        through_bitcasts and operand.opcode == "bitcast"
    ):
        operand = operand.operands[0]
    return operand


def reads_only(instruction: Instruction, consumer: Instruction, *, through_bitcasts: bool) -> bool:
    """Whether ``consumer`` alone reads an instruction, but for the result of the computation.

    That result does not count as a reader where nothing reads it in turn.
    """
    home = instruction.home
    if instruction is home.root:
        return False
    is_last = not (home.root.users or home.root.control_successors)
    spared = (consumer, home.root) if is_last else (consumer,)
    pending = [instruction]
    while pending:
        for user in pending.pop().users:
            if user in spared:
                continue
            if user.opcode != "get-tuple-element" and not (
                through_bitcasts and user.opcode == "bitcast"
            ):
                return False
            if user.has_control_edges:
                return False
            pending.append(user)
    return True


def is_laid_out_like(left: ArrayShape, right: ArrayShape) -> bool:
    """Whether two arrays have the same dimensions in the same order of memory."""
    return left.dims == right.dims and major_to_minor(left) == major_to_minor(right)


def arrays_in(instruction: Instruction) -> Iterator[ArrayShape]:
    """The shapes of all arrays in a fusion's body, or of an op's result."""
    entries = instruction.calls if instruction.opcode == "fusion" else (instruction,)
    for entry in entries:
        if isinstance(entry.shape, ArrayShape):
            yield entry.shape
