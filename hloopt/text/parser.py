"""HLO text to a module.

The grammar gives an ordinary instruction as one token; here it is cut into name, shape and opcode,
arguments, attributes and metadata.  What stands in these parts repeats all over a text: each distinct
part is read once, by the same grammar, and its frozen value is shared.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from lark import Token

from hloopt.errors import ParseError, ShapeError
from hloopt.ir import Computation, Instruction, Module, edit
from hloopt.ir.build import infer_shape
from hloopt.ops import MANY, OPS
from hloopt.source import Source
from hloopt.text.attributes import PHASES, Row, Tail, decode_metadata, read_header_attribute, row
from hloopt.text.grammar import pattern, read
from hloopt.text.hints import did_you_mean
from hloopt.text.literals import build, read_literal
from hloopt.text.problem import WHOLE, Problem
from hloopt.text.strings import unquote
from hloopt.text.syntax import (
    ArgumentsText,
    AttributeText,
    ComputationText,
    InstructionText,
    LineText,
    ModuleText,
    OperandText,
    begin,
    end,
)
from hloopt.types import DTYPES, Literal, Metadata, Shape, TupleShape, compatible

__all__ = ["parse_module"]

_MOST_HEADS = 50_000
_LONGEST_HEAD = 2_000
_LONGEST_LITERAL = 200
_DEEPEST = 100
_DEEPEST_COMPUTATION = 20
_RESERVED = {
    *DTYPES,
    *("nan", "true", "false", "inf", "HloModule", "ENTRY", "ROOT", "FileLocations", "FileNames"),
    *("FunctionNames", "StackFrames", "maximal", "replicated", "manual", "last_tile_dim_replicate"),
    *("shard_as", "shard_like", "unknown", "unreduced"),
}


def parse_module(text: str, name: str = "<text>") -> Module:
    """Read a whole HLO text.

    Raises ``ParseError`` with the line and column of the first mistake.  ``module.warnings`` lists
    (offset, message) pairs for what was read otherwise than XLA's own parser does.
    """
    source = Source(text, name)
    try:
        with _no_collection():
            return _Reader(source).module(read("module", text))
    except Problem as problem:
        raise source.error(
            ParseError, problem.offset, problem.message, width=problem.width, notes=problem.notes
        ) from None


@contextmanager
def _no_collection() -> Iterator[None]:
    """Everything made while reading stays alive: let the garbage collector not look through it."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Head:
    """A result shape and an opcode, and the literals seen with them."""

    __slots__ = ("literals", "opcode", "row", "shape")

    def __init__(self, shape: Shape | None, found: Row) -> None:
        self.shape = shape
        self.row = found
        self.opcode = found.opcode
        self.literals: dict[str, Literal] = {}


_HEADS: dict[str, _Head] = {}


def _read_head(text: str) -> _Head:
    """``f32[2]{0} add``; raises ``Problem``."""
    head = _head(*read("head", text))
    if len(text) <= _LONGEST_HEAD:
        if len(_HEADS) >= _MOST_HEADS:
            _HEADS.clear()
        _HEADS[text] = head
    return head


def _head(shape: Shape | None, opcode: Token) -> _Head:
    found = row(str(opcode))
    if found is None:
        _, dash, phase = opcode.rpartition("-")
        known = [f"{name}-{phase}" for name in OPS] if dash and phase in PHASES else OPS
        raise Problem(
            begin(opcode),
            f"unknown opcode {str(opcode)!r}{did_you_mean(opcode, known)}",
            width=len(opcode),
        )
    return _Head(shape, found)


@dataclass(slots=True)
class _Scope:
    """The computation being read: ``items`` is its text, ``base`` where that text begins."""

    computation: Computation
    items: list[Any]
    base: int
    reserved: set[str] | None = None


