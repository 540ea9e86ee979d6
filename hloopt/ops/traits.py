"""Sets of opcodes by what the op table says of them, and tables over such sets.

A set is derived from the rows, so that a new op is in it by its row.  A mapping that says something of
each op beside the rows, in the room that owns it, is declared by ``op_table``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

from hloopt.ops import OPS, attributes_of

Value = TypeVar("Value")


@cache
def _by(column: str) -> dict[Any, frozenset[str]]:
    """For each value of a column the opcodes whose rows have it."""
    found: dict[Any, set[str]] = {}
    for opcode, row in OPS.items():
        found.setdefault(getattr(row, column), set()).add(opcode)
    return {value: frozenset(opcodes) for value, opcodes in found.items()}


def _having(attribute: str) -> frozenset[str]:
    return frozenset(opcode for opcode in OPS if attribute in (attributes_of(opcode) or ()))


ALL = frozenset(OPS)

ELEMENTWISE = _by("family")["elementwise"]
TRANSCENDENTAL = _by("transcendentals")[1]
ASSOCIATIVE = _by("associative")[True]
PASSING_ON = _by("passes_on")[True]
IDEMPOTENT = _by("idempotent")[True]
BITWISE = _by("bitwise")[True]
MODULAR = _by("modular")[True]
MONOTONE = _by("monotone")[True]
INTEGRAL = _by("integral")[True]
WITHIN_ONE = _by("within_one")[True]
EXTREMA = _by("identity")["lowest"] | _by("identity")["highest"]
# An element of the result is one of the operands', picked by order or by a third operand.
PICKING = EXTREMA | {"clamp", "select"}
# Associative, floats included: in whatever order operands are combined, the result is the same.
EXACT = ASSOCIATIVE & (BITWISE | EXTREMA)

PERMUTING = _by("moves")["permutes"]
REARRANGING = PERMUTING | _by("moves")["selects"]
# The same elements at other places, or several times: of one operand, and no copy.
VIEWS = REARRANGING - ELEMENTWISE
JOINING = _by("moves")["joins"]
MOVING = REARRANGING | JOINING
INDEXING = _by("moves")["indexes"]

FOLDING = _by("folds")[True]
CONTRACTING = FOLDING & _by("family")["linear"]
# By one computation, which is in ``to_apply``.
REDUCING = FOLDING & _having("to_apply")
# Whole matrices or lines at once, as libraries compute them.
LIBRARY = _by("family")["linear"] - FOLDING
# About sizes that are known at run time.
SIZES = frozenset({"dynamic-reshape", "get-dimension-size", "set-dimension-size"})
ELEMENTAL = _by("elemental")[True]
HEROES = _by("hero")[True]
# The first operand with a part of it replaced.
UPDATING = HEROES & _by("family")["indexing"]

# The values a computation is given, and tuples of them.
TUPLES = _by("family")["tuple"]
SOURCES = _by("family")["source"]
PLUMBING = TUPLES | SOURCES - {"iota"}
CONSTRAINTS = _by("constrains")[True]
ALIASES = _by("aliases")[True]
# The result is the first operand's value.
FORWARDING = (ALIASES & CONSTRAINTS) | {"copy"}

SEQUENTIAL = _by("calls")["sequence"]
CONTROL_FLOW = SEQUENTIAL | _by("calls")["async"]
# What is in their computations runs as a part of them, on whole arrays.
BODIES = SEQUENTIAL | _by("calls")["fused"]
# Each is one unit with the computation in its attribute ``calls``.
WRAPPING = _having("calls")

TRANSFERS = _by("family")["host"]
ASYNC = _by("family")["async"]
RANDOM = _by("family")["random"]
DEVICE_NUMBERS = frozenset({"partition-id", "replica-id"})
COLLECTIVE = _by("family")["collective"] - DEVICE_NUMBERS
STARTS = _by("phase")["start"]
DONES = _by("phase")["done"]
# Two of them with equal operands may be different values, or keep different things apart.
NOT_MERGEABLE = RANDOM | CONSTRAINTS | {"parameter"}
# Nothing runs for them: memory that is there, an order of events, the end of what runs already.
FREE = ALIASES | CONSTRAINTS | (DONES - TRANSFERS) | {"async-update", "constant", "parameter"}

CHEAP = _by("cheap")["always"]
CHEAP_IF_REAL = _by("cheap")["real"]
CHEAP_ON_GPU = _by("cheap")["gpu"]

# Directions of comparisons: of the negation (unless a NaN takes part), and with the operands swapped.
INVERSE = {"EQ": "NE", "NE": "EQ", "LT": "GE", "GE": "LT", "GT": "LE", "LE": "GT"}
MIRRORED = {"EQ": "EQ", "NE": "NE", "LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}

# Every table: its rows, the opcodes it is about, and what those without a row are.
TABLES: list[tuple[Mapping[str, object], frozenset[str], str]] = []


def op_table(
    rows: Mapping[str, Value], of: frozenset[str] = ALL, otherwise: str = ""
) -> Mapping[str, Value]:
    """``rows`` as they are, declared as a table over the opcodes ``of``.

    It has a row for each of them, or ``otherwise`` says what an opcode without one is.  The tests hold
    every table to this.
    """
    TABLES.append((rows, of, otherwise))
    return rows
