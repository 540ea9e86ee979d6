"""The device library: definitions, their names and what they need of each other, as its files declare them.

A ``.cu`` file begins with a comment about its subject; then come definitions of structs and functions with
blank lines between them and none inside.  Above each stands what is known of it, its comment behind::

    //@ NAME [struct] [loops] [exchanges]: what it needs of those before it

``loops`` says that it has a loop, ``exchanges`` that the threads of a warp exchange values in it.  All of it is
legal inside a struct, too, where the emulator puts it: no namespaces, globals or full specialisations.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final

from hloopt.dataclass import dataclass

__all__ = ["DeviceFunction", "is_scalar", "library", "names"]

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
    """All definitions by name; each needs only earlier ones."""
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
    mark, source = paragraph.split("\n", 1)
    known, _, needed = mark.removeprefix("//@ ").partition(": ")
    name, *words = known.split()
    needs = tuple(needed.split())
    return DeviceFunction(
        name,
        source,
        needs,
        "struct" in words,
        "exchanges" in words or any(before[other].synchronizes for other in needs),
        "loops" in words or any(before[other].has_loop for other in needs),
    )
