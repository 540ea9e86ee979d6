"""Inputs of trials: each spread is what it says, and leaves alone what the module asks for."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hloopt
from hloopt.runtime.inputs import generate
from hloopt.runtime.trial_inputs import SPREADS, Spread, trial_inputs
from hloopt.types import DTYPES, DType, dtype

MODULE = """HloModule m
ENTRY e {
  x = f32[40,30] parameter(0)
  i = s8[500] parameter(1)
  n = s32[60,1] parameter(2)
  v = f32[40] parameter(3)
  c = c64[50] parameter(4)
  p = pred[30] parameter(5)
  u = u16[400] parameter(6)
  z = bf16[0] parameter(7)
  g = f32[60,30] gather(x, n), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,30}
  s = f32[40] sqrt(v)
  ROOT t = (f32[60,30], f32[40], s8[500], c64[50], pred[30], u16[400], bf16[0]) tuple(g, s, i, c, p, u, z)
}
"""


@pytest.fixture
def module() -> hloopt.Module:
    return hloopt.parse(MODULE)


@pytest.mark.parametrize("spread", SPREADS)
def test_what_is_asked_for_is_kept(module: hloopt.Module, spread: Spread) -> None:
    """Types and dimensions are the parameters', indices stay in range but for strays, and so do arguments of roots."""
    plain, found = generate(module, 3), trial_inputs(module, 3, spread)
    for one, other in zip(plain, found, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
    special = spread in ("zero", "infinite", "nan", "subnormal", "largest")
    assert np.array_equal(plain[3], found[3]) != special
    assert np.array_equal(plain[2], found[2]) == (spread != "stray")
    for one, other in zip(found, trial_inputs(module, 3, spread), strict=True):
        assert one.tobytes() == other.tobytes()


def test_spreads(module: hloopt.Module) -> None:
    """Ties are many, negatives are all, wide ones reach the ends, and a lone one is alone."""
    tied = trial_inputs(module, 1, "tied")
    assert np.unique(tied[0]).size < 12
    assert np.array_equal(tied[4], np.round(tied[4]))
    negative = trial_inputs(module, 1, "negative")
    assert negative[0].max() <= -1
    assert negative[1].max() == -1
    assert negative[1].min() < -100
    assert negative[6].min() >= 0
    wide = trial_inputs(module, 1, "wide")
    assert (wide[1].min(), wide[1].max()) == (-128, 127)
    assert wide[6].max() > 900
    lone = trial_inputs(module, 1, "lone")
    assert [np.count_nonzero(lone[at]) for at in (0, 4, 5)] == [1, 1, 1]


FLOATS = [kind for kind in DTYPES.values() if kind.is_float or kind.is_complex]


def given(kind: DType, spread: Spread, size: int = 400) -> np.ndarray[Any, Any]:
    text = f"HloModule m\nENTRY e {{ ROOT x = {kind}[{size}] parameter(0) }}\n"
    return trial_inputs(hloopt.parse(text), 1, spread)[0]


@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_floats_have_the_special_values_of_their_type(kind: DType) -> None:
    """Each class has its own values, as far as the type has them, and no class those of another."""
    part = kind.numpy if not kind.is_complex else np.dtype(f"f{kind.bits // 16}")
    facts = ml_dtypes.finfo(part)
    has_infinity, has_nan = np.isinf(np.array([np.inf, np.nan]).astype(part)[0]), kind.bits > 6
    found = {spread: given(kind, spread) for spread in SPREADS}
    parts = {
        spread: np.concatenate([array.real, array.imag]) if kind.is_complex else array
        for spread, array in found.items()
    }
    wide = {spread: array.astype(np.float64) for spread, array in parts.items()}
    assert np.isinf(wide["infinite"]).any() == has_infinity
    assert np.isnan(wide["nan"]).any() == has_nan
    for spread in (
        "zero",
        "subnormal",
        "largest",
        "tied",
        "negative",
        "cancelling",
        "huge",
        "tiny",
        "same",
    ):
        assert np.isfinite(wide[spread]).all(), spread
    if kind.name == "f8e8m0fnu":
        return
    assert (wide["largest"] == float(facts.max)).any()
    assert (np.abs(wide["subnormal"]) == float(facts.smallest_subnormal)).any()
    assert (wide["zero"] == 0).sum() > (wide["lone"] != 0).sum()
    if "fnuz" not in kind.name:
        assert np.signbit(wide["zero"][wide["zero"] == 0]).any()


def test_integers_have_their_extremes() -> None:
    for kind in DTYPES.values():
        if kind.is_integer:
            found = set(given(kind, "extreme").astype(object).tolist())
            assert set(kind.limits) <= found, kind
            assert 0 in given(kind, "zero")


def test_pairs_cancel() -> None:
    """Their sum is far below them, and large pairs lose small ones."""
    found = given(dtype("f32"), "cancelling").reshape(-1, 2).astype(np.float64)
    assert (np.abs(found.sum(1)) <= 1e-5 * np.abs(found[:, 0])).all()
    assert np.abs(found).max() > 1000 * np.median(np.abs(found))


def test_sums_and_products_of_numbers_at_the_ends() -> None:
    """Pairs add up to nothing under any mask; huge ones overflow when multiplied only, tiny ones are 0 then."""
    opposite = given(dtype("f32"), "opposite").reshape(-1, 2)
    assert (opposite.sum(1) == 0).all()
    assert opposite[:, 0].all()
    assert trial_inputs(
        hloopt.parse("HloModule m\nENTRY e { ROOT x = pred[9] parameter(0) }"), 1, "opposite"
    )[0].all()
    huge, tiny = given(dtype("f32"), "huge"), given(dtype("f32"), "tiny")
    with np.errstate(over="ignore"):
        assert np.isfinite(np.abs(huge).sum())
        assert np.isinf(huge[np.abs(huge).argmax()] * np.float32(huge.size * 4))
    assert not (tiny * tiny).any()
    assert np.unique(given(dtype("f32"), "same")).size == 1


def test_one_element_is_special_at_least() -> None:
    assert np.isnan(given(dtype("f32"), "nan", 1)).all()
