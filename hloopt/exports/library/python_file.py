"""The module of Python that calls a library through ctypes, on arrays of NumPy."""

from __future__ import annotations

from hloopt.exports.library.interface import Interface, LibraryArray
from hloopt.exports.text import filled, printable, python_table

__all__ = ["write_python"]


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
