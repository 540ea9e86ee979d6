"""What a file is checked with: inputs made by a formula, and some elements of the results on them.

An input of ``WHOLE`` elements or fewer stands in the file.  Of a longer one it has ``VALUES`` elements, as
random data for that parameter: element ``i`` is number ``mix(i ^ salt) % VALUES`` of them, in integers of
32 bits, so that each language makes the same bits.  What the interpreter gives on them is known here whole;
the file has ``SAMPLES`` elements of each result, each with the least and the greatest value that rounding
allows it.

Values are compared as integers in the order of the values (``key``): bits of a float with its sign taken
for that of the number.  So no language needs arithmetic of bf16 or f8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.exports.kernel import KernelExport
from hloopt.interpret import evaluate_module
from hloopt.runtime.inputs import generate
from hloopt.runtime.judge import Judge
from hloopt.types import Array, DType, of_numpy

__all__ = ["SALT", "CheckInput", "ExpectedNumber", "KernelCheck", "check_of", "is_signed"]

WHOLE: Final = 64
VALUES: Final = 64
SAMPLES: Final = 24
SALT: Final = 0x9E3779B9


@dataclass(frozen=True, slots=True)
class CheckInput:
    """The bytes of an input's values (``count`` of them), and how many elements are made of them."""

    elements: int
    count: int
    values: bytes
    salt: int

    def array(self, storage: np.dtype[np.generic], dims: Sequence[int]) -> Array:
        """The input."""
        values = np.frombuffer(self.values, storage)
        if self.count == self.elements:
            return values.reshape(dims)
        return values[_mixed(self.elements, self.salt) % np.uint32(self.count)].reshape(dims)


@dataclass(frozen=True, slots=True)
class ExpectedNumber:
    """Number ``at`` of a result's numbers (two for a complex element): its value, its limits as keys."""

    at: int
    value: str
    least: int
    most: int


@dataclass(frozen=True)
class KernelCheck:
    """``inputs`` for each argument, ``expected`` for each result; empty for one without a finite number."""

    inputs: tuple[CheckInput, ...]
    expected: tuple[tuple[ExpectedNumber, ...], ...]


def check_of(kernel: KernelExport, seed: int = 0) -> KernelCheck:
    """Inputs of a kernel, and what the interpreter gives on them.

    Raises ``UnsupportedError`` and ``EvaluationError`` as the interpreter does.
    """
    drawn = generate(kernel.module, seed)
    inputs = tuple(_input(number, array) for number, array in enumerate(drawn))
    given = [one.array(array.dtype, array.shape) for one, array in zip(inputs, drawn, strict=True)]
    results = evaluate_module(kernel.module, given)
    judge = Judge.of(kernel.module, [given], [results])
    return KernelCheck(
        inputs,
        tuple(
            tuple(_expected(want, judge.allowance((0, number), want)))
            for number, want in enumerate(results)
        ),
    )


def is_signed(kind: DType) -> bool:
    """Whether the format has a sign bit: all floats but the unsigned ones."""
    return (kind.is_float or kind.is_complex) and kind.name != "f8e8m0fnu"


def _input(number: int, array: Array) -> CheckInput:
    flat = np.ascontiguousarray(array).reshape(-1)
    kept = flat if flat.size <= WHOLE else flat[:VALUES]
    return CheckInput(flat.size, kept.size, kept.tobytes(), SALT * (number + 1) & 0xFFFFFFFF)


def _mixed(count: int, salt: int) -> Array:
    """A hash of the numbers below ``count``: the integer finaliser that mixes by two multiplications."""
    x = np.arange(count, dtype=np.uint32) ^ np.uint32(salt)
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x7FEB352D)
    x ^= x >> np.uint32(15)
    x *= np.uint32(0x846CA68B)
    x ^= x >> np.uint32(16)
    return x


def _expected(want: Array, allowed: Array) -> list[ExpectedNumber]:
    """Some elements: the first and the last, the others spread; none that is not a number."""
    flat = np.ascontiguousarray(want).reshape(-1)
    kind = of_numpy(flat.dtype)
    if kind.is_complex:
        allowed = np.repeat(allowed, 2)
        flat = flat.view(f"f{flat.dtype.itemsize // 2}")
        kind = of_numpy(flat.dtype)
    if not flat.size:
        return []
    spread = _mixed(4 * SAMPLES, SALT).astype(np.uint64) * np.uint64(flat.size) >> np.uint64(32)
    places = dict.fromkeys([0, flat.size - 1, *spread.tolist()])
    finite = np.isfinite(flat[list(places)].astype(np.float64)) & np.isfinite(allowed[list(places)])
    chosen = [at for at, is_finite in zip(places, finite, strict=True) if is_finite][:SAMPLES]
    return [_limits(at, flat[at : at + 1], float(allowed[at])) for at in sorted(chosen)]


def _limits(at: int, value: Array, allowed: float) -> ExpectedNumber:
    kind = of_numpy(value.dtype)
    own = _key(value)
    if not allowed:
        return ExpectedNumber(at, str(value[0]), own, own)
    if not (kind.is_float or kind.is_complex):
        step = int(allowed)
        return ExpectedNumber(
            at, str(value[0]), max(own - step, 0 if kind.is_pred else own - step), own + step
        )
    with np.errstate(all="ignore"):
        wide = value.astype(np.float64)
        # Rounding to the type moves a limit by half a unit: one more lets it only be wider.
        least, most = ((wide + sign * allowed).astype(value.dtype) for sign in (-1.0, 1.0))
    return ExpectedNumber(at, str(value[0]), min(own, _key(least) - 1), max(own, _key(most) + 1))


def _key(value: Array) -> int:
    """An integer in the order of the values of a type."""
    kind = of_numpy(value.dtype)
    if not is_signed(kind):
        return int(value[0]) if not kind.is_float else int(value.view(np.uint8)[0])
    bits = int(value.view(f"u{value.dtype.itemsize}")[0])
    sign = 1 << 8 * value.dtype.itemsize - 1
    return -(bits & sign - 1) if bits & sign else bits
