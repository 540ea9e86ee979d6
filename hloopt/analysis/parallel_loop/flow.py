"""What a loop computes as one graph: calls, branches and loops inside it are seen through."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final

from hloopt.analysis.elementwise import first_not_elemental
from hloopt.analysis.parallel_loop.edges import LoopNames, LoopValue, leaf_count
from hloopt.analysis.parallel_loop.find import parallel_loop
from hloopt.analysis.parallel_loop.model import Axes, LoopNode, local_dims
from hloopt.dataclass import dataclass
from hloopt.interpret.control import branches
from hloopt.ir import Instruction
from hloopt.types import ConvDims, DotDims, ScatterDims

__all__ = ["ALONE", "Flow", "Read"]

ALONE: Final = 16
"""Elements of the state of a loop inside that a thread keeps in registers at most."""


@dataclass(frozen=True, slots=True)
class Read:
    """That an element of one value needs ``count`` elements of another, on average.

    ``same``: one of them, at the very index it is computed for.
    """

    value: LoopValue
    count: float
    same: bool


class Flow(LoopNames):
    """The values of a loop; ``owned`` are the axes of those that depend on the index of a work item."""

    def __init__(self, loop: Instruction, owned: Mapping[LoopNode, Axes]) -> None:
        super().__init__()
        self.loop = loop
        self._owned = owned
        self._alone: dict[Instruction, bool] = {}
        self._reads: dict[LoopValue, tuple[Read, ...]] = {}

    def axes(self, value: LoopValue) -> Axes:
        """Of its dimensions; all None for what lies outside or is alike for every work item."""
        nowhere: Axes = (None,) * value.shape.rank
        if not value.path:
            return nowhere
        return self._owned.get((value.instruction, value.leaf), nowhere)

    def local(self, value: LoopValue) -> tuple[int, ...]:
        """The sizes of the dimensions that a work item has all of."""
        return local_dims(value.shape, self.axes(value))

    def elements(self, value: LoopValue) -> int:
        """How many elements a work item has."""
        return prod(self.local(value))

    def guards(self, value: LoopValue) -> list[tuple[LoopValue, Instruction, int]]:
        """What chooses the branches that a value is in, of the innermost loop around it: the choice, too."""
        found = []
        for depth in range(len(value.path) - 1, -1, -1):
            chooser, number = value.path[depth]
            if chooser.opcode == "while":
                break
            if chooser.opcode == "conditional":
                path = value.path[:depth]
                found.append((self.resolve(path, chooser.operands[0]), chooser, number))
        return found[::-1]

    def is_alone(self, loop: Instruction) -> bool:
        """Whether each element of a loop inside runs by itself: a thread can, in registers."""
        found = self._alone.get(loop)
        if found is None:
            inner = parallel_loop(loop, collect=False)
            found = inner.obstacle is None and inner.iterations.kind != "gathered"
            found = found and first_not_elemental((loop,), loops=True) is None
            found = (
                found
                and not inner.mixing
                and all(
                    carried.local_elements <= ALONE
                    for carried in inner.carried
                    if carried.role != "invariant"
                )
            )
            self._alone[loop] = found
        return found

    # ---- reads ---------------------------------------------------------------------------------------

    def is_state(self, value: LoopValue) -> bool:
        """Whether it is an element of the state of a loop around it."""
        return value.instruction.opcode == "parameter" and bool(value.path)

    def reads(self, value: LoopValue) -> tuple[Read, ...]:
        """What an element is computed from; nothing for states, loops inside and what lies outside."""
        found = self._reads.get(value)
        if found is None:
            found = self._reads[value] = tuple(self._all_reads(value))
        return found

    def _all_reads(self, value: LoopValue) -> list[Read]:
        path, instruction = value.path, value.instruction
        if not path or instruction.opcode == "parameter":
            return []
        if instruction.opcode == "while":
            if not self.is_alone(instruction):
                return []
            init = instruction.operands[0]
            leaves = range(leaf_count(instruction))
            return [Read(self.resolve(path, init, leaf), 1, False) for leaf in leaves]
        if instruction.opcode == "conditional":
            found = [Read(self.resolve(path, instruction.operands[0]), 1, False)]
            # All results of a size are computed under one ``if``.
            like = [
                leaf
                for leaf in range(leaf_count(instruction))
                if LoopValue(path, instruction, leaf).shape.dims == value.shape.dims
            ]
            for number, branch in enumerate(branches(instruction)):
                inner = (*path, (instruction, number))
                for leaf in like:
                    result = self.resolve(inner, branch.root, leaf)
                    found.append(Read(result, 1, self.local(result) == self.local(value)))
            return found
        found = []
        dims = value.shape.dims
        for number, operand in enumerate(instruction.operands):
            source = self.resolve(path, operand)
            count, same = _count(instruction, number)
            same = same and operand.array.dims == dims and self.local(source) == self.local(value)
            found.append(Read(source, count, same))
        return found


def _count(instruction: Instruction, number: int) -> tuple[float, bool]:
    """Elements of operand ``number`` that a result element needs; whether it is the one at its index."""
    opcode, operand = instruction.opcode, instruction.operands[number].array
    if opcode == "reduce":
        if number >= len(instruction.operands) // 2:
            return 1, False
        return prod(operand.dims[at] for at in instruction.attributes["dimensions"]), False
    if opcode == "dot":
        contracting = DotDims.of(instruction.attributes).lhs_contracting
        return prod(instruction.operands[0].array.dims[at] for at in contracting), False
    if opcode == "convolution":
        labels: ConvDims = instruction.attributes["dim_labels"]
        channels = instruction.operands[1].array.dims[labels.kernel_input_feature]
        return channels * instruction.window.size, False
    if opcode == "reduce-window":
        if number >= len(instruction.operands) // 2:
            return 1, False
        return instruction.window.size, False
    if opcode == "select-and-scatter":
        windows = instruction.window.dims
        met = prod(-(-window.size // window.stride) for window in windows)
        return (
            (met * prod(window.size for window in windows), False) if number == 0 else (met, False)
        )
    if opcode == "scatter":
        return _scatter_count(instruction, number)
    if opcode == "sort":
        return operand.dims[instruction.attributes["dimensions"][0]], False
    if opcode == "concatenate":
        return operand.elements / max(1, instruction.array.elements), False
    if opcode == "dynamic-update-slice":
        return 1, number == 0
    if opcode == "broadcast":
        return 1, instruction.attributes.get("dimensions", ()) == tuple(range(operand.rank))
    if opcode in ("reshape", "map"):
        return 1, True
    return 1, instruction.op.is_elementwise


def _scatter_count(instruction: Instruction, number: int) -> tuple[float, bool]:
    count = (len(instruction.operands) - 1) // 2
    if number < count:
        return 1, True
    dims = ScatterDims.of(instruction.attributes)
    updates = instruction.operands[-1].array.dims
    windows = prod(updates[at] for at in dims.batch_dims(len(updates)))
    return windows * (len(dims.scatter_dims_to_operand_dims) if number == count else 1), False
