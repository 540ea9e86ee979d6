"""Literals of every element type, exact to the bit."""

from __future__ import annotations

from decimal import Decimal
from math import isnan

import numpy as np

from hloopt.codegen.types import device_problem, is_struct, register_type
from hloopt.kernel_ir.expressions import FALSE, TRUE, Number
from hloopt.types import Array, DType, dtype, rounded

__all__ = ["are_constants", "literal"]

_SHORT = 10  # characters; a longer decimal is less readable than the hexadecimal float
_INT_MIN = -(1 << 31)
_LLONG_MIN = -(1 << 63)


def literal(value: object, dtype: DType) -> Number:
    """The C literal of a value: an expression of the register type, safe as an operand.

    ``value`` is a NumPy scalar or 0-d array of the storage type, taken bit for bit, or anything NumPy
    converts to the compute type, which is rounded.  Raises ``ValueError`` for a type without a form on
    a device.
    """
    if problem := device_problem(dtype):
        raise ValueError(problem)
    element, type = _element(value, dtype), register_type(dtype)
    if dtype.is_pred:
        return TRUE if bool(element) else FALSE
    if dtype.is_integer:
        number = _wrapped(int(element), dtype)
        return Number(_integer(number, dtype), type, number)
    if dtype.is_complex:
        return Number(f"{type}{{{_float(element.real)}, {_float(element.imag)}}}", type)
    wide = float(element)
    text = f"{type}{{{_bits(element, dtype):#x}}}" if is_struct(dtype) else _float(element)
    return Number(text, type, None if isnan(wide) else wide)


def are_constants(array: Array, dtype: DType) -> bool:
    """Whether the literals of elements are constants to C: an f32 or f64 that is not finite is a call."""
    return (
        dtype.kind not in ("float", "complex")
        or dtype.is_narrow_float
        or bool(np.isfinite(array).all())
    )


def _element(value: object, kind: DType) -> Array:
    array = np.asarray(value)
    if array.dtype != kind.numpy:
        if kind.is_integer:
            array = np.asarray(int(array.item()) & ((1 << max(kind.bits, 8)) - 1), np.uint64)
            return array.astype(f"u{max(kind.bits, 8) // 8}").view(
                f"i{max(kind.bits, 8) // 8}"
                if kind.kind == "signed"
                else f"u{max(kind.bits, 8) // 8}"
            )
        array = rounded(array.astype(kind.compute), kind.numpy)
    return array.reshape(())


def _bits(element: Array, kind: DType) -> int:
    code = int(element.view(f"u{element.dtype.itemsize}"))
    return code & ((1 << kind.bits) - 1)


def _wrapped(number: int, kind: DType) -> int:
    if kind.bits < 8:
        number &= (1 << kind.bits) - 1
        if kind.kind == "signed" and number >> (kind.bits - 1):
            number -= 1 << kind.bits
    return number


def _integer(number: int, kind: DType) -> str:
    ending = {"s64": "ll", "u32": "u", "u64": "ull"}.get(kind.name, "")
    if number == _INT_MIN and kind.name == "s32":
        return f"({_INT_MIN + 1} - 1)"
    if number == _LLONG_MIN:
        return f"({_LLONG_MIN + 1}ll - 1)"
    text = f"{number}{ending}"
    if kind.bits < 32:
        return f"({register_type(kind)}){text}"
    return f"({text})" if number < 0 else text


def _float(element: Array) -> str:
    """An f32 or f64: short decimals where they are exact, hexadecimal floats, bits of inf and NaN."""
    single = element.dtype == np.float32
    if not np.isfinite(element):
        if single:
            return f"__uint_as_float({_bits(element, dtype('f32')):#010x}u)"
        return f"__longlong_as_double((long long){_bits(element, dtype('f64')):#018x}ull)"
    number = float(element)
    ending = "f" if single else ""
    text = repr(number)
    if len(text) > _SHORT or "e" in text or Decimal(text) != Decimal(number):
        text = _hexadecimal(number)
    text += ending
    return f"({text})" if text.startswith("-") else text


def _hexadecimal(number: float) -> str:
    mantissa, p, exponent = number.hex().partition("p")
    whole, _, digits = mantissa.partition(".")
    digits = digits.rstrip("0")
    return f"{whole}.{digits}{p}{exponent}" if digits else f"{whole}{p}{exponent}"
