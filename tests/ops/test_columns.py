"""What the columns of the op table say is true, and said of each op of which it is true."""

from __future__ import annotations

import numpy as np
import pytest

from hloopt.errors import ShapeError
from hloopt.ops import OPS, InferArgs, Kind, OpDef
from hloopt.ops.traits import (
    ALIASES,
    BITWISE,
    COLLECTIVE,
    CONSTRAINTS,
    DONES,
    ELEMENTWISE,
    FREE,
    HEROES,
    INTEGRAL,
    MODULAR,
    MONOTONE,
    MOVING,
    STARTS,
    WITHIN_ONE,
)
from hloopt.types import array
from tests.ops.scalars import all_pairs, apply

ONE_TYPE = sorted(ELEMENTWISE - {"clamp", "compare", "complex", "convert", "copy", "imag", "is-finite", "real",
                                 "reduce-precision", "select", "stochastic-convert"})  # fmt: skip
"""Elementwise ops that compute, of operands and a result of one type, and that have no attributes."""
ROWS = [pytest.param(row, id=row.opcode) for row in OPS.values()]


def takes(opcode: str, element: str) -> bool:
    """Whether an op has a result for a type, by its shape inference."""
    shapes = (array(element),) * OPS[opcode].arity[0]
    try:
        OPS[opcode].infer(InferArgs(opcode, shapes, {}, {}, None))
    except ShapeError:
        return False
    return True


BINARY = [opcode for opcode in ONE_TYPE if OPS[opcode].arity == (2, 2) and takes(opcode, "u8")]
UNARY = [opcode for opcode in ONE_TYPE if OPS[opcode].arity == (1, 1)]
REAL = [opcode for opcode in UNARY if takes(opcode, "f32")]


@pytest.mark.parametrize("opcode", BINARY)
def test_idempotent_ops_are_those_that_keep_equal_operands(opcode: str) -> None:
    x = np.unique(all_pairs("u8")[0])
    assert bool((apply(opcode, "u8", x, x) == x).all()) == OPS[opcode].idempotent


@pytest.mark.parametrize("opcode", [name for name in ONE_TYPE if takes(name, "u8")])
def test_low_bits_come_from_low_bits_in_modular_ops_alone(opcode: str) -> None:
    """Operands that differ in their upper bits only have results that differ there only."""
    pairs = all_pairs("u8")[: OPS[opcode].arity[0]]
    whole = apply(opcode, "u8", *pairs)
    low = apply(opcode, "u8", *(pair & 15 for pair in pairs))
    assert bool(((whole ^ low) & 15 == 0).all()) == (opcode in MODULAR)
    if opcode in MODULAR:
        high = apply(opcode, "u8", *(pair & 0xF0 for pair in pairs))
        assert bool((whole == (low & 15 | high & 0xF0)).all()) == (opcode in BITWISE)


LINE = np.concatenate([np.linspace(-40, 40, 4001), [-np.inf, np.inf, -1e30, 1e30, -1e-30, 0.0]])


@pytest.mark.parametrize("opcode", REAL)
def test_what_monotone_integral_and_bounded_ops_are(opcode: str) -> None:
    """In f64, where no rounding is seen: on a line of real numbers."""
    x = np.sort(LINE)
    y = apply(opcode, "f64", x)
    rises = not np.isnan(y).any() and bool((np.diff(y[np.isfinite(y)]) >= -1e-12).all())
    assert rises == (opcode in MONOTONE)
    finite = y[np.isfinite(x) & np.isfinite(y)]
    assert bool((finite == np.trunc(finite)).all()) == (opcode in INTEGRAL)
    numbers = y[np.isfinite(x)]
    within = not np.isnan(numbers).any() and bool((np.abs(numbers) <= 1).all())
    assert within == (opcode in WITHIN_ONE)


@pytest.mark.parametrize("row", ROWS)
def test_an_op_that_names_computations_says_how_they_run(row: OpDef) -> None:
    """A custom call's are its target's affair; what goes on or ends has those of its start."""
    named = {entry.name for entry in row.attributes if entry.kind in (Kind.COMPUTATION, Kind.COMPUTATIONS)}  # fmt: skip
    assert row.calls in ("", "sequence", "async", "fused", "elements")
    assert bool(row.calls) == bool(named - {"called_computations"}) or row.opcode in {
        *("async-done", "async-update", "custom-call")
    }


@pytest.mark.parametrize("row", ROWS)
def test_columns_have_words_of_theirs(row: OpDef) -> None:
    assert row.moves in ("", "permutes", "selects", "joins", "indexes")
    assert row.phase in ("", "start", "update", "done")
    assert row.cheap in ("", "always", "real", "gpu")
    assert row.is_elementwise or not (row.monotone or row.integral or row.bitwise or row.modular)
    assert not (row.elemental and row.is_elementwise)


def test_what_is_named_for_its_phase_has_it() -> None:
    assert {opcode for opcode in OPS if opcode.endswith("-done")} == DONES
    assert {opcode for opcode in OPS if opcode.endswith("-start")} | {"send", "recv"} == STARTS


def test_nothing_that_computes_is_free() -> None:
    assert not FREE & (ELEMENTWISE | HEROES | COLLECTIVE - DONES)
    assert not FREE & MOVING - ALIASES
    assert FREE >= ALIASES | CONSTRAINTS
