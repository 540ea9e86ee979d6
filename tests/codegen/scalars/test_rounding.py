"""Rounding to narrow floats at and beside the halves between two of their numbers."""

from __future__ import annotations

import numpy as np
import pytest

from hloopt.types import DTYPES, DType
from tests.codegen.scalars.device_code import Case, Compiled, interpreted

_NARROW = [
    kind for kind in DTYPES.values() if kind.is_narrow_float and not kind.name.startswith("f6")
]


def _halves(kind: DType, source: np.dtype) -> np.ndarray:
    """Numbers half-way between neighbours of a type, their own neighbours, and those beyond the greatest."""
    codes = np.arange(1 << kind.bits).astype(f"u{kind.numpy.itemsize}")
    with np.errstate(invalid="ignore"):
        values = codes.view(kind.numpy).astype(np.float64)
    values = np.unique(values[np.isfinite(values)])
    step = values[-1] - values[-2]
    beyond = values[-1] + step * np.array([0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 1e3])
    with np.errstate(over="ignore"):
        middle = np.concatenate([(values[1:] + values[:-1]) / 2, beyond, -beyond]).astype(source)
        below = np.nextafter(middle, source.type(-np.inf))
        above = np.nextafter(middle, source.type(np.inf))
    return np.concatenate([middle, below, above, values.astype(source)])


@pytest.mark.parametrize("source", ["f32", "f64"])
@pytest.mark.parametrize("kind", _NARROW, ids=[kind.name for kind in _NARROW])
def test_halves_round_as_in_the_interpreter(
    kind: DType, source: str, device: Compiled, executable_cases: list[Case]
) -> None:
    """Every half, and what is one unit of the source beside it, is rounded as the interpreter does."""
    wide = DTYPES[source]
    (case,) = (
        case
        for case in executable_cases
        if case.opcode == "convert" and case.kinds == (wide,) and case.result is kind
    )
    given = _halves(kind, wide.numpy)
    with np.errstate(all="ignore"):
        want, got = interpreted(case, [given]), device.run(case, [given])
    bits = f"u{kind.numpy.itemsize}"
    wrong = np.flatnonzero(got.view(bits) != want.view(bits))
    assert not wrong.size, [(given[i], got[i], want[i]) for i in wrong[:5]]
    # The halves tell: cut off instead of rounded, results are others.
    assert len(np.unique(want.view(bits))) > 1


@pytest.mark.parametrize("source", ["f32", "f64"])
@pytest.mark.parametrize("target", ["s4", "s8", "u8", "s16", "s32", "u32", "s64", "u64"])
def test_bounds_of_integers_saturate_as_in_the_interpreter(
    source: str, target: str, device: Compiled, executable_cases: list[Case]
) -> None:
    """Floats at and beside both bounds of an integer type saturate or truncate."""
    wide, kind = DTYPES[source], DTYPES[target]
    (case,) = (
        case
        for case in executable_cases
        if case.opcode == "convert" and case.kinds == (wide,) and case.result is kind
    )
    powers = np.array([sign * 2.0**n for n in range(66) for sign in (1, -1)])
    near = np.concatenate([powers, powers - 1, powers + 1, powers - 0.5, powers + 0.5])
    near = near.astype(wide.numpy)
    given = np.concatenate([near, np.nextafter(near, 0), np.nextafter(near, near * 2)])
    want, got = interpreted(case, [given]), device.run(case, [given])
    wrong = np.flatnonzero(got.astype(object) != want.astype(object))
    assert not wrong.size, [(given[i], got[i], want[i]) for i in wrong[:5]]
