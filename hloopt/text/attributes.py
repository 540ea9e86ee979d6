"""Attributes: values by the kind the op table gives them, read once per distinct text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from hloopt.dataclass import dataclass
from hloopt.ops import OPS, Attribute, Kind, is_attribute, op_of
from hloopt.ops.attributes import COMMON_ATTRIBUTES
from hloopt.text.grammar import pattern, read, starts
from hloopt.text.problem import Problem, did_you_mean
from hloopt.text.records import AttributeText
from hloopt.types import (
    METADATA_TEXTS,
    FrontendAttributes,
    MeshGroups,
    Metadata,
    Verbatim,
    stray_key,
)

__all__ = [
    "PHASES",
    "Called",
    "OpcodeSchema",
    "Tail",
    "decode_metadata",
    "read_header_attribute",
    "row",
    "verbatim",
]

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
    "origin_recovery_table": "origin_recovery_table",
    "debug_attributes": "raw",
}
_KEPT_AS_TEXT = {"frontend_attributes", "origin_recovery_table", "raw"}
# Kept as text, and of a form that grows from one XLA to the next.
_EVOLVING = {"sharding", "origin", "origin_recovery_table", "statistics"}
_METADATA = METADATA_TEXTS | {
    *("source_line", "source_end_line", "source_column", "source_end_column"),
    *("stack_frame_id", "size_of_generated_code_in_bytes", "size_of_memory_working_set_in_bytes"),
    "profile_type",
}

# The arguments of parameter and constant stand in the op table beside the attributes.
_ARGUMENTS = {"literal", "parameter_number"}
PHASES = ("start", "update", "done")
_SHORT_ALIAS = re.compile(r"\}[^{}(]*?:[^{}(]*?(-?[0-9]+)")
_MOST_OWNERS = 3
_MOST_TAILS = 20_000
_MOST_ROWS = 10_000
_LONGEST_TAIL = 4_000


@dataclass(frozen=True, slots=True)
class Called:
    """The name of a computation, or instructions in braces, and where it stands in the tail."""

    text: str
    offset: int


class Tail:
    """All attributes of an instruction, before names are looked up in a module.

    ``plain`` holds every attribute but metadata and control predecessors in the order of the text,
    None in the place of computations (``calls``) and literals, which are made per instruction.
    ``unknown`` names attributes that the op does not have, ``unfamiliar`` are the mistakes that a strict
    reading finds in these and in others; ``missing`` says which attribute the op needs.
    Offsets count from the start of the tail.
    """

    __slots__ = (
        "calls",
        "literals",
        "metadata",
        "missing",
        "plain",
        "predecessors",
        "simple",
        "unfamiliar",
        "unknown",
    )

    def __init__(self) -> None:
        self.plain: dict[str, Any] = {}
        self.calls: list[tuple[str, list[Called], bool]] = []
        self.literals: list[tuple[str, Any, int]] = []
        self.predecessors: list[tuple[str, int]] = []
        self.metadata: Metadata | None = None
        self.missing = ""
        self.unfamiliar: list[Problem] = []
        self.unknown: list[str] = []
        self.simple = True


class OpcodeSchema:
    """An opcode as the parser sees it: its schema, and the tails it was seen with.

    ``wrapped`` is set for ``negate-start`` and the like: an asynchronous op that names the op its
    computation consists of.  ``unknown`` opcodes are in no table.
    """

    __slots__ = (
        "_schema",
        "_tails",
        "arity",
        "inferable",
        "opcode",
        "required",
        "role",
        "unknown",
        "word",
        "wrapped",
    )

    def __init__(self, word: str) -> None:
        self.word = word
        self.wrapped, self.opcode = _unwrapped(word)
        self.unknown = self.opcode not in OPS
        op = op_of(self.opcode)
        self.arity = op.arity
        self.inferable = op.inferable
        # 1: the arguments are a literal, 2: a parameter's number, 0: operands
        self.role = {"constant": 1, "parameter": 2}.get(self.opcode, 0)
        own = [entry for entry in op.attributes if not (self.role and entry.name in _ARGUMENTS)]
        if self.wrapped is not None:
            own = [
                *(entry for entry in own if entry.name != "calls"),
                *self.wrapped_schema().values(),
            ]
        self.required = [entry.name for entry in own if entry.required]
        self._schema = {entry.name: entry for entry in (*COMMON_ATTRIBUTES, *own)}
        self._tails: dict[str, Tail] = {}

    def wrapped_schema(self) -> dict[str, Attribute]:
        """The attributes of the op inside of ``negate-start``; update and done repeat none."""
        if self.wrapped is None or self.opcode != "async-start":
            return {}
        return {entry.name: entry for entry in OPS[self.wrapped].attributes}

    def known(self, text: str) -> Tail | None:
        """The tail of this text when it was seen before."""
        return self._tails.get(text)

    def tail(self, text: str) -> Tail:
        """The attributes written ``, name=value, ...``; raises ``Problem``."""
        tail = self._tails.get(text)
        if tail is None:
            tail = self.read(text, _entries(text))
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
                raise Problem(entry.offset, f"attribute {entry.name!r} is given twice", entry.name)
            seen.add(entry.name)
            self._add(tail, entry, text[entry.start : entry.end])
        for name in self.required:
            if name not in seen:
                self._misspelt(tail, name)
                tail.missing = tail.missing or f"{self.word} needs attribute {name!r}"
        tail.simple = not (
            tail.calls or tail.literals or tail.predecessors or tail.metadata or tail.unfamiliar
        )
        return tail

    def _misspelt(self, tail: Tail, wanted: str) -> None:
        """Raise what is wrong with the unknown attribute that is meant to be the one that is missing."""
        for unfamiliar in tail.unfamiliar:
            if unfamiliar.message.endswith(f"; did you mean {wanted!r}?"):
                raise unfamiliar

    def _add(self, tail: Tail, entry: AttributeText, text: str) -> None:
        name = entry.name
        schema = self._schema.get(name)
        if schema is None:
            message = f"{self.word} has no attribute {name!r}"
            if not self.unknown:
                message += _owners(name) or did_you_mean(name, self._schema)
                tail.unfamiliar.append(Problem(entry.offset, message, name))
            key = stray_key(name) if is_attribute(name) else name
            tail.unknown.append(key)
            tail.plain[key] = Verbatim(text)
            return
        try:
            value = _value(schema, text)
        except Problem as problem:
            value = Verbatim(text)
            tail.unfamiliar.append(_evolved(problem, entry, name, text))
        if name == "metadata":
            tail.metadata = value
            for key in (key for key in value.fields if key not in _METADATA):
                message = f"metadata has no {key!r}{did_you_mean(key, _METADATA)}"
                tail.unfamiliar.append(Problem(entry.start + text.index(key), message, key))
        elif name == "control-predecessors":
            tail.predecessors = [(other, entry.start + offset) for other, offset in value]
        elif schema.kind in {Kind.COMPUTATION, Kind.COMPUTATIONS}:
            tail.plain[name] = None
            calls = [Called(text[start:end], entry.start + start) for start, end in value]
            tail.calls.append((name, calls, schema.kind is Kind.COMPUTATIONS))
        elif schema.kind is Kind.LITERAL:
            tail.plain[name] = None
            tail.literals.append((name, value, entry.start))
        else:
            tail.plain[name] = value


def _entries(text: str) -> list[AttributeText]:
    """Where the names and values of LINE_ATTRIBUTES stand."""
    return [
        AttributeText(match["key"][:-1], match.start("key"), *match.span("value"))
        for match in pattern("LINE_ATTRIBUTE").finditer(text)
    ]


def _evolved(problem: Problem, entry: AttributeText, rule: str, text: str) -> Problem:
    """A mistake of a strict reading alone: a value of a form that grows.  Raises any other one."""
    problem = problem.moved(entry.start)
    if rule not in _EVOLVING or text[0] != "{":
        raise problem from None
    return Problem(problem.offset, f"{rule}=: {problem.message}", problem.width)


def _owners(name: str) -> str:
    """Which ops have an attribute of this name."""
    owners = [op.opcode for op in OPS.values() if any(own.name == name for own in op.attributes)]
    if not owners:
        return ""
    more = ", ..." if len(owners) > _MOST_OWNERS else ""
    return f": it belongs to {', '.join(owners[:_MOST_OWNERS])}{more}"


def _unwrapped(word: str) -> tuple[str | None, str]:
    """``negate-start`` is ``async-start`` around ``negate``; other opcodes stand for themselves.

    Ops that have an op of their own for their end are not wrapped.
    """
    inner, _, phase = word.rpartition("-")
    if word in OPS or phase not in PHASES or inner not in OPS or f"{inner}-done" in OPS:
        return None, word
    return inner, f"async-{phase}"


def _value(schema: Attribute, text: str) -> Any:
    if schema.kind is Kind.VERBATIM:
        name = schema.name
        if name == "metadata":
            metadata = Metadata(text, decode_metadata)
            metadata.fields  # noqa: B018 - to find mistakes in it now
            return metadata
        if name == "control-predecessors":
            return read("names", text)
        return verbatim(name, text)
    if schema.kind is Kind.COMPUTATION and not text.startswith("{"):
        return [(0, len(text))]
    value = _read_shared(_START_OF[schema.kind], text)
    if isinstance(value, MeshGroups):
        return Verbatim(text, value)
    if schema.kind is Kind.COMPUTATION:
        return [value]
    if schema.words and value not in schema.words:
        raise Problem(
            0,
            f"{schema.name} cannot be {value!r}{did_you_mean(value, schema.words)}",
            text,
            notes=(f"it can be {', '.join(schema.words)}",),
        )
    return value


def verbatim(name: str, text: str) -> Verbatim:
    """Text that is kept, beside what the rule of an attribute's name makes of it; raises ``Problem``."""
    value = _read_shared(name if name in starts() else "raw", text)
    if name == "frontend_attributes":
        value = FrontendAttributes(tuple((key, text[start:end]) for key, start, end in value))
    return Verbatim(text, value)


