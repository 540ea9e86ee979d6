"""Inputs on which errors show that normal numbers hide: special values, ties, a wide spread, stray indices.

The largest of many small integers is the same in every part of a row, floats are never equal, an initial
value below what is found anyway does no harm, and x * 0 is 0 until x is infinite.  One class at a time: the
NaN of one would hide what another shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

import ml_dtypes
import numpy as np

from hloopt.interpret.drawn import InputRole
from hloopt.ir import Module
from hloopt.runtime.inputs import generate, keep_weights, positions, stray
from hloopt.runtime.roles import roles
from hloopt.types import Array, DType, dtype

__all__ = ["SPREADS", "TRIALS", "Spread", "spread_inputs", "trial_inputs"]

Spread: TypeAlias = Literal[
    "plain", "stray", "tied", "negative", "wide", "lone",
    "zero", "infinite", "nan", "subnormal", "largest", "extreme", "cancelling", "opposite", "huge", "tiny",
    "same",
]  # fmt: skip

SPREADS: Final[Mapping[Spread, str]] = {
    "zero": "zeros of both signs among floats, zeros among integers",
    "infinite": "infinities of both signs",
    "nan": "NaN",
    "subnormal": "floats below the least normal one, and that one",
    "largest": "the largest finite floats of both signs",
    "extreme": "the least and the greatest integers, and those next to them",
    "cancelling": "floats in pairs whose sum is small beside them, large ones among small ones",
    "tied": "floats that are whole numbers, so that many are equal",
    "stray": "indices below 0, at the bound and beyond",
    "negative": "numbers of -1 and below",
    "wide": "integers from -1000 to 1000, or as far as the type goes",
    "lone": "zeros but for one element",
    "opposite": "floats in pairs whose sum is 0, and pred that is true, so that masks leave pairs alone",
    "huge": "floats whose products overflow, and whose sum does not",
    "tiny": "floats whose products underflow",
    "same": "floats that are all one number",
}
"""Each class of inputs but the plain one, and what is in it."""

TRIALS: Final[tuple[Spread, ...]] = (
    "plain",
    "plain",
    "stray",
    "tied",
    "negative",
    "wide",
    "lone",
)
"""What a kernel on trial is given, trial ``n`` drawn by seed ``n``."""

_WIDE = 1000  # sums of as many are still exact in f32, by and large
_SHARE = 0.125  # of elements that are special, one at least
_AMONG: Final = frozenset({"zero", "infinite", "nan", "subnormal", "largest", "extreme"})


def trial_inputs(module: Module, seed: int, spread: Spread) -> list[Array]:
    """``generate``, and ``spread_inputs`` of it."""
    return spread_inputs(module, generate(module, seed), seed, spread)


def spread_inputs(
    module: Module, inputs: Sequence[Array], seed: int, spread: Spread
) -> list[Array]:
    """Inputs of a module, changed into those of a class (``SPREADS``) where their roles allow.

    Indices (``runtime.roles``) are changed by ``stray`` only, integers that bound a loop or are random bits by
    no class.  Floats that a square root is taken of, and weights, get special values; matrices to be factored
    stay as they are.  Equal arrays become equal ones.  What belongs to
    the module (``Module.weights``) stays as it is.
    """
    if spread == "plain":
        return list(inputs)
    if spread == "stray":
        return keep_weights(module, stray(module, list(inputs), seed), inputs)
    found_roles = roles(module)
    rng = np.random.default_rng([seed, [*TRIALS, *SPREADS].index(spread)])
    arrays = iter(inputs)
    found = []
    for parameter in module.entry.parameters:
        for index, shape in positions(parameter.shape):
            array, role = next(arrays), found_roles.get((parameter, index), InputRole())
            if array.size and _is_free(role, shape.dtype, spread):
                change = _with_special if spread in _AMONG else _spread
                array = change(rng, array, shape.dtype, spread)
            found.append(array)
    return keep_weights(module, found, inputs)


def _is_free(role: InputRole, kind: DType, spread: Spread) -> bool:
    if spread in _AMONG and not (kind.is_integer or kind.is_pred):
        return not role.definite
    return role == InputRole()


def _with_special(rng: np.random.Generator, array: Array, kind: DType, spread: Spread) -> Array:
    """The array with special values of a class in some of its places, one at least."""
    values = _special(kind, spread)
    if not values.size:
        return array
    drawn = rng.choice(values, array.shape)
    chances = np.asarray(rng.random(array.shape))
    share = max(_SHARE, float(chances.min()))
    if not kind.is_complex:
        return np.where(chances <= share, drawn, array)
    found = array.copy()
    chosen, imaginary = chances <= share, rng.integers(0, 2, array.shape).astype(np.bool_)
    found.real = np.where(chosen & ~imaginary, drawn, array.real)
    found.imag = np.where(chosen & imaginary, drawn, array.imag)
    return found


def _special(kind: DType, spread: Spread) -> Array:
    """The values of a class that a type has, none where the class is not about it."""
    if kind.is_integer:
        least, most = kind.limits
        numbers = {"zero": {0}, "extreme": {least, least + 1, most - 1, most}}.get(spread, set())
        if spread == "extreme" and least:
            numbers |= {-1}
        return np.array(sorted(numbers), kind.numpy)
    if kind.is_pred:
        return np.zeros(0, np.bool_)
    part = _part(kind)
    facts = ml_dtypes.finfo(part.numpy)  # type: ignore[no-untyped-call]
    low, normal = float(facts.smallest_subnormal), float(facts.smallest_normal)
    near: dict[str, list[float]] = {
        "zero": [0.0],
        "infinite": [np.inf],
        "nan": [np.nan],
        "subnormal": [low, (low + normal) / 2, normal],
        "largest": [float(facts.max)],
    }
    magnitudes = np.array(near.get(spread, []), np.float64)
    found = np.concatenate([magnitudes, -magnitudes])
    with np.errstate(all="ignore"):
        values = found.astype(part.numpy)
    wide = values.astype(np.float64)
    there = np.isnan(wide) if spread == "nan" else np.isfinite(wide) == np.isfinite(found)
    if part.name == "f8e8m0fnu":
        there &= spread == "nan" or (spread == "largest" and wide > 1)
    return np.asarray(values[there])


def _spread(rng: np.random.Generator, array: Array, kind: DType, spread: Spread) -> Array:
    if spread == "lone":
        found = np.zeros_like(array)
        place = int(rng.integers(array.size))
        found.flat[place] = np.ones((), array.dtype) if kind.is_pred else array.flat[place]
        return found
    if kind.is_integer:
        return _integers(rng, array, kind, spread)
    if kind.is_pred or kind.name == "f8e8m0fnu":
        return np.ones_like(array) if spread == "opposite" and kind.is_pred else array
    wide = array.astype(kind.compute)
    if spread == "tied":
        wide = np.round(wide)
    elif spread == "negative" and not kind.is_complex:
        wide = -np.abs(wide) - 1
    elif spread == "cancelling":
        wide = _cancelling(rng, wide, kind)
    elif spread == "opposite":
        flat = wide.reshape(-1).copy()
        flat[1::2] = -flat[: flat.size - flat.size % 2 : 2]
        wide = flat.reshape(wide.shape)
    elif spread == "same":
        wide = np.full_like(wide, wide.flat[0])
    elif spread in ("huge", "tiny"):
        wide = _scaled(wide, kind, spread)
    return wide.astype(array.dtype)


def _cancelling(rng: np.random.Generator, wide: Array, kind: DType) -> Array:
    """Every other element is the one before it negated, but for a few bits; half of the pairs are large.

    Large is half of the bits of the type's significand, so that small ones beside it lose theirs.
    """
    part = _part(kind)
    step = float(ml_dtypes.finfo(part.numpy).eps)  # type: ignore[no-untyped-call]
    flat = wide.reshape(-1).copy()
    pairs = flat.size // 2
    large = rng.integers(0, 2, pairs).astype(np.bool_)
    first = flat[: 2 * pairs : 2] * np.where(large, step**-0.5, 1).astype(flat.real.dtype)
    flat[: 2 * pairs : 2] = first
    flat[1 : 2 * pairs : 2] = -first * flat.real.dtype.type(1 + 4 * step)
    return flat.reshape(wide.shape)


def _scaled(wide: Array, kind: DType, spread: Spread) -> Array:
    """The array with its largest element near the least normal number, or so large that all add up to half of
    the greatest at most.
    """
    facts = ml_dtypes.finfo(_part(kind).numpy)  # type: ignore[no-untyped-call]
    target = float(facts.smallest_normal) * 16
    if spread == "huge":
        target = float(facts.max) / max(2 * wide.size, 4)
    largest = float(np.max(np.abs(wide), initial=0.0))
    return wide if not largest else wide / largest * target


def _part(kind: DType) -> DType:
    """The type of the real part."""
    return dtype("f32" if kind.name == "c64" else "f64") if kind.is_complex else kind


def _integers(rng: np.random.Generator, array: Array, kind: DType, spread: Spread) -> Array:
    least, most = kind.limits
    if spread == "negative" and least:
        low, high = max(least, -_WIDE), -1
    elif spread == "wide":
        low, high = max(least, -_WIDE), min(most, _WIDE)
    else:
        return array
    return np.asarray(rng.integers(low, high, array.shape, endpoint=True)).astype(array.dtype)
