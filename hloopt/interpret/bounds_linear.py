"""How far sums over places of their own may be off: the evaluator adds up magnitudes at the same places."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hloopt.interpret.bounding import Bounding
from hloopt.interpret.bounds_elementwise import ErrorBound
from hloopt.interpret.bounds_sums import bounds_of, is_counting, size_of, total_bound
from hloopt.interpret.context import Value, array_of
from hloopt.interpret.perturbation import unit_roundoff
from hloopt.interpret.regions import combiner
from hloopt.ir import Computation
from hloopt.types import Array

__all__ = ["compares", "picked_sums", "scaled_products"]


def compares(region: Computation) -> bool:
    """Whether a computation is one comparison of its two parameters."""
    root = region.root
    return root.opcode == "compare" and set(root.operands) == set(region.parameters)


def scaled_products(one: Bounding) -> Value:
    """Of ``scaled-dot`` and ``ragged-dot``: of exact operands, else nothing is known."""
    kind = one.instruction.array.dtype
    if not one.is_exact or not (kind.is_float or kind.is_complex):
        return one.unknown()
    result = array_of(one.run())
    operands, _ = one.arrays()
    whole = [array.dtype.kind in "biu" for array in operands]
    added, terms = (
        _again(one, [x if fixed else of(x) for x, fixed in zip(operands, whole, strict=True)])
        for of in (np.abs, np.ones_like)
    )
    off = np.zeros(added.shape)
    # Of each term three factors may round: two of them scales.
    return one.close(result, [total_bound(result, kind, off, added, 4 * (terms + 3))])


def picked_sums(one: Bounding) -> Value:
    """Of ``select-and-scatter`` that adds, where comparing exact numbers selects."""
    attributes, kind = one.instruction.attributes, one.instruction.array.dtype
    (image, source, init), (off_image, *bounds) = one.arrays()
    added_up = combiner(attributes["scatter"]) == "add" and compares(attributes["select"])
    if off_image is not None or not added_up or not kind.is_float:
        return one.unknown()
    result = array_of(one.run())

    def over(first: Array, second: Array) -> Array:
        return _again(one, [image, first, second])

    added = over(np.abs(source), np.abs(init))
    found: ErrorBound = None
    if not is_counting((source, init), bounds, added):
        off = over(*bounds_of((source, init), bounds))
        terms = np.rint(over(source != 0, init != 0)) - 1
        found = total_bound(result, kind, off, added, np.maximum(terms, 0), stepwise=True)
    return one.close(result, [found])


def _again(one: Bounding, arrays: Sequence[Array]) -> Array:
    """The magnitudes of the result for other operands, which are themselves rounded to their types."""
    given = [
        np.asarray(array, operand.array.dtype.numpy)
        for array, operand in zip(arrays, one.instruction.operands, strict=True)
    ]
    found = size_of(array_of(one.run(tuple(given))))
    return np.asarray(found * (1 + 64 * unit_roundoff(one.instruction.array.dtype)))
