"""The comparison rule, and errors measured exactly."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hloopt
from hloopt.interpret import evaluate_participants
from hloopt.runtime.judge import Judge, Tolerance, compare, compare_all, judged
from hloopt.runtime.movement import ulp_distance
from hloopt.types import dtype

F32 = np.float32


def f32(*values: float) -> np.ndarray:
    return np.array(values, F32)


def test_equal_arrays_have_no_error() -> None:
    """NaN equals NaN, infinities equal themselves, and the zeros are the same."""
    found = compare(f32(1, np.nan, np.inf, 0.0), f32(1, np.nan, np.inf, -0.0))

    assert found.passed
    assert (found.absolute, found.relative, found.ulp) == (0.0, 0.0, 0)


@pytest.mark.parametrize(
    ("got", "want"),
    [(np.nan, 1.0), (1.0, np.nan), (np.inf, 1.0), (np.inf, -np.inf), (1.0, np.inf)],
)
def test_special_values_do_not_pass_for_numbers(got: float, want: float) -> None:
    """No tolerance makes a NaN or an infinity equal to something else."""
    found = compare(f32(5, got), f32(5, want), Tolerance(rtol=10, atol=10))

    assert not found.passed
    assert found.mismatches == 1
    assert found.where == (1,)


def test_a_large_neighbour_allows_nothing() -> None:
    """An element near zero has a tolerance of its own; one that is given takes its place."""
    want = f32(1e30, 0.0, 2.0)
    found = compare(f32(1e30, 1.9e-3, 2.0), want)
    assert (found.mismatches, found.where, found.verdict) == (1, (1,), "differ")
    assert compare(f32(1e30, 0.0, 2.000001), want).passed
    assert not compare(f32(1e30, 0.0, 2.000003), want).passed
    assert compare(f32(1e30, 1.9e-3, 2.0), want, Tolerance(atol=2e-3)).passed
    assert not compare(f32(1e30, 0.0, 2.000001), want, Tolerance(rtol=0.0)).passed


def test_integers_must_be_equal() -> None:
    """One off is a mismatch, whatever the size."""
    want = np.array([2**62, 7], np.int64)
    found = compare(want + np.array([1, 0]), want)

    assert found.mismatches == 1
    assert found.absolute == 1.0
    assert found.where == (0,)


@pytest.mark.parametrize("name", ["s4", "u4", "s8", "u32", "s64", "u64", "pred"])
def test_every_integer_type_is_compared_exactly(name: str) -> None:
    """Also where the numbers are the same double; the distance counts in ones."""
    kind = dtype(name)
    if kind.is_pred:
        least, most, size = False, True, 1
    else:
        bits = kind.bits - (kind.kind == "signed")
        least, most = -(2**bits) if kind.kind == "signed" else 0, 2**bits - 1
        size = most - least
    want = np.array([most, most], kind.numpy)
    found = compare(np.array([most, least], kind.numpy), want)
    assert (found.mismatches, found.where, found.ulp) == (1, (1,), size)
    assert found.absolute == float(size)
    near = compare(np.array([most, most - 1]).astype(kind.numpy), want)
    assert (near.mismatches, near.ulp) == (1, 1)
    assert compare(want, want).passed


def test_the_distance_of_complex_numbers_is_that_of_their_worse_part() -> None:
    """Counted in the type of the parts."""
    want = np.array([1 + 1j, 2 - 0j], np.complex64)
    got = want.copy()
    got.imag[0] = np.nextafter(np.nextafter(F32(1), F32(2)), F32(2))
    found = compare(got, want)
    assert (found.ulp, found.where, found.passed) == (2, (0,), True)
    assert compare(np.conj(want[1:]), want[1:]).ulp == 0


def test_the_worst_place_is_that_of_a_mismatch() -> None:
    """A larger error that passes does not hide a smaller one that fails."""
    found = compare(f32(1000.001, 0.0, 0.5), f32(1000.0, 0.0, 0.0), Tolerance(rtol=1e-3, atol=0.1))

    assert found.mismatches == 1
    assert found.where == (2,)


def test_shape_and_type_must_agree() -> None:
    """A result of another shape or type fails and says so."""
    assert "instead of" in compare(f32(1, 2), f32(1)).problem
    assert "instead of" in compare(np.ones(2, np.float64), np.ones(2, F32)).problem
    assert not compare(f32(1, 2), f32(1)).passed


def test_complex_numbers_are_compared_by_modulus() -> None:
    """An error in the imaginary part is measured against the whole number."""
    want = np.array([1000 + 0j], np.complex64)
    assert compare(want + 5e-4j, want).passed
    assert not compare(want + 1j, want).passed


def test_empty_and_scalar_arrays() -> None:
    """Nothing to compare verifies nothing; a scalar's place has no index."""
    assert compare(np.zeros((0, 3), F32), np.zeros((0, 3), F32)).verdict == "nothing verified"
    assert compare(np.array(1, F32), np.array(2, F32)).where == ()


