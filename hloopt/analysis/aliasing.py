"""The values of a module, the positions of each, and which values must share one buffer.

A *position* is a leaf of an instruction's shape: (instruction, tuple index).  A *value* is what a position
holds; several positions hold the same one: tuples and their elements, bitcasts, barriers, both ends of an
asynchronous pair, operands of a call and the parameters they become, what a loop passes through unchanged.

Values *must alias* where one buffer has to serve them all, because no data is moved between them:

* what a loop carries: the initial value, the body's and the condition's parameter, the body's result, the
  loop's result;
* the result of a conditional and that of each branch;
* an operand and the result that updates it in place (``analysis/in_place.py``);
* a parameter of ENTRY and the result it is donated to (``input_output_alias``).

Whether they may do so, because their lives do not overlap, is not decided here: ``copy-insertion`` ensures it.
Computations that are called from several places are one: their parameters alias all the operands.
The analysis takes time in proportion to the leaves of all shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import TypeAlias

from hloopt.analysis.in_place import InPlace, in_place_pairs
from hloopt.analysis.trees import (
    STARTED,
    Tree,
    fits,
    kept_operands,
    leaves,
    mapped,
    part,
    passed_on,
)
from hloopt.dataclass import dataclass
from hloopt.graphs import UnionFind
from hloopt.ir import Computation, Instruction, Module
from hloopt.ir.walk import called_computations, callees_first, top_level_computations
from hloopt.ops.traits import ALIASES, CONTROL_FLOW, DONES, TUPLES
from hloopt.types import Shape, TupleShape

__all__ = ["AliasSet", "Aliasing", "BufferValue", "Position", "analyze_aliasing"]

_Tree: TypeAlias = "Tree[int]"
_Index: TypeAlias = tuple[int, ...]

_THROUGH = ALIASES - TUPLES | DONES - {"send-done"} | {"async-update"}


@dataclass(frozen=True, slots=True)
class Position:
    """A leaf of an instruction's shape."""

    instruction: Instruction
    index: _Index = ()


@dataclass(frozen=True, slots=True)
class BufferValue:
    """A value: ``defined`` is where it is made, ``positions`` every position that holds it, in order.

    ``kind`` is that of the definition: ``parameter``, ``constant`` or ``temporary``.
    """

    number: int
    defined: Position
    positions: tuple[Position, ...]
    byte_size: int
    kind: str


@dataclass(frozen=True, slots=True)
class AliasSet:
    """Values that must lie in one buffer, and the bytes of the largest."""

    number: int
    values: tuple[BufferValue, ...]
    byte_size: int


@dataclass(frozen=True)
class Aliasing:
    """Values and must-alias sets of ENTRY and all it runs through control flow.

    ``values`` and ``sets`` are numbered in the order of definition, callees first.
    """

    values: tuple[BufferValue, ...]
    sets: tuple[AliasSet, ...]
    _trees: Mapping[Instruction, _Tree] = field(repr=False)
    _set_of: tuple[int, ...] = field(repr=False)

    def numbers(self, instruction: Instruction) -> tuple[int, ...]:
        """The numbers of the values of an instruction's leaves, depth first.

        Raises ``KeyError`` for an instruction that ENTRY does not run.
        """
        return tuple(leaves(self._trees[instruction]))

    def value(self, instruction: Instruction, index: _Index = ()) -> BufferValue:
        """The value at a position; raises ``KeyError`` where there is no such leaf."""
        tree = part(self._trees[instruction], index)
        if not isinstance(tree, int):
            raise KeyError(f"{instruction.name} has no leaf {index}")
        return self.values[tree]

    def alias_set(self, value: BufferValue) -> AliasSet:
        """The must-alias set of a value."""
        return self.sets[self._set_of[value.number]]


def analyze_aliasing(
    module: Module, updates: Callable[[Instruction], Iterable[InPlace]] = in_place_pairs
) -> Aliasing:
    """Values and must-alias sets of a module; ``updates`` returns what an instruction updates in place."""
    return _Analysis(module, updates).result()


