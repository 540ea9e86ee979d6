"""``fft``: discrete Fourier transforms of the last one to three dimensions.

Computed in double precision and rounded once.  Forward transforms are not scaled, inverse ones are
divided by the product of the lengths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hloopt.interpret.context import Check, Context, Evaluator, Value, array_of
from hloopt.ir import Instruction
from hloopt.types import Array

__all__ = ["CHECKS", "EVALUATORS", "fft"]

_TRANSFORMS: dict[str, Any] = {
    "FFT": np.fft.fftn,
    "IFFT": np.fft.ifftn,
    "RFFT": np.fft.rfftn,
    "IRFFT": np.fft.irfftn,
}


def fft(array: Array, fft_type: str, lengths: Sequence[int]) -> Array:
    """The transform ``FFT``, ``IFFT``, ``RFFT`` or ``IRFFT`` with the given lengths.

    An RFFT keeps ``length // 2 + 1`` elements of its last dimension; an IRFFT makes a real result of
    ``length`` out of as many, ignoring the imaginary parts that a real signal has not.  An input
    longer than its length is cut, a shorter one padded with zeros.  Complex128 or float64.
    """
    axes = tuple(range(array.ndim - len(lengths), array.ndim))
    wide = array.astype(np.float64 if fft_type == "RFFT" else np.complex128)
    return np.asarray(_TRANSFORMS[fft_type](wide, s=tuple(lengths), axes=axes))


def _evaluate(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    array, target = array_of(operands[0]), instruction.array
    if array.size == 0 or target.elements == 0:
        return np.zeros(target.dims, context.carrier(target.dtype))
    attributes = instruction.attributes
    result = fft(array, str(attributes["fft_type"]), attributes["fft_length"])
    return context.round(result, target.dtype)


def _check(instruction: Instruction) -> str | None:
    """XLA reads other lengths, and what it computes with them depends on what memory holds."""
    target = instruction.array
    lengths = tuple(instruction.attributes["fft_length"])
    kind = instruction.attributes["fft_type"]
    inner = target.dims[target.rank - len(lengths) :]
    if kind in ("FFT", "IFFT") and target.elements and inner != lengths:
        return (
            f"a transform of length {list(lengths)} of dimensions {list(inner)} cannot be evaluated"
        )
    return None


EVALUATORS: Mapping[str, Evaluator] = {"fft": _evaluate}
CHECKS: Mapping[str, Check] = {"fft": _check}
