"""What is needed of a loop that is cut along one of its parallel axes.

A **variable** is a value at a place: the number of the dimension that lies along the axis, or ``WHOLE``.  A
value that any work item may compute can be needed at several places: a ``broadcast`` along the axis for one
user, whole for another.  From what is wanted of the loop follows what is needed of everything else, operand by
operand.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import field
from typing import Final, TypeAlias

from hloopt.analysis.parallel_loop.edges import (
    BODY,
    CONDITION,
    CallPath,
    LoopNames,
    LoopValue,
    entered,
    nodes_of,
)
from hloopt.analysis.parallel_loop.model import ParallelLoop
from hloopt.analysis.parallel_loop.ties import relations
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction

__all__ = ["WHOLE", "Needs", "Variable"]

WHOLE: Final = -1
"""The place of a value that lies along other axes, or along none."""

Variable: TypeAlias = "tuple[LoopValue, int]"
"""A value and its place."""


@dataclass
class Needs:
    """What is needed of a loop cut along ``axis``.

    given     instructions whose operands are not followed
    joined    those that may take values along the axis and make values that are not
    places    of each instruction, by what leads to it: leaves and their places
    operands  the places of an instruction's operands, by its own
    outside   by what leads to a computation, what is read there and made outside of it
    problem   why the loop cannot be cut along the axis; empty where it can
    """

    parallel: ParallelLoop
    axis: int
    given: Collection[Instruction] = ()
    joined: Collection[Instruction] = ()
    places: dict[tuple[CallPath, Instruction], dict[tuple[int, int], None]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    operands: dict[tuple[CallPath, Instruction, int], tuple[int, ...]] = field(default_factory=dict)
    outside: dict[CallPath, dict[Variable, None]] = field(default_factory=lambda: defaultdict(dict))
    problem: str = ""
    _names: LoopNames = field(default_factory=LoopNames)

    @property
    def path(self) -> CallPath:
        """What leads to the loop's body."""
        return ((self.parallel.loop, BODY),)

    def value(self, path: CallPath, instruction: Instruction, leaf: int = 0) -> LoopValue:
        """The value behind a name; of what lies outside of the loop the element of the state."""
        found = self._names.resolve(path, instruction, leaf)
        return found if found.path else self.element(self.path, found.leaf)

    def element(self, path: CallPath, leaf: int) -> LoopValue:
        """An element of the state of the loop whose body ``path`` leads to."""
        return LoopValue(path, path[-1][0].body.parameters[0], leaf)

    def whole(self, instructions: Sequence[Instruction]) -> list[Variable]:
        """All results of instructions of the body."""
        return [
            (LoopValue(self.path, *node), WHOLE) for one in instructions for node in nodes_of(one)
        ]

    def search(
        self, results: Iterable[tuple[int, int]], wanted: Sequence[Instruction] = ()
    ) -> None:
        """Find all that it takes: elements of the state at their places, and what is ``wanted`` whole."""
        pending = [(self.element(self.path, leaf), place) for leaf, place in results]
        pending += [*self.whole(wanted), *self._condition(self.path)]
        while pending and not self.problem:
            value, place = pending.pop()
            path, instruction, leaf = value.path, value.instruction, value.leaf
            known = self.places[path, instruction]
            if (leaf, place) in known:
                continue
            known[leaf, place] = None
            own = self._own(instruction, leaf)
            if own is not None and own != place:
                self._stop(instruction, "is needed at indices other than those of a work item")
            if instruction not in self.given:
                pending += self._behind(value, place)

    def _stop(self, instruction: Instruction, words: str) -> None:
        self.problem = f"{instruction.opcode} {instruction.name} {words}"

    def _own(self, instruction: Instruction, leaf: int = 0) -> int | None:
        """The place of a value that work items own; None for one that any of them may compute."""
        axes = self.parallel.owned.get((instruction, leaf))
        if axes is None:
            return None
        return axes.index(self.axis) if self.axis in axes else WHOLE

    def _behind(self, value: LoopValue, place: int) -> Iterator[Variable]:
        """What a value is computed from."""
        path, instruction, leaf = value.path, value.instruction, value.leaf
        if instruction.opcode == "parameter":
            loop = path[-1][0]
            yield self._read(path, loop.body.root, leaf, place)
            yield from self._condition(path)
            if path[1:]:
                yield self._read(path[:-1], loop.operands[0], leaf, place)
        elif instruction.opcode == "while":
            yield self.element((*path, (instruction, BODY)), leaf), place
        elif instruction.opcode == "conditional":
            yield self._read(path, instruction.operands[0], 0, WHOLE)
            for number, branch in enumerate(entered(instruction)):
                yield self._read((*path, (instruction, number)), branch.root, leaf, place)
        else:
            places = self._operands(instruction, place)
            self.operands[path, instruction, place] = places
            for operand, at in zip(instruction.operands, places, strict=True):
                yield self._read(path, operand, 0, at)

    def _condition(self, path: CallPath) -> Iterator[Variable]:
        """What keeps the loop running whose body ``path`` leads to."""
        *around, (loop, _) = path
        yield self._read((*around, (loop, CONDITION)), loop.condition.root, 0, WHOLE)

    def _read(self, path: CallPath, instruction: Instruction, leaf: int, place: int) -> Variable:
        """What is read under a name, which may be made outside of the computation that reads it."""
        value = self.value(path, instruction, leaf)
        home = () if _is_source(value.instruction, place) else value.path
        common = 0
        while common < min(len(home), len(path)) and home[common] == path[common]:
            common += 1
        for depth in range(common, len(path)):
            self.outside[path[: depth + 1]][value, place] = None
        return value, place

    def _operands(self, instruction: Instruction, place: int) -> tuple[int, ...]:
        """The places of an instruction's operands."""
        ties = {
            relation.operand: relation.dim
            for relation in relations(instruction)
            if place != WHOLE and relation.result == place
        }
        if place != WHOLE and not ties and not _makes(instruction, place):
            self._stop(instruction, "makes all of a dimension at once")
        places = []
        for number, operand in enumerate(instruction.operands):
            own = self._own(operand) if instruction in self.joined else None
            places.append(ties.get(number, WHOLE if own is None else own))
        return tuple(places)


def _makes(instruction: Instruction, place: int) -> bool:
    """Whether a dimension of the result is none of an operand's."""
    if instruction.opcode == "broadcast":
        return place not in instruction.attributes.get("dimensions", ())
    return instruction.opcode in ("constant", "iota")


def _is_source(instruction: Instruction, place: int) -> bool:
    """Whether a value without operands is cut along a dimension along which its elements differ."""
    if place == WHOLE:
        return False
    if instruction.opcode == "iota":
        along = instruction.iota_dimension
        return along == place
    return instruction.literal is not None and instruction.literal.splat is None
