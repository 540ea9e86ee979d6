"""What hloopt.analysis.values claims of values holds of the values that the interpreter computes."""

from __future__ import annotations

import random
from math import inf

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.analysis.value_range import ValueRange
from hloopt.analysis.values import Values, decided
from hloopt.ir import Instruction, Module
from tests.helpers.rarely import examples
from tests.passes.expressions import Maker
from tests.passes.proof import inputs

RANDOM = (
    "x = u32[4] parameter(0)\n n = u32[] constant(9)\n nn = u32[4] broadcast(n), dimensions={}\n"
    "m = u32[] constant(1065353216)\n mm = u32[4] broadcast(m), dimensions={}\n"
    "y = u32[4] shift-right-logical(x, nn)\n z = u32[4] or(y, mm)\n f = f32[4] bitcast-convert(z)\n"
    "o = f32[] constant(1)\n oo = f32[4] broadcast(o), dimensions={}\n ROOT r = f32[4] subtract(f, oo)"
)
CLAMP = (
    "x = s32[] parameter(0)\n l = s32[] constant(-3)\n h = s32[] constant(5)\n"
    "ROOT r = s32[] clamp(l, x, h)"
)


def holds(claim: ValueRange, array: np.ndarray) -> bool:
    if array.dtype.kind == "b" or np.can_cast(array.dtype, np.int64) or array.dtype == np.uint64:
        return all(claim.low <= int(x) <= claim.high for x in array.reshape(-1))
    wide = array.astype(np.float64)
    real = wide[~np.isnan(wide)]
    return bool(
        np.all((claim.low <= real) & (real <= claim.high))
        and (claim.nan or not np.isnan(wide).any())
        and (claim.negative_zero or not np.any((real == 0) & np.signbit(real)))
        and (not claim.whole or np.all(np.trunc(real) == real))
    )


def check_all(module: Module, seeds: int) -> list[ValueRange]:
    values = Values()
    root = module.entry.root
    claims = [values.of(operand) for operand in root.operands]
    for seed in range(seeds):
        arrays = hloopt.evaluate(module, inputs(module, seed))
        for operand, claim, array in zip(root.operands, claims, arrays, strict=True):
            assert holds(claim, array), f"{operand}: {claim}\n{array}\n{module.to_text()}"
    return claims


@settings(max_examples=examples(120), deadline=None, suppress_health_check=list(HealthCheck))
@given(chooser=st.randoms(use_true_random=False))
def test_what_is_claimed_holds(chooser: random.Random) -> None:
    """Of random expressions over special values, in all types whose arithmetic is followed."""
    check_all(hloopt.parse(Maker(chooser).text()), 3)


MOVED = """HloModule m
plus { a = $T[] parameter(0)
 b = $T[] parameter(1)
 ROOT c = $T[] add(a, b) }
most { a = $T[] parameter(0)
 b = $T[] parameter(1)
 ROOT c = $T[] maximum(a, b) }
least { a = $T[] parameter(0)
 b = $T[] parameter(1)
 ROOT c = $T[] minimum(a, b) }
less { a = $T[] parameter(0)
 b = $T[] parameter(1)
 i = s32[] parameter(2)
 j = s32[] parameter(3)
 ROOT c = pred[] compare(a, b), direction=LT }
ENTRY e { x = $T[4,3] parameter(0)
 y = $T[2,3] parameter(1)
 k = s32[] parameter(2)
 at = s32[5,1] parameter(3)
 half = $T[4,3] multiply(x, x)
 low = $T[] constant(-2)
 clamped = $T[2,3] clamp(low, y, low)
 joined = $T[6,3] concatenate(half, clamped), dimensions={0}
 padded = $T[5,3] pad(half, low), padding=1_0x0_0
 cut = $T[2,3] slice(joined), slice={[3:5], [0:3]}
 part = $T[2,3] dynamic-slice(half, k, k), dynamic_slice_sizes={2,3}
 put = $T[4,3] dynamic-update-slice(half, clamped, k, k)
 turned = $T[3,4] transpose(half), dimensions={1,0}
 back = $T[4,3] reverse(half), dimensions={0}
 flat = $T[12] reshape(half)
 taken = $T[5,3] gather(half, at), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
 index_vector_dim=1, slice_sizes={1,3}
 count = s32[12] iota(), iota_dimension=0
 both = ($T[12], s32[12]) sort(flat, count), dimensions={0}, to_apply=less
 ordered = $T[12] get-tuple-element(both), index=0
 order = s32[12] get-tuple-element(both), index=1
 zero = $T[] constant(0)
 total = $T[3] reduce(half, zero), dimensions={0}, to_apply=plus
 top = $T[3] reduce(put, low), dimensions={0}, to_apply=most
 bottom = $T[3] reduce(half, low), dimensions={0}, to_apply=least
 ROOT r = ($T[6,3], $T[5,3], $T[2,3], $T[2,3], $T[4,3], $T[3,4], $T[4,3], $T[12], $T[5,3], $T[12], s32[12],
 $T[3], $T[3], $T[3]) tuple(joined, padded, cut, part, put, turned, back, flat, taken, ordered, order, total,
 top, bottom) }
"""


