"""Tuples in memory: a table of pointers each, and which tables must be the same.

``analysis/aliasing.py`` knows the leaves of shapes; this is about the nodes above them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from hloopt.dataclass import dataclass
from hloopt.graphs import UnionFind
from hloopt.ir import Instruction, Module
from hloopt.ir.walk import called_computations, callees_first, top_level_computations
from hloopt.ops.traits import ALIASES, CONTROL_FLOW, DONES, TUPLES
from hloopt.types import Shape, TupleShape

__all__ = ["POINTER_BYTES", "TableValue", "tuple_tables"]

POINTER_BYTES = 8

_Index: TypeAlias = tuple[int, ...]
_THROUGH = ALIASES - TUPLES


@dataclass(frozen=True)
class _Table:
    """A node: its number, and what is below it, None for an array."""

    number: int
    parts: tuple[_Table | None, ...]


@dataclass(frozen=True, slots=True)
class TableValue:
    """A table of pointers; ``group`` is the same for tables that must lie in one buffer."""

    group: int
    instruction: Instruction
    index: _Index
    positions: tuple[tuple[Instruction, _Index], ...]
    byte_size: int


def tuple_tables(module: Module) -> list[TableValue]:
    """The tables of ENTRY and all it runs through control flow, in the order of definition, callees first."""
    return _Tables(module).result()


class _Tables:
    def __init__(self, module: Module) -> None:
        self.module = module
        self.same, self.shared = UnionFind[int](), UnionFind[int]()
        self.tables: dict[Instruction, _Table | None] = {}
        self.defined: list[tuple[Instruction, _Index, int]] = []
        run = set(top_level_computations(module))
        self.computations = [one for one in callees_first(module) if one in run]
        for computation in self.computations:
            for instruction in computation:
                self.tables[instruction] = self.table(instruction)

    def table(self, instruction: Instruction) -> _Table | None:
        opcode, operands = instruction.opcode, instruction.operands
        if opcode == "tuple":
            self.defined.append((instruction, (), POINTER_BYTES * len(operands)))
            number = len(self.defined) - 1
            return _Table(number, tuple(self.tables[operand] for operand in operands))
        if opcode == "get-tuple-element":
            above = self.tables[operands[0]]
            return None if above is None else above.parts[instruction.tuple_index]
        if opcode in _THROUGH and operands and opcode not in DONES:
            return self.tables[operands[0]]
        made = self.define(instruction, instruction.shape, ())
        if opcode == "while":
            self.loop(instruction, made)
        elif opcode == "conditional":
            for branch, operand in zip(called_computations(instruction), operands[1:], strict=True):
                self.join(self.same, self.tables[branch.parameters[0]], self.tables[operand])
                self.join(self.shared, made, self.tables[branch.root])
        elif opcode == "call":
            for called in called_computations(instruction):
                for parameter, operand in zip(called.parameters, operands, strict=True):
                    self.join(self.same, self.tables[parameter], self.tables[operand])
                self.join(self.same, made, self.tables[called.root])
        return made

    def define(self, instruction: Instruction, shape: Shape, index: _Index) -> _Table | None:
        if not isinstance(shape, TupleShape):
            return None
        self.defined.append((instruction, index, POINTER_BYTES * len(shape.elements)))
        number = len(self.defined) - 1
        parts = enumerate(shape.elements)
        return _Table(number, tuple(self.define(instruction, one, (*index, i)) for i, one in parts))

    def loop(self, instruction: Instruction, made: _Table | None) -> None:
        body, condition = instruction.body, instruction.condition
        self.join(self.same, self.tables[body.parameters[0]], self.tables[condition.parameters[0]])
        for one in (body.parameters[0], body.root, instruction.operands[0]):
            self.join(self.shared, made, self.tables[one])

    def join(self, classes: UnionFind[int], left: _Table | None, right: _Table | None) -> None:
        if left is None or right is None:
            return
        classes.join(left.number, right.number)
        for one, other in zip(left.parts, right.parts, strict=True):
            self.join(classes, one, other)

    def result(self) -> list[TableValue]:
        positions: dict[int, list[tuple[Instruction, _Index]]] = {}
        for computation in reversed(self.computations):
            for instruction in computation:
                for index, number in _nodes(self.tables[instruction], ()):
                    at = positions.setdefault(self.same.find(number), [])
                    at.append((instruction, index))
        best: dict[int, tuple[int, int]] = {}
        for number, (instruction, _, _) in enumerate(self.defined):
            value = self.same.find(number)
            best[value] = min(best.get(value, (9, 0)), (self.rank(instruction), number))
            self.shared.join(value, number)
        found = []
        for value, (_, number) in best.items():
            instruction, index, byte_size = self.defined[number]
            group = self.shared.find(value)
            found.append(TableValue(group, instruction, index, tuple(positions[value]), byte_size))
        return found

    def rank(self, instruction: Instruction) -> int:
        """Calls and parameters of computations that are called only forward tables."""
        if instruction.opcode == "parameter":
            return 0 if instruction.computation is self.module.entry else 1
        return 2 if instruction.opcode in CONTROL_FLOW else 0


def _nodes(table: _Table | None, index: _Index) -> Iterator[tuple[_Index, int]]:
    if table is not None:
        yield index, table.number
        for number, one in enumerate(table.parts):
            yield from _nodes(one, (*index, number))
