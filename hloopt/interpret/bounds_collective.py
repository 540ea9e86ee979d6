"""How far what participants exchange may be off: what they send is, and sums of it as any sum is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from hloopt.interpret.bounding import Bounding
from hloopt.interpret.bounds_elementwise import ErrorBound
from hloopt.interpret.bounds_sums import bounds_of, size_of, total_bound
from hloopt.interpret.collective import exchange, ragged_all_to_all, summed
from hloopt.interpret.context import (
    Context,
    Value,
    array_of,
    arrays_of,
    leaf_arrays,
    map_arrays,
)
from hloopt.interpret.perturbation import unit_roundoff
from hloopt.interpret.regions import combiner, only_orders
from hloopt.ir import Instruction
from hloopt.types import Array

__all__ = ["exchanged"]

_REDUCING: Final = frozenset({"all-reduce", "all-reduce-start", "reduce-scatter"})


def exchanged(one: Bounding) -> Value:
    """What participants send each other, and so what it is off by: all of them meet a second time."""
    instruction = one.instruction
    if "slice_sizes" in instruction.attributes:
        return one.unknown()
    result = one.run()
    if instruction.opcode == "ragged-all-to-all":
        return one.close(result, [_ragged(one)])
    if instruction.opcode in _REDUCING:
        own = list(leaf_arrays(result))
        found = _reduced(instruction, *one.arrays(), own, one.context)
        return one.close(result, found)
    parts = map_arrays(lambda array: _dense(one.bounds.of(array), array), one.values)
    assert isinstance(parts, tuple)
    moved = leaf_arrays(one.run(parts))
    return one.close(result, [part if part.any() else None for part in moved])


def _ragged(one: Bounding) -> ErrorBound:
    """Rows are as far off as where they come from, while all members know which rows go where."""
    arrays, bounds = one.arrays()
    parts = [_dense(bound, array) for bound, array in zip(bounds[:2], arrays[:2], strict=True)]
    doubt = np.array(any(bound is not None for bound in bounds[2:]))

    def give(members: Sequence[Sequence[Value]]) -> Sequence[Value]:
        given = [arrays_of(tuple(member)) for member in members]
        if any(member[-1].any() for member in given):
            return [np.broadcast_to(np.inf, member[1].shape) for member in given]
        return ragged_all_to_all([member[:-1] for member in given])

    values = (*parts, *arrays[2:], doubt)
    moved = array_of(exchange(one.instruction, values, one.context, give))
    return moved if moved.any() else None


def _dense(bound: ErrorBound, array: Array) -> Array:
    return np.zeros(array.shape) if bound is None else bound


def _reduced(
    instruction: Instruction,
    operands: Sequence[Array],
    bounds: Sequence[ErrorBound],
    results: Sequence[Array],
    context: Context,
) -> list[ErrorBound]:
    """Of ``all-reduce`` and ``reduce-scatter``: each step may round to the element type, in any order.

    All members of the group have to meet here, whatever they know of their own operands.
    """
    offs = bounds_of(operands, bounds)
    facts = [
        fact
        for array, off in zip(operands, offs, strict=True)
        for fact in (off, size_of(array), (array != 0).astype(np.float64), _parts_of_ones(array))
    ]
    totals = summed(instruction, facts, context)
    region = instruction.to_apply
    name = combiner(region)
    found: list[ErrorBound] = []
    for at, result in enumerate(results):
        off, added, terms, odd = totals[4 * at : 4 * at + 4]
        kind = instruction.operands[at].array.dtype
        inexact = kind.is_float or kind.is_complex
        if name == "add" and inexact:
            whole = (off == 0) & (odd == 0) & (added < 1 / unit_roundoff(kind))
            bound = total_bound(result, kind, off, added, np.maximum(terms - 1, 0), stepwise=True)
            found.append(None if bound is None else np.where(whole, 0.0, bound))
        elif name in ("maximum", "minimum") and not kind.is_complex:
            found.append(off if inexact else np.where(off > 0, np.inf, 0.0))
        else:
            found.append(
                np.where(off > 0, np.inf, 0.0)
                if only_orders(region)
                else np.broadcast_to(np.inf, result.shape)
            )
    return [None if bound is None or not bound.any() else bound for bound in found]


def _parts_of_ones(array: Array) -> Array:
    """1 for each element that is not a whole number."""
    if np.iscomplexobj(array):
        return np.maximum(_parts_of_ones(array.real), _parts_of_ones(array.imag))
    wide = array.astype(np.float64)
    return np.asarray(wide != np.rint(wide), np.float64)
