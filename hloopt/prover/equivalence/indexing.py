"""Slices, gathers and scatters at indices that may be anything: a choice among all places there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Final

import numpy as np

from hloopt.interpret.context import Value, array_of, arrays_of, leaf_arrays
from hloopt.interpret.indexing import (
    dynamic_slice,
    dynamic_update_slice,
    gather,
    start_indices,
)
from hloopt.ir import Instruction
from hloopt.ops.traits import INDEXING, op_table
from hloopt.prover.equivalence.symbolic import Handler, Symbolic
from hloopt.types import Array, DType, GatherDims, ScatterDims

__all__ = ["AT_INDICES"]

_MOST_PLACES: Final = 256
_MOST_STEPS: Final = 1 << 16


def _chosen(
    symbolic: Symbolic,
    starts: Sequence[Array],
    kinds: Sequence[DType],
    highest: Sequence[int],
    at: Callable[[list[Array]], Array],
    kind: DType,
) -> Array | None:
    """What ``at`` gives for the starts, each moved into 0 to its ``highest``.

    The starts broadcast against what it gives.  None where there are too many places.
    """
    counts = [1 if symbolic.terms.are_constant(start) else most + 1
              for start, most in zip(starts, highest, strict=True)]  # fmt: skip
    if prod(counts) > _MOST_PLACES:
        return None

    def rest(known: list[Array]) -> Array:
        number = len(known)
        if number == len(starts):
            return at(known)
        start, most = starts[number], highest[number]
        if symbolic.terms.are_constant(start):
            values = symbolic.terms.values(start, kinds[number])
            inside = [min(max(int(value), 0), most) for value in values.reshape(-1)]
            return rest([*known, np.array(inside, np.int64).reshape(values.shape)])
        if not most:
            return rest([*known, np.array(0)])
        found = rest([*known, np.array(most)])
        for place in reversed(range(most)):
            here = symbolic.equals(start, kinds[number], place, "EQ" if place else "LE")
            found = symbolic.terms.each(
                lambda *args: symbolic.terms.make("select", kind, args),
                here,
                rest([*known, np.array(place)]),
                found,
            )
        return found

    return rest([])


def _starts(
    instruction: Instruction, values: Sequence[Value], first: int
) -> tuple[list[Array], list[DType]]:
    rank = instruction.operands[0].array.rank
    starts = start_indices(values[first:], rank)
    kinds = [operand.array.dtype for operand in instruction.operands[first:]]
    return starts, kinds if len(kinds) == len(starts) else kinds * len(starts)


def _dynamic_slice(
    symbolic: Symbolic, instruction: Instruction, operands: tuple[Value, ...]
) -> Value | None:
    operand = array_of(operands[0])
    sizes = instruction.attributes["dynamic_slice_sizes"]
    starts, kinds = _starts(instruction, operands, 1)
    highest = [dim - size for dim, size in zip(operand.shape, sizes, strict=True)]
    return _chosen(
        symbolic,
        starts,
        kinds,
        highest,
        lambda known: dynamic_slice(operand, known, sizes),
        instruction.array.dtype,
    )


def _dynamic_update_slice(
    symbolic: Symbolic, instruction: Instruction, operands: tuple[Value, ...]
) -> Value | None:
    operand, update = arrays_of(operands[:2])
    starts, kinds = _starts(instruction, operands, 2)
    highest = [dim - size for dim, size in zip(operand.shape, update.shape, strict=True)]
    return _chosen(
        symbolic,
        starts,
        kinds,
        highest,
        lambda known: dynamic_update_slice(operand, update, known),
        instruction.array.dtype,
    )


def _gather(
    symbolic: Symbolic, instruction: Instruction, operands: tuple[Value, ...]
) -> Value | None:
    operand, indices = arrays_of(operands)
    dims = GatherDims.of(instruction.attributes)
    kind, rank = instruction.operands[1].array.dtype, instruction.array.rank
    if not instruction.array.elements:
        return None
    vectors = _vectors(indices, dims)
    moved = replace(
        dims,
        index_vector_dim=vectors.ndim - 1,
        start_indices_batching_dims=tuple(axis for _, axis in dims.batching),
    )
    batch = vectors.shape[:-1]
    place = [1] * rank
    for axis, size in zip(dims.batch_dims(rank), batch, strict=True):
        place[axis] = size
    starts = [vectors[..., number].reshape(place) for number in range(vectors.shape[-1])]
    highest = [operand.shape[dim] - dims.slice_sizes[dim] for dim in dims.index_map]

    def at(known: list[Array]) -> Array:
        whole = np.zeros(vectors.shape, np.int64)
        for number, start in enumerate(known):
            whole[..., number] = start.reshape(batch) if start.ndim else start
        return gather(operand, whole, moved)

    return _chosen(symbolic, starts, [kind] * len(starts), highest, at, instruction.array.dtype)


def _vectors(indices: Array, dims: GatherDims | ScatterDims) -> Array:
    """The indices with their vectors along the last dimension."""
    if dims.index_vector_dim == indices.ndim:
        return indices[..., np.newaxis]
    return np.moveaxis(indices, dims.index_vector_dim, -1)


def _scatter(
    symbolic: Symbolic, instruction: Instruction, operands: tuple[Value, ...]
) -> Value | None:
    """One update after the other, into each element that it may be for."""
    arrays = arrays_of(operands)
    count = len(arrays) // 2
    results, updates = [array.copy() for array in arrays[:count]], arrays[count + 1 :]
    region = instruction.attributes["to_apply"]
    kinds = [operand.array.dtype for operand in instruction.operands[: count + 1]]
    converts = [parameter.array.dtype for parameter in region.parameters] != kinds[:-1] * 2
    if converts or results[0].size * updates[0].size > _MOST_STEPS:
        return None
    dims, shape = ScatterDims.of(instruction.attributes), results[0].shape
    vectors = _vectors(arrays[count], dims)
    rank = updates[0].ndim
    batch = dims.batch_dims(rank)
    inner = [axis for axis in range(rank) if axis not in batch]
    for index in np.ndindex(*(updates[0].shape[axis] for axis in (*batch, *inner))):
        at = dict(zip((*batch, *inner), index, strict=True))
        position = index[: len(batch)]
        steps = _steps(dims, shape, updates[0].shape, at)
        places = _places(symbolic, dims, vectors[position], kinds[-1], steps, position)
        new = [np.asarray(update[tuple(at[axis] for axis in range(rank))]) for update in updates]
        for conditions, place in places:
            held = [np.asarray(result[place]) for result in results]
            combined = leaf_arrays(symbolic.apply(region, [*held, *new]))
            for number, value in enumerate(combined):
                for condition in conditions:
                    args = (int(condition), int(value), int(held[number]))
                    value = np.asarray(symbolic.terms.make("select", kinds[number], args))
                results[number][place] = value
    return tuple(results) if count > 1 else results[0]


def _steps(
    dims: ScatterDims,
    shape: Sequence[int],
    updates: Sequence[int],
    at: Mapping[int, int],
) -> list[tuple[int, int]]:
    """For each dimension of the operand how far from its window's start an update is, and the last start."""
    windows, sizes = dims.windows(len(shape)), dims.window_sizes(len(shape), updates)
    return [
        (at[windows[dim]] if dim in windows else 0, shape[dim] - sizes[dim])
        for dim in range(len(shape))
    ]


