"""How functions of NumPy become those of rows: by kind of type, and without warnings."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from hloopt.ops import _conversions, _floats, _integers
from hloopt.ops._floats import STEADY
from hloopt.ops.opdef import ScalarArgs
from hloopt.types import Array

Function = Callable[..., Any]


def quiet(function: Function) -> Function:
    """HLO's arithmetic has no traps: overflow, NaN and division by zero are results, not warnings.

    ``__wrapped__`` is for an executor that has silenced NumPy for a whole run.
    """

    @wraps(function)
    def quiet(args: ScalarArgs, *arrays: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(function(args, *arrays))

    return quiet


def plain(function: Function) -> Function:
    """A NumPy function that needs no arguments beside its arrays."""

    def plain(args: ScalarArgs, *arrays: Array) -> Array:
        return np.asarray(function(*arrays))

    return plain


def split(integers: Function, floats: Function) -> Function:
    """One function for integers and pred, another for floats and complex numbers."""
    wrapped = _integers.integer(integers)

    def split(args: ScalarArgs, *arrays: Array) -> Array:
        function = floats if arrays[0].dtype.kind in "fc" else wrapped
        return np.asarray(function(args, *arrays))

    return split


def both(function: Function) -> Function:
    alike = plain(function)
    return split(alike, alike)


def complex_too(reals: Function, complexes: Function) -> Function:
    """One function for floats, another, of arrays alone, for complex numbers."""

    def either(args: ScalarArgs, *arrays: Array) -> Array:
        if arrays[0].dtype.kind == "c":
            return np.asarray(complexes(*arrays))
        return np.asarray(reals(args, *arrays))

    return either


def steady(opcode: str) -> Function:
    return plain(STEADY[opcode])


def integer(function: Function) -> Function:
    return _integers.integer(function)


def real(args: ScalarArgs, x: Array) -> Array:
    return x.real


def imag(args: ScalarArgs, x: Array) -> Array:
    return x.imag if x.dtype.kind == "c" else np.zeros_like(x)


def copy(args: ScalarArgs, x: Array) -> Array:
    return x if args.operand is args.result else _conversions.convert(args, x)


def clamp(args: ScalarArgs, least: Array, x: Array, greatest: Array) -> Array:
    if x.dtype.kind == "f":
        return _floats.minimum(args, _floats.maximum(args, least, x), greatest)
    return np.minimum(np.maximum(least, x), greatest)
