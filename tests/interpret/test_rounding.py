"""Evaluations that round otherwise: what moves, how far, and what stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.interpret import EVALUATORS, evaluate_participants
from hloopt.interpret.rounding import _PERTURBED
from hloopt.runtime.movement import ulp_distance
from hloopt.types import DTYPES, dtype

Array = np.ndarray[Any, Any]

EXACT = """
    abs add-dependency after-all all-gather all-gather-done all-gather-start all-reduce-done all-to-all and
    async-done async-start async-update bitcast bitcast-convert broadcast call ceil clamp
    collective-broadcast collective-permute collective-permute-done collective-permute-start compare complex
    concatenate conditional copy copy-done copy-start count-leading-zeros domain dynamic-reshape dynamic-slice
    dynamic-update-slice floor fusion gather get-dimension-size get-tuple-element imag infeed iota is-finite map
    maximum minimum mulhi negate not opt-barrier or outfeed pad partition-id popcnt ragged-all-to-all real recv
    recv-done reduce-precision remainder replica-id reshape reverse rng rng-bit-generator
    rng-get-and-update-state round-nearest-afz round-nearest-even select send send-done set-dimension-size
    shift-left shift-right-arithmetic shift-right-logical sign slice sort stochastic-convert topk transpose
    tuple while xor
"""


def test_every_op_rounds_or_is_exact() -> None:
    """A new op has to say which."""
    assert not set(EXACT.split()) & set(_PERTURBED)
    assert set(EXACT.split()) | set(_PERTURBED) == set(EVALUATORS) - {"constant", "parameter"}


def moved(body: str, *inputs: Array, rounding: int = 1, before: str = "") -> tuple[Array, Array]:
    module = hloopt.parse(f"HloModule m\n{before}\nENTRY e {{\n{body}\n}}")
    (want,) = hloopt.evaluate(module, inputs)
    (got,) = evaluate_participants(module, [list(inputs)], rounding=rounding)[0]
    return got, want


@pytest.mark.parametrize("kind", [name for name, one in DTYPES.items() if one.is_float and name != "f8e8m0fnu"])  # fmt: skip
def test_a_function_moves_by_units_in_the_last_place(kind: str) -> None:
    """One or two of wide types, at most one of narrow ones; zeros, infinities and signs stay."""
    numbers = np.array([0, -0.0, 0.7, -0.7, 1.5, -3, 0.1, 2.7], np.float32)
    values = numbers.astype(dtype(kind).numpy)
    got, want = moved(
        f"x = {kind}[8] parameter(0)\n y = {kind}[8] sine(x)\n ROOT z = {kind}[8] negate(y)", values
    )
    steps = ulp_distance(got, want, dtype(kind))
    assert steps.max() <= (2 if dtype(kind).bits >= 32 else 1)
    assert (np.signbit(got.astype(np.float32)) == np.signbit(want.astype(np.float32))).all()
    assert not steps[:2].any()
    if dtype(kind).bits >= 16:
        assert steps[2:].any()


@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "divide"])
@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
def test_what_is_exact_stays(op: str, kind: str) -> None:
    """Whole numbers, and what a factor of one or two or zero leaves."""
    x = np.array([3, 12, 0, -6, 2.5, 0.1], np.float64).astype(dtype(kind).numpy)
    y = np.array([1, 4, 2, 2, 0.5, 1], np.float64).astype(dtype(kind).numpy)
    if op in ("add", "subtract"):
        y[-1] = 0
    shape = f"{kind}[6]"
    got, want = moved(f"x = {shape} parameter(0)\n y = {shape} parameter(1)\n ROOT r = {shape} {op}(x, y)", x, y)  # fmt: skip
    assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
def test_a_quotient_that_fits_its_type_by_accident_moves(kind: str) -> None:
    """A product by the reciprocal, which a device may compute instead, rounds it: of fractions, and to one."""
    x = np.array([1.125 * 3, 3, 1.5], np.float64).astype(dtype(kind).numpy)
    y = np.array([1.125, 12, 1.5], np.float64).astype(dtype(kind).numpy)
    shape = f"{kind}[3]"
    body = f"x = {shape} parameter(0)\n y = {shape} parameter(1)\n ROOT r = {shape} divide(x, y)"
    seen = [moved(body, x, y, rounding=rounding) for rounding in range(1, 9)]
    assert all((want.astype(np.float64) == [3, 0.25, 1]).all() for _, want in seen)
    assert all(any(got[at] != want[at] for got, want in seen) for at in range(3))


def test_equal_values_stay_equal() -> None:
    """Numbers are drawn from the bits of a value: ties stay ties, duplicates duplicates."""
    x = np.repeat(np.float32([0.3, 0.7, -1.3]), 5)
    got, want = moved("x = f32[15] parameter(0)\n ROOT y = f32[15] exponential(x)", x)
    assert got.tobytes() != want.tobytes()
    assert len(set(got.tolist())) == 3


def test_a_sum_moves_by_what_was_added() -> None:
    """Not by what is left of it, nor by what another sum adds; sums of whole numbers do not move."""
    add = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] add(a, b) }"
    body = """x = f32[3,4] parameter(0)
      z = f32[] constant(0)
      ROOT r = f32[3] reduce(x, z), dimensions={1}, to_apply=add"""
    x = np.float32([[1e8, -1e8, 0.1, 0.2], [1e-3, 2e-3, 3e-3, 0.3e-3], [7, 8, 9, -0.5]])
    most = np.zeros(3)
    for rounding in range(1, 17):
        got, want = moved(body, x, rounding=rounding, before=add)
        most = np.maximum(most, np.abs(got.astype(np.float64) - want))
    assert 1 < most[0] < 200
    assert 0 < most[1] < 1e-8
    got, want = moved(body, np.arange(12, dtype=np.float32).reshape(3, 4), rounding=1, before=add)
    assert got.tobytes() == want.tobytes()
