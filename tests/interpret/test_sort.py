"""sort and topk: against Python's own stable sort, with NaN, signed zeros and comparators of every form."""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import hloopt
from hloopt.interpret.comparator import sort_keys
from hloopt.interpret.sort import merge_order, ordered_bits, topk

SPECIAL = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.5, 1e-40, -1e-40]

CANONICAL = """
  zero.{p} = f32[] constant(0)
  nan.{p} = f32[] constant(nan)
  isnan.{p} = pred[] compare({p}, {p}), direction=NE
  iszero.{p} = pred[] compare({p}, zero.{p}), direction=EQ
  nozero.{p} = f32[] select(iszero.{p}, zero.{p}, {p})
  key.{p} = f32[] select(isnan.{p}, nan.{p}, nozero.{p})
"""

# Total order by hand, as XLA's GPU pipeline writes it.
BITS = """
  bits.{p} = s32[] bitcast-convert({p})
  most.{p} = s32[] constant(2147483647)
  none.{p} = s32[] constant(0)
  flipped.{p} = s32[] xor(most.{p}, bits.{p})
  negative.{p} = pred[] compare(bits.{p}, none.{p}), direction=LT
  order.{p} = s32[] select(negative.{p}, flipped.{p}, bits.{p})
"""


def one(body: str, operand: str = "f32") -> str:
    return f"""
less {{
  a = {operand}[] parameter(0)
  b = {operand}[] parameter(1)
  {body}
}}
"""


def two(body: str, first: str = "s32", second: str = "s32") -> str:
    return f"""
less {{
  a = {first}[] parameter(0)
  b = {first}[] parameter(1)
  i = {second}[] parameter(2)
  j = {second}[] parameter(3)
  {body}
}}
"""


def evaluate(comparator: str, arrays: list[np.ndarray], types: list[str], axis: int) -> list:
    dims = ",".join(map(str, arrays[0].shape))
    names = [f"p{number}" for number in range(len(arrays))]
    shapes = [f"{kind}[{dims}]" for kind in types]
    result = shapes[0] if len(shapes) == 1 else f"({', '.join(shapes)})"
    parameters = "\n".join(
        f"  {name} = {shape} parameter({number})"
        for number, (name, shape) in enumerate(zip(names, shapes, strict=True))
    )
    text = f"""HloModule m
{comparator}
ENTRY e {{
{parameters}
  ROOT sorted = {result} sort({", ".join(names)}), dimensions={{{axis}}}, to_apply=less
}}
"""
    module = hloopt.parse(text)
    hloopt.verify(module)
    return hloopt.evaluate(module, arrays)


def keys_of(comparator: str):
    text = f"HloModule m\n{comparator}\nENTRY e {{\n  ROOT c = s32[] constant(0)\n}}\n"
    return sort_keys(hloopt.parse(text).computations["less"])


def by_comparison(less, items: list) -> list:
    """Python's stable sort by a function of two items."""
    compare = functools.cmp_to_key(lambda x, y: -1 if less(x, y) else (1 if less(y, x) else 0))
    return sorted(items, key=compare)


def test_total_order_of_floats() -> None:
    """-NaN < -inf < ... < -0 < +0 < ... < inf < NaN, in every float type."""
    for kind in (np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2):
        values = np.array([-np.nan, -np.inf, -2.0, -0.0, 0.0, 2.0, np.inf, np.nan]).astype(kind)
        bits = ordered_bits(values)
        assert (np.diff(bits.astype(object)) > 0).all()
    nibbles = np.array([-6, -0.5, -0.0, 0.0, 0.5, 6], np.float32).astype(ml_dtypes.float4_e2m1fn)
    assert (np.diff(ordered_bits(nibbles).astype(np.int64)) > 0).all()
    scales = np.array([1, 2, 4], np.float32).astype(ml_dtypes.float8_e8m0fnu)
    assert (np.diff(ordered_bits(scales).astype(np.int64)) > 0).all()


def test_complex_numbers_have_no_order() -> None:
    with pytest.raises(TypeError, match="c64 has no order"):
        ordered_bits(np.zeros(2, np.complex64))


@given(
    hnp.arrays(np.int8, hnp.array_shapes(max_dims=3, max_side=9), elements=st.integers(-3, 3)),
    st.data(),
)
def test_merge_order_is_a_stable_sort_along_any_axis(array: np.ndarray, data) -> None:
    axis = data.draw(st.integers(0, array.ndim - 1))
    order = merge_order([array], axis, lambda pairs: pairs[0] < pairs[1])
    assert order.tolist() == np.argsort(array, axis=axis, kind="stable").tolist()


