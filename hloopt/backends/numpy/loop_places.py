"""Where the values of a loop lie along one of its parallel axes: what a block of units computes.

A **variable** is a leaf of an instruction at a place: the number of the dimension that lies along the axis,
or ``WHOLE``.  A value that any unit may compute can be needed at several places: a ``broadcast`` along the
axis for one user, whole for another.  From what is wanted of the loop follows what is needed of everything
else, operand by operand.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import field
from typing import Final, TypeAlias

from hloopt.analysis.parallel_loop import Node, ParallelLoop
from hloopt.analysis.parallel_loop.edges import graph_of, leaf_count
from hloopt.analysis.parallel_loop.ties import relations
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction

__all__ = ["WHOLE", "Needs", "Variable", "needs"]

WHOLE: Final = -1
"""The place of a value that lies along other axes, or along none."""

Variable: TypeAlias = "tuple[Instruction, int, int]"
"""Instruction, leaf, place."""


@dataclass
class Needs:
    """What is needed of a loop.

    variables  of each instruction its leaves and places, in the order in which they were found
    sources    of each node that is another one under another name, those it may be
    operands   the places of an instruction's operands, by its own
    problem    why the loop cannot be cut along the axis; empty where it can
    """

    variables: dict[Instruction, dict[tuple[int, int], None]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    sources: dict[Node, list[Node]] = field(default_factory=lambda: defaultdict(list))
    operands: dict[tuple[Instruction, int], tuple[int, ...]] = field(default_factory=dict)
    problem: str = ""

    def elements(self, *named: Instruction) -> list[tuple[int, int]]:
        """Leaves and places of instructions that stand for the same tuple, in order."""
        return sorted({pair for one in named for pair in self.variables.get(one, ())})


def needs(
    parallel: ParallelLoop,
    axis: int,
    wanted: Iterable[Variable],
    *,
    given: Collection[Instruction] = (),
    joined: Collection[Instruction] = (),
) -> Needs:
    """All that the results ``wanted`` take.

    ``given`` are not looked behind; ``joined`` may take values along the axis and make values that are not.
    """
    return _Search(parallel, axis, given, joined).run(wanted)


class _Search:
    def __init__(
        self,
        parallel: ParallelLoop,
        axis: int,
        given: Collection[Instruction],
        joined: Collection[Instruction],
    ) -> None:
        self.parallel = parallel
        self.axis = axis
        self.given = given
        self.joined = joined
        self.found = Needs()
        loop = parallel.loop
        condition: Computation = loop.attributes["condition"]
        body: Computation = loop.attributes["body"]
        same = list(graph_of(loop).same)
        for leaf in range(leaf_count(loop)):
            ends = ((body.parameters[0], leaf), (condition.parameters[0], leaf), (loop, leaf))
            same += [((body.root, leaf), end) for end in ends]
        for source, target in same:
            self.found.sources[target].append(source)

    def run(self, wanted: Iterable[Variable]) -> Needs:
        condition: Computation = self.parallel.loop.attributes["condition"]
        pending = [(condition.root, 0, WHOLE), *wanted]
        while pending and not self.found.problem:
            instruction, leaf, place = pending.pop()
            known = self.found.variables[instruction]
            if (leaf, place) in known:
                continue
            known[leaf, place] = None
            own = self._own((instruction, leaf))
            if own is not None and own != place:
                self._stop(instruction, "is needed at indices other than those of a unit")
            if instruction not in self.given:
                pending += self._behind(instruction, leaf, place)
        return self.found

    def _stop(self, instruction: Instruction, words: str) -> None:
        self.found.problem = f"{instruction.opcode} {instruction.name} {words}"

    def _own(self, node: Node) -> int | None:
        """The place of a value that units own; None for one that any unit may compute."""
        axes = self.parallel.owned.get(node)
        if axes is None:
            return None
        return axes.index(self.axis) if self.axis in axes else WHOLE

    def _behind(self, instruction: Instruction, leaf: int, place: int) -> Iterator[Variable]:
        sources = self.found.sources.get((instruction, leaf))
        if instruction.opcode == "while":
            yield (instruction.attributes["condition"].root, 0, WHOLE)
        elif instruction.opcode == "conditional":
            yield (instruction.operands[0], 0, WHOLE)
        if sources is not None:
            yield from ((source, at, place) for source, at in sources)
        elif instruction.opcode != "parameter":
            yield from self._operands(instruction, place)

    def _operands(self, instruction: Instruction, place: int) -> Iterator[Variable]:
        ties = {
            relation.operand: relation.dim
            for relation in relations(instruction)
            if place != WHOLE and relation.result == place
        }
        if place != WHOLE and not ties and not _makes(instruction, place):
            self._stop(instruction, "makes all of a dimension at once")
        places = []
        for number, operand in enumerate(instruction.operands):
            tied = ties.get(number, WHOLE)
            own = self._own((operand, 0))
            if tied == WHOLE and own is not None and instruction in self.joined:
                tied = own
            places.append(tied)
            yield from ((operand, leaf, tied) for leaf in range(leaf_count(operand)))
        self.found.operands[instruction, place] = tuple(places)


def _makes(instruction: Instruction, place: int) -> bool:
    """Whether a dimension of the result is none of an operand's."""
    if instruction.opcode == "broadcast":
        return place not in instruction.attributes.get("dimensions", ())
    return instruction.opcode in ("constant", "iota")
