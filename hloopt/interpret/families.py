"""The module with the evaluator of each opcode, loaded when the first of its opcodes occurs.

No program has all of them, and loading what it does not have takes longer than running it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hloopt.interpret import elementwise
from hloopt.interpret.context import Check, Evaluator
from hloopt.lazy_table import tables
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

__all__ = ["CHECKED", "CHECKS", "COLLECTIVES", "EVALUATED", "EVALUATORS"]

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
"""The modules whose results may differ between participants."""

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


EVALUATORS: Mapping[str, Evaluator] = op_table(
    tables(__package__, "EVALUATORS", EVALUATED, elementwise.EVALUATORS),
    ALL - {"constant", "parameter"},
)
CHECKS: Mapping[str, Check] = op_table(
    tables(__package__, "CHECKS", CHECKED), otherwise="nothing to check before anything runs"
)
