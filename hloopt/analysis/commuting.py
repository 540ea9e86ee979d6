"""Whether the order of its two sides matters to a reducer, found by trying.

Threads take elements in an arbitrary order, so that a reducer must give the same for ``(a, b)`` and
``(b, a)``.  No rule decides that for any computation; evaluating it on small numbers, ties among them, finds
those that keep the first or the last of two, subtract, or choose by place.  NaN is left out: which of several
NaN an arg-max returns is unspecified.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from hloopt.interpret import EVALUATORS
from hloopt.interpret.context import leaf_arrays
from hloopt.interpret.interpreter import Interpreter
from hloopt.ir import Computation
from hloopt.types import Array, DType

__all__ = ["order_example"]

_NUMBERS = (-2, -1, 0, 1, 2, 3)
_ROWS = 243


def order_example(reducer: Computation) -> str:
    """Two sides for which ``reducer`` depends on their order, in words; empty where none was found.

    ``reducer`` has ``2 * n`` scalar parameters: ``n`` values of the one side, then ``n`` of the other.
    Evaluates it a few hundred times, at once.
    """
    module = reducer.module
    assert module is not None
    kinds = [parameter.array.dtype for parameter in reducer.parameters]
    count = len(kinds) // 2
    context = Interpreter(module, EVALUATORS)
    sides = _samples(kinds)
    columns = [context.round(side, kind) for side, kind in zip(sides, kinds, strict=True)]
    with np.errstate(all="ignore"):
        one = leaf_arrays(context.apply(reducer, columns))
        other = leaf_arrays(context.apply(reducer, columns[count:] + columns[:count]))
    for left, right in zip(one, other, strict=True):
        left, right = np.broadcast_arrays(left, right)
        nothing = [np.isnan(side.astype(np.complex128)) for side in (left, right)]
        differs = np.flatnonzero((left != right) & ~(nothing[0] & nothing[1]))
        if differs.size:
            at = int(differs[0])
            shown = [", ".join(str(side[at]) for side in part) for part in _halves(columns)]
            return f"of ({shown[0]}) and ({shown[1]}) it makes {left[at]}, swapped {right[at]}"
    return ""


def _halves(columns: list[Array]) -> tuple[list[Array], list[Array]]:
    return columns[: len(columns) // 2], columns[len(columns) // 2 :]


def _samples(kinds: list[DType]) -> list[Array]:
    """A column of small numbers for each parameter, in the type it is computed in."""
    if len(kinds) == 2:
        rows = np.array(list(product(_NUMBERS, repeat=2)))
    elif len(kinds) == 4:
        rows = np.array(list(product(range(3), repeat=4)))
    else:
        rows = np.random.default_rng(0).integers(0, 3, (_ROWS, len(kinds)))
    return [_as(rows[:, at], kind) for at, kind in enumerate(kinds)]


def _as(numbers: Array, kind: DType) -> Array:
    if kind.is_pred:
        return np.asarray(numbers % 2 == 1)
    if kind.kind == "unsigned":
        return np.abs(numbers).astype(kind.compute)
    values = numbers + 1j * (numbers % 3) if kind.is_complex else numbers
    return np.asarray(values.astype(kind.compute))
