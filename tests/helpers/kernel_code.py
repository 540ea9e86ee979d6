"""What stands in the kernels of a program, asked of their trees and not of their text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from hloopt.codegen.program import KernelProgram, ProgramPart
from hloopt.kernel_ir.expressions import Address, Array, Call, Element, Expr, Var, subexpressions
from hloopt.kernel_ir.listing import listing
from hloopt.kernel_ir.printer import expression_text
from hloopt.kernel_ir.statements import (
    Declare,
    For,
    Function,
    Let,
    Set,
    Statement,
    expressions_of,
    walk,
)
from hloopt.kernel_ir.types import Type

__all__ = ["KernelCode"]

S = TypeVar("S")
E = TypeVar("E", bound=Expr)


@dataclass(frozen=True)
class KernelCode:
    """Functions, and questions about their statements and expressions."""

    functions: tuple[Function, ...]

    @classmethod
    def of(cls, program: KernelProgram) -> KernelCode:
        """Of all kernels of a program that are built as trees."""
        return cls.of_parts(program.parts)

    @classmethod
    def of_parts(cls, parts: Iterable[ProgramPart]) -> KernelCode:
        """Of these kernels."""
        return cls(tuple(part.function for part in parts if part.function is not None))

    @classmethod
    def of_body(cls, body: Iterable[Statement]) -> KernelCode:
        """Of statements, such as those of a loop, as a function without a name."""
        return cls((Function("", (), tuple(body)),))

    def ending(self, end: str) -> KernelCode:
        """Of the functions with names that end so."""
        return KernelCode(tuple(one for one in self.functions if one.name.endswith(end)))

    def text(self, name: str) -> str:
        """The statements of a function, as ``hloopt kernels --ir`` lists them."""
        (function,) = (one for one in self.functions if one.name == name)
        return "\n".join(list(listing(function))[1 + len(function.parameters) :]) + "\n"

    def statements(self, kind: type[S]) -> list[S]:
        """All statements of a class, in order."""
        every = (one for function in self.functions for one in walk(function.body))
        return [one for one in every if isinstance(one, kind)]

    def expressions(self, kind: type[E]) -> Iterator[E]:
        """All expressions of a class."""
        for statement in self.statements(object):
            for whole in expressions_of(statement):
                yield from (one for one in subexpressions(whole) if isinstance(one, kind))

    def calls(self, name: str) -> list[Call]:
        """The calls of a function; a name that ends in ``*`` stands for all that begin so."""
        start = name.removesuffix("*")
        return [
            one
            for one in self.expressions(Call)
            if one.function == name or (start != name and one.function.startswith(start))
        ]

    def arrays(self, space: str) -> list[Array]:
        """The arrays that are declared in an address space."""
        targets = [one.target for one in self.statements(Declare)]
        return [one for one in targets if isinstance(one, Array) and one.space == space]

    def loops(self) -> list[For]:
        """The counted loops."""
        return self.statements(For)

    def loop(self, counter: str) -> For:
        """The one loop with a counter of that name."""
        (found,) = (one for one in self.loops() if one.var.name == counter)
        return found

    def heads(self) -> list[str]:
        """How the counted loops begin, as ``hloopt kernels --ir`` lists them."""
        lines = (line.strip() for one in self.functions for line in listing(one))
        return [line for line in lines if line.startswith("for ")]

    def named(self, start: str) -> list[Var | Array]:
        """The variables and arrays that are made, with names that begin so."""
        made = [one.var for one in self.statements(Let)]
        every = (*made, *(one.target for one in self.statements(Declare)))
        return [one for one in every if one.name.startswith(start)]

    def types(self, start: str = "") -> set[Type]:
        """The types of the variables with names that begin so, counters among them."""
        made = [one for one in self.named(start) if isinstance(one, Var)]
        counters = [one.var for one in self.loops() if one.var.name.startswith(start)]
        return {one.type for one in (*made, *counters)}

    def reads(self, array: str) -> int:
        """At how many places elements of an array are read, one by one or as vectors."""
        return len(self.read_at(array))

    def read_at(self, array: str) -> list[str]:
        """Where elements of an array are read, as C has it."""
        stored = [id(one.target) for one in self.statements(Set)]
        return [
            _place(one)
            for one in self.expressions(Element)
            if one.array.name == array and id(one) not in stored
        ]

    def written_at(self, array: str) -> list[str]:
        """Where elements of an array are set, as C has it."""
        targets = [one.target for one in self.statements(Set)]
        return [
            _place(one) for one in targets if isinstance(one, Element) and one.array.name == array
        ]

    def addresses(self, name: str) -> list[str]:
        """The arrays to which the calls of a function have an address."""
        return [
            one.element.name if isinstance(one.element, Var) else one.element.array.name
            for call in self.calls(name)
            for one in call.arguments
            if isinstance(one, Address)
        ]


def _place(element: Element) -> str:
    return ", ".join(map(expression_text, element.at))
