"""The best value and its index: regions of pairs that choose by value first (arg-max, arg-min)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.interpret.context import Context, leaf_arrays
from hloopt.interpret.regions import only_orders
from hloopt.ir import Computation, Instruction
from hloopt.types import Array

__all__ = ["PairChoice", "best", "choice_of"]


@dataclass(frozen=True, slots=True)
class PairChoice:
    """Which of two (value, index) pairs of numbers a region returns.

    largest  whether the larger value wins; if not, the smaller one
    ties     of equal values: the ``lower`` or ``higher`` index, or that of the ``first`` or ``last`` pair
    """

    largest: bool
    ties: str


def choice_of(computation: Computation, context: Context) -> PairChoice | None:
    """What a region of two pairs chooses, or None.

    For regions that only compare values with values, indices with indices, and choose: what these do
    with numbers depends only on which is less, so that trying every order proves it.  What they do
    with a NaN, and which of two zeros with different indices they return, is left open.
    """
    key = ("choice_of", computation)
    if key not in context.memory:
        context.memory[key] = _asked(computation, context) if _in_lanes(computation) else None
    choice: PairChoice | None = context.memory[key]
    return choice


def _in_lanes(computation: Computation) -> bool:
    """Whether a region of (value, index, value, index) compares like with like alone."""
    parameters = computation.parameters
    if len(parameters) != 4 or not only_orders(computation):
        return False
    value, index = (parameter.array.dtype for parameter in parameters[:2])
    if not (value.is_float or value.is_integer) or not index.is_integer:
        return False
    if min(value.bits, index.bits) < 8 or value.name == "f8e8m0fnu":
        return False
    return all(
        _lane(step.operands) is not None and step.attributes.get("type") != "TOTALORDER"
        for step in computation
        if step.opcode in ("compare", "maximum", "minimum")
    )


def _lane(operands: Sequence[Instruction]) -> int | None:
    if any(operand.opcode != "parameter" for operand in operands):
        return None
    lanes = {operand.parameter_number % 2 for operand in operands}
    return lanes.pop() if len(lanes) == 1 else None


def _asked(computation: Computation, context: Context) -> PairChoice | None:
    kinds = [parameter.array.dtype for parameter in computation.parameters]
    rows = np.array(list(product(range(3), repeat=4)))
    columns = [
        context.round(rows[:, at].astype(kind.compute), kind) for at, kind in enumerate(kinds)
    ]
    value, index = (
        leaf.astype(np.int64) for leaf in leaf_arrays(context.apply(computation, columns))
    )
    v, i, w, j = rows.T
    for largest in (True, False):
        wins, loses = (v > w, v < w) if largest else (v < w, v > w)
        if (value != np.where(wins, v, w)).any():
            continue
        tied = {"lower": np.minimum(i, j), "higher": np.maximum(i, j), "first": i, "last": j}
        for ties, chosen in tied.items():
            if (index == np.where(wins, i, np.where(loses, j, chosen))).all():
                return PairChoice(largest, ties)
    return None


def best(values: Array, indices: Array, choice: PairChoice) -> tuple[Array, Array] | None:
    """Along the first dimension, which is not empty; None where what is left open would matter."""
    if values.dtype.kind in "fV" and np.isnan(values).any():
        return None
    if choice.ties in ("first", "last"):
        # NumPy takes the first of equal ones.
        ordered = values if choice.ties == "first" else values[::-1]
        at = (np.argmax if choice.largest else np.argmin)(ordered, axis=0)[np.newaxis]
        if choice.ties == "last":
            at = len(values) - 1 - at
        return np.take_along_axis(values, at, 0)[0], np.take_along_axis(indices, at, 0)[0]
    chosen = (np.maximum if choice.largest else np.minimum).reduce(values, axis=0)
    if values.dtype.kind in "fV" and (chosen == 0).any():
        return None
    bound = np.iinfo(indices.dtype)
    tied = values == chosen
    if choice.ties == "lower":
        return chosen, np.where(tied, indices, bound.max).min(axis=0)
    return chosen, np.where(tied, indices, bound.min).max(axis=0)
