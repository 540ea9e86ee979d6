"""What calls a library: the header for C and C++, and the module of Python, which does so through ctypes."""

from __future__ import annotations

from collections.abc import Iterable

from hloopt.exports.library.interface import Interface, LibraryArray
from hloopt.exports.text import filled, printable, python_table

__all__ = ["write_header", "write_python"]


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


def write_python(interface: Interface, build: str, library: str, weights: str | None) -> str:
    """The file's text; ``library`` and ``weights`` are the paths of those files from its folder."""
    return filled(
        "library.py.txt",
        prefix=interface.prefix,
        module=printable(interface.module),
        build=repr(build),
        prefix_string=repr(interface.prefix),
        library=repr(library),
        weights=repr(weights),
        inputs=python_table(map(_row, interface.inputs)),
        results=python_table(map(_row, interface.results)),
    )


def _row(one: LibraryArray) -> tuple[object, ...]:
    rank, layout = len(one.shape.dims), one.shape.layout
    order = tuple(range(rank)) if layout is None else layout.minor_to_major[::-1]
    return one.field, one.shape.dtype.name, one.shape.dtype.numpy.name, one.shape.dims, order
