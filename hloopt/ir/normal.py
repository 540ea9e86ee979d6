"""Normal forms of attributes, headers and shapes, without what only the writer chose."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import lru_cache
from typing import Any

from hloopt.ir.computation import Computation
from hloopt.ir.instruction import Instruction
from hloopt.ir.module import Module
from hloopt.types import (
    AliasEntry,
    ArrayShape,
    BufferShape,
    Domain,
    FrontendAttributes,
    IotaList,
    Literal,
    Shape,
    Sharding,
    TupleShape,
    Verbatim,
    descending,
)

__all__ = [
    "DEBUGGING",
    "normal_attributes",
    "normal_header",
    "normal_shape",
    "normal_thread",
    "without_metadata",
]

DEBUGGING = frozenset(("origin", "statistics", "origin_recovery_table", "debug_attributes"))
"""Attributes beside ``metadata`` that say where an instruction came from or how to draw it."""

# What XLA's parser takes where the attribute is left out.  A flag is false then, unless it has a third state.
_DEFAULTS: dict[str, object] = {
    "feature_group_count": 1,
    "batch_group_count": 1,
    "replica_count": 1,
    "num_partitions": 1,
    "schedule": "SCHEDULE_NONE",
    "api_version": "API_VERSION_ORIGINAL",
}
# Lists of dimensions whose order says nothing.
_SETS = frozenset((("reduce", "dimensions"), ("reverse", "dimensions")))
_NO_FLAGS = frozenset(("is_associative", "largest"))
_CACHED = 10_000
# Of what is kept as text: JSON and what this version does not know are made of words, strings and brackets.
_TOKEN = re.compile(
    r"""(?:\s+|/\*.*?\*/|//[^\n]*)+
      | ("(?:[^"\\]|\\.)*+" | '(?:[^'\\]|\\.)*+' | [^\s"'/{}()\[\],=:<>]++ | .)""",
    re.VERBOSE | re.DOTALL,
)
_MOST_DEVICES = 1 << 20


@lru_cache(maxsize=_CACHED)
def normal_shape(shape: Shape) -> Shape:
    """The shape with the usual layout in the place of none."""
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(map(normal_shape, shape.elements)))
    if isinstance(shape, BufferShape):
        element = normal_shape(shape.element)
        assert isinstance(element, ArrayShape), "a layout changes no kind of shape"
        return BufferShape(element)
    return shape if shape.layout is not None else replace(shape, layout=descending(shape.rank))


def normal_attributes(instruction: Instruction) -> dict[str, Any]:
    """An instruction's attributes sorted by name, without debugging and defaults."""
    found: dict[str, Any] = {}
    attributes = instruction.attributes
    for name in attributes if len(attributes) == 1 else sorted(attributes):
        value = attributes[name]
        kind = type(value)
        if kind is bool and not value and name not in _NO_FLAGS:
            continue
        if kind is tuple:
            if not value and _may_be_left_out(instruction, name):
                continue
            value = tuple(map(_normal_item, value))
            if (instruction.opcode, name) in _SETS:
                value = tuple(sorted(value))
        elif kind is Verbatim:
            if name in DEBUGGING:
                continue
            value = _normal_text(name, value)
        elif kind is IotaList:
            value = _groups(value)
        elif kind is Literal:
            value = _normal_literal(value)
        elif kind in _SHAPES:
            value = normal_shape(value)
        elif name in _DEFAULTS and value == _DEFAULTS[name]:
            continue
        found[name] = value
    return found


def normal_header(module: Module) -> dict[str, Any]:
    """The header's attributes sorted by name; the entry's layout is always among them."""
    attributes = dict(module.attributes)
    parameters, result = attributes.get("entry_computation_layout") or (
        module.entry.parameter_shapes,
        module.entry.result_shape,
    )
    attributes["entry_computation_layout"] = (
        tuple(map(normal_shape, parameters)),
        normal_shape(result),
    )
    found: dict[str, Any] = {}
    for name in sorted(attributes):
        value = attributes[name]
        if name in DEBUGGING or value is False or value == _DEFAULTS.get(name):
            continue
        if value == ():
            continue
        if name == "input_output_alias":
            value = tuple(sorted(map(_normal_alias, value), key=lambda entry: entry.output_index))
        elif name == "buffer_donor":
            value = tuple(sorted(value))
        elif isinstance(value, tuple) and not any(value):  # flags, one a parameter
            continue
        elif isinstance(value, Verbatim):
            value = _normal_text(name, value)
        found[name] = value
    return found


def normal_thread(computation: Computation) -> str | None:
    """The execution thread, None for the usual one."""
    thread = computation.execution_thread
    return None if thread == "main" else thread


_SHAPES = frozenset((ArrayShape, TupleShape, BufferShape))


def _may_be_left_out(instruction: Instruction, name: str) -> bool:
    schema = instruction.op.attribute(name)
    return schema is not None and not schema.required


def _normal_item(value: Any) -> Any:
    return normal_shape(value) if type(value) in _SHAPES else value


@lru_cache(maxsize=_CACHED)
def _normal_text(name: str, value: Verbatim) -> Verbatim:
    if name == "frontend_attributes":
        return Verbatim(_sorted_entries(value))
    if name in ("sharding", "domain"):
        return Verbatim(_one_spelling(without_metadata(value)))
    return Verbatim(_one_spelling(value.text))


def _normal_literal(literal: Literal) -> Literal:
    shape = normal_shape(literal.shape)
    assert not isinstance(shape, BufferShape), "a layout changes no kind of shape"
    return literal if shape is literal.shape else replace(literal, shape=shape)


def _normal_alias(entry: AliasEntry) -> AliasEntry:
    return entry if entry.kind else replace(entry, kind="may-alias")


@lru_cache(maxsize=_CACHED)
def _groups(groups: IotaList) -> tuple[tuple[int, ...], ...] | IotaList:
    """The groups one by one; as they are where they are too many, or where no such groups exist."""
    count, axes = math.prod(groups.dims), range(len(groups.reshape))
    agree = count == math.prod(groups.reshape) and 0 < count <= _MOST_DEVICES
    if not agree or sorted(groups.permutation or axes) != list(axes):
        return groups
    numbers, size = groups.numbers, count // groups.dims[0]
    return tuple(numbers[at : at + size] for at in range(0, count, size))


@lru_cache(maxsize=_CACHED)
def _one_spelling(text: str) -> str:
    """The text without comments, with a blank only between a word and what came before it."""
    parts: list[str] = []
    before = ""
    for piece in _TOKEN.findall(text):
        if piece and before and before not in "{([,=:<>" and piece not in "{([})],=:<>":
            parts.append(" ")
        parts.append(piece)
        before = piece or before
    return "".join(parts)


def without_metadata(value: Verbatim) -> str:
    """A sharding or a domain without metadata, in one spelling; the text as it is where there is none."""
    record = value.value
    if "metadata" not in value.text or not isinstance(record, Sharding | Domain):
        return value.text
    return _one_spelling(str(record.without_metadata()))


def _sorted_entries(value: Verbatim) -> str:
    """``{b="2", a="1"}`` as ``{a="1",b="2"}``, in one spelling."""
    record = value.value
    if not isinstance(record, FrontendAttributes):
        return _one_spelling(value.text)
    entries = (_one_spelling(f"{name}={text}") for name, text in record.written)
    return f"{{{','.join(sorted(entries))}}}"
