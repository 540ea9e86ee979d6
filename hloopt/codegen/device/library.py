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
from typing import Final

from hloopt.dataclass import dataclass

__all__ = ["DeviceFunction", "identifiers", "is_scalar", "library", "names"]

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

_CALLED: Final = frozenset({
    "acos", "acosh", "asin", "asinh", "atan2", "atanh", "cbrt", "cos", "cosh", "erf", "fmod", "fmodf", "lgamma",
    "lgammaf", "pow", "sin", "sinh", "tan", "tgamma", "tgammaf",
})  # fmt: skip
"""Functions of C that are neither an instruction of a processor nor in vector_math.h."""


@dataclass(frozen=True, slots=True)
class DeviceFunction:
    """One definition: a function, or a struct type.

    name      of the function or the struct
    source    its text, with its comment
    needs     names of the definitions it mentions, in the order of the library
    is_type   whether it is a struct
    synchronizes  whether the threads of a warp exchange values in it
    has_loop  whether it has a loop, or needs what has one
    """

    name: str
    source: str
    needs: tuple[str, ...]
    is_type: bool
    synchronizes: bool
    has_loop: bool


def identifiers(text: str) -> set[str]:
    """All words of a C text that are not in comments."""
    return set(_WORD.findall(_COMMENT.sub("", text)))


def names() -> frozenset[str]:
    """The names of all definitions: no kernel or variable may have one of these."""
    return frozenset(library())


def is_scalar(function: str) -> bool:
    """Whether compilers make no vectors of calls of a function, nor of what else is in their loop."""
    name = function.partition("<")[0]
    entry = library().get(name)
    return name in _CALLED if entry is None else entry.has_loop


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
    loops = not words.isdisjoint(("for", "while"))
    return DeviceFunction(
        name,
        paragraph,
        needs,
        struct is not None,
        exchanges or any(before[other].synchronizes for other in needs),
        loops or any(before[other].has_loop for other in needs),
    )
