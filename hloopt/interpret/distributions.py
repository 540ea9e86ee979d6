"""``rng``: uniform and normal numbers.

XLA leaves open which numbers these are: it says only how they are distributed, and its compilers make
different ones.  Here they are what XLA's RngExpander makes of a key and a state: Philox4x32-10 bits, brought
into the interval, or paired by Box and Muller.  Key and first state come from the host's seed (scrambled) and
from the participant's number; each execution takes the state where the one before left it, so that a module
draws the same numbers whenever its rng instructions are executed in the same order.  Passes keep that order;
they neither merge nor remove any.

What XLA leaves open: a value of a uniform distribution that rounds to the upper end becomes the nearest
value below it; integers have no bias to small ones; any float type, any integer type and pred have numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hloopt.interpret.context import Context, Evaluator, Value, array_of
from hloopt.interpret.host import Host
from hloopt.interpret.random import (
    joined_pairs,
    paired_dims,
    philox,
    philox_bits,
    split_pairs,
)
from hloopt.ir import Instruction
from hloopt.ops import OPS, ScalarArgs
from hloopt.types import Array, DType, dtype

__all__ = ["EVALUATORS", "normal", "uniform"]

_WORD = (1 << 64) - 1
_LOW = 0xFFFFFFFF
_U64 = dtype("u64")
_FIRST_STATE = 0x7012395
# XLA's ScramblePhiloxKey: one block under this key makes any seed a good key.
_SCRAMBLING_KEY = 0x02461E293EC8F720
# No logarithm is taken of less; XLA writes it as a float.
_SMALLEST = np.float32(1e-7)
# How many bits of a word are the fraction of a float in [0, 1).
_FRACTION = {32: 23, 64: 52}


def _rng(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    """Numbers of the distribution whose parameters are the operands."""
    kind, dims = instruction.array.dtype, instruction.array.dims
    width = 64 if kind.is_integer or kind.is_pred or kind.bits == 64 else 32
    first, second = (array_of(operand)[()] for operand in operands)
    state = _next_state(context.host, instruction.array.elements * (width // 32))
    draw = normal if instruction.attributes["distribution"] == "rng_normal" else uniform
    return context.round(draw(state, dims, kind, first, second), kind)


def _next_state(host: Host, units: int) -> Array:
    """The state for the next ``units`` words: key, counter low, counter high."""
    low, high = host.seed & _LOW, host.seed >> 32 & _LOW
    _, blocks = philox(np.array([_SCRAMBLING_KEY, low, high], np.uint64), 1)
    key, first = blocks[0].tolist()
    key ^= host.number
    counter = host.states.get(_next_state, (first << 64) + _FIRST_STATE)
    host.states[_next_state] = counter + units
    return np.array([key, counter & _WORD, counter >> 64 & _WORD], np.uint64)


def uniform(state: Array, dims: tuple[int, ...], kind: DType, low: Any, high: Any) -> Array:
    """Numbers of [low, high) from a Philox state.

    Floats are ``low + u (high - low)`` in the compute type, u a multiple of 2^-23 (f64: 2^-52) below 1; they
    are finite where both ends are.  Where no number is in the interval, integers are ``low``, and floats what
    the formula says: ``low``, or between the ends.
    """
    if not kind.is_float:
        return _integers(state, dims, kind, int(low), int(high))
    low, high = (end.astype(kind.compute) for end in (low, high))
    fraction = _fraction(state, dims, kind.compute)
    span = high - low
    if np.isfinite(span) or not (np.isfinite(low) and np.isfinite(high)):
        values = fraction * span + low
    else:  # as far apart as no number of the type is large
        values = high * fraction + low * (1 - fraction)
    rounded = _typed(values, kind)
    if low < high:
        last = np.nextafter(high.astype(kind.numpy), low.astype(kind.numpy))
        return np.where(rounded.astype(kind.compute) >= high, last, rounded)
    return rounded


def _fraction(state: Array, dims: tuple[int, ...], compute: np.dtype[Any]) -> Array:
    """Floats of [0, 1): the upper bits of a word, all of which are exact."""
    bits = compute.itemsize * 8
    _, words = philox_bits(state, dims, bits)
    fraction = _FRACTION[bits]
    steps = (words >> words.dtype.type(bits - fraction)).astype(compute)
    result: Array = steps * compute.type(2.0**-fraction)
    return result


def _integers(state: Array, dims: tuple[int, ...], kind: DType, low: int, high: int) -> Array:
    """``low`` and the upper half of a 64-bit word times the number of values."""
    count = np.full(dims, max(high - low, 1), np.uint64)
    _, words = philox_bits(state, dims, 64)
    multiply_high, args = OPS["mulhi"].numpy, ScalarArgs(_U64, _U64, {})
    assert multiply_high is not None
    # The arithmetic of u64 wraps as that of s64 does.
    values = multiply_high(args, words, count) + np.uint64(low & _WORD)
    return _typed(values.view(np.int64) if low < 0 else values, kind)


def _typed(values: Array, kind: DType) -> Array:
    result: Array = values.astype(kind.numpy)
    return result


def normal(state: Array, dims: tuple[int, ...], kind: DType, mean: Any, deviation: Any) -> Array:
    """``mean + deviation z`` in the compute type, from a Philox state.

    Two uniform numbers a, b make two values z by Box and Muller: r sin(2 pi b) and r cos(2 pi b) with
    r = sqrt(-2 log(max(a, 1e-7))).  They lie beside each other, as the words of a Threefry block do.
    """
    compute = kind.compute
    a, b = split_pairs(_fraction(state, paired_dims(dims), compute), dims)
    radius = np.sqrt(compute.type(-2) * np.log(np.maximum(a, compute.type(_SMALLEST))))
    angle = compute.type(2 * np.pi) * b
    values = joined_pairs(np.sin(angle) * radius, np.cos(angle) * radius, dims)
    return _typed(values * deviation.astype(compute) + mean.astype(compute), kind)


EVALUATORS: dict[str, Evaluator] = {"rng": _rng}
