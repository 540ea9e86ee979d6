"""What the tests compare with: the comparison rule of the corpus, and arrays as they are stored."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.helpers.support import Recorded, as_type, mismatch

NAN, INF = float("nan"), float("inf")


def differs(got: Any, want: Any, **spec: float) -> str:
    """The answer for one output; lists are f32."""
    arrays = [
        np.asarray(values, np.float32) if isinstance(values, list) else values
        for values in (got, want)
    ]
    return mismatch(arrays[:1], Recorded([], arrays[1:], [spec]))


@pytest.mark.parametrize(
    ("got", "want", "spec"),
    [
        ([1.0, NAN, -0.0, INF, -INF], [1.0, NAN, 0.0, INF, -INF], {}),
        ([1.0, 100.5], [1.5, 100.0], {"atol": 0.5}),
        ([101.0], [100.0], {"rtol": 0.01}),
        ([1.0, 2.0, 3.0, 9.0], [1.0, 2.0, 3.0, 4.0], {"max_mismatch_fraction": 0.25}),
        ([], [], {}),
        (np.array([3, 9], np.int32), np.array([4, 4], np.int32), {"spread": 5.0}),
        (np.array([1 + 1j]), np.array([1 + 1.5j]), {"atol": 0.5}),
    ],
)
def test_what_passes(got: Any, want: Any, spec: dict[str, float]) -> None:
    """Equal, both NaN, or within ``atol + rtol * |want|``; a fraction may fail where that is recorded."""
    assert differs(got, want, **spec) == ""


@pytest.mark.parametrize(
    ("got", "want", "spec"),
    [
        ([1.0], [NAN], {"atol": INF}),
        ([NAN], [1.0], {"atol": INF}),
        ([3e38], [INF], {"atol": 1e30, "rtol": 1.0}),
        ([INF], [-INF], {"atol": 1.0, "rtol": 1.0}),
        ([100.0], [101.0], {"rtol": 0.009}),
        ([1.0, 2.0, 9.0, 9.0], [1.0, 2.0, 3.0, 4.0], {"max_mismatch_fraction": 0.25}),
        (np.array([3], np.int32), np.array([4], np.int32), {"atol": 5.0}),
        (np.array([True]), np.array([False]), {"atol": 5.0}),
        (np.array([3], np.int32), np.array([9], np.int32), {"spread": 5.0}),
        (np.array([1 + 1j]), np.array([1 - 1j]), {"atol": 1.5}),
    ],
)
def test_what_does_not_pass(got: Any, want: Any, spec: dict[str, float]) -> None:
    """Integers and pred are exact; NaN and infinities match only themselves."""
    assert "of the elements differ" in differs(got, want, **spec)


def test_shapes_types_and_counts_are_compared() -> None:
    """Values alone do not make two outputs the same."""
    one = np.ones(2, np.float32)
    assert "not float64" in differs(one, one.astype(np.float64))
    assert "not float32(1, 2)" in differs(one, one.reshape(1, 2))
    assert mismatch([], Recorded([], [one], [{}])) == "0 outputs, not 1"


def test_stored_arrays_get_their_true_type() -> None:
    """bf16 and f8 are stored as views; s4 and u4 as one byte an element, s4 with its sign."""
    bits = np.array([0x3F80, 0xC000], np.uint16)
    assert as_type(bits, "bf16").tolist() == [1.0, -2.0]
    assert as_type(np.array([0x38], np.uint8), "f8e4m3fn").tolist() == [1.0]
    stored = np.array([0xF9, 0x07], np.uint8)
    assert as_type(stored, "s4").dtype == ml_dtypes.int4
    assert as_type(stored, "s4").astype(int).tolist() == [-7, 7]
    assert as_type(np.array([15], np.uint8), "u4").astype(int).tolist() == [15]
    native = np.ones(2, np.float32)
    assert as_type(native, "f32") is native