@pytest.mark.parametrize("element", ["f32", "bf16", "f64", "s32", "s8"])
def test_what_moves_elements_keeps_what_is_known(element: str) -> None:
    """Squares and a constant, moved, joined, sorted and reduced: the bounds hold, and are no wider."""
    module = hloopt.parse(MOVED.replace("$T", element))
    hloopt.verify(module)
    claims = dict(zip(module.entry.root.operands, check_all(module, 12), strict=True))
    known = {instruction.name: claim for instruction, claim in claims.items()}
    assert (known["order"].low, known["order"].high) == (0, 11)
    if element in ("f32", "bf16", "f64"):
        assert known["joined"].low == known["padded"].low == known["top"].low == -2
        for name in ("part", "turned", "back", "flat", "taken", "ordered", "total"):
            assert known[name].low == 0, name
        assert known["bottom"].low == -2


def entry(text: str) -> tuple[Module, dict[str, Instruction]]:
    module = hloopt.parse(f"HloModule m, num_partitions=4\n{text}")
    hloopt.verify(module)
    return module, module.entry.by_name


def claim_of(body: str, name: str = "r") -> ValueRange:
    _, names = entry(f"ENTRY e {{\n{body}\n}}")
    return Values().of(names[name])


@pytest.mark.parametrize(
    ("body", "low", "high"),
    [
        ("x = u8[4] parameter(0)\n ROOT r = s32[4] convert(x)", 0, 255),
        ("x = s8[4] parameter(0)\n ROOT r = u8[4] convert(x)", 0, 255),
        ("x = pred[4] parameter(0)\n ROOT r = s8[4] convert(x)", 0, 1),
        ("ROOT r = s32[5] iota(), iota_dimension=0", 0, 4),
        ("ROOT r = s8[2,300] iota(), iota_dimension=1", -128, 127),
        ("ROOT r = u32[] partition-id()", 0, 3),
        ("ROOT r = u32[] replica-id()", 0, (1 << 32) - 1),
        ("c = s32[3] constant({4, -2, 7})\n ROOT r = s32[3] reverse(c), dimensions={0}", -2, 7),
        ("x = s32[] parameter(0)\n c = s32[] constant(10)\n ROOT r = s32[] remainder(x, c)", -9, 9),
        ("x = u32[] parameter(0)\n c = u32[] constant(10)\n ROOT r = u32[] remainder(x, c)", 0, 9),
        ("x = s32[] parameter(0)\n c = s32[] constant(10)\n ROOT r = s32[] and(x, c)", 0, 10),
        ("x = s8[] parameter(0)\n c = s8[] constant(3)\n ROOT r = s8[] shift-right-logical(x, c)", 0, 31),
        ("x = s8[] parameter(0)\n c = s8[] constant(3)\n ROOT r = s8[] shift-right-arithmetic(x, c)",
         -16, 15),
        (CLAMP, -3, 5),
        ("x = s8[] parameter(0)\n ROOT r = s8[] abs(x)", -128, 127),
        ("x = f32[] parameter(0)\n ROOT r = s8[] convert(x)", -128, 127),
        ("x = f32[] parameter(0)\n t = f32[] logistic(x)\n ROOT r = s32[] convert(t)", 0, 1),
        ("x = bf16[] parameter(0)\n ROOT r = bf16[] multiply(x, x)", 0, inf),
        ("x = u8[] parameter(0)\n ROOT r = f32[] convert(x)", 0, 255),
        ("x = s8[2] parameter(0)\n y = s8[] constant(-7)\n ROOT r = s8[3] pad(x, y), padding=0_1",
         -128, 127),
        (RANDOM, 0, 1 - 2**-23),
        ("t = (s8[2], u8[2]) parameter(0)\n ROOT r = u8[2] get-tuple-element(t), index=1", 0, 255),
    ],
)  # fmt: skip
def test_the_bounds(body: str, low: float, high: float) -> None:
    """What is found for one op of each sort, no less."""
    claim = claim_of(body)
    assert (claim.low, claim.high) == (low, high)


def test_a_wrapped_index_is_in_range() -> None:
    """In select(i < 0, i + n, i) each arm sees only its part of the range of i."""
    claim = claim_of(
        "x = u8[] parameter(0)\n y = s32[] convert(x)\n o = s32[] constant(-10)\n"
        "i = s32[] add(y, o)\n z = s32[] constant(0)\n n = s32[] constant(10)\n"
        "m = s32[] add(n, i)\n c = pred[] compare(z, i), direction=GT\n"
        "ROOT r = s32[] select(c, m, i)"
    )
    assert (claim.low, claim.high) == (0, 245)


