"""Which module of this room has the evaluator of which opcodes: it is loaded for the first of them.

Nobody's program has all of them, and loading what it does not have takes longer than running it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from importlib import import_module
from typing import Generic, TypeVar

from hloopt.interpret import elementwise
from hloopt.interpret.context import Check, Evaluator
from hloopt.ops.traits import (
    ALL,
    COLLECTIVE,
    CONSTRAINTS,
    DEVICE_NUMBERS,
    DONES,
    INDEXING,
    MOVING,
    RANDOM,
    SEQUENTIAL,
    SIZES,
    TRANSFERS,
    TUPLES,
    WRAPPING,
    op_table,
)

__all__ = ["CHECKED", "CHECKS", "COLLECTIVES", "EVALUATED", "EVALUATORS", "ByFamily"]

_Row = TypeVar("_Row")

EVALUATED: Mapping[str, Collection[str]] = {
    "bitcast": ("bitcast", "bitcast-convert"),
    "collective": COLLECTIVE | DEVICE_NUMBERS,
    "control": SEQUENTIAL | WRAPPING,
    "convolution": ("convolution",),
    "custom_calls": ("custom-call",),
    "distributions": ("rng",),
    "feeds": TRANSFERS,
    "fft": ("fft",),
    "indexing": INDEXING | {"scatter"},
    "linalg": ("cholesky", "triangular-solve"),
    "linear": ("dot",),
    "movement": MOVING - {"bitcast"} | {"dynamic-reshape", "iota"},
    "normalization": ("batch-norm-grad", "batch-norm-inference", "batch-norm-training"),
    "ragged": ("ragged-dot", "scaled-dot"),
    "random": RANDOM - {"rng"},
    "reduction": ("map", "reduce"),
    "scan": ("scan",),
    "sort": ("sort", "topk"),
    "tuples": TUPLES | CONSTRAINTS | SIZES - {"dynamic-reshape"} | {"copy-done", "copy-start"},
    "window": ("reduce-window", "select-and-scatter"),
}
"""Module -> the opcodes in its ``EVALUATORS``.  Those of ``elementwise`` are the table's own."""

COLLECTIVES = COLLECTIVE - DONES | DEVICE_NUMBERS | {"recv", "send"}
"""What is not the same for each participant."""

CHECKED: Mapping[str, Collection[str]] = {
    "bitcast": ("bitcast",),
    "collective_checks": COLLECTIVES,
    "control": ("async-done", "async-start"),
    "convolution": ("convolution",),
    "custom_calls": ("custom-call",),
    "fft": ("fft",),
    "linalg": ("triangular-solve",),
    "linear": ("dot",),
    "ragged": ("ragged-dot", "scaled-dot"),
    "random": ("rng-bit-generator",),
    "tuples": ("set-dimension-size",),
}
"""Module -> the opcodes in its ``CHECKS``."""


class ByFamily(Mapping[str, _Row], Generic[_Row]):
    """A table under opcodes, put together from the tables of one name in several modules of a package.

    ``families`` has the opcodes of each module's table; a module is loaded for the first of them.
    """

    def __init__(
        self,
        package: str,
        table: str,
        families: Mapping[str, Collection[str]],
        known: Mapping[str, _Row] | None = None,
    ) -> None:
        self._package = package
        self._table = table
        self._family = {
            opcode: family for family, opcodes in families.items() for opcode in sorted(opcodes)
        }
        self._known: dict[str, _Row] = {
            opcode: row for opcode, row in (known or {}).items() if opcode not in self._family
        }
        self._opcodes = dict.fromkeys((*self._known, *self._family))

    def __getitem__(self, opcode: str) -> _Row:
        row = self._known.get(opcode)
        if row is None:
            module = import_module(f"{self._package}.{self._family[opcode]}")
            row = self._known[opcode] = getattr(module, self._table)[opcode]
        return row

    def __contains__(self, opcode: object) -> bool:
        return opcode in self._opcodes

    def __iter__(self) -> Iterator[str]:
        return iter(self._opcodes)

    def __len__(self) -> int:
        return len(self._opcodes)


EVALUATORS: Mapping[str, Evaluator] = op_table(
    ByFamily(__package__, "EVALUATORS", EVALUATED, elementwise.EVALUATORS),
    ALL - {"constant", "parameter"},
)
CHECKS: Mapping[str, Check] = op_table(
    ByFamily(__package__, "CHECKS", CHECKED), otherwise="nothing to check before anything runs"
)
