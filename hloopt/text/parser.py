"""HLO text to a module.

The grammar gives an ordinary instruction as one token; here it is cut into name, shape and opcode,
arguments, attributes and metadata.  What stands in these parts repeats all over a text: each distinct
part is read once, by the same grammar, and its frozen value is shared.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lark import Token

from hloopt.errors import ParseError, ShapeError
from hloopt.ir import Computation, Instruction, Module, edit
from hloopt.ir.build import infer_shape
from hloopt.ops import OPS
from hloopt.source import Source
from hloopt.text.attributes import Row, Tail, decode_metadata, read_header_attribute, row
from hloopt.text.grammar import pattern, read
from hloopt.text.hints import did_you_mean
from hloopt.text.literals import build, read_literal
from hloopt.text.problem import Problem
from hloopt.text.strings import unquote
from hloopt.text.syntax import (
    AttributeText,
    ComputationText,
    InstructionText,
    LineText,
    ModuleText,
    OperandText,
)
from hloopt.types import DTYPES, Literal, Metadata, Shape, compatible

__all__ = ["parse_module"]

_MOST_HEADS = 50_000
_LONGEST_HEAD = 2_000
_LONGEST_LITERAL = 200
_DEEPEST = 100
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
    """A result shape and an opcode, and the scalar literals seen with them."""

    __slots__ = ("literals", "opcode", "row", "shape")

    def __init__(self, shape: Shape | None, found: Row) -> None:
        self.shape = shape
        self.row = found
        self.opcode = found.opcode
        self.literals: dict[str, Literal] = {}


_HEADS: dict[str, _Head] = {}
_SHAPES: dict[str, Shape] = {}


def _head(text: str, shape: Shape | Token | None, opcode: Token) -> _Head:
    """``text`` is where the two were read, to be remembered; raises ``Problem``."""
    found = row(opcode)
    if found is None:
        raise Problem(
            opcode.start_pos,
            f"unknown opcode {str(opcode)!r}{did_you_mean(opcode, OPS)}",
            width=len(opcode),
        )
    head = _Head(_shape(shape), found)
    if len(text) <= _LONGEST_HEAD:
        if len(_HEADS) >= _MOST_HEADS:
            _HEADS.clear()
        _HEADS[text] = head
    return head


def _shape(shape: Shape | Token | None) -> Shape | None:
    if not isinstance(shape, Token):
        return shape
    found = _SHAPES.get(shape)
    if found is None:
        try:
            found = read("shape", str(shape))
        except Problem as problem:
            raise problem.moved(shape.start_pos) from None
        if len(_SHAPES) >= _MOST_HEADS:
            _SHAPES.clear()
        _SHAPES[str(shape)] = found
    return found


class _Reader:
    """Builds the module; knows the computations read so far."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.text = source.text
        self.result = Module(source.name, source)
        self.computations: dict[str, Computation] = {}
        self.parts = pattern(
            "LINE_ROOT?",
            "_LEAD?",
            "WORD",
            "_EQUALS",
            "LINE_HEAD",
            "_OPEN",
            "LINE_ARGUMENTS?",
            "_CLOSE",
            "LINE_ATTRIBUTES?",
            "LINE_METADATA?",
            "LINE_ATTRIBUTES?",
        ).match
        self.depth = 0

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
                raise Problem(computation.name.start_pos, "a second computation is marked ENTRY")
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
                syntax.name.start_pos,
                f"computation {name!r} is defined twice",
                width=len(syntax.name),
            )
        computation = Computation(name, syntax.name.start_pos)
        self.body(computation, syntax.body, 0)
        result = _shape(syntax.result)
        if result is not None and not compatible(result, computation.result_shape):
            raise Problem(
                syntax.name.start_pos,
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

    def body(self, computation: Computation, items: list[Any], base: int) -> None:
        """Add the instructions; ``base`` is where the text they were read from begins."""
        last: Instruction | None = None
        root: Instruction | None = None
        for item in items:
            if type(item) is Token:
                instruction, is_root = self.line(computation, item, base, None)
            elif isinstance(item, LineText):
                instruction, is_root = self.line(computation, item.line, base, item.attributes)
            else:
                instruction, is_root = self.instruction(computation, item, base)
            if is_root:
                if root is not None:
                    raise Problem(instruction.offset, "a second instruction is marked ROOT")
                root = instruction
            last = instruction
        computation.root = root or last  # type: ignore[assignment]
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
        self, computation: Computation, token: Token, base: int, more: list[AttributeText] | None
    ) -> tuple[Instruction, bool]:
        """An ordinary instruction, with further attributes perhaps."""
        match = self.parts(token)
        if match is None:  # the terminals are the parts of this one
            raise AssertionError(token)
        root, name, head_text, arguments, before, metadata, after = match.groups()
        start: int = token.start_pos
        offset = base + start + match.start(2)
        if name in computation.by_name:
            raise _duplicate(computation, name, offset)
        if name in _RESERVED:
            self.check_name(name, offset)
        head = _HEADS.get(head_text)
        if head is None:
            try:
                head = _head(head_text, *read("head", head_text))
            except Problem as problem:
                raise problem.moved(base + start + match.start(3)) from None
        found = head.row
        if more is None:
            tail_text = before + after if before and after else before or after or ""
            tail_at = base + start + match.start(5)
            tail = found._tails.get(tail_text) or self.tail(found, tail_text, tail_at)
        else:
            tail_at = base
            tail = self.more(found, token, match, more, base)
        instruction = Instruction(name, head.opcode, None, (), tail.plain.copy(), None, offset)  # type: ignore[arg-type]
        if metadata is not None:
            instruction.metadata = Metadata(metadata[metadata.index("{") :], decode_metadata)
        self.arguments(
            computation, instruction, head, arguments or "", base + start + match.start(4)
        )
        if not tail.simple:
            self.links(computation, instruction, tail, tail_at)
        self.finish(computation, instruction, head.shape)
        return instruction, root is not None

    def tail(self, found: Row, text: str, offset: int) -> Tail:
        try:
            return found.tail(text)
        except Problem as problem:
            raise problem.moved(offset) from None

    def more(
        self, found: Row, token: Token, match: Any, more: list[AttributeText], base: int
    ) -> Tail:
        """Attributes of which the last ones were not part of an ordinary line."""
        at = base + token.start_pos + match.start(5)
        try:
            first = read("attributes", token[match.start(5) :])
            entries = [
                AttributeText(e.name, e.offset + at, e.start + at, e.end + at) for e in first
            ]
            entries += [
                AttributeText(e.name, e.offset + base, e.start + base, e.end + base) for e in more
            ]
            if match.group(6) is not None:
                entries = [
                    entry for entry in entries if entry.offset != at or entry.name != "metadata"
                ]
            return found.read(self.text, entries)
        except Problem as problem:
            raise problem from None

    def instruction(
        self, computation: Computation, syntax: InstructionText, base: int
    ) -> tuple[Instruction, bool]:
        """An instruction read token by token."""
        offset = base + syntax.name.start_pos
        name = syntax.name.lstrip("%")
        if name in computation.by_name:
            raise _duplicate(computation, name, offset)
        if name in _RESERVED:
            self.check_name(name, offset, bare=syntax.name == name)
        try:
            head = _head("", syntax.shape, syntax.opcode)
        except Problem as problem:
            raise problem.moved(base) from None
        entries = [
            AttributeText(e.name, e.offset + base, e.start + base, e.end + base)
            for e in syntax.attributes
        ]
        try:
            tail = head.row.read(self.text, entries)
        except Problem as problem:
            if problem.offset == 0:
                problem.moved(offset)
            raise
        instruction = Instruction(name, head.opcode, None, (), tail.plain.copy(), None, offset)  # type: ignore[arg-type]
        given = syntax.arguments
        if isinstance(given, Token):
            self.arguments(computation, instruction, head, given[:-1], base + given.start_pos)
        else:
            self.operands(computation, instruction, head, given, base)
        if not tail.simple:
            self.links(computation, instruction, tail, 0)
        self.finish(computation, instruction, head.shape)
        return instruction, syntax.root

    def check_name(self, name: str, offset: int, *, bare: bool | None = None) -> None:
        if bare is None:
            bare = self.text[offset - 1 : offset] != "%"
        if bare or name in DTYPES:
            raise Problem(offset, f"{name!r} cannot be a name", width=len(name))

    def finish(
        self, computation: Computation, instruction: Instruction, shape: Shape | None
    ) -> None:
        """Check the number of operands, infer a shape left out, put the instruction in its place."""
        row_ = instruction.op
        if not row_.arity[0] <= len(instruction.operands) <= row_.arity[1]:
            raise Problem(
                instruction.offset,
                f"{instruction.opcode} takes {_range(*row_.arity)}, "
                f"{instruction.name!r} has {len(instruction.operands)}",
                width=len(instruction.name),
            )
        if shape is None:
            if not row_.inferable:
                raise Problem(
                    instruction.offset,
                    f"the shape of {instruction.name!r} is missing: that of {instruction.opcode} "
                    "cannot be inferred",
                    width=len(instruction.name),
                )
            try:
                shape = infer_shape(instruction)
            except ShapeError as error:
                raise Problem(
                    instruction.offset,
                    f"{instruction.name!r}: {error.message}",
                    width=len(instruction.name),
                ) from None
        instruction.shape = shape
        edit.append(computation, instruction)

    def links(
        self, computation: Computation, instruction: Instruction, tail: Tail, base: int
    ) -> None:
        """Names in attributes become computations and instructions."""
        if tail.metadata is not None:
            instruction.metadata = tail.metadata
        for name, start, (shape, literal) in tail.literals:
            try:
                instruction.attributes[name] = build(shape, literal, [])
            except Problem as problem:
                raise problem.moved(base + start) from None
        for name, many, spans in tail.calls:
            called = [
                self.called(instruction, name, base + start, base + end) for start, end in spans
            ]
            instruction.attributes[name] = tuple(called) if many else called[0]
        for other, at in tail.predecessors:
            before = computation.by_name.get(other)
            if before is None:
                raise Problem(
                    base + at,
                    f"no instruction {other!r} before this one{did_you_mean(other, computation.by_name)}",
                    width=len(other),
                )
            edit.add_control_edge(before, instruction)

    def called(self, instruction: Instruction, attribute: str, start: int, end: int) -> Computation:
        """A computation by its name, or made of the instructions in braces."""
        text = self.text[start:end]
        if not text.startswith("{"):
            name = text.lstrip("%")
            found = self.computations.get(name)
            if found is None:
                raise Problem(
                    start,
                    f"no computation {name!r} before this one{did_you_mean(name, self.computations)}",
                    width=len(text),
                )
            return found
        if self.depth >= _DEEPEST:
            raise Problem(start, "computations in place are nested too deeply")
        self.depth += 1
        base = start + 1
        try:
            items = read("body", text[1:-1])
        except Problem as problem:
            raise problem.moved(base) from None
        computation = Computation(f"{instruction.name}.{attribute}", start)
        self.body(computation, items, base)
        self.depth -= 1
        edit.add_computation(self.result, computation)
        self.computations[computation.name] = computation
        return computation

    # ---- arguments ----

    def arguments(
        self, computation: Computation, instruction: Instruction, head: _Head, text: str, at: int
    ) -> None:
        """``text`` stands between the parentheses, at offset ``at``."""
        role = head.row.role
        if role == 0:
            if not text:
                return
            by_name = computation.by_name
            try:
                if text[0] == "%":
                    instruction.operands = tuple([by_name[name] for name in text[1:].split(", %")])
                else:
                    instruction.operands = tuple([by_name[name] for name in text.split(", ")])
            except KeyError:
                self.odd_operands(computation, instruction, head, text, at)
        elif role == 1:
            literal = head.literals.get(text)
            instruction.attributes["literal"] = literal or self.literal(instruction, head, text, at)
        else:
            try:
                number = read("integer", text)
            except Problem as problem:
                raise problem.moved(at) from None
            if number < 0:
                raise Problem(at, "a parameter's number cannot be negative", width=len(text))
            instruction.attributes["parameter_number"] = number

    def odd_operands(
        self, computation: Computation, instruction: Instruction, head: _Head, text: str, at: int
    ) -> None:
        """Operands that are not just names with a comma and a blank between them."""
        try:
            operands = read("operands", text)
        except Problem as problem:
            raise problem.moved(at) from None
        self.operands(computation, instruction, head, operands, at)

    def operands(
        self,
        computation: Computation,
        instruction: Instruction,
        head: _Head,
        operands: list[OperandText],
        at: int,
    ) -> None:
        if head.row.role:
            what = "a literal" if head.row.role == 1 else "a number"
            raise Problem(at, f"{head.opcode} takes {what}")
        instruction.operands = tuple(self.operand(computation, operand, at) for operand in operands)

    def operand(self, computation: Computation, syntax: OperandText, at: int) -> Instruction:
        if syntax.arguments is not None:
            return self.nested(computation, syntax, at)
        name = syntax.name.lstrip("%")
        found = computation.by_name.get(name)
        offset = at + syntax.name.start_pos
        if found is None:
            raise Problem(
                offset,
                f"no instruction {name!r} before this one{did_you_mean(name, computation.by_name)}",
                width=len(syntax.name),
            )
        try:
            declared = _shape(syntax.shape)
        except Problem as problem:
            raise problem.moved(at) from None
        if declared is not None and not compatible(declared, found.shape):
            raise Problem(
                offset,
                f"operand {name!r} is written with shape {declared}, it has {found.shape}",
                width=len(syntax.name),
            )
        return found

    def nested(self, computation: Computation, syntax: OperandText, at: int) -> Instruction:
        """An instruction written in the place of an operand; it is called after its opcode."""
        if self.depth >= _DEEPEST:
            raise Problem(at + syntax.name.start_pos, "operands are nested too deeply")
        self.depth += 1
        try:
            head = _head("", syntax.shape, syntax.name)
        except Problem as problem:
            raise problem.moved(at) from None
        offset = at + syntax.name.start_pos
        tail = self.tail(head.row, "", offset)
        name = computation.fresh_name(head.opcode)
        instruction = Instruction(name, head.opcode, None, (), tail.plain.copy(), None, offset)  # type: ignore[arg-type]
        given = syntax.arguments
        if isinstance(given, Token):
            self.arguments(computation, instruction, head, given[:-1], at + given.start_pos)
        else:
            self.operands(computation, instruction, head, given or [], at)
        self.finish(computation, instruction, head.shape)
        self.depth -= 1
        return instruction

    def literal(self, instruction: Instruction, head: _Head, text: str, at: int) -> Literal:
        if head.shape is None:
            raise Problem(instruction.offset, "a constant needs a shape")
        warnings: list[tuple[int, str]] = []
        try:
            literal = read_literal(head.shape, text, warnings)
        except Problem as problem:
            raise problem.moved(at) from None
        self.result.warnings += [(at + offset, message) for offset, message in warnings]
        if not warnings and not _is_elided(literal) and len(text) <= _LONGEST_LITERAL:
            head.literals[text] = literal
        return literal


def _is_elided(literal: Literal) -> bool:
    return literal.elided or any(map(_is_elided, literal.elements))


def _duplicate(computation: Computation, name: str, offset: int) -> Problem:
    return Problem(
        offset, f"instruction {name!r} is defined twice in {computation.name!r}", width=len(name)
    )


def _range(low: int, high: int) -> str:
    if low == high:
        return f"{low} operand{'s' * (low != 1)}"
    return f"{low} to {high} operands" if high < 1 << 20 else f"at least {low} operands"