class _Analysis:
    def __init__(self, module: Module, updates: Callable[[Instruction], Iterable[InPlace]]) -> None:
        self.module = module
        self.updates = updates
        self.same, self.shared = UnionFind[int](), UnionFind[int]()
        self.trees: dict[Instruction, _Tree] = {}
        self.defined: list[tuple[Instruction, _Index, int]] = []
        run = set(top_level_computations(module))
        self.computations = [entry for entry in callees_first(module) if entry in run]
        for computation in self.computations:
            for instruction in computation:
                self.trees[instruction] = self.tree(instruction)
        for entry in module.attributes.get("input_output_alias", ()):
            self.share(
                self.trees[module.entry.parameters[entry.parameter]], entry.parameter_index,
                self.trees[module.entry.root], entry.output_index,
            )  # fmt: skip

    # ---- values -------------------------------------------------------------------------------------

    def tree(self, instruction: Instruction) -> _Tree:
        if instruction.opcode == "async-update" and len(instruction.operands) > 1:
            passed = self.more_operands(instruction)
        else:
            passed = passed_on(instruction, self.trees, _THROUGH)
        if passed is not None:
            return passed
        made = self.define(instruction, instruction.shape, ())
        opcode = instruction.opcode
        if opcode == "while":
            self.loop(instruction, made)
        elif opcode == "conditional":
            self.branches(instruction, made)
        elif opcode in ("call", "async-start"):
            return self.call(instruction, made)
        elif opcode in STARTED or opcode == "send":
            return self.transfer(instruction, made)
        else:
            self.update(instruction, made)
        return made

    def define(self, instruction: Instruction, shape: Shape, index: _Index) -> _Tree:
        if isinstance(shape, TupleShape):
            return tuple(
                self.define(instruction, element, (*index, number))
                for number, element in enumerate(shape.elements)
            )
        self.defined.append((instruction, index, shape.byte_size))
        return len(self.defined) - 1

    def call(self, instruction: Instruction, made: _Tree) -> _Tree:
        for called in called_computations(instruction):
            # An async-start may get some of its operands later, by async-update.
            for parameter, operand in zip(called.parameters, instruction.operands, strict=False):
                self.join(self.same, self.trees[parameter], self.trees[operand])
            result = made if instruction.opcode == "call" else part(made, (1,))
            if result is not None:
                self.join(self.same, result, self.trees[called.root])
        return made if instruction.opcode == "call" else self.transfer(instruction, made)

    def more_operands(self, update: Instruction) -> _Tree | None:
        """An async-update that brings operands: they join those of its start."""
        before = self.trees[update.operands[0]]
        if not isinstance(before, tuple) or not before or not isinstance(before[0], tuple):
            return None
        start = update.operands[0]
        while start.opcode == "async-update":
            start = start.operands[0]
        given = tuple(self.trees[operand] for operand in update.operands[1:])
        for called in called_computations(start):
            places = called.parameters[len(before[0]) :]
            for parameter, tree in zip(places, given, strict=False):
                self.join(self.same, self.trees[parameter], tree)
        tree = ((*before[0], *given), *before[1:])
        return tree if fits(tree, update.shape) else None

    def transfer(self, instruction: Instruction, made: _Tree) -> _Tree:
        """A start op whose tuple has its operand beside what it makes."""
        place = STARTED.get(instruction.opcode, 0)
        given = kept_operands(instruction, self.trees)
        if not isinstance(made, tuple) or not fits(given, instruction.elements[place]):
            return made
        return (*made[:place], given, *made[place + 1 :])

    def loop(self, instruction: Instruction, made: _Tree) -> None:
        body, condition = instruction.body, instruction.condition
        states = (instruction.operands[0], body.parameters[0], body.root, condition.parameters[0])
        rows = zip(*(leaves(self.trees[state]) for state in states), leaves(made), strict=True)
        for initial, parameter, following, tested, result in rows:
            self.same.join(parameter, tested)
            if self.same.find(parameter) == self.same.find(following):
                self.same.join(initial, parameter, result)
            else:
                self.shared.join(initial, parameter, following, result)

    def branches(self, instruction: Instruction, made: _Tree) -> None:
        branches = list(called_computations(instruction))
        for branch, operand in zip(branches, instruction.operands[1:], strict=True):
            self.join(self.same, self.trees[branch.parameters[0]], self.trees[operand])
        results = [list(leaves(self.trees[branch.root])) for branch in branches]
        for number, result in enumerate(leaves(made)):
            given = [found[number] for found in results]
            same = set(map(self.same.find, given))
            is_outer = len(same) == 1 and self.is_outer(same, branches)
            (self.same if is_outer else self.shared).join(result, *given)

    def is_outer(self, given: set[int], branches: list[Computation]) -> bool:
        """Whether all branches return the same operand (a single branch may make the value itself)."""
        (number,) = given
        passed = {
            self.same.find(leaf)
            for branch in branches
            for leaf in leaves(self.trees[branch.parameters[0]])
        }
        return number in passed

    def update(self, instruction: Instruction, made: _Tree) -> None:
        for pair in self.updates(instruction):
            given = self.trees[instruction.operands[pair.operand]]
            self.share(given, pair.operand_index, made, pair.output_index)

    def share(self, given: _Tree, index: _Index, made: _Tree, at: _Index) -> None:
        """Two leaves, if they are leaves, must lie in one buffer."""
        source, target = part(given, index), part(made, at)
        if isinstance(source, int) and isinstance(target, int):
            self.shared.join(source, target)

    def join(self, classes: UnionFind[int], left: _Tree, right: _Tree) -> None:
        for one, other in zip(leaves(left), leaves(right), strict=True):
            classes.join(one, other)

    # ---- the result ---------------------------------------------------------------------------------

    def result(self) -> Aliasing:
        count = len(self.defined)
        for number in range(count):
            self.shared.join(number, self.same.find(number))
        order: dict[int, int] = {}
        for number in range(count):
            order.setdefault(self.same.find(number), len(order))
        number_of = [order[self.same.find(number)] for number in range(count)]
        trees = {one: mapped(tree, number_of.__getitem__) for one, tree in self.trees.items()}
        values = self.values(trees, number_of)
        sets, set_of = self.sets(values, number_of)
        return Aliasing(values, sets, MappingProxyType(trees), set_of)

    def values(
        self, trees: Mapping[Instruction, _Tree], number_of: list[int]
    ) -> tuple[BufferValue, ...]:
        positions: list[list[Position]] = [[] for _ in range(max(number_of, default=-1) + 1)]
        for computation in reversed(self.computations):
            for instruction in computation:
                for index, number in _places(trees[instruction], ()):
                    positions[number].append(Position(instruction, index))
        made = self.definitions(number_of)
        return tuple(
            BufferValue(
                number, made[number][0], tuple(places), made[number][1], _kind(made[number][0])
            )
            for number, places in enumerate(positions)
        )

    def definitions(self, number_of: list[int]) -> list[tuple[Position, int]]:
        """Where each value is made, and its bytes: calls and their parameters only forward values."""
        best: dict[int, tuple[int, Position, int]] = {}
        for (instruction, index, byte_size), number in zip(self.defined, number_of, strict=True):
            rank = 2 if instruction.opcode in CONTROL_FLOW else 0
            if instruction.opcode == "parameter":
                rank = 0 if instruction.computation is self.module.entry else 1
            if number not in best or rank < best[number][0]:
                best[number] = (rank, Position(instruction, index), byte_size)
        return [best[number][1:] for number in range(len(best))]

    def sets(
        self, values: tuple[BufferValue, ...], number_of: list[int]
    ) -> tuple[tuple[AliasSet, ...], tuple[int, ...]]:
        members: dict[int, dict[int, None]] = {}
        for number, value in enumerate(number_of):
            members.setdefault(self.shared.find(number), {})[value] = None
        set_of = [0] * len(values)
        sets = []
        for number, found in enumerate(members.values()):
            for value in found:
                set_of[value] = number
            of_set = tuple(values[value] for value in found)
            sets.append(AliasSet(number, of_set, max(value.byte_size for value in of_set)))
        return tuple(sets), tuple(set_of)


def _kind(defined: Position) -> str:
    opcode = defined.instruction.opcode
    return opcode if opcode in ("parameter", "constant") else "temporary"


def _places(tree: _Tree, index: _Index) -> Iterator[tuple[_Index, int]]:
    if isinstance(tree, int):
        yield index, tree
    else:
        for number, element in enumerate(tree):
            yield from _places(element, (*index, number))
