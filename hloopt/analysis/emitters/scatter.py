"""The two scatter kernels, for scatters in XLA's simplified form."""

from __future__ import annotations

from math import gcd, prod
from typing import Final, Literal

from hloopt.analysis.emitters.launch import LaunchDimensions, loop_launch, tiled_launch
from hloopt.analysis.emitters.unroll import unroll_factor
from hloopt.analysis.region import Region
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.targets import Target
from hloopt.types import ScatterDims

__all__ = ["ScatterTiling", "is_simplified_scatter", "scatter_tiling"]


_WARPS: Final = 4  # of a block
_VECTOR_BITS: Final = 128  # that a thread moves at once, at most


@dataclass(frozen=True, slots=True)
class ScatterTiling:
    """How threads share a scatter.

    form              ``updates``: a thread has ``vector`` neighbouring elements of the updates;
                      ``indices``: a warp has ``indices_per_warp`` neighbouring index vectors, and adds up in
                      registers while they repeat
    slices            index vectors
    slice_elements    update elements that belong to each
    vector            elements a thread moves at once; divides ``slice_elements``
    indices_per_warp  of form ``indices``, else 1
    indices_vector    index values read at once
    is_atomic         whether two threads may write one element
    launch            grid and block
    """

    form: Literal["updates", "indices"]
    slices: int
    slice_elements: int
    vector: int
    indices_per_warp: int
    indices_vector: int
    is_atomic: bool
    launch: LaunchDimensions


def is_simplified_scatter(scatter: Instruction) -> bool:
    """Whether indices are ``[slices, index vector]`` and updates ``[slices, window...]``.

    No dimension is inserted or batched, windows are whole in rank, and the index vector addresses the
    leading dimensions in order: what XLA's scatter simplifier leaves.
    """
    count = (len(scatter.operands) - 1) // 2
    operand, indices = scatter.operands[0].array, scatter.operands[count].array
    updates = scatter.operands[count + 1].array
    dims = ScatterDims.of(scatter.attributes)
    return (
        indices.rank == 2
        and dims.index_vector_dim == 1
        and updates.rank == operand.rank + 1
        and dims.update_window_dims == tuple(range(1, updates.rank))
        and not dims.inserted_window_dims
        and not dims.input_batching_dims
        and dims.scatter_dims_to_operand_dims == tuple(range(indices.dims[1]))
    )


def scatter_tiling(
    scatter: Instruction,
    region: Region,
    target: Target,
) -> ScatterTiling:
    """The kernel of a simplified scatter.

    Raises ``ValueError`` for one that is not simplified: it has to be rewritten first.
    """
    if not is_simplified_scatter(scatter):
        raise ValueError(f"{scatter.name} is not a simplified scatter")
    count = (len(scatter.operands) - 1) // 2
    updates = scatter.operands[count + 1].array
    slices, window = updates.dims[0], updates.dims[1:]
    unique = bool(scatter.attributes.get("unique_indices", False))
    warps = _WARPS * target.cores
    is_sorted = bool(scatter.attributes.get("indices_are_sorted", False))
    if count == 1 and is_sorted and not unique and slices > warps:
        return _by_indices(scatter, warps, target)
    factor = unroll_factor(region, target, updates.elements, kind="scatter").factor
    vector = gcd(prod(window), factor)
    grid = loop_launch(updates.elements, vector, target)
    return ScatterTiling("updates", slices, prod(window), vector, 1, 1, not unique, grid)


def _by_indices(scatter: Instruction, warps: int, target: Target) -> ScatterTiling:
    operand, indices, updates = (part.array for part in scatter.operands)
    slices, window = updates.dims[0], updates.dims[1:]
    length = indices.dims[1]
    places = prod(
        size - part + 1 for size, part in zip(operand.dims[:length], window[:length], strict=True)
    )
    each = -(-slices // max(warps, places))
    indices_vector = 1
    wide = max(1, _VECTOR_BITS // indices.dtype.bits)
    if length == 1 and each > wide:
        each, indices_vector = -(-each // wide) * wide, wide
    elements = prod(window)
    vector = gcd(elements, max(1, _VECTOR_BITS // updates.dtype.bits))
    while vector > 1 and target.warp_size * vector > elements:
        vector //= 2
    groups = -(-slices // each)
    blocks = -(-groups // _WARPS)
    grid = tiled_launch(blocks, _WARPS * target.warp_size, target)
    return ScatterTiling("indices", slices, elements, vector, each, indices_vector, True, grid)
