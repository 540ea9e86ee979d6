"""Inputs with special values strewn in."""

from __future__ import annotations

from typing import Any

import numpy as np

from hloopt.ir import Module
from hloopt.runtime.inputs import generate

__all__ = ["special_inputs"]

SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.5, 1e-40, 1e30)


def special_inputs(module: Module, seed: int) -> list[np.ndarray[Any, Any]]:
    """As ``generate`` draws them, but every third float is a special one."""
    rng = np.random.default_rng(seed)
    arrays = []
    for array in generate(module, seed):
        if array.dtype.kind not in "biu":
            with np.errstate(all="ignore"):
                special = rng.choice(SPECIAL, array.shape).astype(array.dtype)
            array = np.where(rng.random(array.shape) < 0.3, special, array)
        arrays.append(array)
    return arrays