def test_lists_must_have_the_same_length() -> None:
    """A missing result is not silently ignored."""
    with pytest.raises(ValueError, match="zip"):
        compare_all([f32(1)], [f32(1), f32(2)])


@given(st.floats(width=32, allow_nan=False), st.integers(1, 1000))
def test_ulps_count_neighbours(start: float, steps: int) -> None:
    """Stepping to the next value n times is n ULP away, across zero and subnormals too."""
    value = f32(start)
    moved = value
    with np.errstate(over="ignore"):
        for _ in range(min(steps, 50)):
            moved = np.nextafter(moved, F32(np.inf))
    if np.isfinite(moved).all():
        # The two zeros are one value: a step across them is not counted twice.
        assert int(ulp_distance(moved, value, dtype("f32"))[0]) in (
            min(steps, 50),
            min(steps, 50) - 1,
        )


@pytest.mark.parametrize("name", ["f8e4m3fn", "f8e5m2", "bf16", "f16", "f4e2m1fn"])
def test_ulps_of_narrow_types_are_in_the_order_of_the_values(name: str) -> None:
    """All values of the type, sorted, are one ULP apart."""
    kind = dtype(name)
    count = 1 << min(kind.bits, 8 * kind.numpy.itemsize)
    bits = np.arange(count).astype(f"u{kind.numpy.itemsize}")
    values = bits.view(kind.numpy)
    with np.errstate(invalid="ignore"):
        wide = values.astype(np.float64)
    kept = np.unique(wide[np.isfinite(wide)]).astype(kind.numpy)  # both zeros are one
    distance = ulp_distance(kept[1:], kept[:-1], kind)

    assert (distance == 1).all()


def test_bf16_is_compared_in_its_own_type() -> None:
    """One bf16 ULP near 1 is 2**-7, and counts as one."""
    want = np.array([1.0], ml_dtypes.bfloat16)
    got = np.array([1.0078125], ml_dtypes.bfloat16)
    found = compare(got, want)

    assert found.ulp == 1
    assert found.dtype == "bf16"
    assert found.passed


