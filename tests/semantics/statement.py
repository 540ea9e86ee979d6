"""Holds one small module against an independent statement of what it computes.

Statements are written in plain Python: loops over elements, ``int``, ``Fraction``, ``math`` and mpmath, never the
function under test.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import hloopt
from hloopt.types import of_numpy

Array = np.ndarray[Any, Any]

__all__ = ["assert_same", "check", "evaluate"]


def evaluate(text: str, inputs: Sequence[Array]) -> tuple[list[Array], list[Array]]:
    """The results of a module, which must be valid: the interpreter's and the NumPy executor's."""
    module = hloopt.parse(text, "statement")
    hloopt.verify(module)
    return hloopt.evaluate(module, list(inputs)), hloopt.compile(module).run(list(inputs))


def check(
    text: str,
    inputs: Sequence[Array],
    want: Sequence[Array] | Array,
    *,
    rtol: float = 0.0,
    atol: float = 0.0,
    signed_zeros: bool = True,
) -> None:
    """Fail where interpreter or executor do not give ``want``.

    Any NaN equals any other; the sign of zero counts unless ``signed_zeros`` is false or a tolerance is given.
    """
    expected = [want] if isinstance(want, np.ndarray) else list(want)
    for who, results in zip(("interpreter", "executor"), evaluate(text, inputs), strict=True):
        assert len(results) == len(expected)
        for number, (got, wanted) in enumerate(zip(results, expected, strict=True)):
            assert_same(
                got,
                wanted,
                f"{who}, result {number}",
                rtol=rtol,
                atol=atol,
                signed_zeros=signed_zeros,
            )


def assert_same(
    got: Array,
    want: Array,
    what: str,
    *,
    rtol: float = 0.0,
    atol: float = 0.0,
    signed_zeros: bool = True,
) -> None:
    """Fail where two arrays differ in type, shape or an element, naming the first such element."""
    assert got.dtype == want.dtype, f"{what}: {got.dtype}, not {want.dtype}"
    assert got.shape == want.shape, f"{what}: {list(got.shape)}, not {list(want.shape)}"
    kind = of_numpy(want.dtype)
    if not (kind.is_float or kind.is_complex):
        same = got == want
    else:
        wide = np.complex128 if kind.is_complex else np.float64
        with np.errstate(all="ignore"):
            left, right = got.astype(wide), want.astype(wide)
            same = _close(left.real, right.real, rtol, atol, signed_zeros)
            if kind.is_complex:
                same &= _close(left.imag, right.imag, rtol, atol, signed_zeros)
    if not np.all(same):
        index = tuple(int(at) for at in np.argwhere(~np.asarray(same))[0])
        raise AssertionError(f"{what} at {list(index)}: {got[index]}, not {want[index]}")


def _close(left: Array, right: Array, rtol: float, atol: float, signed_zeros: bool) -> Array:
    same = left == right
    if signed_zeros and not (rtol or atol):
        same &= np.signbit(left) == np.signbit(right)
    finite = np.isfinite(left) & np.isfinite(right)
    near = finite & (np.abs(left - right) <= atol + rtol * np.abs(right)) if rtol or atol else False
    return same | (np.isnan(left) & np.isnan(right)) | near
