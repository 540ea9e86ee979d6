"""What instructions carry along, from protos to the text HLO has for it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from hloopt.proto.messages import decode, text
from hloopt.proto.problem import Problem
from hloopt.types import Metadata
from hloopt.types.strings import quote

__all__ = [
    "METADATA",
    "aliasing_text",
    "frontend_text",
    "json_or_string",
    "origin_text",
    "read_metadata",
    "replication_text",
    "statistics_text",
]

_DEEPEST = 64
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
# In the order of the text.
METADATA = (
    "op_type",
    "op_name",
    "source_file",
    "source_line",
    "source_end_line",
    "source_column",
    "source_end_column",
    "profile_type",
    "deduplicated_name",
    "scheduling_name",
    "stack_frame_id",
)


def read_metadata(data: bytes, warnings: list[str]) -> Metadata:
    """``{op_name="..." stack_frame_id=3}``; empty braces for metadata that says nothing."""
    proto = decode("OpMetadata", data, warnings)
    known = {field.name: value for field, value in proto.ListFields()}
    fields: dict[str, Any] = {}
    for name in METADATA:
        value = known.pop(name, None)
        if value:
            is_text, is_int = isinstance(value, bytes), isinstance(value, int)
            fields[name] = text(value) if is_text else value if is_int else tuple(value)
    if "metadata_payload" in known:
        payload = known.pop("metadata_payload")
        if payload.HasField("value"):
            fields["metadata_payload"] = text(payload.value)
    for name in known:
        told = f"metadata has a field {name}, which has no text form; it is left out"
        if told not in warnings:
            warnings.append(told)
    return Metadata.of(fields)


# A value that is a dictionary stands without quotes: balanced braces, strings skipped.
_PIECE = re.compile(r'[^{}"]+|"(?:[^"\\]|\\.)*"|[{}]', re.DOTALL)


def is_braced(value: str) -> bool:
    """Whether XLA's lexer takes the value as a dictionary: braces around it, balanced."""
    if not value.startswith("{"):
        return False
    depth = at = 0
    while at < len(value):
        match = _PIECE.match(value, at)
        if match is None:
            return False
        at = match.end()
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if not depth:
            return at == len(value)
    return False


def json_or_string(value: str) -> str:
    """A backend configuration or the value of a frontend attribute, as it stands in the text."""
    return value if is_braced(value) else quote(value)


def frontend_text(proto: Any) -> str:
    """``{key="value",key2={...}}``, sorted by keys, or an empty text where there are none."""
    pairs = sorted((text(entry.key), text(entry.value)) for entry in proto.map)
    if not pairs:
        return ""
    for key, _ in pairs:
        _check_key(key, "frontend_attributes")
    return f"{{{','.join(f'{key}={json_or_string(value)}' for key, value in pairs)}}}"


def _check_key(key: str, field: str) -> None:
    """Raise ``Problem`` for a key that would be something else in a text: it stands there without quotes."""
    if not _KEY.fullmatch(key):
        raise Problem(f"{key!r} cannot stand before a value", field)


def statistics_text(proto: Any) -> str:
    """``{visualizing_index=0,name=1.5}``, or an empty text where there are none."""
    if not proto.statistics:
        return ""
    parts = [f"visualizing_index={proto.stat_index_to_visualize}"]
    for entry in proto.statistics:
        _check_key(text(entry.stat_name), "statistics_viz")
        parts.append(f"{text(entry.stat_name)}={entry.stat_val:.6g}")
    return f"{{{','.join(parts)}}}"


def replication_text(proto: Any) -> str:
    """``{true,false}``."""
    flags = proto.replicated_at_leaf_buffers
    return f"{{{','.join('true' if flag else 'false' for flag in flags)}}}" if flags else ""


def aliasing_text(entries: Sequence[Any]) -> str:
    """``{{0}: (1, {})}``: parts of the result in the buffers of operands."""
    parts = [
        f"{_braces(entry.output_shape_index)}: "
        f"({entry.operand_index}, {_braces(entry.operand_shape_index)})"
        for entry in entries
    ]
    return f"{{{', '.join(parts)}}}" if parts else ""


def _braces(index: Sequence[int]) -> str:
    return f"{{{','.join(map(str, index))}}}"


# ---- where values come from -------------------------------------------------------------------------


def origin_text(proto: Any) -> str:
    """``{({"a"}, {"b" {0}})}``: for every leaf the array of the first module it is."""
    if proto.is_synthetic_call:
        return "{[synthetic_call]}"
    leaves = {tuple(entry.shape_index): entry for entry in proto.elements}
    if not leaves:
        return ""
    return f"{{{''.join(_tree(leaves, (), 0))}}}"


def array_text(proto: Any) -> str:
    """``{"name" {0}}``: an array of the first module, or ``{}``."""
    if not proto.instruction_name:
        return "{}"
    index = f" {{{','.join(map(str, proto.shape_index))}}}" if proto.shape_index else ""
    return f"{{{quote(text(proto.instruction_name))}{index}}}"


def _tree(leaves: dict[tuple[int, ...], Any], index: tuple[int, ...], depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        raise Problem(f"nested more than {_DEEPEST} levels deep", "elements")
    if index in leaves:
        yield array_text(leaves[index].original_array)
        return
    below = [key[depth] for key in leaves if len(key) > depth and key[:depth] == index]
    if not below or min(below) < 0 or max(below) > len(leaves):
        raise Problem(f"no element for {index}", "elements")
    yield "("
    for number in range(max(below) + 1):
        if number:
            yield ", "
        yield from _tree(leaves, (*index, number), depth + 1)
    yield ")"