@dataclass(frozen=True, slots=True)
class _Places:
    """Where a tail stands: behind ``split`` characters there is a gap, the metadata."""

    base: int
    split: int = 1 << 62
    gap: int = 0

    def of(self, offset: int) -> int:
        if offset == WHOLE:
            return WHOLE
        return self.base + offset + (self.gap if offset >= self.split else 0)


class _Reader:
    """Builds the module; knows the computations read so far."""

    def __init__(self, source: Source) -> None:
        self.text = source.text
        self.result = Module(source.name, source)
        self.computations: dict[str, Computation] = {}
        self.depth = 0
        self.parts = pattern(
            "LINE_ROOT?",
            "_GAP?",
            "TARGET",
            "_EQUALS",
            "LINE_HEAD",
            "_OPEN",
            "LINE_ARGUMENTS?",
            "_CLOSE",
            "LINE_ATTRIBUTES?",
            "LINE_METADATA?",
            "LINE_ATTRIBUTES?",
        ).match

    # ---- module ----

    def module(self, syntax: ModuleText) -> Module:
        module = self.result
        for entry in syntax.attributes:
            if entry.name in module.attributes:
                raise Problem(
                    entry.offset, f"attribute {entry.name!r} is given twice", width=len(entry.name)
                )
            module.attributes[entry.name] = read_header_attribute(entry, self.text)
        self.tables(syntax)
        entry_seen = False
        for computation in syntax.computations:
            if computation.entry and entry_seen:
                raise Problem(begin(computation.name), "a second computation is marked ENTRY")
            built = self.computation(computation)
            if computation.entry or not entry_seen:
                module.entry = built
            entry_seen = entry_seen or computation.entry
        if syntax.name is None:
            module.name = f"module_{module.entry.name}"
        else:
            module.name = syntax.name.lstrip("%")
        return module

    def tables(self, syntax: ModuleText) -> None:
        tables = self.result.stack_tables
        for name, names in (
            ("FileNames", tables.file_names),
            ("FunctionNames", tables.function_names),
        ):
            for line in syntax.tables.get(name, ()):
                number, value = str(line).split(None, 1)
                names[int(number)] = unquote(value)
        for name, rows in (("FileLocations", tables.locations), ("StackFrames", tables.frames)):
            for line in syntax.tables.get(name, ()):
                number, _, rest = line.partition("{")
                fields = rest[:-1].replace(",", " ").split()
                rows[int(number)] = {
                    key: int(value) for key, _, value in (field.partition("=") for field in fields)
                }

    # ---- computation ----

    def computation(self, syntax: ComputationText) -> Computation:
        name = syntax.name.lstrip("%")
        if name in self.computations:
            raise Problem(
                begin(syntax.name),
                f"computation {name!r} is defined twice",
                width=len(syntax.name),
            )
        offset = end(syntax.name) - len(name)
        self.check_word(name, offset)
        computation = Computation(name, offset)
        self.body(_Scope(computation, syntax.body, 0))
        result = syntax.result
        if result is not None and not compatible(result, computation.result_shape):
            raise Problem(
                begin(syntax.name),
                f"computation {name!r} is declared to give {result}, its root has shape "
                f"{computation.result_shape}",
                width=len(syntax.name),
            )
        for entry in syntax.attributes:
            self.computation_attribute(computation, entry)
        edit.add_computation(self.result, computation)
        self.computations[name] = computation
        return computation

    def computation_attribute(self, computation: Computation, entry: AttributeText) -> None:
        if entry.name != "execution_thread":
            raise Problem(
                entry.offset,
                f"a computation has no attribute {entry.name!r}"
                f"{did_you_mean(entry.name, ['execution_thread'])}",
                width=len(entry.name),
            )
        try:
            thread = read("string", self.text[entry.start : entry.end])
        except Problem as problem:
            raise problem.moved(entry.start) from None
        computation.execution_thread = str(thread)

    def body(self, scope: _Scope) -> None:
        """Add the instructions of a computation."""
        computation = scope.computation
        instruction: Instruction
        root: Instruction | None = None
        for item in scope.items:
            if type(item) is Token:
                instruction, is_root = self.line(scope, item, None)
            elif type(item) is LineText:
                instruction, is_root = self.line(scope, item.line, item.attributes)
            else:
                instruction, is_root = self.instruction(scope, item)
            if is_root:
                if root is not None:
                    raise Problem(
                        instruction.offset,
                        f"a second instruction is marked ROOT in {computation.name!r}",
                        width=len(instruction.name),
                        notes=(f"the first is {root.name!r}",),
                    )
                root = instruction
        computation.root = root or instruction
        self.check_parameters(computation)

    def check_parameters(self, computation: Computation) -> None:
        for number, parameter in enumerate(computation.parameters):
            found = parameter.parameter_number
            if found == number:
                continue
            if number and found == computation.parameters[number - 1].parameter_number:
                raise Problem(parameter.offset, f"parameter {found} is defined twice")
            raise Problem(
                parameter.offset, f"parameter {found} is defined, parameter {number} is not"
            )

    # ---- instruction ----

    def line(
        self, scope: _Scope, token: Token, more: list[AttributeText] | None
    ) -> tuple[Instruction, bool]:
        """An ordinary instruction, with further attributes perhaps."""
        match = self.parts(token)
        assert match is not None, "the parts of a line are those of the terminal LINE"
        root, name, head_text, arguments, before, metadata, after = match.groups()
        start = scope.base + begin(token)
        offset = start + match.start(2)
        if name[0] == "%":
            name = name[1:]
            offset += 1
        if name in scope.computation.by_name or name in _RESERVED or name[:2] == "__":
            self.check_name(scope, name, offset)
        head = _HEADS.get(head_text)
        if head is None:
            try:
                head = _read_head(head_text)
            except Problem as problem:
                raise problem.moved(start + match.start(3)).at_instruction(offset, name) from None
        found = head.row
        places = None
        if more is None:
            tail_text = before or after or ""
            if before and after:
                tail_text = before + after
            tail = found.known(tail_text)
            if tail is None or not tail.simple:
                places = self.places(match, start)
                tail = tail or self.tail(found, tail_text, places, name, offset)
        else:
            places = _Places(0)
            tail = self.more(scope, found, match, start, more, name, offset)
        instruction = Instruction(name, head.opcode, _NO_SHAPE, (), tail.plain.copy(), None, offset)
        if metadata is not None:
            instruction.metadata = Metadata(metadata[metadata.index("{") :], decode_metadata)
        if arguments is not None:
            self.arguments(scope, instruction, head, arguments, start + match.start(4))
        elif found.role:
            raise Problem(start + match.end(3) + 1, f"{head.opcode} needs {_ROLES[found.role]}")
        self.finish(scope, instruction, head, tail, places)
        return instruction, root is not None

    def places(self, match: re.Match[str], start: int) -> _Places:
        before, after = match.group(5), match.group(7)
        if before is None:
            return _Places(start + match.start(7) if after else start + match.end(3))
        if after is None:
            return _Places(start + match.start(5))
        return _Places(start + match.start(5), len(before), match.start(7) - match.end(5))

    def tail(self, found: Row, text: str, places: _Places, name: str, offset: int) -> Tail:
        try:
            return found.tail(text)
        except Problem as problem:
            problem.offset = places.of(problem.offset)
            raise problem.at_instruction(offset, name) from None

    def more(
        self,
        scope: _Scope,
        found: Row,
        match: re.Match[str],
        start: int,
        more: list[AttributeText],
        name: str,
        offset: int,
    ) -> Tail:
        """Attributes of which the last ones were not part of an ordinary line."""
        entries = [
            entry.moved(start + match.start(group))
            for group in (5, 7)
            if match.group(group)
            for entry in read("attributes", match.group(group))
        ]
        entries += [entry.moved(scope.base) for entry in more]
        twice = match.group(6) and [entry for entry in entries if entry.name == "metadata"]
        if twice:
            raise Problem(twice[0].offset, "attribute 'metadata' is given twice", width=8)
        try:
            return found.read(self.text, entries)
        except Problem as problem:
            raise problem.at_instruction(offset, name) from None

    def instruction(self, scope: _Scope, syntax: InstructionText) -> tuple[Instruction, bool]:
        """An instruction read token by token."""
        base = scope.base
        name = syntax.name.lstrip("%")
        offset = base + end(syntax.name) - len(name)
        if name in scope.computation.by_name or name in _RESERVED or name[:2] == "__":
            self.check_name(scope, name, offset)
        try:
            head = _head(syntax.shape, syntax.opcode)
        except Problem as problem:
            raise problem.moved(base) from None
        try:
            tail = head.row.read(self.text, [entry.moved(base) for entry in syntax.attributes])
        except Problem as problem:
            raise problem.at_instruction(offset, name) from None
        instruction = Instruction(name, head.opcode, _NO_SHAPE, (), tail.plain.copy(), None, offset)
        self.given_arguments(scope, instruction, head, syntax.arguments)
        self.finish(scope, instruction, head, tail, _Places(0))
        return instruction, syntax.root

    def check_name(self, scope: _Scope, name: str, offset: int) -> None:
        """A name may be used once in a computation; some words need ``%``, types are no names."""
        computation = scope.computation
        if name in computation.by_name:
            raise Problem(
                offset,
                f"instruction {name!r} is defined twice in {computation.name!r}",
                width=len(name),
            )
        self.check_word(name, offset)

    def check_word(self, name: str, offset: int) -> None:
        """Element types are no names, keywords only with ``%``; XLA keeps ``__`` for itself."""
        reserved = name.startswith("__") and not name.startswith("__xla_")
        keyword = name in _RESERVED and self.text[offset - 1 : offset] != "%"
        if name in DTYPES or keyword or reserved:
            raise Problem(offset, f"{name!r} cannot be a name", width=len(name))

    def finish(
        self,
        scope: _Scope,
        instruction: Instruction,
        head: _Head,
        tail: Tail,
        places: _Places | None,
    ) -> None:
        """Look up names, check the operands' number, infer a missing shape; put it in its place."""
        found = head.row
        if places is not None and not tail.simple:
            self.links(scope, instruction, tail, places)
        low, high = found.arity
        if not low <= len(instruction.operands) <= high:
            raise Problem(
                instruction.offset,
                f"{found.word} takes {_range(low, high)}, {instruction.name!r} has "
                f"{len(instruction.operands)}",
                width=len(instruction.name),
            )
        if head.shape is not None:
            instruction.shape = head.shape
        if found.wrapped is not None:
            self.wrap(instruction, found)
        if head.shape is None:
            instruction.shape = self.inferred(instruction, found)
        edit.append(scope.computation, instruction)

    def inferred(self, instruction: Instruction, found: Row) -> Shape:
        if not found.inferable:
            raise Problem(
                instruction.offset,
                f"{instruction.name!r} needs a shape: that of {found.word} cannot be inferred",
                width=len(instruction.name),
            )
        try:
            return infer_shape(instruction)
        except ShapeError as error:
            raise Problem(
                instruction.offset,
                f"the shape of {instruction.name!r} cannot be inferred: {error.message}",
                width=len(instruction.name),
            ) from None

    def wrap(self, instruction: Instruction, found: Row) -> None:
        """``negate-start(p)`` is ``async-start(p), calls=c`` with a computation of one negate."""
        if found.opcode != "async-start":
            return
        shape = instruction.shape
        if not (isinstance(shape, TupleShape) and len(shape.elements) >= 2):
            raise Problem(
                instruction.offset,
                f"{found.word} needs a shape ((operands), result, ...)",
                width=len(instruction.name),
            )
        computation = Computation(
            self.result.fresh_name(f"{instruction.name}.computation"), instruction.offset
        )
        computation.execution_thread = instruction.attributes.get("async_execution_thread")
        parameters = tuple(
            edit.append(
                computation,
                Instruction(
                    f"param_{number}",
                    "parameter",
                    operand.shape,
                    (),
                    {"parameter_number": number},
                    None,
                    instruction.offset,
                ),
            )
            for number, operand in enumerate(instruction.operands)
        )
        inner = {
            name: instruction.attributes.pop(name)
            for name in found.wrapped_schema()
            if name in instruction.attributes
        }
        assert found.wrapped is not None
        computation.root = edit.append(
            computation,
            Instruction(
                found.wrapped,
                found.wrapped,
                shape.elements[1],
                parameters,
                inner,
                None,
                instruction.offset,
            ),
        )
        edit.add_computation(self.result, computation)
        self.computations[computation.name] = computation
        instruction.attributes["calls"] = computation

    def links(self, scope: _Scope, instruction: Instruction, tail: Tail, places: _Places) -> None:
        """Names in attributes become computations and instructions."""
        if tail.metadata is not None:
            instruction.metadata = tail.metadata
        for name, (shape, literal), at in tail.literals:
            try:
                instruction.attributes[name] = build(shape, literal, [])
            except Problem as problem:
                raise problem.moved(places.of(at)) from None
        for name, calls, many in tail.calls:
            called = [
                self.called(instruction, name, call.text, places.of(call.offset)) for call in calls
            ]
            instruction.attributes[name] = tuple(called) if many else called[0]
        for other, at in tail.predecessors:
            before = scope.computation.by_name.get(other)
            if before is None:
                raise _undefined(scope, other, places.of(at), len(other))
            edit.add_control_edge(before, instruction)

    def called(self, instruction: Instruction, attribute: str, text: str, at: int) -> Computation:
        """A computation by its name, or made of the instructions in braces."""
        if not text.startswith("{"):
            name = text.lstrip("%")
            found = self.computations.get(name)
            if found is None:
                raise Problem(
                    at,
                    f"no computation {name!r} before this one{did_you_mean(name, self.computations)}",
                    width=len(text),
                )
            return found
        computation = Computation(f"{instruction.name}.{attribute}", at)
        with self.nesting(at, _DEEPEST_COMPUTATION):
            try:
                items = read("body", text[1:-1])
            except Problem as problem:
                raise problem.moved(at + 1) from None
            self.body(_Scope(computation, items, at + 1))
        edit.add_computation(self.result, computation)
        self.computations[computation.name] = computation
        return computation

    @contextmanager
    def nesting(self, at: int, deepest: int = _DEEPEST) -> Iterator[None]:
        if self.depth >= deepest:
            raise Problem(at, f"instructions are nested more than {deepest} levels deep")
        self.depth += 1
        yield
        self.depth -= 1

    # ---- arguments ----

    def given_arguments(
        self, scope: _Scope, instruction: Instruction, head: _Head, given: ArgumentsText
    ) -> None:
        if isinstance(given, Token):
            text = given[:-1]
            at = scope.base + begin(given)
            if text.strip():
                self.arguments(scope, instruction, head, text, at)
            elif head.row.role:
                raise Problem(at, f"{head.opcode} needs {_ROLES[head.row.role]}")
        else:
            self.operands(scope, instruction, head, given, scope.base)

    def arguments(
        self, scope: _Scope, instruction: Instruction, head: _Head, text: str, at: int
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
                try:
                    operands = read("operands", text)
                except Problem as problem:
                    raise problem.moved(at) from None
                self.operands(scope, instruction, head, operands, at)
        elif role == 1:
            literal = head.literals.get(text)
            instruction.attributes["literal"] = literal or self.literal(instruction, head, text, at)
        else:
            number = int(text) if text.isdecimal() else self.number(text, at)
            instruction.attributes["parameter_number"] = number

    def number(self, text: str, at: int) -> int:
        """A parameter's number with blanks or comments around it."""
        try:
            number: int = read("integer", text)
        except Problem as problem:
            raise problem.moved(at) from None
        if number < 0:
            raise Problem(at, "a parameter's number cannot be negative", width=len(text))
        return number

    def literal(self, instruction: Instruction, head: _Head, text: str, at: int) -> Literal:
        if head.shape is None:
            raise Problem(
                instruction.offset,
                f"{instruction.name!r} needs a shape: that of a constant cannot be inferred",
                width=len(instruction.name),
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
        scope: _Scope,
        instruction: Instruction,
        head: _Head,
        operands: list[OperandText],
        at: int,
    ) -> None:
        if head.row.role:
            raise Problem(at, f"{head.opcode} takes {_ROLES[head.row.role]}")
        instruction.operands = tuple(self.operand(scope, operand, at) for operand in operands)

    def operand(self, scope: _Scope, syntax: OperandText, at: int) -> Instruction:
        offset = at + begin(syntax.name)
        if syntax.arguments is not None:
            with self.nesting(offset):
                return self.nested(scope, syntax, syntax.arguments, at)
        name = syntax.name.lstrip("%")
        found = scope.computation.by_name.get(name)
        if found is None:
            raise _undefined(scope, name, offset, len(syntax.name))
        if syntax.shape is not None and not compatible(syntax.shape, found.shape):
            raise Problem(
                offset,
                f"operand {name!r} is written with shape {syntax.shape}, it has {found.shape}",
                width=len(syntax.name),
            )
        return found

    def nested(
        self, scope: _Scope, syntax: OperandText, given: ArgumentsText, at: int
    ) -> Instruction:
        """An instruction written in the place of an operand; it gets a name made of its opcode."""
        try:
            head = _head(syntax.shape, syntax.name)
        except Problem as problem:
            raise problem.moved(at) from None
        offset = at + begin(syntax.name)
        tail = self.tail(head.row, "", _Places(0), syntax.name, offset)
        name = self.free_name(scope, head.opcode)
        instruction = Instruction(name, head.opcode, _NO_SHAPE, (), tail.plain.copy(), None, offset)
        self.given_arguments(
            _Scope(scope.computation, scope.items, at, scope.reserved), instruction, head, given
        )
        self.finish(scope, instruction, head, tail, None)
        return instruction

    def free_name(self, scope: _Scope, base: str) -> str:
        """A name that no instruction of the computation has, and none further down in the text."""
        if scope.reserved is None:
            scope.reserved = {self.name_of(item) for item in scope.items}
        by_name = scope.computation.by_name
        for number in count():
            name = f"{base}.{number}" if number else base
            if name not in by_name and name not in scope.reserved:
                return name
        raise AssertionError

    def name_of(self, item: Any) -> str:
        if type(item) is InstructionText:
            return item.name.lstrip("%")
        match = self.parts(item.line if type(item) is LineText else item)
        assert match is not None
        return str(match.group(2)).lstrip("%")


_NO_SHAPE: Any = None  # until it is read or inferred, before anybody else sees the instruction
_ROLES = {1: "a literal", 2: "a number"}


def _is_elided(literal: Literal) -> bool:
    return literal.elided or any(map(_is_elided, literal.elements))


def _undefined(scope: _Scope, name: str, offset: int, width: int) -> Problem:
    by_name = scope.computation.by_name
    return Problem(
        offset, f"no instruction {name!r} before this one{did_you_mean(name, by_name)}", width=width
    )


def _range(low: int, high: int) -> str:
    if low == high:
        return f"{low} operand{'s' * (low != 1)}"
    return f"{low} to {high} operands" if high < MANY else f"at least {low} operands"
