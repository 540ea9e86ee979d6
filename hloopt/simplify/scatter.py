"""Rules for scatter; passes/indexing makes updates of slices of whole scatters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hloopt.ir import Instruction
from hloopt.rewrite import Match, Rule, op
from hloopt.simplify.conditions import scalar_value
from hloopt.simplify.gather import counted, kept_columns, pieces
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
    return match.result(
        "scatter",
        *root.operands[:count],
        indices,
        *root.operands[count + 1 :],
        **_attributes(root, dims),
    )


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
    root, dims = match.root, ScatterDims.of(match.root.attributes)
    pairs = [*zip(dims.input_batching_dims, dims.scatter_indices_batching_dims, strict=True)]
    mapped, inserted = dims.scatter_dims_to_operand_dims, dims.inserted_window_dims
    found = counted(
        match,
        root.operands[0],
        _indices(root),
        dims.index_vector_dim,
        mapped,
        pairs,
        inserted.__contains__,
    )
    if found is None:
        return None
    dim, kept, fewer, pairs = found
    changed = replace(
        dims,
        inserted_window_dims=tuple(d for d in inserted if d != dim),
        scatter_dims_to_operand_dims=tuple(mapped[other] for other in kept),
        input_batching_dims=tuple(pair[0] for pair in pairs),
        scatter_indices_batching_dims=tuple(pair[1] for pair in pairs),
    )
    return _with_indices(match, fewer, changed)


RULES = (
    Rule("scatter(A, I, empty) => A", op("scatter"), _changes_nothing),
    Rule("scatter(A, concatenate(0, I), B) => scatter(A, I, B)", op("scatter"), _starts_at_zero),
    Rule(
        "scatter(A, concatenate(iota, I), B) => scatter(A, I, B) with a batching dimension",
        op("scatter"),
        _counts,
    ),
)
