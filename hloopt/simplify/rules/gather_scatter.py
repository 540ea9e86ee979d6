"""Rules for the start indices of gather and scatter; passes/indexing makes slices of whole ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hloopt.ir import Instruction
from hloopt.rewrite import Match, Rule, op, var, variables
from hloopt.simplify.data_movement import dimensions_besides_ones
from hloopt.simplify.predicates import resized, scalar_value
from hloopt.types import Dims, GatherDims, PaddingDim, ScatterDims

__all__ = ["RULES", "counted", "is_counting", "kept_columns", "pieces"]

A, B, INDICES = variables("A B I")


def _gather_attributes(root: Instruction, dims: GatherDims) -> dict[str, Any]:
    """The attributes of a gather with other dimension numbers.

    What was promised of the order of whole index vectors is not promised of parts of them.
    """
    kept = {
        name: value
        for name, value in root.attributes.items()
        if name != "indices_are_sorted" and "batching" not in name
    }
    return {**kept, **dims.attributes()}


def pieces(indices: Instruction, vector_dim: int) -> list[Instruction] | None:
    """The columns of index vectors, where each is an operand of a concatenate."""
    if indices.opcode != "concatenate" or indices.dimensions != (vector_dim,):
        return None
    if any(operand.array.dims[vector_dim] != 1 for operand in indices.operands):
        return None
    return list(indices.operands)


def kept_columns(
    match: Match, indices: Instruction, vector_dim: int, kept: list[int]
) -> Instruction | None:
    """Index vectors of some columns; None where the columns are not apart already."""
    columns = pieces(indices, vector_dim)
    if columns is None:
        return None
    chosen = tuple(columns[number] for number in kept)
    if len(chosen) == 1:
        return chosen[0]
    return match.make("concatenate", *chosen, dimensions=(vector_dim,))


def _moves_nowhere(match: Match) -> Instruction | None:
    """A start in a dimension that is taken whole is clamped to 0, and 0 is where others start anyway."""
    root, dims = match.root, GatherDims.of(match.root.attributes)
    operand, indices = root.operands
    columns = pieces(indices, dims.index_vector_dim)
    if columns is None:
        return None
    kept = []
    for number, dim in enumerate(dims.start_index_map):
        value = scalar_value(columns[number])
        whole = operand.array.dims[dim] == dims.slice_sizes[dim]
        if not whole and (value is None or int(value)):
            kept.append(number)
    if len(kept) in (0, len(columns)):
        return None
    fewer = kept_columns(match, indices, dims.index_vector_dim, kept)
    assert fewer is not None
    index_map = tuple(dims.start_index_map[number] for number in kept)
    attributes = _gather_attributes(root, replace(dims, start_index_map=index_map))
    return match.result("gather", operand, fewer, **attributes)


def is_counting(column: Instruction, size: int) -> int | None:
    """The dimension along which a column of indices is 0, 1, 2 ... up to ``size``, or None."""
    while column.opcode in ("reshape", "broadcast"):
        if column.array.elements != column.operands[0].array.elements:
            break
        column = column.operands[0]
    dims = [dim for dim, extent in enumerate(column.array.dims) if extent != 1]
    if column.opcode != "iota" or dims != [column.iota_dimension]:
        return None
    dtype = column.array.dtype
    fits = dtype.is_integer and size <= 1 << (dtype.bits - 1)
    return dims[0] if fits and column.array.dims[dims[0]] == size else None


def counted(
    match: Match,
    operand: Instruction,
    indices: Instruction,
    vector: int,
    mapped: Dims,
    batching: list[tuple[int, int]],
    may_batch: Callable[[int], bool],
) -> tuple[int, list[int], Instruction, list[tuple[int, int]]] | None:
    """A column that is the batch index: its dimension of the operand goes along with the batch dimension.

    That dimension, the numbers of the other columns, index vectors of these, and the pairs of batching
    dimensions of operand and indices.
    """
    columns = pieces(indices, vector)
    axes = [d for d in dimensions_besides_ones(indices.array.dims) if d != vector]
    # With one batch dimension of more than one element it is clear which one counts.
    if columns is None or len(columns) < 2 or len(axes) != 1 or axes[0] in dict(batching).values():
        return None
    for number, dim in enumerate(mapped):
        size = operand.array.dims[dim]
        if size == 1 or not may_batch(dim) or is_counting(columns[number], size) is None:
            continue
        kept = [other for other in range(len(columns)) if other != number]
        fewer = kept_columns(match, indices, vector, kept)
        assert fewer is not None
        return dim, kept, fewer, sorted([*batching, (dim, axes[0])])
    return None


def _gather_counts(match: Match) -> Instruction | None:
    root, dims = match.root, GatherDims.of(match.root.attributes)
    operand, indices = root.operands
    pairs = [*zip(dims.operand_batching_dims, dims.start_indices_batching_dims, strict=True)]

    def may_batch(dim: int) -> bool:
        return dim in dims.collapsed_slice_dims and dims.slice_sizes[dim] == 1

    found = counted(
        match, operand, indices, dims.index_vector_dim, dims.start_index_map, pairs, may_batch
    )
    if found is None:
        return None
    dim, kept, fewer, pairs = found
    changed = replace(
        dims,
        collapsed_slice_dims=tuple(d for d in dims.collapsed_slice_dims if d != dim),
        start_index_map=tuple(dims.start_index_map[other] for other in kept),
        operand_batching_dims=tuple(pair[0] for pair in pairs),
        start_indices_batching_dims=tuple(pair[1] for pair in pairs),
    )
    return match.result("gather", operand, fewer, **_gather_attributes(root, changed))


def _takes_all(match: Match) -> Instruction | None:
    """Windows as large as the operand are the operand, once for each batch index."""
    root, dims = match.root, GatherDims.of(match.root.attributes)
    operand = root.operands[0]
    if dims.slice_sizes != operand.array.dims or not operand.array.elements:
        return None
    inner = match.make("reshape", operand, shape=resized(operand.array, dims.kept_sizes))
    return match.result("broadcast", inner, dimensions=dims.offset_dims)


def _of_pad(match: Match) -> Instruction | None:
    """Dimensions that are taken whole may be padded after."""
    root, dims = match.root, GatherDims.of(match.root.attributes)
    pad, source = root.operands[0], match.A.array
    offsets = dims.window_dims(source.rank)
    nothing = PaddingDim(0, 0, 0)
    after = [nothing] * root.array.rank
    sizes, result = list(dims.slice_sizes), list(root.array.dims)
    for dim, padding in enumerate(pad.attributes["padding"]):
        if padding == nothing:
            continue
        whole = dims.slice_sizes[dim] == pad.array.dims[dim]
        if not whole or dim not in offsets or dim in dims.start_index_map or not source.dims[dim]:
            return None
        place = dims.offset_dims[offsets.index(dim)]
        after[place] = padding
        sizes[dim] = result[place] = source.dims[dim]
    shape = resized(root.array, tuple(result))
    attributes = _gather_attributes(root, replace(dims, slice_sizes=tuple(sizes)))
    inner = match.make("gather", match.A, match.I, shape=shape, **attributes)
    return match.result("pad", inner, match.B, padding=tuple(after))


def _scatter_attributes(root: Instruction, dims: ScatterDims) -> dict[str, Any]:
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


def _with_indices(match: Match, indices: Instruction, dims: ScatterDims) -> Instruction:
    root = match.root
    return match.result(
        "scatter",
        *root.fold_inputs,
        indices,
        *root.scatter_updates,
        **_scatter_attributes(root, dims),
    )


def _changes_nothing(match: Match) -> Instruction | None:
    root = match.root
    if root.operands[-1].array.elements:
        return None
    return match.results(root.fold_inputs)


def _starts_at_zero(match: Match) -> Instruction | None:
    """0 is where a dimension starts that has no column."""
    root, dims = match.root, ScatterDims.of(match.root.attributes)
    columns = pieces(root.scatter_indices, dims.index_vector_dim)
    if columns is None:
        return None
    values = [scalar_value(column) for column in columns]
    kept = [number for number, value in enumerate(values) if value is None or int(value)]
    if len(kept) in (0, len(columns)):
        return None
    fewer = kept_columns(match, root.scatter_indices, dims.index_vector_dim, kept)
    assert fewer is not None
    mapped = tuple(dims.scatter_dims_to_operand_dims[number] for number in kept)
    return _with_indices(match, fewer, replace(dims, scatter_dims_to_operand_dims=mapped))


def _scatter_counts(match: Match) -> Instruction | None:
    root, dims = match.root, ScatterDims.of(match.root.attributes)
    pairs = [*zip(dims.input_batching_dims, dims.scatter_indices_batching_dims, strict=True)]
    mapped, inserted = dims.scatter_dims_to_operand_dims, dims.inserted_window_dims
    found = counted(
        match,
        root.operands[0],
        root.scatter_indices,
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
    Rule("gather(A, I) of all => broadcast(A)", op("gather"), _takes_all),
    Rule(
        "gather(A, concatenate(0, I)) => gather(A, I)",
        op("gather", var("A"), op("concatenate")),
        _moves_nowhere,
    ),
    Rule(
        "gather(A, concatenate(iota, I)) => gather(A, I) with a batching dimension",
        op("gather", var("A"), op("concatenate")),
        _gather_counts,
    ),
    Rule(
        "gather(pad(A, B), I) => pad(gather(A, I), B)",
        op("gather", op("pad", A, B), INDICES),
        _of_pad,
    ),
    Rule("scatter(A, I, empty) => A", op("scatter"), _changes_nothing),
    Rule("scatter(A, concatenate(0, I), B) => scatter(A, I, B)", op("scatter"), _starts_at_zero),
    Rule(
        "scatter(A, concatenate(iota, I), B) => scatter(A, I, B) with a batching dimension",
        op("scatter"),
        _scatter_counts,
    ),
)
