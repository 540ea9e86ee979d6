"""Reading the device library: definitions, their names and what they need of each other.

A ``.cu`` file begins with a comment about its subject; then come definitions of structs and
functions, each with a comment above it, with blank lines between them and none inside.  All of it is
legal inside a struct, too, where the emulator puts it: no namespaces, globals or full specialisations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from hloopt.dataclass import dataclass

__all__ = ["DeviceFunction", "identifiers", "library", "names"]

_FILES = (
    "types",
    "memory",
    "narrow",
    "integers",
    "floats",
    "halves",
    "complex",
    "hyperbolic",
    "inverse",
    "power",
    "random",
)

_STRUCT = re.compile(r"^(?:template <.*> )?struct (?:alignas\(.*\) )?(\w+) \{", re.MULTILINE)
_FUNCTION = re.compile(r"^__device__ [\w<>,:()\[\] ]*?(\w+)\(", re.MULTILINE)
_COMMENT = re.compile(r"//.*")
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class DeviceFunction:
    """One definition: a function, or a struct type.

    name      of the function or the struct
    source    its text, with its comment
    needs     names of the definitions it mentions, in the order of the library
    is_type   whether it is a struct
    synchronizes  whether the threads of a warp exchange values in it
    """

    name: str
    source: str
    needs: tuple[str, ...]
    is_type: bool
    synchronizes: bool


def identifiers(text: str) -> set[str]:
    """All words of a C text that are not in comments."""
    return set(_WORD.findall(_COMMENT.sub("", text)))


def names() -> frozenset[str]:
    """The names of all definitions: no kernel or variable may have one of these."""
    return frozenset(library())


@cache
def library() -> Mapping[str, DeviceFunction]:
    """All definitions by name; each needs only such as stand before it."""
    found: dict[str, DeviceFunction] = {}
    for file in _FILES:
        text = files("hloopt.codegen.device").joinpath(f"{file}.cu").read_text("utf-8")
        _, *paragraphs = text.strip().split("\n\n")
        for paragraph in paragraphs:
            entry = _definition(paragraph, found)
            if entry.name in found:
                raise ValueError(f"{file}.cu: {entry.name} is defined twice")
            found[entry.name] = entry
    return MappingProxyType(found)


def _definition(paragraph: str, before: Mapping[str, DeviceFunction]) -> DeviceFunction:
    struct, function = _STRUCT.search(paragraph), _FUNCTION.search(paragraph)
    match = struct or function
    if match is None:
        raise ValueError(f"neither a struct nor a function: {paragraph.splitlines()[0]}")
    name = match[1]
    words = identifiers(paragraph)
    needs = tuple(other for other in before if other in words)
    exchanges = any(word.startswith("__shfl") for word in words)
    synchronizes = exchanges or any(before[other].synchronizes for other in needs)
    return DeviceFunction(name, paragraph, needs, struct is not None, synchronizes)