def _places(
    symbolic: Symbolic,
    dims: ScatterDims,
    vector: Array,
    kind: DType,
    steps: Sequence[tuple[int, int]],
    position: Sequence[int],
) -> list[tuple[list[Array], tuple[int, ...]]]:
    """The elements that an update may be for, each with what must hold."""
    choices: list[list[tuple[Array | None, int]]] = []
    batching = dict(dims.batching)
    for dim, (offset, highest) in enumerate(steps):
        if dim in batching:
            choices.append([(None, position[batching[dim]])])
        elif dim not in dims.index_map:
            choices.append([(None, offset)])
        else:
            start = np.asarray(vector[dims.index_map.index(dim)])
            if symbolic.terms.are_constant(start):
                known = int(symbolic.terms.values(start, kind))
                choices.append([(None, known + offset)] if 0 <= known <= highest else [])
            else:
                choices.append(
                    [(symbolic.equals(start, kind, n), n + offset) for n in range(highest + 1)]
                )
    return [
        ([condition for condition, _ in one if condition is not None], tuple(at for _, at in one))
        for one in product(*choices)
    ]


AT_INDICES: Mapping[str, Handler] = op_table(
    {
        "dynamic-slice": _dynamic_slice,
        "dynamic-update-slice": _dynamic_update_slice,
        "gather": _gather,
        "scatter": _scatter,
    },
    INDEXING | {"scatter"},
)
