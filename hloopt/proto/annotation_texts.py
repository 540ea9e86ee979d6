"""What instructions carry along, from the text HLO has for it to protos."""

from __future__ import annotations

import re
from typing import Any

from hloopt.proto.annotations import METADATA
from hloopt.proto.messages import new
from hloopt.proto.problem import Problem
from hloopt.proto.tokens import Tokens
from hloopt.types import Metadata
from hloopt.types.strings import unquote

__all__ = [
    "write_aliasing",
    "write_array",
    "write_frontend",
    "write_metadata",
    "write_origin",
    "write_replication",
    "write_statistics",
]

_WORDS = frozenset(name for name in METADATA if not name.startswith(("source_", "stack_")))
_NUMBERS = ("size_of_generated_code_in_bytes", "size_of_memory_working_set_in_bytes")


def _bytes(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")


def write_metadata(metadata: Metadata) -> Any:
    """An ``OpMetadata``; raises ``Problem`` for a field the proto has not."""
    proto = new("OpMetadata")
    for name, value in metadata.fields.items():
        if name == "metadata_payload":
            proto.metadata_payload.value = _bytes(str(value))
        elif isinstance(value, tuple):
            proto.profile_type.extend(value)
        elif name in METADATA or name in _NUMBERS:
            setattr(proto, name, _bytes(value) if isinstance(value, str) else value)
        else:
            raise Problem(f"metadata has a field {name!r}, the proto has none", "metadata")
    return proto


def write_frontend(proto: Any, text: str) -> None:
    """``{key="value",key2={...}}`` into a ``FrontendAttributes``."""
    for key, value in _pairs(text):
        raw = unquote(value) if value[:1] in {'"', "'"} else value
        proto.map.add(key=_bytes(key), value=_bytes(raw))


_KEY = re.compile(r"\s*,?\s*([A-Za-z_][A-Za-z0-9_.-]*)=")
_STRING = re.compile(r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""", re.DOTALL)


def _pairs(text: str) -> list[tuple[str, str]]:
    """Keys and values: strings in quotes, and texts in balanced braces."""
    found, at, end = [], 1, len(text.rstrip()) - 1
    while match := _KEY.match(text, at, end):
        start = at = match.end()
        depth = 0
        while at < end:
            string = _STRING.match(text, at, end)
            if string is not None:
                at = string.end()
            else:
                depth += {"{": 1, "}": -1}.get(text[at], 0)
                at += 1
            if not depth:
                break
        found.append((match[1], text[start:at]))
    if text[at:end].strip(" ,\t\r\n"):
        raise Problem(f"{text[at:end]!r} is no attribute", "frontend_attributes")
    return found


def write_statistics(proto: Any, text: str) -> None:
    """``{visualizing_index=0,name=1.5}`` into a ``StatisticsViz``."""
    for part in filter(None, (part.strip() for part in text.strip()[1:-1].split(","))):
        name, _, value = part.partition("=")
        if name == "visualizing_index":
            proto.stat_index_to_visualize = int(value)
        else:
            proto.statistics.add(stat_name=_bytes(name), stat_val=float(value))


def write_replication(proto: Any, text: str) -> None:
    """``{true,false}`` into a ``ParameterReplication``."""
    words = text.strip()[1:-1].replace(",", " ").split()
    proto.replicated_at_leaf_buffers.extend(word == "true" for word in words)


def write_aliasing(entries: Any, text: str) -> None:
    """``{{0}: (1, {})}`` into the list of ``OutputOperandAliasing``."""
    tokens = Tokens(text)
    tokens.expect("{")
    while not tokens.accept("}"):
        entry = entries.add()
        entry.output_shape_index.extend(tokens.integers("{", "}"))
        tokens.expect(":")
        tokens.expect("(")
        entry.operand_index = tokens.integer()
        tokens.expect(",")
        entry.operand_shape_index.extend(tokens.integers("{", "}"))
        while not tokens.accept(")"):
            tokens.take()  # what kind of alias it is has no field
        tokens.accept(",")
    tokens.end()


def write_origin(proto: Any, text: str) -> None:
    """``{({"a"}, {"b" {0}})}`` into an ``OriginalValue``."""
    tokens = Tokens(text)
    tokens.expect("{")
    if tokens.accept("["):
        tokens.expect("synthetic_call")
        proto.is_synthetic_call = True
        return
    _write_tree(proto, tokens, ())
    tokens.expect("}")
    tokens.end()


def _write_tree(proto: Any, tokens: Tokens, index: tuple[int, ...]) -> None:
    if tokens.accept("("):
        number = 0
        while not tokens.accept(")"):
            if number:
                tokens.expect(",")
            _write_tree(proto, tokens, (*index, number))
            number += 1
        return
    element = proto.elements.add()
    element.shape_index.extend(index)
    write_array(element.original_array, tokens)


def write_array(proto: Any, tokens: Tokens) -> None:
    """``{"name" {0}}`` into an ``OriginalArray``."""
    tokens.expect("{")
    if tokens.accept("}"):
        return
    proto.instruction_name = _bytes(tokens.string())
    if tokens.next == "{":
        proto.shape_index.extend(tokens.integers("{", "}"))
    tokens.expect("}")