@lru_cache(maxsize=_MOST_TAILS)
def _read_once(start: str, text: str) -> Any:
    return read(start, text)


def _read_shared(start: str, text: str) -> Any:
    """As ``read``, once per distinct text unless it is long: the values are frozen."""
    return _read_once(start, text) if len(text) <= _LONGEST_TAIL else read(start, text)


@lru_cache(maxsize=_MOST_TAILS)
def decode_metadata(text: str) -> Mapping[str, Any]:
    """The sub-attributes of ``{op_name="..." ...}``."""
    fields: dict[str, Any] = read("metadata", text)
    return fields


def read_header_attribute(entry: AttributeText, text: str) -> tuple[Any, Problem | None]:
    """The value of an attribute of the module, and what XLA has against it; raises ``Problem``."""
    start = _HEADER.get(entry.name)
    value_text = text[entry.start : entry.end]
    if start is None:
        message = f"a module has no attribute {entry.name!r}{did_you_mean(entry.name, _HEADER)}"
        return Verbatim(value_text), Problem(entry.offset, message, entry.name)
    try:
        value = verbatim(start, value_text) if start in _KEPT_AS_TEXT else read(start, value_text)
    except Problem as problem:
        return Verbatim(value_text), _evolved(problem, entry, start, value_text)
    short = _SHORT_ALIAS.search(value_text) if start == "input_output_alias" else None
    if short is None:
        return value, None
    message = f"parameter {short[1]} is written without parentheses: ({short[1]}, {{}})"
    return value, Problem(entry.start + short.start(1), message, short[1])


_ROWS: dict[str, OpcodeSchema] = {}


def row(word: str) -> OpcodeSchema:
    """The row of an opcode; one that no table has is ``unknown``."""
    found = _ROWS.get(word)
    if found is None:
        if len(_ROWS) >= _MOST_ROWS:
            _ROWS.clear()
        found = _ROWS[word] = OpcodeSchema(word)
    return found
