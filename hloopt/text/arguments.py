"""What stands between an instruction's parentheses: operands, a literal, a parameter's number."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from hloopt.ir import Instruction, Module, edit
from hloopt.text.attributes import Tail
from hloopt.text.grammar import pattern, read
from hloopt.text.literals import read_literal
from hloopt.text.problem import Problem
from hloopt.text.records import (
    ArgumentsText,
    AttributeText,
    InstructionText,
    LinesText,
    OperandText,
    Token,
    integer,
)
from hloopt.text.scope import (
    NO_SHAPE,
    ROLES,
    Head,
    TailPlaces,
    TextScope,
    head_of,
    undefined,
    unknown_opcode,
)
from hloopt.types import DTYPES, Literal, Shape, TupleShape, compatible

__all__ = ["ArgumentReader"]

_LONGEST_LITERAL = 200
_DEEPEST = 100
_MOST_DIGITS = 19
_MOST_OPCODES = 1000


class ArgumentReader(ABC):
    """Reads arguments; operands in place become instructions by the means of the class below."""

    def __init__(self, module: Module, strict: bool) -> None:
        self.result = module
        self.strict = strict
        self.depth = 0
        self.reported: set[str] = set()
        self.opcodes: set[str] = set()
        self.parts = pattern("LINE").match

    @abstractmethod
    def finish(
        self,
        scope: TextScope,
        instruction: Instruction,
        head: Head,
        tail: Tail,
        places: TailPlaces | None,
    ) -> None:
        """Complete an instruction that has its arguments, and put it in its place."""

    def items(self, scope: TextScope) -> Iterator[tuple[Any, list[AttributeText] | None, int]]:
        """What a body consists of: an ``InstructionText``, or the parts of an ordinary instruction
        with further attributes (None where it has none) and the offset its parts count from.
        """
        parts = self.parts
        for item in scope.items:
            if type(item) is InstructionText:
                yield item, None, 0
                continue
            lines, more = (item.lines, item.attributes) if type(item) is LinesText else (item, None)
            start, at, last = scope.base + lines.begin, 0, len(lines)
            while at < last:
                match = parts(lines, at)
                assert match is not None, "the parts of a line are those of the terminal LINE"
                at = match.end()
                yield match, more if at == last else None, start

    def tolerate(self, problem: Problem) -> None:
        """Something that XLA refuses: an error in a strict reading, else a warning, once in a text."""
        if self.strict:
            raise problem
        if problem.message not in self.reported:
            self.reported.add(problem.message)
            self.result.warnings.append((problem.offset, problem.message))

    def known_opcode(self, head: Head, offset: int) -> None:
        """An unknown opcode is kept, but nothing can be said about its shape; a name is none."""
        if self.strict or head.shape is None or head.opcode.startswith("%"):
            raise unknown_opcode(head.opcode, offset)
        # To look for what may be meant takes long: once for an opcode, and not for many.
        if head.opcode not in self.opcodes and len(self.opcodes) < _MOST_OPCODES:
            self.opcodes.add(head.opcode)
            self.tolerate(unknown_opcode(head.opcode, offset))

    @contextmanager
    def nesting(self, at: int, deepest: int = _DEEPEST) -> Iterator[None]:
        if self.depth >= deepest:
            raise Problem(at, f"instructions are nested more than {deepest} levels deep")
        self.depth += 1
        yield
        self.depth -= 1

    def given_arguments(
        self, scope: TextScope, instruction: Instruction, head: Head, given: ArgumentsText
    ) -> None:
        if isinstance(given, Token):
            text = given[:-1]
            at = scope.base + given.begin
            if text.strip():
                self.arguments(scope, instruction, head, text, at)
            elif head.row.role:
                raise Problem(at, f"{head.opcode} needs {ROLES[head.row.role]}")
        else:
            self.operands(scope, instruction, head, given, scope.base)

    def arguments(
        self, scope: TextScope, instruction: Instruction, head: Head, text: str, at: int
    ) -> None:
        """``text`` stands between the parentheses, at offset ``at``; it is not empty."""
        role = head.row.role
        if role == 0:
            by_name = scope.computation.by_name
            try:
                if text[0] == "%":
                    instruction.operands = tuple([by_name[name] for name in text[1:].split(", %")])
                else:
                    instruction.operands = tuple([by_name[name] for name in text.split(", ")])
            except KeyError:
                # Not just names with a comma and a blank in between, or a name that is not there.
                self.operands(scope, instruction, head, read("operands", text, at), at)
        elif role == 1:
            literal = head.literals.get(text)
            instruction.attributes["literal"] = literal or self.literal(instruction, head, text, at)
        else:
            short = len(text) < _MOST_DIGITS and text.isascii() and text.isdecimal()
            number = int(text) if short else self.number(text, at)
            instruction.attributes["parameter_number"] = number

    def number(self, text: str, at: int) -> int:
        """A parameter's number with blanks or comments around it."""
        number: int = read("integer", text, at)
        if number < 0:
            raise Problem(at, "a parameter's number cannot be negative", text)
        return number

    def literal(self, instruction: Instruction, head: Head, text: str, at: int) -> Literal:
        if head.shape is None:
            raise Problem(
                instruction.offset,
                f"{instruction.name!r} needs a shape: that of a constant cannot be inferred",
                instruction.name,
            )
        warnings: list[tuple[int, str]] = []
        try:
            literal = read_literal(head.shape, text, warnings)
        except Problem as problem:
            raise problem.moved(at) from None
        self.result.warnings += [(at + offset, message) for offset, message in warnings]
        if not warnings and not _is_elided(literal) and len(text) <= _LONGEST_LITERAL:
            head.literals[text] = literal
        return literal

    def operands(
        self,
        scope: TextScope,
        instruction: Instruction,
        head: Head,
        operands: list[OperandText],
        at: int,
    ) -> None:
        if head.row.role:
            raise Problem(at, f"{head.opcode} takes {ROLES[head.row.role]}")
        found = [self.operand(scope, operand, at) for operand in operands]
        instruction.operands = tuple(operand for operand in found if operand is not None)

    def operand(self, scope: TextScope, syntax: OperandText, at: int) -> Instruction | None:
        """The instruction an operand stands for; None for one that XLA passes over."""
        offset = at + syntax.name.begin
        if syntax.arguments is not None:
            with self.nesting(offset):
                return self.nested(scope, syntax, syntax.arguments, at)
        name = syntax.name.lstrip("%")
        shape = syntax.shape
        if not name and not scope.open:
            message = "this operand is only a shape: it is passed over, as XLA does"
            self.result.warnings.append((offset, message))
            return None
        found = scope.computation.by_name.get(name)
        if found is None and scope.open and shape is not None and not syntax.index:
            return self.parameter(scope, name, shape, offset)
        if found is None:
            raise undefined(scope, name, offset, syntax.name)
        for index in syntax.index:
            found = self.element(scope, found, index, at)
        if shape is not None and not compatible(shape, found.shape):
            raise Problem(
                offset,
                f"operand {name!r} is written with shape {shape}, it has {found.shape}",
                syntax.name,
            )
        return found

    def parameter(self, scope: TextScope, name: str, shape: Shape, offset: int) -> Instruction:
        """The next parameter of a text that is one instruction."""
        number = len(scope.computation.parameters)
        name = name or self.free_name(scope, f"_{number}")
        attributes = {"parameter_number": number}
        parameter = Instruction(name, "parameter", shape, (), attributes, None, offset)
        return edit.append(scope.computation, parameter)

    def element(self, scope: TextScope, whole: Instruction, index: Token, at: int) -> Instruction:
        """``%t#1``: one get-tuple-element for all places that name the same element."""
        offset = at + index.begin
        number = integer(index[1:].lstrip(), offset)
        found = scope.elements.get((whole, number))
        if found is not None:
            return found
        shape = whole.shape
        if not isinstance(shape, TupleShape):
            message = f"{whole.name!r} has shape {shape}: it has no elements"
            raise Problem(offset, message, index)
        if not 0 <= number < len(shape.elements):
            message = f"{whole.name!r} has {len(shape.elements)} elements, there is no {number}"
            raise Problem(offset, message, index)
        name = self.free_name(scope, "get-tuple-element")
        attributes = {"index": number}
        element = Instruction(
            name, "get-tuple-element", shape.elements[number], (whole,), attributes, None, offset
        )
        scope.elements[whole, number] = element
        return edit.append(scope.computation, element)

    def nested(
        self, scope: TextScope, syntax: OperandText, given: ArgumentsText, at: int
    ) -> Instruction:
        """An instruction written in the place of an operand; it gets a name made of its opcode."""
        head = head_of(syntax.shape, syntax.name)
        offset = at + syntax.name.begin
        if head.row.unknown:
            self.known_opcode(head, offset)
        tail = head.row.tail("")
        if tail.missing:
            raise Problem(offset, tail.missing, syntax.name)
        legal = head.opcode not in DTYPES and not head.opcode.startswith("__")
        name = self.free_name(scope, head.opcode if legal else f"op.{head.opcode}")
        instruction = Instruction(name, head.opcode, NO_SHAPE, (), tail.plain.copy(), None, offset)
        self.given_arguments(replace(scope, base=at), instruction, head, given)
        self.finish(scope, instruction, head, tail, None)
        return instruction

    def free_name(self, scope: TextScope, base: str) -> str:
        """A name that no instruction of the computation has, and none further down in the text."""
        if scope.reserved is None:
            scope.reserved = {
                item.name.lstrip("%")
                if type(item) is InstructionText
                else item["target"].lstrip("%")
                for item, _, _ in self.items(scope)
            }
        taken = scope.computation.by_name
        number = scope.serial.get(base, 0)
        name = f"{base}.{number}" if number else base
        while name in taken or name in scope.reserved:
            number += 1
            name = f"{base}.{number}"
        scope.serial[base] = number
        return name


def _is_elided(literal: Literal) -> bool:
    return literal.elided or any(map(_is_elided, literal.elements))