def test_large_arrays_are_looked_at_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts, largest errors and the place of the worst are those of the whole."""
    rng = np.random.default_rng(0)
    want = rng.standard_normal((7, 5, 4)).astype(np.float32)
    got = want * np.float32(1.0000004)
    got[2, 3, 1] += 1
    want[5, 0, 3] = want[6, 4, 3] = 1
    got[5, 0, 3] = got[6, 4, 3] = 3
    whole = compare(got, want)
    monkeypatch.setattr("hloopt.runtime.comparison.AT_ONCE", 9)
    assert compare(got, want) == whole
    assert (whole.mismatches, whole.where) == (3, (5, 0, 3))
    got[0, 0, 1] = np.nan
    assert compare(got, want).where == (0, 0, 1)
    assert np.isnan(compare(got, want).absolute)


GELU = """HloModule gelu
ENTRY e {
  x = KIND[32,16] parameter(0)
  a = KIND[] constant(0.04468)
  as = KIND[32,16] broadcast(a), dimensions={}
  x2 = KIND[32,16] multiply(x, x)
  x3 = KIND[32,16] multiply(x2, x)
  m = KIND[32,16] multiply(CUBE, as)
  s = KIND[32,16] add(x, m)
  c = KIND[] constant(0.7969)
  cs = KIND[32,16] broadcast(c), dimensions={}
  q = KIND[32,16] multiply(s, cs)
  t = KIND[32,16] tanh(q)
  o = KIND[] constant(1)
  os = KIND[32,16] broadcast(o), dimensions={}
  u = KIND[32,16] add(t, os)
  h = KIND[] constant(0.5)
  hs = KIND[32,16] broadcast(h), dimensions={}
  v = KIND[32,16] multiply(u, hs)
  ROOT r = KIND[32,16] multiply(x, v)
}
"""


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_coarse_types_do_not_hide_a_term(kind: str, seed: int) -> None:
    """A chain of bf16 that keeps f32 is right; one that takes x for its cube is not."""
    module, other = (
        hloopt.parse(GELU.replace("KIND", kind).replace("CUBE", cube)) for cube in ("x3", "x")
    )
    x = np.random.default_rng(seed).standard_normal((32, 16)).astype(dtype(kind).numpy)
    want, wrong = (hloopt.evaluate(each, [x]) for each in (module, other))
    (wider,) = evaluate_participants(module, [[x]], 1, 1, excess_precision=True)

    assert judged(module, [x], wider, want)[0].passed
    assert not judged(module, [x], wrong, want)[0].passed


@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_who_keeps_f32_does_not_have_to_keep_it_everywhere(kind: str) -> None:
    """Beside an evaluation of excess precision, one that rounds each op is right; a wrong one is not."""
    module, other = (
        hloopt.parse(GELU.replace("KIND", kind).replace("CUBE", cube)) for cube in ("x3", "x")
    )
    x = np.random.default_rng(0).standard_normal((32, 16)).astype(dtype(kind).numpy)
    want = evaluate_participants(module, [[x]], 1, 1, excess_precision=True)
    judge = Judge.of(module, [[x]], want, excess_precision=True)
    (wrong,) = evaluate_participants(other, [[x]], 1, 1, excess_precision=True)

    assert judge.compare_all([hloopt.evaluate(module, [x])], want)[0].passed
    assert not judge.compare_all([wrong], want)[0].passed


SORTED = """HloModule m
less {{
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  ROOT l = pred[] compare(a, b), direction=LT
}}
ENTRY e {{
  x = s32[6] parameter(0)
  i = s32[6] iota(), iota_dimension=0
  ROOT s = (s32[6], s32[6]) sort(x, i), dimensions={{0}}, to_apply=less{0}
}}
"""


@pytest.mark.parametrize(
    ("stable", "ties", "far"), [("", True, False), (", is_stable=true", False, False)]
)
def test_equal_keys_of_an_unstable_sort_come_in_any_order(
    stable: str, ties: bool, far: bool
) -> None:
    """What is carried with them, too; a key in another place is wrong all the same."""
    module = hloopt.parse(SORTED.format(stable))
    keys = np.array([2, 1, 2, 1, 3, 2], np.int32)
    want = hloopt.evaluate(module, [keys])
    other = [want[0], np.array([3, 1, 5, 2, 0, 4], np.int32)]
    assert all(one.passed for one in judged(module, [keys], other, want)) is ties
    wrong = [want[0][::-1].copy(), want[1]]
    assert all(one.passed for one in judged(module, [keys], wrong, want)) is far


@pytest.mark.parametrize(
    ("given", "right", "reason"),
    [
        (Tolerance(ulp=2), [1.0000002, 0.0], ""),
        (Tolerance(ulp=1), [1.0000002, 0.0], "not within the tolerance given (1 ulp)"),
        (Tolerance(ulp=0), [1.0, -0.0], ""),
        (Tolerance(bitwise=True), [1.0, -0.0], "equal bits"),
        (Tolerance(atol=1e-3), [1.0009, 0.0], ""),
        (Tolerance(atol=1e-3), [1.0011, 0.0], "atol 0.001 + rtol 0"),
    ],
)
def test_a_tolerance_that_is_given_takes_the_place_of_the_judges(
    given: Tolerance, right: list[float], reason: str
) -> None:
    """The message says what was given, and what the worst element is."""
    found = compare(f32(*right), f32(1.0, 0.0), given)
    assert found.passed is not bool(reason)
    assert reason in found.reason
    assert ("got " in found.reason) is bool(reason)


def test_integers_are_equal_whatever_is_given() -> None:
    """A tolerance is about rounding."""
    want = np.array([7], np.int32)
    for one in (Tolerance(ulp=3), Tolerance(rtol=1.0), Tolerance(bitwise=True)):
        assert not compare(want + 1, want, one).passed


def test_two_tolerances_exclude_each_other() -> None:
    """Each is the whole tolerance."""
    with pytest.raises(hloopt.errors.UsageError, match="bitwise and ulp exclude each other"):
        Tolerance(ulp=1, bitwise=True).check()
    with pytest.raises(hloopt.errors.UsageError, match="ulp and rtol and atol exclude"):
        Tolerance(ulp=1, rtol=0.1).check()


SUMS = """HloModule m
ENTRY e {{
  a = f32[4] parameter(0)
  b = f32[4] parameter(1)
  c = f32[4] parameter(2)
  s = f32[4] add({0}, {1})
  ROOT t = f32[4] add(s, {2})
}}
"""


def test_between_two_modules_each_has_its_own_error() -> None:
    """What cancels in one order of a sum is rounded away in another: either may be right."""
    before, after = (hloopt.parse(SUMS.format(*order)) for order in ("abc", "bca"))
    a = f32(1e8, 1, 2, 3)
    arrays = [[a, -a, f32(1.25, 1.25, 1.25, 1.25)]]
    want, got = (evaluate_participants(module, arrays) for module in (before, after))
    assert want[0][0][0] != got[0][0][0]
    assert not Judge.of(before, arrays, want).compare_all(got, want)[0].passed
    judge = Judge.between(before, after, arrays)
    assert judge.compare_all(got, want)[0].passed
    lost = [[np.asarray(want[0][0] + f32(0, 0, 0, 1e-3))]]
    assert not judge.compare_all(lost, want)[0].passed


VARIANCE = """HloModule m
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] add(a, b) }
ENTRY e {
  x = f32[16,64] parameter(0)
  c = f32[] parameter(1)
  cs = f32[16,64] broadcast(c), dimensions={}
  y = f32[16,64] add(x, cs)
  z = f32[] constant(0)
  n = f32[] constant(0.015625)
  ns = f32[16] broadcast(n), dimensions={}
  yy = f32[16,64] multiply(y, y)
  square = f32[16] reduce(yy, z), dimensions={1}, to_apply=add
  mean = f32[16] multiply(square, ns)
  total = f32[16] reduce(y, z), dimensions={1}, to_apply=add
  m = f32[16] multiply(total, ns)
  mm = f32[16] multiply(m, m)
  v = f32[16] subtract(mean, mm)
  ROOT r = f32[16] FUNCTION(v)
}
"""


def a_variance(function: str, around: float) -> tuple[hloopt.Module, list[np.ndarray]]:
    """A function of mean(y^2) - mean(y)^2, where y is near ``around``: negative if rounding has it so."""
    x = np.random.default_rng(0).standard_normal((16, 64)).astype(F32)
    return hloopt.parse(VARIANCE.replace("FUNCTION", function)), [x, F32(around)]


@pytest.mark.parametrize("function", ["sqrt", "log", "rsqrt"])
def test_where_rounding_decides_nan_either_is_right(function: str) -> None:
    """The sums in another order, a row at a time; numbers far from what roundings give are wrong there, too."""
    module, inputs = a_variance(function, 1e4)
    want = hloopt.evaluate(module, inputs)
    assert 0 < np.isnan(want[0]).sum() < 16
    y = inputs[0] + inputs[1]
    mean, square = (np.add.accumulate(part, axis=1)[:, -1] / F32(64) for part in (y, y * y))
    with np.errstate(all="ignore"):
        v = square - mean * mean
        other = {"sqrt": np.sqrt(v), "log": np.log(v), "rsqrt": 1 / np.sqrt(v)}[function]
    assert (np.isnan(other) != np.isnan(want[0])).any()
    assert judged(module, inputs, [other], want)[0].passed
    far = other.copy()
    far[np.isnan(want[0])] = -1e6
    assert not judged(module, inputs, [far], want)[0].passed


@pytest.mark.parametrize("around", [0.0, 10.0])
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_where_rounding_decides_nothing_nan_is_wrong(around: float, wrong: float) -> None:
    """One element is enough, and so is a number for a NaN that is one however it is rounded."""
    module, inputs = a_variance("sqrt", around)
    want = hloopt.evaluate(module, inputs)
    got = want[0].copy()
    got[5] = wrong
    found = judged(module, inputs, [got], want)[0]
    assert (found.mismatches, found.where) == (1, (5,))
    assert not judged(module, inputs, want, [got])[0].passed
    root = "ROOT r = f32[16] FUNCTION(v)"
    text = VARIANCE.replace(root, "w = f32[16] negate(v)\n ROOT r = f32[16] sqrt(w)")
    negative = hloopt.parse(text)
    nothing = hloopt.evaluate(negative, inputs)
    assert np.isnan(nothing[0]).all()
    assert judged(negative, inputs, [got], nothing)[0].mismatches == 16 - np.isnan(wrong)


CHOICE = """HloModule m
best { v = f32[] parameter(0)
 i = s32[] parameter(1)
 w = f32[] parameter(2)
 j = s32[] parameter(3)
 g = pred[] compare(v, w), direction=GE
 u = f32[] select(g, v, w)
 k = s32[] select(g, i, j)
 ROOT t = (f32[], s32[]) tuple(u, k) }
