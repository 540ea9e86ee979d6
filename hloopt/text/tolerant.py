"""A reader that goes on after a mistake: what follows from it is none of its own."""

from __future__ import annotations

from collections.abc import Iterator

from hloopt.ir import Computation, Instruction, edit
from hloopt.source import Source
from hloopt.text.attributes import Row, Tail
from hloopt.text.module import ModuleReader
from hloopt.text.names import Names
from hloopt.text.outline import outline
from hloopt.text.parts import Part
from hloopt.text.problem import Problem
from hloopt.text.records import OperandText
from hloopt.text.scope import Head, Places, Scope
from hloopt.types import Shape, TupleShape

__all__ = ["Consequence", "TolerantReader"]

_STAND_IN = "custom-call"
_NO_SHAPE = TupleShape(())


class Consequence(Problem):
    """A mistake that would not be there but for another one."""


class TolerantReader(ModuleReader):
    """Knows what stands in for broken instructions of the computation it reads, ``part``.

    ``shapeless`` are those of them that nobody knows a shape of, ``hollow`` the names of computations that
    nobody knows the root's shape of.
    """

    def __init__(self, source: Source, text: str, strict: bool, most: int) -> None:
        super().__init__(source, text, strict)
        self.outline = outline(text, self.parts, most)
        self.names = Names(text, self.outline)
        self.part = Part("", 0, 0, 0)
        self.standing: set[Instruction] = set()
        self.shapeless: set[Instruction] = set()
        self.hollow: set[str] = set()

    def instead(
        self, computation: Computation, name: str, root: bool, shape: Shape | None, at: int
    ) -> Iterator[tuple[Instruction, bool]]:
        name = name.lstrip("%")
        known = computation.by_name.get(name)
        if known is not None:
            yield known, False
            return
        instruction = self.stand_in(computation, name, shape or _NO_SHAPE, at)
        if shape is None:
            self.shapeless.add(instruction)
        yield instruction, root

    def stand_in(self, computation: Computation, name: str, shape: Shape, at: int) -> Instruction:
        instruction = Instruction(name, _STAND_IN, shape, (), {}, None, at)
        self.standing.add(instruction)
        return edit.append(computation, instruction)

    def called(self, instruction: Instruction, attribute: str, text: str, at: int) -> Computation:
        if not text.startswith("{"):
            name = text.lstrip("%")
            if name in self.hollow:
                raise Consequence(at, "the computation called is broken")
        return super().called(instruction, attribute, text, at)

    def operand(self, scope: Scope, syntax: OperandText, at: int) -> Instruction | None:
        try:
            return super().operand(scope, syntax, at)
        except Problem:
            found = scope.computation.by_name.get(syntax.name.lstrip("%"))
            if syntax.arguments is None and found in self.shapeless:
                return found
            raise

    def finish(
        self, scope: Scope, instruction: Instruction, head: Head, tail: Tail, places: Places | None
    ) -> None:
        """What is wrong with an instruction as a whole may be so because of an operand's shape."""
        try:
            super().finish(scope, instruction, head, tail, places)
        except Problem as problem:
            if problem.offset != instruction.offset or not self.follows(instruction, head):
                raise
            raise Consequence(problem.offset, problem.message) from None

    def follows(self, instruction: Instruction, head: Head) -> bool:
        suspects = self.standing if head.shape is None else self.shapeless
        return not suspects.isdisjoint(instruction.operands)

    def inferred(self, instruction: Instruction, found: Row) -> Shape:
        if not self.shapeless.isdisjoint(instruction.operands):
            raise Consequence(instruction.offset, "an operand has no shape")
        return super().inferred(instruction, found)

    def check_name(self, scope: Scope, name: str, offset: int) -> None:
        try:
            super().check_name(scope, name, offset)
        except Problem as problem:
            first = scope.computation.by_name.get(name)
            if first is not None:
                problem.notes = (f"the first is on line {self.names.line(first.offset)}",)
            raise

    def free_name(self, scope: Scope, base: str) -> str:
        if scope.reserved is None:
            scope.reserved = set(self.part.names(self.text))
        return super().free_name(scope, base)
