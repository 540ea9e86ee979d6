"""Inputs that are easy to read: zeros, small integers, few digits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from hloopt.prover.reduction.case import Case, CaseDraft
from hloopt.prover.reduction.recording import Delta, Site, ValueRecorder
from hloopt.types import Array, of_numpy

__all__ = ["INPUTS"]

_PARTS: Final = 64
"""Into so many ranges a large array falls, each of which is zeros or is not."""


def _sites(case: Case) -> list[Site]:
    """Of each array: as whole numbers, with few digits; then ranges of zeros."""
    found: list[Site] = []
    zeros: list[Site] = []
    for participant, arrays in enumerate(case.inputs.arrays):
        for number, array in enumerate(arrays):
            if not array.size:
                continue
            if not of_numpy(array.dtype).is_integer and array.dtype.kind != "b":
                found += [(participant, number, "digits", digits, 0) for digits in (1, 2, 3)]
            step = -(-array.size // _PARTS)
            zeros += [
                (participant, number, "zeros", start, min(start + step, array.size))
                for start in range(0, array.size, step)
                if np.count_nonzero(array.reshape(-1)[start : start + step])
            ]
    return [*zeros, *found]


def _apply(draft: CaseDraft, sites: Sequence[Site], _: ValueRecorder) -> None:
    changed: dict[tuple[int, int], Array] = {}
    inputs = draft.case.inputs.arrays
    for participant, number, how, first, last in sites:
        key = participant, number
        array = changed[key] if key in changed else inputs[participant][number].copy()
        if how == "zeros":
            array.reshape(-1)[first:last] = 0
        elif how == "digits":
            array = rounded_to(array, first)
        changed[key] = array
    for participant in range(len(inputs)):
        at = 0
        for parameter in draft.entry.parameters:
            leaves = draft.arrays[parameter][participant]
            for place in range(len(leaves)):
                leaves[place] = changed.get((participant, at), leaves[place])
                at += 1


def rounded_to(array: Array, digits: int) -> Array:
    """Each number with so many significant digits."""
    values: Any = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    with np.errstate(all="ignore"):
        size = np.abs(values)
        power = np.where((size > 0) & np.isfinite(size), np.floor(np.log10(size)), 0)
        unit = 10.0 ** (digits - 1 - power)
        made = np.where(np.isfinite(values), np.round(values * unit) / unit, values)
    return np.asarray(made).astype(array.dtype)


INPUTS: Final = Delta("inputs", _sites, _apply)
