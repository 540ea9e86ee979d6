"""Sets of opcodes by what the op table says of them, and tables over such sets.

A set is derived from the rows, so that a new op is in it by its row.  A mapping that says something of
each op beside the rows, in the room that owns it, is declared by ``op_table``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from hloopt.ops import OPS, OpDef

Value = TypeVar("Value")


def _where(holds: Callable[[OpDef], object]) -> frozenset[str]:
    return frozenset(opcode for opcode, row in OPS.items() if holds(row))


ALL = frozenset(OPS)

ELEMENTWISE = _where(lambda row: row.numpy)
TRANSCENDENTAL = _where(lambda row: row.transcendentals)
ASSOCIATIVE = _where(lambda row: row.associative)
PASSING_ON = _where(lambda row: row.passes_on)
IDEMPOTENT = _where(lambda row: row.idempotent)
BITWISE = _where(lambda row: row.bitwise)
MODULAR = _where(lambda row: row.modular)
MONOTONE = _where(lambda row: row.monotone)
INTEGRAL = _where(lambda row: row.integral)
WITHIN_ONE = _where(lambda row: row.within_one)
EXTREMA = _where(lambda row: row.identity in ("lowest", "highest"))
# An element of the result is one of the operands', picked by order or by a third operand.
PICKING = EXTREMA | {"clamp", "select"}
# Associative, floats included: in whatever order operands are combined, the result is the same.
EXACT = ASSOCIATIVE & (BITWISE | EXTREMA)

PERMUTING = _where(lambda row: row.moves == "permutes")
REARRANGING = PERMUTING | _where(lambda row: row.moves == "selects")
# The same elements at other places, or several times: of one operand, and no copy.
VIEWS = REARRANGING - ELEMENTWISE
JOINING = _where(lambda row: row.moves == "joins")
MOVING = REARRANGING | JOINING
INDEXING = _where(lambda row: row.moves == "indexes")

FOLDING = _where(lambda row: row.folds)
CONTRACTING = FOLDING & _where(lambda row: row.family == "linear")
# By one computation, which is in ``to_apply``.
REDUCING = FOLDING & _where(lambda row: row.attribute("to_apply"))
# Whole matrices or lines at once, as libraries compute them.
LIBRARY = _where(lambda row: row.family == "linear") - FOLDING
# About sizes that are known at run time.
SIZES = frozenset({"dynamic-reshape", "get-dimension-size", "set-dimension-size"})
ELEMENTAL = _where(lambda row: row.elemental)
HEROES = _where(lambda row: row.hero)
# The first operand with a part of it replaced.
UPDATING = HEROES & _where(lambda row: row.family == "indexing")

# The values a computation is given, and tuples of them.
TUPLES = _where(lambda row: row.family == "tuple")
SOURCES = _where(lambda row: row.family == "source")
PLUMBING = TUPLES | SOURCES - {"iota"}
CONSTRAINTS = _where(lambda row: row.constrains)
ALIASES = _where(lambda row: row.aliases)
# The result is the first operand's value.
FORWARDING = (ALIASES & CONSTRAINTS) | {"copy"}

CONTROL_FLOW = _where(lambda row: row.calls in ("sequence", "async"))
SEQUENTIAL = _where(lambda row: row.calls == "sequence")
# What is in their computations runs as a part of them, on whole arrays.
BODIES = SEQUENTIAL | _where(lambda row: row.calls == "fused")
# Each is one unit with the computation in its attribute ``calls``.
WRAPPING = _where(lambda row: row.attribute("calls"))

TRANSFERS = _where(lambda row: row.family == "host")
ASYNC = _where(lambda row: row.family == "async")
RANDOM = _where(lambda row: row.family == "random")
DEVICE_NUMBERS = frozenset({"partition-id", "replica-id"})
COLLECTIVE = _where(lambda row: row.family == "collective") - DEVICE_NUMBERS
STARTS = _where(lambda row: row.phase == "start")
DONES = _where(lambda row: row.phase == "done")
# Two of them with equal operands may be different values, or keep different things apart.
NOT_MERGEABLE = RANDOM | CONSTRAINTS | {"parameter"}
# Nothing runs for them: memory that is there, an order of events, the end of what runs already.
FREE = ALIASES | CONSTRAINTS | (DONES - TRANSFERS) | {"async-update", "constant", "parameter"}

CHEAP = _where(lambda row: row.cheap == "always")
CHEAP_IF_REAL = _where(lambda row: row.cheap == "real")
CHEAP_ON_GPU = _where(lambda row: row.cheap == "gpu")

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
