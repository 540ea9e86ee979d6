"""Sums that overflow in one order of their terms and not in another.

Where the magnitudes of the terms add up to more than the largest number, an order may reach an infinity on its
way to a sum that is none.  Four ways are tried in turn: what is positive comes first, or what is negative does,
or both are added up apart, or nothing overflows on the way, as in a wider type.  The sums of either sign are
those of scaled operands, which have room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

import ml_dtypes
import numpy as np

from hloopt.interpret.context import Value, array_of, map_arrays, map_floats
from hloopt.ir import Instruction
from hloopt.types import Array, of_numpy

__all__ = ["overflown"]

_PRODUCTS: Final = frozenset({"convolution", "dot", "ragged-dot"})
_FOLDS: Final = frozenset({"reduce", "reduce-window", "scatter"})
_ROOM: Final = 6
"""Bits of the exponent that are left to the sum of what is scaled: for 4,096 products."""


def overflown(
    instruction: Instruction,
    values: tuple[Value, ...],
    run: Callable[[Iterable[Value]], Value],
    seed: int,
    result: Value,
    added: Value,
) -> tuple[Value, Value]:
    """A sum with what overflows in the order that ``seed`` chooses, and what was added in f64.

    ``run`` evaluates the instruction on other values; ``result`` and ``added``, the result for the magnitudes
    of the values, are what is given back where nothing is known: of complex numbers, and of what participants
    add up, who would have to meet again.
    """
    is_product = instruction.opcode in _PRODUCTS
    scales = [_scale(value) for value in values]
    one_scale = len({scale for scale in scales if scale}) == 1
    if instruction.opcode not in _PRODUCTS | _FOLDS or not (is_product or one_scale):
        return result, added
    if any(np.iscomplexobj(value) for value in values):
        return result, added
    scale = sum(scales) if is_product else max(scales)
    above, below = (
        map_arrays(lambda *parts: np.add.reduce(parts, dtype=np.float64), *parts)
        for parts in _signed_sums(values, run, scales, is_product=is_product)
    )

    def each(array: Array, more: Array, less: Array) -> Array:
        kind = of_numpy(array.dtype)
        limit = np.ldexp(float(ml_dtypes.finfo(kind.numpy).max), -scale)  # type: ignore[no-untyped-call]
        high, low, net = more > limit, less > limit, more - less
        number = abs(seed) - 1
        way = (number + number // 4) % 4  # each of them with any distance that roundings move
        if way == 0:
            found = np.ldexp(np.where(np.abs(net) <= limit, net, np.copysign(np.inf, net)), scale)
        else:
            found = np.where(high, np.inf, -np.inf)
            found = np.where(high & low, {1: np.inf, 2: -np.inf, 3: np.nan}[way], found)
        known = np.isfinite(more) & np.isfinite(less)
        return np.where((high | low) & known, found, array).astype(array.dtype)

    wide = map_arrays(lambda more, less: np.ldexp(more + less, scale), above, below)
    return map_arrays(each, result, above, below), wide


def _signed_sums(
    values: tuple[Value, ...],
    run: Callable[[Iterable[Value]], Value],
    scales: Sequence[int],
    *,
    is_product: bool,
) -> tuple[list[Value], list[Value]]:
    """The parts of the sum of what is positive, and of the magnitudes of what is negative."""
    more, less = (
        [
            map_floats(partial(_signed, sign=sign, scale=scale), value)
            for value, scale in zip(values, scales, strict=True)
        ]
        for sign in (1, -1)
    )
    if not is_product:
        return [run(more)], [run(less)]
    rest = values[2:]
    (left, other), (right, opposite) = more[:2], less[:2]
    return (
        [run((left, other, *rest)), run((right, opposite, *rest))],
        [run((left, opposite, *rest)), run((right, other, *rest))],
    )


def _signed(array: Array, *, sign: int, scale: int) -> Array:
    """What an array has of a sign, and zeros, smaller by so many powers of two."""
    return np.asarray(np.maximum(np.ldexp(sign * array, -scale), 0), array.dtype)


def _scale(value: Value) -> int:
    """By how many powers of two an operand is made smaller: integers and types of few bits by none."""
    kind = of_numpy(array_of(value).dtype)
    if not kind.is_float or kind.bits < 16:
        return 0
    exponents: int = ml_dtypes.finfo(kind.numpy).maxexp  # type: ignore[no-untyped-call]
    return exponents // 2 + _ROOM