def test_floats_of_integers_are_finite_and_whole() -> None:
    """No NaN, no infinity and no -0 comes out of convert; a product by a fraction is not whole."""
    body = (
        "x = s8[4] parameter(0)\n f = f16[4] convert(x)\n h = f16[] constant(0.5)\n"
        "b = f16[4] broadcast(h), dimensions={}\n ROOT r = f16[4] multiply(f, b)"
    )
    assert claim_of(body, "f") == ValueRange(-128, 127, whole=True)
    assert claim_of(body) == ValueRange(-64, 63.5, negative_zero=True)
    assert claim_of("x = u32[4] parameter(0)\n ROOT r = f16[4] convert(x)").high == inf


def test_types_without_infinity_are_not_followed() -> None:
    """In f8e4m3fn too large a sum is NaN: nothing is claimed of it."""
    claim = claim_of("x = pred[] parameter(0)\n y = f8e4m3fn[] convert(x)\n"
                     "ROOT r = f8e4m3fn[] add(y, y)")  # fmt: skip
    assert claim.nan
    assert claim.low == -inf


def test_a_long_chain_is_followed_to_its_end() -> None:
    """Neither the depth of a chain nor that of Python's stack limits what is known."""
    lines = ["x0 = pred[] parameter(0)", "y0 = s32[] convert(x0)"]
    lines += [f"y{i} = s32[] maximum(y{i - 1}, y{i - 1})" for i in range(1, 3000)]
    lines.append("ROOT r = s32[] negate(y2999)")
    assert claim_of("\n".join(lines)).low == -1


def test_each_instruction_is_looked_at_once() -> None:
    """However often values are used again, and however many ask."""
    looked: list[Instruction] = []

    class Counting(Values):
        def _find(self, instruction: Instruction) -> ValueRange:
            looked.append(instruction)
            return super()._find(instruction)

    lines = ["x0 = u8[] parameter(0)", "y0 = f32[] convert(x0)"]
    lines += [f"y{i} = f32[] maximum(y{i - 1}, y{i - 1})" for i in range(1, 200)]
    module, names = entry("ENTRY e {\n" + "\n".join(lines) + "\n ROOT r = f32[] negate(y199)\n}")
    values = Counting()
    for instruction in module.entry:
        values.of(instruction)
    assert values.of(names["r"]) == ValueRange(-255, 0, negative_zero=True, whole=True)
    assert len(looked) == len(set(looked)) == len(list(module.entry))


@pytest.mark.parametrize(
    ("direction", "left", "right", "answer"),
    [
        ("LT", ValueRange(0, 3), ValueRange(4, 5), True),
        ("LT", ValueRange(0, 4), ValueRange(4, 5), None),
        ("LT", ValueRange(4, 6), ValueRange(1, 4), False),
        ("GE", ValueRange(4, 6), ValueRange(1, 4), True),
        ("EQ", ValueRange(4, 4), ValueRange(4, 4), True),
        ("NE", ValueRange(1, 3), ValueRange(4, 4), True),
        ("LT", ValueRange(0, 3, nan=True), ValueRange(4, 5), None),
        ("GT", ValueRange(0, 3, nan=True), ValueRange(4, 5), False),
        ("LE", ValueRange(4, 6), ValueRange(1, 3, nan=True), False),
        ("EQ", ValueRange(4, 4, nan=True), ValueRange(4, 4), None),
        ("NE", ValueRange(0, 3, nan=True), ValueRange(4, 5), True),
    ],
)
def test_comparisons_decided_by_ranges(
    direction: str, left: ValueRange, right: ValueRange, answer: bool | None
) -> None:
    """NaN is unequal to all, and neither less nor greater."""
    assert decided(direction, left, right) is answer


def test_changed_operands_change_what_is_known_above() -> None:
    """refresh finds the answers that became different, and only those that were asked for."""
    module, names = entry(
        "ENTRY e {\n x = s32[] parameter(0)\n c = s32[] constant(3)\n y = s32[] multiply(x, c)\n"
        "n = s32[] negate(y)\n m = s32[] maximum(n, c)\n k = s32[] not(m)\n"
        "ROOT r = (s32[], s32[]) tuple(k, m)\n}"
    )
    values = Values()
    before = values.of(names["m"])
    hloopt.ir.edit.set_operand(names["n"], 0, names["c"])
    assert values.refresh([names["n"]]) == [names["n"], names["m"]]
    assert (before.low, values.of(names["m"]).low) == (3, 3)
    assert values.of(names["m"]).high == 3
    assert values.of(names["k"]).low == -4
    del module
