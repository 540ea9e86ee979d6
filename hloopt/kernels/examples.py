"""The least module of each opcode and element type: on which ``hloopt ops --device gpu`` tries all kernels.

They stand in ``examples.txt``, with ``$T`` for the element type and ``$name`` for names; ``parameter(#)`` is
numbered as it comes, ``$r`` is the instruction in question.  Elementwise ops that do not stand there have a
text by their number of operands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Final

from hloopt.ops import OPS
from hloopt.ops.traits import ALIASES, COLLECTIVE, SEQUENTIAL, TRANSFERS
from hloopt.types import DTYPES, DType

__all__ = ["NO_KERNEL", "WITHOUT", "example_text", "opcodes"]

NO_KERNEL: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        sorted(ALIASES),
        "another name for memory that is there",
    ),
    **dict.fromkeys(("parameter", "constant"), "memory that is there"),
    "after-all": "an order, no memory",
    **dict.fromkeys(sorted(SEQUENTIAL), "its computations run step by step"),
    **dict.fromkeys(
        ("async-start", "async-update", "async-done"), "what it wraps runs in its place"
    ),
    **dict.fromkeys(("copy-start", "copy-done"), "a copy of memory"),
    "fusion": "what is in it decides",
}
"""Opcodes that need no kernel, with what becomes of them."""

_SEVERAL = "several participants; a device runs one, for which sole-participant removes it"
WITHOUT: Final[Mapping[str, str]] = {
    **dict.fromkeys(sorted(TRANSFERS), "communicates with the host"),
    **dict.fromkeys(sorted(COLLECTIVE), _SEVERAL),
    "rng": "its numbers are not defined; rng-expander, part of O3, writes a generator in its place",
    "rng-get-and-update-state": "its state outlives the program; a device keeps none",
    "custom-call": "whatever its target does; see hloopt explain of the call",
    **dict.fromkeys(
        ("dynamic-reshape", "set-dimension-size"), "bounded dynamic dimensions; kernels do not mask"
    ),
}
"""Opcodes that have no kernel whatever their types, with the reason."""

_FILE = "examples.txt"
_PLACE = re.compile(r"\$(\w+)")


@cache
def _texts() -> Mapping[str, tuple[str, str]]:
    """Called computations, and the entry, of each op."""
    text = files("hloopt.kernels").joinpath(_FILE).read_text(encoding="utf-8")
    found = {}
    for section in text.split("\n-- ")[1:]:
        opcode, _, rest = section.partition("\n")
        regions, separator, body = rest.partition("\n--\n")
        found[opcode] = (regions + "\n", body) if separator else ("", rest)
    return found


def opcodes() -> tuple[str, ...]:
    """The opcodes there are texts for."""
    return tuple(
        row.opcode
        for row in OPS.values()
        if row.opcode not in NO_KERNEL and row.opcode not in WITHOUT
    )


def example_text(opcode: str, dtypes: Iterable[DType]) -> str:
    """A module with ``TYPE_r = opcode(...)`` for each type in its entry; it may not be valid."""
    regions, body = _texts().get(opcode) or ("", _elementwise(opcode))
    texts, lines, results = [], [], []
    for dtype in dtypes:
        texts.append(_filled(regions, dtype))
        lines += _filled(body, dtype).splitlines()
        results.append(f"{dtype.name}_r")
    numbered, count = [], 0
    for line in lines:
        numbered.append("  " + line.replace("(#)", f"({count})"))
        count += "(#)" in line
    root = f"  ROOT all = tuple({', '.join(results)})"
    return "\n".join(["HloModule example", *texts, "ENTRY main {", *numbered, root, "}", ""])


def _elementwise(opcode: str) -> str:
    """A text for an op whose operands and result are of one type."""
    operands = ["$x", "$y"][: OPS[opcode].arity[0]]
    lines = [f"{name} = $T[8,4] parameter(#)" for name in operands]
    return "\n".join([*lines, f"$r = $T[8,4] {opcode}({', '.join(operands)})"])


def _filled(text: str, dtype: DType) -> str:
    words = {
        "T": dtype.name,
        "P": {"c64": "f32", "c128": "f64"}.get(dtype.name, dtype.name),
        "U": _same_width(dtype),
        "op": "or" if dtype.kind == "pred" else "add",
    }
    return _PLACE.sub(lambda match: words.get(match[1], f"{dtype.name}_{match[1]}"), text)


def _same_width(dtype: DType) -> str:
    """An unsigned type of as many bits, or the type itself."""
    found = f"u{dtype.bits}"
    return found if found in DTYPES and dtype.kind != "pred" else dtype.name
