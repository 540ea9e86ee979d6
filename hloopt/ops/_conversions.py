"""Conversions between element types, comparisons on bits, and reduced precision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from hloopt.ops.opdef import ScalarArgs
from hloopt.types import Array, DType

__all__ = [
    "compare",
    "convert",
    "keeps_bits",
    "reduce_precision",
    "stochastic_convert",
]


_COMPARISONS = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "GE": np.greater_equal,
    "GT": np.greater,
    "LE": np.less_equal,
    "LT": np.less,
}


_ORDERED_BY_CODES = frozenset({"f16", "bf16", "f8e5m2", "f8e4m3", "f8e3m4"})


def keeps_bits(opcode: str, attributes: Mapping[str, Any], kind: DType) -> bool:
    """Whether an op sees operands of a type as they are stored, where others see them widened.

    Widening would change the NaNs that ``select`` passes on and a total order compares; the types with
    a single NaN are compared as f32, in which that of ``fnuz`` types is below everything.
    """
    if opcode == "compare":
        return attributes.get("type") == "TOTALORDER" and kind.name in _ORDERED_BY_CODES
    return opcode == "select"


def convert(args: ScalarArgs, x: Array) -> Array:
    """Floats to integers truncate and saturate, NaN to 0; integers wrap; the rest rounds.

    Whatever is not 0 becomes true, a subnormal number too, which XLA's CPU code flushes.  As in XLA, f64
    becomes f16 and bf16 by way of f32, and narrower types at once; integers become narrow floats by
    way of f32.  The real part stands for a complex number.
    """
    target = args.result
    if target.is_pred:
        return np.asarray(x != 0)
    if x.dtype.kind == "c" and not target.is_complex:
        x = x.real
    if target.is_integer and x.dtype.kind == "f":
        return _saturate(x, target)
    if x.dtype.kind == "V":  # s4 and its like do not cast to one another
        x = x.astype(np.int8)
    if x.dtype == np.float64 and target.bits < 16:
        return _sticky(x)
    return x.astype(target.compute)


def _sticky(x: Array) -> Array:
    """f64 as f32, rounded to odd: what is rounded again, to 22 bits or fewer, is as if rounded once."""
    near = x.astype(np.float32)
    wide = near.astype(np.float64)
    inward = np.where(np.abs(wide) > np.abs(x), np.nextafter(near, np.float32(0)), near)
    bits = inward.view(np.uint32) | np.where((wide != x) & ~np.isnan(x), np.uint32(1), np.uint32(0))
    return np.asarray(bits).view(np.float32)


def _saturate(x: Array, target: DType) -> Array:
    least, greatest = target.limits
    wide = x.astype(np.float64)
    # float64(2**63 - 1) is 2**63, so that everything below it fits.
    above, below = wide >= float(greatest), wide <= float(least)
    inside = np.where(above | below | np.isnan(wide), 0.0, wide)
    carrier = np.uint64 if least == 0 else np.int64
    whole = inside.astype(carrier)
    whole = np.where(above, carrier(greatest), np.where(below, carrier(least), whole))
    return whole.astype(target.numpy)


def _ordered(x: Array) -> Array:
    """Integers in the total order of the floats: -NaN < -inf < ... < -0 < +0 < ... < inf < NaN."""
    bits = np.ascontiguousarray(x).view(np.dtype(f"i{x.dtype.itemsize}")).reshape(x.shape)
    greatest = bits.dtype.type(np.iinfo(bits.dtype).max)
    return np.where(bits < 0, bits ^ greatest, bits)


def compare(args: ScalarArgs, x: Array, y: Array) -> Array:
    """By ``direction``; NaN compares unequal unless ``type=TOTALORDER``.

    So does the NaN of f8e8m0fnu, as in compiled code; XLA's evaluator compares that type by its codes.
    """
    function = _COMPARISONS[args.attributes["direction"]]
    if args.attributes.get("type") == "TOTALORDER" and args.operand.is_float:
        x, y = _ordered(x), _ordered(y)
    return np.asarray(function(x, y))


def reduce_precision(args: ScalarArgs, x: Array) -> Array:
    """Round to fewer bits: mantissa to nearest even, then overflow to infinity and tiny to zero.

    Works on the bits of f16 and bf16 themselves, as their subnormals round at other places than the
    same numbers in f32; 8-bit types with a sign are reduced in f16, as XLA's CPU code does.  A NaN
    stays one, in compiled code also without a mantissa, where XLA's evaluator makes it infinite.
    """
    wide = x.dtype
    narrow = args.operand
    if narrow.name in ("f16", "bf16"):
        x = x.astype(narrow.numpy)
    elif narrow.bits == 8 and narrow.name != "f8e8m0fnu":
        x = x.astype(np.float16)
    info: Any = ml_dtypes.finfo(x.dtype)  # type: ignore[no-untyped-call]
    return _reduce_bits(
        x,
        (int(info.nexp), int(info.nmant)),
        (args.attributes["exponent_bits"], args.attributes["mantissa_bits"]),
    ).astype(wide)


def _reduce_bits(x: Array, source: tuple[int, int], target: tuple[int, int]) -> Array:
    """(exponent bits, mantissa bits) of ``source`` to those of ``target``; adapted on the bits."""
    exponent_bits, mantissa_bits = source
    word = np.dtype(f"u{x.dtype.itemsize}")
    bits = np.ascontiguousarray(x).view(word).reshape(x.shape)
    drop = max(0, mantissa_bits - target[1])
    rounded = bits
    if drop:
        half = word.type((1 << (drop - 1)) - 1)
        last = (bits >> word.type(drop)) & word.type(1)
        keep = word.type(((1 << (8 * word.itemsize)) - 1) ^ ((1 << drop) - 1))
        rounded = (bits + half + last) & keep
    sign = bits & word.type(1 << (exponent_bits + mantissa_bits))
    field = word.type(((1 << exponent_bits) - 1) << mantissa_bits)
    infinity = sign | field
    if target[0] < exponent_bits:
        source_bias = (1 << (exponent_bits - 1)) - 1
        target_bias = (1 << (target[0] - 1)) - 1
        exponent = rounded & field
        too_large = exponent > word.type((source_bias + target_bias) << mantissa_bits)
        too_small = exponent <= word.type((source_bias - target_bias) << mantissa_bits)
        rounded = np.where(too_small, sign, np.where(too_large, infinity, rounded))
    result = np.where(np.isnan(x), bits, rounded)
    return np.ascontiguousarray(result).view(x.dtype).reshape(x.shape)


def stochastic_convert(args: ScalarArgs, x: Array, random: Array) -> Array:
    """To a signed integer; the fraction is the probability of rounding away from zero.

    ``random`` is uniform over its unsigned type: the size grows by one where it is below
    ``fraction * 2**bits``.  Out of range saturates, NaN gives 0; numbers below the greatest one
    never exceed it.
    """
    least, greatest = args.result.limits
    wide = x.astype(np.float64)
    size = np.abs(wide)
    whole = np.trunc(size)
    threshold = np.trunc((size - whole) * 2.0**args.operand.bits)
    outside = (wide >= float(greatest)) | (wide <= float(least)) | np.isnan(wide)
    count = np.where(outside, 0.0, whole).astype(np.int64)
    grows = (size > whole) & (random.astype(np.uint64) < _to_u64(np.where(outside, 0.0, threshold)))
    signed = np.where(wide < 0, -(count + grows), count + grows)
    return np.where(outside, _saturate(x, args.result).astype(np.int64), signed).astype(
        args.result.numpy
    )


def _to_u64(x: Array) -> Array:
    return x.astype(np.uint64)
