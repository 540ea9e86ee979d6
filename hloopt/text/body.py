"""Instructions: a token of the module level to a node of the graph.

An ordinary instruction is one token; it is cut into name, shape and opcode, arguments, attributes and
metadata.  What stands in these parts repeats all over a text: each distinct part is read once, by the
same grammar, and its frozen value is shared.
"""

from __future__ import annotations

import re
from typing import Any

from hloopt.errors import ShapeError
from hloopt.ir import Computation, Instruction, Module, edit
from hloopt.ir.build import infer_shape
from hloopt.ops import MANY, op_of
from hloopt.source import Source
from hloopt.text.arguments import ArgumentReader
from hloopt.text.attributes import OpcodeSchema, Tail, decode_metadata
from hloopt.text.grammar import read
from hloopt.text.literals import build
from hloopt.text.made_shapes import MADE, made_otherwise, with_layout
from hloopt.text.problem import Problem, Undefined
from hloopt.text.records import AttributeText, InstructionText
from hloopt.text.scope import (
    HEADS,
    NO_SHAPE,
    ROLES,
    Head,
    TailPlaces,
    TextScope,
    head_of,
    read_head,
    undefined,
)
from hloopt.text.strict import ALWAYS_WRITTEN, objections
from hloopt.types import DTYPES, Metadata, Shape, TupleShape, Verbatim

__all__ = ["BodyReader"]

_DEEPEST_COMPUTATION = 20
_PARTS = ("root", "target", "head", "arguments", "attributes", "metadata", "more")
_RESERVED = {
    *DTYPES,
    *("nan", "true", "false", "inf", "HloModule", "ENTRY", "ROOT", "FileLocations", "FileNames"),
    *("FunctionNames", "StackFrames", "maximal", "replicated", "manual", "last_tile_dim_replicate"),
    *("shard_as", "shard_like", "unknown", "unreduced"),
}


