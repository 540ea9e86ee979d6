"""The header of a library, by which C and C++ call it."""

from __future__ import annotations

from collections.abc import Iterable

from hloopt.exports.library.interface import Interface, LibraryArray
from hloopt.exports.text import filled, printable

__all__ = ["write_header"]


def write_header(interface: Interface, *, has_file: bool) -> str:
    """The header's text; ``has_file`` says whether the weights are in a file of their own."""
    prefix = interface.prefix
    where = (
        "the path of the file of weights" if has_file else "NULL: the weights are in the library"
    )
    kinds = {"input": interface.inputs, "result": interface.results}
    return filled(
        "library.h.txt",
        prefix=prefix,
        PREFIX=prefix.upper(),
        module=_comment(interface.module),
        weights=where,
        memory=f"{interface.memory:,}",
        numbers="\n".join(
            line for kind, arrays in kinds.items() for line in _numbers(prefix, kind, arrays)
        ),
        input_fields=_fields(interface.inputs, "const "),
        result_fields=_fields(interface.results, ""),
    )


def _numbers(prefix: str, kind: str, arrays: Iterable[LibraryArray]) -> Iterable[str]:
    """How many there are; the number of each, and of its elements."""
    known, upper = list(arrays), f"{prefix}_{kind}".upper()
    yield f"#define {upper}S {len(known)}"
    for number, one in enumerate(known):
        name = one.field.upper()
        yield f"#define {upper}_{name} {number}"
        yield f"#define {prefix.upper()}_ELEMENTS_{kind.upper()}_{name} {one.shape.elements}"


def _fields(arrays: Iterable[LibraryArray], const: str) -> str:
    """A pointer for each array, with what it points to."""
    lines = [
        f"  {const}{one.c_type} *{one.field}; /* {one.shape}, {one.byte_size} bytes: {_comment(one.name)} */"
        for one in arrays
    ]
    return "\n".join(lines or ["  const void *nothing; /* there are none */"])


def _comment(text: str) -> str:
    """A text within a comment of C: it does not end there."""
    return printable(text).replace("*/", "* /").replace("/*", "/ *")