ENTRY e {
  x = f32[8] parameter(0)
  f = f32[8] parameter(1)
  p = f32[8] multiply(x, f)
  i = s32[8] iota(), iota_dimension=0
  low = f32[] constant(-inf)
  z = s32[] constant(0)
  r = (f32[], s32[]) reduce(p, i, low, z), dimensions={0}, to_apply=best
  ROOT k = s32[] get-tuple-element(r), index=1
}
"""


def test_an_index_that_rounding_decides_is_one_that_rounding_gives() -> None:
    """Of two products as near as a rounding either; no other one, though it is between them."""
    x = f32(0.1, 1.1, 0.3, 0.2, 0.5, 0.6, 1.3, 0.7)
    f = f32(1.0, 1.3, 1.0, 1.0, 1.0, 1.0, 1.0999999, 1.0)
    module = hloopt.parse(CHOICE)
    want = hloopt.evaluate(module, [x, f])
    assert int(want[0]) in (1, 6)
    right = [
        at for at in range(8) if judged(module, [x, f], [np.asarray(at, np.int32)], want)[0].passed
    ]
    assert right == [1, 6]
    f[1] = 1.2
    want = hloopt.evaluate(module, [x, f])
    right = [
        at for at in range(8) if judged(module, [x, f], [np.asarray(at, np.int32)], want)[0].passed
    ]
    assert right == [6]


def test_a_whole_number_that_rounding_decides_is_a_neighbour() -> None:
    """Of products near a whole number floor and conversion give that or the one below, and no other."""
    text = """HloModule m
    ENTRY e { x = f32[64] parameter(0)
      y = f32[64] parameter(1)
      p = f32[64] multiply(x, y)
      ROOT k = s32[64] convert(p) }"""
    x = np.linspace(1, 2, 64, dtype=F32)
    y = F32(1000) / x
    module = hloopt.parse(text)
    want = hloopt.evaluate(module, [x, y])
    near = np.floor(x.astype(np.float64) * y).astype(np.int32)
    assert (near != want[0]).any()
    assert judged(module, [x, y], [near], want)[0].passed
    assert not judged(module, [x, y], [want[0] - 3], want)[0].passed
    one = want[0].copy()
    one[7] += 2
    assert judged(module, [x, y], [one], want)[0].mismatches == 1