@given(st.lists(st.integers(-2, 2), max_size=33))
def test_merge_order_by_less_or_equal_reverses_ties(values: list[int]) -> None:
    """The right element goes first where the comparator says so, also of equal ones."""
    array = np.array(values, np.int32)
    order = merge_order([array], 0, lambda pairs: pairs[0] <= pairs[1])
    expected = sorted(range(len(values)), key=lambda index: (values[index], -index))
    assert order.tolist() == expected


@given(st.lists(st.sampled_from([np.nan, 0.0, 1.0, 2.0, -1.0]), max_size=20))
def test_merge_order_is_a_permutation_where_the_comparator_is_no_order(values) -> None:
    """With ``<`` a NaN is less than nothing and more than nothing; nothing may get lost."""
    array = np.array(values, np.float32)
    order = merge_order([array], 0, lambda pairs: pairs[0] < pairs[1])
    assert order.tolist() == plain_merge_sort(values)


def plain_merge_sort(values: list[float]) -> list[int]:
    runs = [[index] for index in range(len(values))]
    while len(runs) > 1:
        merged = []
        for left, right in zip(runs[::2], [*runs[1::2], []][: (len(runs) + 1) // 2], strict=True):
            out, i, j = [], 0, 0
            while i < len(left) or j < len(right):
                if i == len(left) or (j < len(right) and values[right[j]] < values[left[i]]):
                    out.append(right[j])
                    j += 1
                else:
                    out.append(left[i])
                    i += 1
            merged.append(out)
        runs = merged
    return runs[0] if runs else []


def test_single_key_in_jaxs_form_sorts_nan_last_and_zeros_as_equal(rng) -> None:
    comparator = one(
        CANONICAL.format(p="a")
        + CANONICAL.format(p="b")
        + "ROOT r = pred[] compare(key.a, key.b), direction=LT, type=TOTALORDER"
    )
    (key,) = keys_of(comparator)
    assert (key.descending, key.total) == (False, True)
    values = rng.choice(np.array(SPECIAL, np.float32), (6, 17))
    (found,) = evaluate(comparator, [values], ["f32"], 1)
    expected = [by_comparison(jax_less, list(row)) for row in values]
    assert found.view(np.int32).tolist() == np.array(expected).view(np.int32).tolist()


def jax_less(x: float, y: float) -> bool:
    if np.isnan(x) or np.isnan(y):
        return bool(not np.isnan(x))
    return bool(x < y)


def test_descending_key_keeps_the_order_of_ties(rng) -> None:
    comparator = two("ROOT r = pred[] compare(a, b), direction=GT")
    values = rng.integers(-2, 3, (3, 40)).astype(np.int32)
    places = np.broadcast_to(np.arange(40, dtype=np.int32), values.shape)
    found, order = evaluate(comparator, [values, places], ["s32", "s32"], 1)
    expected = np.argsort(-values, axis=1, kind="stable")
    assert order.tolist() == expected.tolist()
    assert found.tolist() == np.take_along_axis(values, expected, 1).tolist()


def test_extreme_integers_have_no_overflow() -> None:
    values = np.array([-128, 127, 0, -1, 1], np.int8)
    comparator = one("ROOT r = pred[] compare(b, a), direction=LT", "s8")
    (found,) = evaluate(comparator, [values], ["s8"], 0)
    assert found.tolist() == [127, 1, 0, -1, -128]
    (found,) = evaluate(comparator.replace("s8", "u8"), [values.view(np.uint8)], ["u8"], 0)
    assert found.tolist() == [255, 128, 127, 1, 0]


TWO_KEYS = {
    "or": "eq = pred[] compare(a, b), direction=EQ\n"
    "  lt = pred[] compare(a, b), direction=LT\n"
    "  gt = pred[] compare(i, j), direction=GT\n"
    "  both = pred[] and(eq, gt)\n"
    "  ROOT r = pred[] or(lt, both)",
    "or exchanged": "eq = pred[] compare(b, a), direction=EQ\n"
    "  lt = pred[] compare(b, a), direction=GT\n"
    "  gt = pred[] compare(j, i), direction=LT\n"
    "  both = pred[] and(gt, eq)\n"
    "  ROOT r = pred[] or(both, lt)",
    "select": "eq = pred[] compare(a, b), direction=EQ\n"
    "  lt = pred[] compare(a, b), direction=LT\n"
    "  gt = pred[] compare(i, j), direction=GT\n"
    "  ROOT r = pred[] select(eq, gt, lt)",
    "select by both answers": "lt = pred[] compare(a, b), direction=LT\n"
    "  tl = pred[] compare(b, a), direction=LT\n"
    "  neither = pred[] compare(lt, tl), direction=EQ\n"
    "  gt = pred[] compare(i, j), direction=GT\n"
    "  ROOT r = pred[] select(neither, gt, lt)",
}


@pytest.mark.parametrize("form", TWO_KEYS)
def test_lexicographic_comparators_have_their_keys_found(form: str, rng) -> None:
    comparator = two(TWO_KEYS[form])
    first, second = keys_of(comparator)
    assert (first.descending, second.descending) == (False, True)
    a = rng.integers(0, 3, (50,)).astype(np.int32)
    i = rng.integers(0, 4, (50,)).astype(np.int32)
    found = evaluate(comparator, [a, i], ["s32", "s32"], 0)
    expected = sorted(
        zip(a.tolist(), i.tolist(), strict=True), key=lambda pair: (pair[0], -pair[1])
    )
    assert list(zip(*(part.tolist() for part in found), strict=True)) == expected


def test_total_order_by_bits_is_one_key(rng) -> None:
    comparator = two(
        BITS.format(p="a")
        + BITS.format(p="b")
        + "lt = pred[] compare(order.a, order.b), direction=LT\n"
        "  tl = pred[] compare(order.b, order.a), direction=LT\n"
        "  neither = pred[] compare(lt, tl), direction=EQ\n"
        "  place = pred[] compare(i, j), direction=LT\n"
        "  ROOT r = pred[] select(neither, place, lt)",
        "f32",
    )
    assert len(keys_of(comparator)) == 2
    values = rng.choice(np.array(SPECIAL, np.float32), 64)
    values[rng.random(64) < 0.1] *= np.float32(-1)
    places = np.arange(64, dtype=np.int32)
    found, order = evaluate(comparator, [values, places], ["f32", "s32"], 0)
    expected = np.argsort(ordered_bits(values), kind="stable")
    assert order.tolist() == expected.tolist()
    assert found.view(np.int32).tolist() == values[expected].view(np.int32).tolist()


def test_less_or_equal_is_a_key_whose_ties_are_reversed() -> None:
    """The right element goes first where the comparator says so, also of equal ones."""
    (key,) = keys_of(two("ROOT r = pred[] compare(b, a), direction=LE"))
    assert (key.descending, key.later_first) == (True, True)
    (key,) = keys_of(two("ROOT r = pred[] compare(a, b), direction=LE"))
    assert (key.descending, key.later_first) == (False, True)


NOT_KEYS = {
    "not equal": "ROOT r = pred[] compare(a, b), direction=NE",
    "less or equal, then another": "eq = pred[] compare(a, b), direction=EQ\n"
    "  le = pred[] compare(a, b), direction=LE\n"
    "  gt = pred[] compare(i, j), direction=GT\n"
    "  both = pred[] and(eq, gt)\n"
    "  ROOT r = pred[] or(le, both)",
    "different functions": "n = s32[] negate(a)\n  ROOT r = pred[] compare(n, b), direction=LT",
    "both elements in one side": "s = s32[] add(a, b)\n  ROOT r = pred[] compare(s, s), direction=LT",
    "constant": "ROOT r = pred[] constant(false)",
    "tie of another key": "eq = pred[] compare(i, j), direction=EQ\n"
    "  lt = pred[] compare(a, b), direction=LT\n"
    "  gt = pred[] compare(i, j), direction=GT\n"
    "  both = pred[] and(eq, gt)\n"
    "  ROOT r = pred[] or(lt, both)",
    "operands of different places": "ROOT r = pred[] compare(a, j), direction=LT",
}


@pytest.mark.parametrize("form", NOT_KEYS)
def test_other_comparators_have_no_keys(form: str) -> None:
    assert keys_of(two(NOT_KEYS[form])) is None


def test_tie_in_another_order_of_floats_is_no_key() -> None:
    """0.0 == -0.0 in partial order, while they differ in total order."""
    body = (
        "eq = pred[] compare(a, b), direction=EQ\n"
        "  lt = pred[] compare(a, b), direction=LT, type=TOTALORDER\n"
        "  gt = pred[] compare(i, j), direction=GT\n"
        "  ROOT r = pred[] select(eq, gt, lt)"
    )
    assert keys_of(two(body, "f32")) is None
    assert keys_of(two(body.replace("EQ\n", "EQ, type=TOTALORDER\n"), "f32")) is not None


def test_comparator_without_keys_is_asked_itself(rng) -> None:
    """Sorting by |a - b| forms is no lexicographic comparison; sums of operands are one key each."""
    comparator = two(
        "s = s32[] add(a, i)\n  t = s32[] add(b, j)\n"
        "  d = s32[] subtract(s, t)\n  zero = s32[] constant(0)\n"
        "  ROOT r = pred[] compare(d, zero), direction=LT"
    )
    assert keys_of(comparator) is None
    a, i = (rng.integers(-9, 9, (3, 31, 2)).astype(np.int32) for _ in range(2))
    found = evaluate(comparator, [a, i], ["s32", "s32"], 1)
    order = np.argsort(a + i, axis=1, kind="stable")
    for before, after in zip((a, i), found, strict=True):
        assert after.tolist() == np.take_along_axis(before, order, 1).tolist()


def test_key_of_several_operands_is_a_key(rng) -> None:
    comparator = two(
        "s = s32[] add(a, i)\n  t = s32[] add(b, j)\n  ROOT r = pred[] compare(s, t), direction=GT"
    )
    assert len(keys_of(comparator)) == 1
    a, i = (rng.integers(-9, 9, 40).astype(np.int32) for _ in range(2))
    found = evaluate(comparator, [a, i], ["s32", "s32"], 0)
    order = np.argsort(-(a + i), kind="stable")
    assert [part.tolist() for part in found] == [a[order].tolist(), i[order].tolist()]


@pytest.mark.parametrize("dims", [(0,), (1,), (3, 0), (0, 3)])
def test_empty_and_single_arrays_are_sorted(dims: tuple[int, ...]) -> None:
    for body in ("compare(a, b), direction=LT", "compare(a, b), direction=LE"):
        (found,) = evaluate(
            one(f"ROOT r = pred[] {body}"), [np.zeros(dims, np.float32)], ["f32"], len(dims) - 1
        )
        assert found.shape == dims


def test_partial_order_with_nan_still_moves_every_element() -> None:
    """``<`` has no place for a NaN; the keys step aside and the merge sort defines the result."""
    values = np.array([3, np.nan, 1, np.nan, 2, 0], np.float32)
    (found,) = evaluate(one("ROOT r = pred[] compare(a, b), direction=LT"), [values], ["f32"], 0)
    expected = values[plain_merge_sort(values.tolist())]
    assert found.view(np.int32).tolist() == expected.view(np.int32).tolist()


def test_narrow_types_are_sorted() -> None:
    values = np.array([1, -2, 0.5, -0.0, 3]).astype(ml_dtypes.bfloat16)
    for excess in (False, True):
        text = "HloModule m\n" + one("ROOT r = pred[] compare(a, b), direction=LT", "bf16")
        text += (
            "ENTRY e {\n  p = bf16[5] parameter(0)\n"
            "  ROOT s = bf16[5] sort(p), dimensions={0}, to_apply=less\n}\n"
        )
        (found,) = hloopt.evaluate(hloopt.parse(text), [values], excess_precision=excess)
        assert found.dtype == ml_dtypes.bfloat16
        assert found.astype(np.float32).tolist() == [-2, -0.0, 0.5, 1, 3]
    nibbles = np.array([7, -8, 0, -1], np.int8).astype(ml_dtypes.int4)
    (found,) = evaluate(
        one("ROOT r = pred[] compare(a, b), direction=GT", "s4"), [nibbles], ["s4"], 0
    )
    assert found.astype(np.int8).tolist() == [7, 0, -1, -8]


TOPK = """HloModule m

ENTRY e {{
  p = f32[9] parameter(0)
  ROOT top = (f32[{k}], s32[{k}]) topk(p), k={k}, largest={largest}
}}
"""

NEGATIVE_NAN = np.array(0xFFC00000, np.uint32).view(np.float32)


@pytest.mark.parametrize(
    ("largest", "order"),
    [("true", [1, 5, 7, 8, 0, 3, 2, 6, 4]), ("false", [4, 6, 2, 3, 0, 7, 8, 5, 1])],
)
def test_topk_is_in_total_order_with_ties_at_the_lower_index_first(largest, order) -> None:
    """As XLA's CPU backend answers."""
    values = np.array([1, np.nan, -0.0, 0.0, NEGATIVE_NAN, np.inf, -np.inf, 2, 2], np.float32)
    for k in (9, 4, 1):
        module = hloopt.parse(TOPK.format(k=k, largest=largest))
        found, indices = hloopt.evaluate(module, [values])
        assert indices.tolist() == order[:k]
        assert found.view(np.int32).tolist() == values[order[:k]].view(np.int32).tolist()


@given(
    hnp.arrays(np.int16, hnp.array_shapes(max_dims=3, max_side=6), elements=st.integers(-4, 4)),
    st.booleans(),
    st.data(),
)
def test_topk_of_integers_against_sorted_pairs(array, largest, data) -> None:
    k = data.draw(st.integers(0, array.shape[-1]))
    values, indices = topk(array, k, largest=largest)
    assert values.shape == indices.shape == (*array.shape[:-1], k)
    assert indices.dtype == np.int32
    for row in np.ndindex(*array.shape[:-1]):
        sign = -1 if largest else 1
        pairs = sorted((sign * int(value), index) for index, value in enumerate(array[row]))[:k]
        assert indices[row].tolist() == [index for _, index in pairs]
        assert values[row].tolist() == [sign * value for value, _ in pairs]
