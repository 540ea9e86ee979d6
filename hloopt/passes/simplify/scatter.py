"""Rules for scatter; passes/indexing makes updates of slices of whole scatters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hloopt.ir import Instruction
from hloopt.passes.simplify.conditions import scalar_value
from hloopt.passes.simplify.gather import is_counting, kept_columns, pieces
from hloopt.rewrite import Match, Rule, op
from hloopt.types import ScatterDims

__all__ = ["RULES"]


def _attributes(root: Instruction, dims: ScatterDims) -> dict[str, Any]:
    lists = {
        "inserted_window_dims": dims.inserted_window_dims,
        "scatter_dims_to_operand_dims": dims.scatter_dims_to_operand_dims,
        "input_batching_dims": dims.input_batching_dims,
        "scatter_indices_batching_dims": dims.scatter_indices_batching_dims,
    }
    attributes = {
        name: value
        for name, value in root.attributes.items()
        if name not in ("indices_are_sorted", *lists)
    }
    for name in ("input_batching_dims", "scatter_indices_batching_dims"):
        if not lists[name]:
            del lists[name]
    return {**attributes, **lists}


def _indices(root: Instruction) -> Instruction:
    return root.operands[len(root.operands) // 2]


def _with_indices(match: Match, indices: Instruction, dims: ScatterDims) -> Instruction:
    root = match.root
    count = len(root.operands) // 2
    operands = (*root.operands[:count], indices, *root.operands[count + 1 :])
    return match.result("scatter", *operands, **_attributes(root, dims))


def _changes_nothing(match: Match) -> Instruction | None:
    root = match.root
    count = len(root.operands) // 2
    if root.operands[-1].array.elements:
        return None
    return match.results(root.operands[:count])


def _starts_at_zero(match: Match) -> Instruction | None:
    """0 is where a dimension starts that has no column."""
    root, dims = match.root, ScatterDims.of(match.root.attributes)
    columns = pieces(_indices(root), dims.index_vector_dim)
    if columns is None:
        return None
    values = [scalar_value(column) for column in columns]
    kept = [number for number, value in enumerate(values) if value is None or int(value)]
    if len(kept) in (0, len(columns)):
        return None
    fewer = kept_columns(match, _indices(root), dims.index_vector_dim, kept)
    assert fewer is not None
    mapped = tuple(dims.scatter_dims_to_operand_dims[number] for number in kept)
    return _with_indices(match, fewer, replace(dims, scatter_dims_to_operand_dims=mapped))


def _counts(match: Match) -> Instruction | None:
    """A column that is the batch index: the operand's dimension goes along with the batch dimension."""
    root, dims = match.root, ScatterDims.of(match.root.attributes)
    operand, indices, vector = root.operands[0], _indices(match.root), dims.index_vector_dim
    columns = pieces(indices, vector)
    if columns is None or len(columns) < 2:
        return None
    axes = [
        axis
        for axis in range(indices.array.rank)
        if axis != vector and indices.array.dims[axis] != 1
    ]
    if len(axes) != 1 or axes[0] in dims.scatter_indices_batching_dims:
        return None
    for number, dim in enumerate(dims.scatter_dims_to_operand_dims):
        size = operand.array.dims[dim]
        if dim not in dims.inserted_window_dims or size == 1:
            continue
        if is_counting(columns[number], size) is None:
            continue
        kept = [other for other in range(len(columns)) if other != number]
        fewer = kept_columns(match, indices, vector, kept)
        assert fewer is not None
        pairs = sorted(
            [*zip(dims.input_batching_dims, dims.scatter_indices_batching_dims, strict=True),
             (dim, axes[0])]
        )  # fmt: skip
        changed = replace(
            dims,
            inserted_window_dims=tuple(d for d in dims.inserted_window_dims if d != dim),
            scatter_dims_to_operand_dims=tuple(
                dims.scatter_dims_to_operand_dims[other] for other in kept
            ),
            input_batching_dims=tuple(pair[0] for pair in pairs),
            scatter_indices_batching_dims=tuple(pair[1] for pair in pairs),
        )
        return _with_indices(match, fewer, changed)
    return None


RULES = (
    Rule("scatter(A, I, empty) => A", op("scatter"), _changes_nothing),
    Rule("scatter(A, concatenate(0, I), B) => scatter(A, I, B)", op("scatter"), _starts_at_zero),
    Rule(
        "scatter(A, concatenate(iota, I), B) => scatter(A, I, B) with a batching dimension",
        op("scatter"),
        _counts,
    ),
)