class BodyReader(ArgumentReader):
    """Reads computations' bodies of ``text``, which has the offsets of ``source``, into a module; has the
    computations read so far.
    """

    def __init__(self, source: Source, text: str, strict: bool) -> None:
        super().__init__(Module(source.name, source), strict)
        self.source = source
        self.text = text
        self.computations: dict[str, Computation] = {}

    def body(self, scope: TextScope) -> None:
        """Add the instructions of a computation."""
        computation = scope.computation
        instruction: Instruction
        root: Instruction | None = None
        for item, more, start in self.items(scope):
            instruction, is_root = self.item(scope, item, more, start)
            if is_root:
                if root is not None:
                    raise self.second_root(computation, root, instruction)
                root = instruction
        computation.root = root or instruction
        self.check_parameters(computation)

    def second_root(
        self, computation: Computation, root: Instruction, other: Instruction
    ) -> Problem:
        """The mistake of two instructions that are marked as one computation's root."""
        message = f"a second instruction is marked ROOT in {computation.name!r}"
        notes = (f"the first is {root.name!r} on line {self.source.line(root.offset)}",)
        return Problem(other.offset, message, other.name, notes=notes)

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

    def item(
        self, scope: TextScope, item: Any, more: list[AttributeText] | None, start: int
    ) -> tuple[Instruction, bool]:
        """One of ``items``, and whether it is marked as the root."""
        if type(item) is InstructionText:
            return self.instruction(scope, item)
        return self.line(scope, item, more, start)

    def line(
        self, scope: TextScope, match: re.Match[str], more: list[AttributeText] | None, start: int
    ) -> tuple[Instruction, bool]:
        """An ordinary instruction, with further attributes perhaps; ``start`` is where its lines do."""
        root, name, head_text, arguments, before, metadata, after = match.group(*_PARTS)
        offset = start + match.start("target")
        if name[0] == "%":
            name = name[1:]
            offset += 1
        if name in scope.computation.by_name or name in _RESERVED or name[:2] == "__":
            self.check_name(scope, name, offset)
        head = HEADS.get(head_text)
        if head is None:
            head = read_head(head_text, start + match.start("head"))
            if head.row.unknown:
                self.known_opcode(head, start + match.end("head") - len(head.opcode))
        found = head.row
        places = None
        if more is None:
            tail_text = before or after or ""
            if before and after:
                tail_text = before + after
            tail = found.known(tail_text)
            if tail is None or not tail.simple:
                places = self.places(match, start)
                tail = tail or self.tail(found, tail_text, places)
        else:
            places = TailPlaces(0)
            tail = self.more(scope, found, match, start, more)
        instruction = self.begun(name, head, tail, offset)
        if metadata is not None:
            instruction.metadata = Metadata(metadata[metadata.index("{") :], decode_metadata)
        if arguments is not None:
            self.arguments(scope, instruction, head, arguments, start + match.start("arguments"))
        elif found.role:
            raise Problem(start + match.end("head") + 1, f"{head.opcode} needs {ROLES[found.role]}")
        self.finish(scope, instruction, head, tail, places)
        return instruction, root is not None

    def places(self, match: re.Match[str], start: int) -> TailPlaces:
        before, after = match.group("attributes", "more")
        if before is None:
            return TailPlaces(start + match.start("more") if after else start + match.end("head"))
        if after is None:
            return TailPlaces(start + match.start("attributes"))
        gap = match.start("more") - match.end("attributes")
        return TailPlaces(start + match.start("attributes"), len(before), gap)

    def tail(self, found: OpcodeSchema, text: str, places: TailPlaces) -> Tail:
        try:
            return found.tail(text)
        except Problem as problem:
            problem.offset = places.of(problem.offset)
            raise problem from None

    def more(
        self,
        scope: TextScope,
        found: OpcodeSchema,
        match: re.Match[str],
        start: int,
        more: list[AttributeText],
    ) -> Tail:
        """Attributes of which the last ones were not part of an ordinary line."""
        entries = [
            entry.moved(start + match.start(group))
            for group in ("attributes", "more")
            if match.group(group)
            for entry in read("attributes", match.group(group))
        ]
        entries += [entry.moved(scope.base) for entry in more]
        twice = match["metadata"] and [entry for entry in entries if entry.name == "metadata"]
        if twice:
            raise Problem(twice[0].offset, "attribute 'metadata' is given twice", "metadata")
        return found.read(self.text, entries)

    def begun(self, name: str, head: Head, tail: Tail, offset: int) -> Instruction:
        """An instruction with its plain attributes."""
        if tail.missing:
            raise Problem(offset, tail.missing, name)
        return Instruction(name, head.opcode, NO_SHAPE, (), tail.plain.copy(), None, offset)

    def instruction(self, scope: TextScope, syntax: InstructionText) -> tuple[Instruction, bool]:
        """An instruction read token by token."""
        base = scope.base
        name = syntax.name.lstrip("%")
        offset = base + syntax.name.end - len(name)
        if name in scope.computation.by_name or name in _RESERVED or name[:2] == "__":
            self.check_name(scope, name, offset)
        head = head_of(syntax.shape, syntax.opcode)
        if head.row.unknown:
            self.known_opcode(head, base + syntax.opcode.begin)
        tail = head.row.read(self.text, [entry.moved(base) for entry in syntax.attributes])
        instruction = self.begun(name, head, tail, offset)
        self.given_arguments(scope, instruction, head, syntax.arguments)
        self.finish(scope, instruction, head, tail, TailPlaces(0))
        return instruction, syntax.root

    def check_name(self, scope: TextScope, name: str, offset: int) -> None:
        """A name may be used once in a computation; some words need ``%``, types are not names."""
        computation = scope.computation
        first = computation.by_name.get(name)
        if first is not None:
            message = f"instruction {name!r} is defined twice in {computation.name!r}"
            notes = (f"the first is on line {self.source.line(first.offset)}",)
            raise Problem(offset, message, name, notes=notes)
        self.check_word(name, offset)

    def check_word(self, name: str, offset: int) -> None:
        """Element types are not names, keywords only with ``%``; XLA keeps ``__`` for itself."""
        reserved = name.startswith("__") and not name.startswith("__xla_")
        keyword = name in _RESERVED and self.text[offset - 1 : offset] != "%"
        if name in DTYPES or keyword or reserved:
            raise Problem(offset, f"{name!r} cannot be a name", name)

    def finish(
        self,
        scope: TextScope,
        instruction: Instruction,
        head: Head,
        tail: Tail,
        places: TailPlaces | None,
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
                instruction.name,
            )
        if head.shape is not None:
            instruction.shape = head.shape
            if found.opcode in MADE:
                self.make_shape(instruction)
        if found.wrapped is not None:
            self.wrap(instruction, found)
        if head.shape is None:
            instruction.shape = self.inferred(instruction, found)
        if self.strict:
            for message in objections(instruction, found):
                raise Problem(instruction.offset, message, instruction.name)
        edit.append(scope.computation, instruction)

    def make_shape(self, instruction: Instruction) -> None:
        """Take the shape XLA's parser makes from the operands; say so where another one is written."""
        shape = made_otherwise(instruction)
        if shape is not None:
            self.result.warnings.append(
                (
                    instruction.offset,
                    f"the shape of {instruction.name!r} is read as {shape}: XLA takes it from the operands",
                )
            )
            instruction.shape = shape

    def inferred(self, instruction: Instruction, found: OpcodeSchema) -> Shape:
        if not found.inferable or (self.strict and found.opcode in ALWAYS_WRITTEN):
            raise Problem(
                instruction.offset,
                f"{instruction.name!r} needs a shape: that of {found.word} cannot be inferred",
                instruction.name,
            )
        try:
            return with_layout(instruction, infer_shape(instruction))
        except ShapeError as error:
            raise Problem(
                instruction.offset,
                f"the shape of {instruction.name!r} cannot be inferred: {error.message}",
                instruction.name,
            ) from None

    def wrap(self, instruction: Instruction, found: OpcodeSchema) -> None:
        """``negate-start(p)`` is ``async-start(p), calls=c`` with a computation of one negate."""
        if found.opcode != "async-start":
            return
        shape = instruction.shape
        if not (isinstance(shape, TupleShape) and len(shape.elements) >= 2):
            raise Problem(
                instruction.offset,
                f"{found.word} needs a shape ((operands), result, ...)",
                instruction.name,
            )
        assert found.wrapped is not None
        low, high = op_of(found.wrapped).arity
        if not low <= len(instruction.operands) <= high:
            raise Problem(
                instruction.offset,
                f"{found.wrapped} takes {_range(low, high)}, {instruction.name!r} starts it with "
                f"{len(instruction.operands)}",
                instruction.name,
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

    def links(
        self, scope: TextScope, instruction: Instruction, tail: Tail, places: TailPlaces
    ) -> None:
        """Names in attributes become computations and instructions."""
        for one in tail.unfamiliar:
            self.tolerate(Problem(places.of(one.offset), one.message, one.width))
        for name in tail.unknown:
            instruction.attributes[name] = self.kept(instruction.attributes[name])
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
                raise undefined(scope, other, places.of(at), other)
            edit.add_control_edge(before, instruction)

    def kept(self, value: Verbatim) -> Verbatim | Computation | tuple[Computation, ...]:
        """The value of an unknown attribute: as it is written, or the computations it names."""
        text = value.text
        if text.startswith("%") and text[1:] in self.computations:
            return self.computations[text[1:]]
        names = [part.strip() for part in text[1:-1].split(",")] if text[0] == "{" else []
        found = [self.computations.get(name[1:]) for name in names if name.startswith("%")]
        called = tuple(computation for computation in found if computation is not None)
        return called if called and len(called) == len(names) else value

    def called(self, instruction: Instruction, attribute: str, text: str, at: int) -> Computation:
        """A computation by its name, or made of the instructions in braces."""
        if not text.startswith("{"):
            name = text.lstrip("%")
            found = self.computations.get(name)
            if found is None:
                raise Undefined(at, name, None, text)
            return found
        computation = Computation(f"{instruction.name}.{attribute}", at)
        with self.nesting(at, _DEEPEST_COMPUTATION):
            self.body(TextScope(computation, read("body", text[1:-1], at + 1), at + 1))
        edit.add_computation(self.result, computation)
        self.computations[computation.name] = computation
        return computation


def _range(low: int, high: int) -> str:
    if low == high:
        return f"{low} operand{'s' * (low != 1)}"
    return f"{low} to {high} operands" if high < MANY else f"at least {low} operands"
