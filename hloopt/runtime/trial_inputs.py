"""Inputs on which wrong kernels show: ties, one sign, a wide spread, a lone element, stray indices.

Normal numbers hide many errors: the largest of many small integers is the same in every part of a row,
floats are never equal, and an initial value below what is found anyway does no harm.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import numpy as np

from hloopt.interpret.drawn import InputRole
from hloopt.ir import Module
from hloopt.runtime.inputs import generate, positions, stray
from hloopt.runtime.roles import roles
from hloopt.types import Array, DType

__all__ = ["TRIALS", "Spread", "trial_inputs"]

Spread: TypeAlias = Literal["plain", "stray", "tied", "negative", "wide", "lone"]

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


def trial_inputs(module: Module, seed: int, spread: Spread) -> list[Array]:
    """As ``generate``, with another distribution for inputs without a role (``runtime.roles``).

    stray     indices out of range (``inputs.stray``)
    tied      floats are whole numbers, so that many are equal
    negative  -1 and below, where the type has a sign
    wide      integers from -1000 to 1000, or as far as the type goes
    lone      zeros but for one element
    """
    inputs = generate(module, seed)
    if spread == "plain":
        return inputs
    if spread == "stray":
        return stray(module, inputs, seed)
    found_roles = roles(module)
    rng = np.random.default_rng([seed, TRIALS.index(spread)])
    arrays = iter(inputs)
    return [
        _spread(rng, next(arrays), shape.dtype, spread)
        if found_roles.get((parameter, index), InputRole()) == InputRole()
        else next(arrays)
        for parameter in module.entry.parameters
        for index, shape in positions(parameter.shape)
    ]


def _spread(rng: np.random.Generator, array: Array, kind: DType, spread: Spread) -> Array:
    if not array.size:
        return array
    if spread == "lone":
        found = np.zeros_like(array)
        place = int(rng.integers(array.size))
        found.flat[place] = np.ones((), array.dtype) if kind.is_pred else array.flat[place]
        return found
    if kind.is_integer:
        return _integers(rng, array, kind, spread)
    if kind.is_pred or kind.name == "f8e8m0fnu":
        return array
    wide = array.astype(kind.compute)
    if spread == "tied":
        wide = np.round(wide)
    elif spread == "negative" and not kind.is_complex:
        wide = -np.abs(wide) - 1
    return wide.astype(array.dtype)


def _integers(rng: np.random.Generator, array: Array, kind: DType, spread: Spread) -> Array:
    least, most = kind.limits
    if spread == "negative" and least:
        low, high = max(least, -_WIDE), -1
    elif spread == "wide":
        low, high = max(least, -_WIDE), min(most, _WIDE)
    else:
        return array
    return np.asarray(rng.integers(low, high, array.shape, endpoint=True)).astype(array.dtype)
