"""Attributes: values by the kind the op table gives them, read once per distinct text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hloopt.ops import OPS, Attribute, Kind, OpDef
from hloopt.ops.attributes import COMMON_ATTRIBUTES
from hloopt.text.grammar import STARTS, read
from hloopt.text.hints import did_you_mean
from hloopt.text.problem import Problem
from hloopt.text.syntax import AttributeText
from hloopt.types import Metadata, Verbatim

__all__ = ["Row", "Tail", "decode_metadata", "read_header_attribute"]

_START_OF = {
    Kind.INT: "integer",
    Kind.FLOAT: "float",
    Kind.BOOL: "boolean",
    Kind.WORD: "word",
    Kind.STRING: "string",
    Kind.INTS: "integers",
    Kind.GROUPS: "groups",
    Kind.SLICES: "slices",
    Kind.WINDOW: "window",
    Kind.PADDING: "padding",
    Kind.CONV_DIMS: "conv_dims",
    Kind.COMPUTATION: "called",
    Kind.COMPUTATIONS: "called_list",
    Kind.SHAPE: "shape",
    Kind.SHAPES: "shape_list",
    Kind.LITERAL: "shaped_literal",
}

_HEADER = {
    "is_scheduled": "boolean",
    "alias_passthrough_params": "boolean",
    "replica_count": "integer",
    "num_partitions": "integer",
    "entry_computation_layout": "entry_computation_layout",
    "input_output_alias": "input_output_alias",
    "buffer_donor": "buffer_donor",
    "allow_spmd_sharding_propagation_to_parameters": "flags",
    "allow_spmd_sharding_propagation_to_output": "flags",
    "frontend_attributes": "frontend_attributes",
    "origin_recovery_table": "raw",
    "debug_attributes": "raw",
}
_VERBATIM_STARTS = {"frontend_attributes", "raw"}


class Tail:
    """All attributes of an instruction, before names of computations are looked up.

    ``plain`` holds every attribute but metadata and control predecessors, in the order of the text;
    ``calls`` (attribute, spans of names or bodies in place) have to be put into it per module, so do
    ``literals``.  Offsets count from the start of the tail.
    """

    __slots__ = ("calls", "literals", "metadata", "plain", "predecessors", "simple")

    def __init__(self) -> None:
        self.plain: dict[str, Any] = {}
        self.calls: list[tuple[str, bool, list[tuple[int, int]]]] = []
        self.literals: list[tuple[str, int, Any]] = []
        self.predecessors: list[tuple[str, int]] = []
        self.metadata: Metadata | None = None
        self.simple = True


class Row:
    """An opcode as the parser sees it: its schema, and the tails it was seen with."""

    __slots__ = ("_schema", "_tails", "high", "infers", "low", "op", "opcode", "role")

    def __init__(self, op: OpDef) -> None:
        self.op = op
        self.opcode = op.opcode
        self.low, self.high = op.arity
        # 1: the arguments are a literal, 2: a parameter's number, 0: operands
        self.role = {"constant": 1, "parameter": 2}.get(op.opcode, 0)
        own = [entry for entry in op.attributes if not self.role or entry.name not in _ARGUMENTS]
        self._schema = {entry.name: entry for entry in (*COMMON_ATTRIBUTES, *own)}
        self._tails: dict[str, Tail] = {}

    def tail(self, text: str) -> Tail:
        """The attributes written ``, name=value, ...``; raises ``Problem``."""
        tail = self._tails.get(text)
        if tail is None:
            tail = self.read(text, read("attributes", text) if text else [])
            if len(self._tails) >= _MOST_TAILS:
                self._tails.clear()
            if len(text) <= _LONGEST_TAIL:
                self._tails[text] = tail
        return tail

    def read(self, text: str, entries: Sequence[AttributeText]) -> Tail:
        """The attributes whose values stand at the given places of ``text``."""
        tail = Tail()
        seen: set[str] = set()
        for entry in entries:
            if entry.name in seen:
                raise Problem(
                    entry.offset, f"attribute {entry.name!r} is given twice", width=len(entry.name)
                )
            seen.add(entry.name)
            self._add(tail, entry, text[entry.start : entry.end])
        for required in self.op.attributes:
            if required.required and required.name not in seen and required.name in self._schema:
                raise Problem(0, f"{self.opcode} needs attribute {required.name!r}")
        tail.simple = not (tail.calls or tail.literals or tail.predecessors or tail.metadata)
        return tail

    def _add(self, tail: Tail, entry: AttributeText, text: str) -> None:
        schema = self._schema.get(entry.name)
        if schema is None:
            raise Problem(
                entry.offset,
                f"{self.opcode} has no attribute {entry.name!r}"
                f"{did_you_mean(entry.name, self._schema)}",
                width=len(entry.name),
            )
        try:
            value = _value(schema, text)
        except Problem as problem:
            raise problem.moved(entry.start) from None
        name, kind = schema.name, schema.kind
        if name == "metadata":
            tail.metadata = value
        elif name == "control-predecessors":
            tail.predecessors = [(other, entry.start + offset) for other, offset in value]
        elif kind in {Kind.COMPUTATION, Kind.COMPUTATIONS}:
            many = kind is Kind.COMPUTATIONS
            spans = value if many else [value]
            spans = [(entry.start + start, entry.start + end) for start, end in spans]
            tail.plain[name] = None
            tail.calls.append((name, many, spans))
        elif kind is Kind.LITERAL:
            tail.plain[name] = None
            tail.literals.append((name, entry.start, value))
        else:
            tail.plain[name] = value


_ARGUMENTS = {"literal", "parameter_number"}
_MOST_TAILS = 20_000
_LONGEST_TAIL = 4_000


def _value(schema: Attribute, text: str) -> Any:
    if schema.kind is Kind.VERBATIM:
        name = schema.name
        if name == "metadata":
            read("metadata", text)
            return Metadata(text, decode_metadata)
        if name == "control-predecessors":
            return read("names", text)
        read(name if name in STARTS else "raw", text)
        return Verbatim(text)
    value = read(_START_OF[schema.kind], text)
    if value is Verbatim:
        return Verbatim(text)
    if schema.words and value not in schema.words:
        raise Problem(
            0,
            f"{schema.name} cannot be {value!r}{did_you_mean(value, schema.words)}",
            width=len(text),
            notes=(f"it can be {', '.join(schema.words)}",),
        )
    return value


def decode_metadata(text: str) -> Mapping[str, Any]:
    """The sub-attributes of ``{op_name="..." ...}``."""
    fields: dict[str, Any] = read("metadata", text)
    return fields


def read_header_attribute(entry: AttributeText, text: str) -> Any:
    """The value of an attribute of the module; raises ``Problem``."""
    start = _HEADER.get(entry.name)
    if start is None:
        raise Problem(
            entry.offset,
            f"a module has no attribute {entry.name!r}{did_you_mean(entry.name, _HEADER)}",
            width=len(entry.name),
        )
    value_text = text[entry.start : entry.end]
    try:
        value = read(start, value_text)
    except Problem as problem:
        raise problem.moved(entry.start) from None
    return Verbatim(value_text) if start in _VERBATIM_STARTS else value


_ROWS: dict[str, Row] = {}


def row(opcode: str) -> Row | None:
    """The row of an opcode, or None where the table has none."""
    found = _ROWS.get(opcode)
    if found is None and opcode in OPS:
        found = _ROWS[opcode] = Row(OPS[opcode])
    return found
