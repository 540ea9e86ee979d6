"""What instructions carry along, as protos, both ways."""

from __future__ import annotations

import re
from typing import Any

from hloopt.proto import ProtoProblem
from hloopt.proto.entry import said
from hloopt.proto.messages import decode, encoded, new, text
from hloopt.types import (
    FrontendAttributes,
    Metadata,
    Origin,
    OriginalArray,
    OriginTree,
    Verbatim,
)
from hloopt.types.strings import quote

__all__ = [
    "json_or_string",
    "read_array",
    "read_frontend",
    "read_metadata",
    "read_origin",
    "read_replication",
    "read_statistics",
    "write_array",
    "write_frontend",
    "write_metadata",
    "write_origin",
    "write_replication",
    "write_statistics",
]

_DEEPEST = 64
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
# In the order of the text.
_METADATA = (
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
_NUMBERS = ("size_of_generated_code_in_bytes", "size_of_memory_working_set_in_bytes")


def read_metadata(data: bytes, warnings: list[str]) -> Metadata | None:
    """``{op_name="..." stack_frame_id=3}``; None where it says nothing."""
    proto = decode("OpMetadata", data, warnings)
    known = {field.name: value for field, value in proto.ListFields()}
    fields: dict[str, Any] = {}
    for name in _METADATA:
        value = known.pop(name, None)
        if value:
            is_text, is_int = isinstance(value, bytes), isinstance(value, int)
            fields[name] = text(value) if is_text else value if is_int else tuple(value)
    if "metadata_payload" in known:
        payload = known.pop("metadata_payload")
        if payload.HasField("value"):
            fields["metadata_payload"] = text(payload.value)
    for name in known:
        message = f"metadata has a field {name}, which has no text form; it is left out"
        if message not in warnings:
            warnings.append(message)
    return Metadata.of(fields) if fields else None


def write_metadata(metadata: Metadata) -> Any:
    """An ``OpMetadata``; raises ``ProtoProblem`` for a field the proto has not."""
    proto = new("OpMetadata")
    for name, value in metadata.fields.items():
        if name == "metadata_payload":
            proto.metadata_payload.value = encoded(str(value))
        elif isinstance(value, tuple):
            proto.profile_type.extend(value)
        elif name in _METADATA or name in _NUMBERS:
            setattr(proto, name, encoded(value) if isinstance(value, str) else value)
        else:
            raise ProtoProblem(f"metadata has a field {name!r}, the proto has none", "metadata")
    return proto


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


def read_frontend(proto: Any) -> Verbatim | None:
    """``{key="value",key2={...}}``, sorted by keys, or None where there are none."""
    pairs = sorted((text(entry.key), text(entry.value)) for entry in proto.map)
    for key, _ in pairs:
        _check_key(key, "frontend_attributes")
    written = tuple((key, json_or_string(value)) for key, value in pairs)
    return Verbatim.of(FrontendAttributes(written)) if pairs else None


def write_frontend(proto: Any, value: Verbatim) -> None:
    """``{key="value",key2={...}}`` into a ``FrontendAttributes``."""
    for key, inner in said("frontend_attributes", value, FrontendAttributes).items():
        proto.map.add(key=encoded(key), value=encoded(inner))


def _check_key(key: str, field: str) -> None:
    """Raise ``ProtoProblem`` for a key that would be something else in a text, where it has no quotes."""
    if not _KEY.fullmatch(key):
        raise ProtoProblem(f"{key!r} cannot precede a value", field)


def read_statistics(proto: Any) -> Verbatim | None:
    """``{visualizing_index=0,name=1.5}``, or None where there are none."""
    if not proto.statistics:
        return None
    found = [("visualizing_index", str(proto.stat_index_to_visualize))]
    for entry in proto.statistics:
        _check_key(text(entry.stat_name), "statistics_viz")
        found.append((text(entry.stat_name), f"{entry.stat_val:.6g}"))
    return Verbatim(f"{{{','.join(f'{key}={value}' for key, value in found)}}}", tuple(found))


def write_statistics(proto: Any, value: Verbatim) -> None:
    """``{visualizing_index=0,name=1.5}`` into a ``StatisticsViz``."""
    for name, number in said("statistics", value, tuple):
        if name == "visualizing_index":
            proto.stat_index_to_visualize = int(number)
        else:
            proto.statistics.add(stat_name=encoded(name), stat_val=float(number))


def read_replication(proto: Any) -> Verbatim | None:
    """``{true,false}``."""
    flags = tuple(proto.replicated_at_leaf_buffers)
    words = ("true" if flag else "false" for flag in flags)
    return Verbatim(f"{{{','.join(words)}}}", flags) if flags else None


def write_replication(proto: Any, value: Verbatim) -> None:
    """``{true,false}`` into a ``ParameterReplication``."""
    proto.replicated_at_leaf_buffers.extend(said("parameter_replication", value, tuple))


# ---- where values come from -------------------------------------------------------------------------


def read_origin(proto: Any) -> Verbatim | None:
    """``{({"a"}, {"b" {0}})}``: for every leaf the array of the first module it is."""
    leaves = {tuple(entry.shape_index): entry for entry in proto.elements}
    if not leaves and not proto.is_synthetic_call:
        return None
    return Verbatim.of(Origin(None if proto.is_synthetic_call else _tree(leaves, (), 0)))


def write_origin(proto: Any, value: Verbatim) -> None:
    """``{({"a"}, {"b" {0}})}`` into an ``OriginalValue``."""
    tree = said("origin", value, Origin).tree
    if tree is None:
        proto.is_synthetic_call = True
    else:
        _write_tree(proto, tree, ())


def read_array(proto: Any) -> OriginalArray:
    """``{"name" {0}}``: an array of the first module, or ``{}``."""
    return OriginalArray(text(proto.instruction_name), tuple(proto.shape_index))


def write_array(proto: Any, array: OriginalArray) -> None:
    """``{"name" {0}}`` into an ``OriginalArray``."""
    proto.instruction_name = encoded(array.name)
    proto.shape_index.extend(array.index)


def _tree(leaves: dict[tuple[int, ...], Any], index: tuple[int, ...], depth: int) -> OriginTree:
    if depth > _DEEPEST:
        raise ProtoProblem(f"nested more than {_DEEPEST} levels deep", "elements")
    if index in leaves:
        return read_array(leaves[index].original_array)
    below = [key[depth] for key in leaves if len(key) > depth and key[:depth] == index]
    if not below or min(below) < 0 or max(below) > len(leaves):
        raise ProtoProblem(f"no element for {index}", "elements")
    return tuple(_tree(leaves, (*index, number), depth + 1) for number in range(max(below) + 1))


def _write_tree(proto: Any, tree: OriginTree, index: tuple[int, ...]) -> None:
    if isinstance(tree, tuple):
        for number, part in enumerate(tree):
            _write_tree(proto, part, (*index, number))
        return
    element = proto.elements.add()
    element.shape_index.extend(index)
    write_array(element.original_array, tree)
