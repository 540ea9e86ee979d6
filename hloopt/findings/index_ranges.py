"""Gathers and scatters whose indices count up: what they move is a slice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Final

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.findings.finding import FindingRemedy
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Instruction, Module
from hloopt.ir.build import clone_module
from hloopt.ops.traits import REARRANGING
from hloopt.passes.indexing.gather_to_slice import GatherToSlice
from hloopt.passes.indexing.known import KnownArrays
from hloopt.passes.indexing.scatter_to_slice import ScatterToSlice
from hloopt.passes.indexing.windows import Starts, affine
from hloopt.rewrite import PassLog
from hloopt.rewrite.site import Site, row_major, sites
from hloopt.types import Array, ArrayShape, Dims, GatherDims, Literal, ScatterDims

__all__ = ["LIMIT", "counts_up", "ranges"]

LIMIT: Final = GatherToSlice.limit
"""The most elements of index arrays that are computed."""
_MOVES: Final = REARRANGING - {"bitcast", "reverse", "slice"} | {"convert"}
_DEEP: Final = 24
"""Ops between a start and the indices made of it."""
_LEAST: Final = 1 << 12
"""Bytes moved from which on an instruction is looked at."""


@dataclass(frozen=True)
class _Counted:
    """Windows that count up from one start.

    starts    by operand dimension the scalar that all windows' places are added to
    places    by operand dimension the rest, over the batch dimensions, from 0 on
    offsets   by operand dimension what is added to the scalar
    sizes     of the part of the operand that all windows lie in
    """

    starts: dict[int, Instruction]
    places: dict[int, Array]
    offsets: dict[int, int]
    sizes: Dims


def ranges(subject: Subject) -> Iterator[FindingCandidate]:
    """Those with indices of constants and iotas, and those that count from one start on."""
    module = subject.module
    found = [
        one
        for opcode in ("gather", "scatter")
        for one in sites(module, opcode)
        if _moved(one).byte_size >= _LEAST
    ]
    if not found:
        return
    known, arrays = _known(subject), KnownArrays(module, LIMIT)
    for one in found:
        if (one.home.name, one.name) in known:
            yield _candidate(one, None, _fixed_words(one, arrays))
        elif (counted := _counted(one, arrays)) is not None:
            yield _candidate(one, counted, _counted_words(one, counted))


def _moved(one: Instruction) -> ArrayShape:
    return one.array if one.opcode == "gather" else one.scatter_updates[0].array


def _known(subject: Subject) -> set[tuple[str, str]]:
    """Computations and names of those whose indices are known, unless the compiler looks for such."""
    passes = subject.planner.pipeline.passes()
    if any(isinstance(one, GatherToSlice) and one.limit > 1 for one in passes):
        return set()
    copy, log = clone_module(subject.module), PassLog(kinds=frozenset({"passed"}))
    GatherToSlice().run(copy, log)
    ScatterToSlice().run(copy, log)
    return {(remark.computation, remark.instruction) for remark in log.remarks}


def _dims_of(one: Instruction) -> tuple[Starts, Dims]:
    """The starts of the windows, and the size of a window in each dimension of the operand."""
    if one.opcode == "gather":
        gather = GatherDims.of(one.attributes)
        return Starts.of_gather(one, gather), gather.slice_sizes
    scatter = ScatterDims.of(one.attributes)
    rank = one.operands[0].array.rank
    sizes = scatter.window_sizes(rank, one.scatter_updates[0].array.dims)
    return Starts.of_scatter(one, scatter), sizes


def counts_up(one: Instruction, arrays: KnownArrays) -> bool:
    """Whether the places of all windows are known, up to a number that is added to all of them."""
    starts, _ = _dims_of(one)
    return all(_column(starts, at, arrays) is not None for at in range(len(starts.columns)))


def _counted(one: Instruction, arrays: KnownArrays) -> _Counted | None:
    """None where the indices are more than one number with constants added, or leave gaps."""
    starts, window = _dims_of(one)
    whole = one.operands[0].array.dims
    if not 1 < prod(starts.batch) <= LIMIT or len(one.fold_inputs) > 1:
        return None
    scalars: dict[int, Instruction] = {}
    places: dict[int, Array] = {}
    offsets: dict[int, int] = {}
    sizes = list(whole)
    for column, dim in enumerate(starts.columns):
        split = _column(starts, column, arrays)
        if split is None:
            return None
        scalar, values = split
        if affine(values) is None:
            return None
        places[dim] = values
        if scalar is None:
            if values.min() < 0 or values.max() > whole[dim] - window[dim]:
                return None
            continue
        low = int(values.min())
        scalars[dim], offsets[dim], places[dim] = scalar, low, values - low
        sizes[dim] = int(np.ptp(values)) + window[dim]
        if sizes[dim] > min(whole[dim], 2 * len(np.unique(values)) * window[dim]):
            return None
    return _Counted(scalars, places, offsets, tuple(sizes)) if scalars else None


def _column(
    starts: Starts, column: int, arrays: KnownArrays
) -> tuple[Instruction | None, Array] | None:
    """As ``_split``, the places along one dimension of the operand, over the batch dimensions."""
    source, number = starts.piece(column)
    along = starts.vector_dim
    if source.opcode == "pad" and _is_behind(source, along):
        inner, value = source.operands
        if number >= inner.array.dims[along]:
            known = arrays.of(value)
            return None if known is None else (None, np.full(starts.batch, int(known)))
        source = inner
    split = _split(source, arrays, _DEEP)
    if split is None or along >= split[1].ndim:
        return split
    return split[0], split[1].take(number, axis=along)


def _is_behind(pad: Instruction, dimension: int) -> bool:
    """Whether it pads at the end of one dimension only."""
    return all(
        not one.low and not one.interior and (not one.high or dim == dimension)
        for dim, one in enumerate(pad.attributes["padding"])
    )


def _split(
    value: Instruction, arrays: KnownArrays, deep: int
) -> tuple[Instruction | None, Array] | None:
    """Indices as a scalar, if any, plus known numbers, where they are places from 0 on."""
    if not deep or not isinstance(value.shape, ArrayShape) or value.shape.is_dynamic:
        return None
    array = arrays.of(value)
    if array is not None:
        return None, array.astype(np.int64)
    if not value.array.dtype.is_integer:
        return None
    if value.array.elements == 1:
        return value, np.zeros(value.array.dims, np.int64)
    operands, opcode = value.operands, value.opcode
    if opcode == "select" and _is_wrap(value):
        return _split(operands[2], arrays, deep - 1)
    if opcode == "clamp":
        return _split(operands[1], arrays, deep - 1)
    if opcode in _MOVES:
        inner = _split(operands[0], arrays, deep - 1)
        return None if inner is None else (inner[0], _as_moved(value, inner[1]))
    if opcode not in ("add", "subtract"):
        return None
    left, right = (_split(one, arrays, deep - 1) for one in operands)
    if left is None or right is None or (right[0] is not None and (left[0] or opcode != "add")):
        return None
    return left[0] or right[0], left[1] + right[1] if opcode == "add" else left[1] - right[1]


def _is_wrap(select: Instruction) -> bool:
    """Whether it is ``i < 0 ? i + n : i``."""
    below, wrapped, index = select.operands
    return (
        below.opcode == "compare"
        and below.direction == "LT"
        and below.operands[0] is index
        and wrapped.opcode == "add"
        and index in wrapped.operands
    )


def _as_moved(value: Instruction, inner: Array) -> Array:
    dims = value.array.dims
    if value.opcode == "broadcast":
        shape = [1] * len(dims)
        for dim, size in zip(value.dimensions, inner.shape, strict=True):
            shape[dim] = size
        return np.broadcast_to(inner.reshape(shape), dims)
    return inner.transpose(value.dimensions) if value.opcode == "transpose" else inner.reshape(dims)


def _candidate(
    one: Instruction, counted: _Counted | None, words: tuple[str, str]
) -> FindingCandidate:
    where, advice = words
    verb = "reads" if one.opcode == "gather" else "writes"
    return FindingCandidate(
        (one,),
        f"%{one.name} looks up an index for each window that it {verb}, but the indices count up: "
        f"together they are {where}.",
        (FindingRemedy("model", advice),)
        if counted is not None
        else (
            FindingRemedy("model", advice),
            FindingRemedy("hloopt", "gather-to-slice,scatter-to-slice, before other passes"),
        ),
        _fixed if counted is None else _sliced,
        narrows=counted is not None,
    )


def _fixed_words(one: Instruction, arrays: KnownArrays) -> tuple[str, str]:
    """Which slice it is, and how to write it."""
    starts, window = _dims_of(one)
    source, movers = one.operands[0].name, list[int]()
    parts = [":"] * one.operands[0].array.rank
    for column, dim in enumerate(starts.columns):
        values = starts.known(column, arrays)
        if values is None or window[dim] == one.operands[0].array.dims[dim]:
            continue
        row = affine(values)
        if row is None:
            return f"a few slices of %{source}", "slices, joined by jnp.concatenate"
        movers += (axis for axis, stride in enumerate(row.strides) if stride)
        step = next((stride for stride in row.strides if stride), 1)
        last = int(values.max()) + window[dim]
        cut = f"{int(values.min())}:{last}" + (f":{abs(step)}" if abs(step) > 1 else "")
        parts[dim] = f"{cut}, backwards" if step < 0 else cut
    while len(parts) > 1 and parts[-1] == ":":
        parts.pop()
    if len(movers) > len(set(movers)):
        advice = "jnp.diagonal(x)" if one.opcode == "gather" else "x + jnp.diag(u)"
        return f"a diagonal of %{source}", f"{advice}, instead of an array of indices"
    place = ", ".join(parts)
    where = f"[{place}] of %{source}"
    if one.opcode == "gather":
        return where, f"a slice, x[{place}], instead of an array of indices (jnp.take, a mask)"
    return where, (
        f"jax.lax.dynamic_update_slice where x.at[{place}] is set; x + jax.lax.pad(u, ...) where it is added to"
    )


def _counted_words(one: Instruction, counted: _Counted) -> tuple[str, str]:
    dim, start = next(iter(counted.starts.items()))
    size = counted.sizes[dim]
    where = (
        f"{size:,} in a row from %{start.name} on along dimension {dim} of %{one.operands[0].name}"
    )
    if one.opcode == "gather":
        advice = f"jax.lax.dynamic_slice_in_dim(x, start, {size}, axis={dim})"
        return where, f"{advice}, where all of it is inside (torch: x.narrow; tf.slice)"
    return where, (
        f"jax.lax.dynamic_update_slice_in_dim(x, u, start, axis={dim}), where all of it is inside; to "
        "add, read the slice first (torch: x.narrow(...).add_)"
    )


def _fixed(module: Module, places: Sequence[Instruction]) -> bool:
    arrays, log = KnownArrays(module, LIMIT), PassLog()
    made = [_rewritten(one, arrays, log) for one in places]
    return all(made)


def _rewritten(one: Instruction, arrays: KnownArrays, log: PassLog) -> bool:
    if one.opcode == "gather":
        return GatherToSlice().rewrite(one, arrays, log)
    return ScatterToSlice().rewrite(one, arrays, log)


def _sliced(module: Module, places: Sequence[Instruction]) -> bool:
    """The same on the part of the operand that all windows lie in, at places that are known then."""
    for one in places:
        counted = _counted(one, KnownArrays(module, LIMIT))
        if counted is None:
            return False
        site = Site(one)
        operand, indices = one.operands[:2]
        starts = _scalars(site, counted, operand.array.rank)
        shape = row_major(operand.array, counted.sizes)
        part = site.make(
            "dynamic-slice", operand, *starts, shape=shape, dynamic_slice_sizes=counted.sizes
        )
        numbers = site.constant(_literal(one, indices.array, counted))
        attributes = dict(one.attributes)
        if one.opcode == "gather":
            inner = site.make("gather", part, numbers, shape=one.shape, **attributes)
            site.replace(inner)
        else:
            inner = site.make(
                "scatter", part, numbers, *one.scatter_updates, shape=shape, **attributes
            )
            update = site.make("dynamic-update-slice", operand, inner, *starts, shape=operand.shape)
            site.replace(update)
        if not _rewritten(inner, KnownArrays(module, LIMIT), PassLog()):
            return False
    return True


def _scalars(site: Site, counted: _Counted, rank: int) -> list[Instruction]:
    kind = next(iter(counted.starts.values())).array.dtype.name
    zero = site.scalar(kind, 0)
    found = []
    for dim in range(rank):
        start = counted.starts.get(dim)
        if start is None:
            found.append(zero)
            continue
        shape = row_major(start.array, ())
        start = site.reshape(start, shape)
        if start.array.dtype.name != kind:
            start = site.make("convert", start, shape=zero.shape)
        if counted.offsets[dim]:
            start = site.make("add", start, site.scalar(kind, counted.offsets[dim]))
        found.append(start)
    return found


def _literal(one: Instruction, shape: ArrayShape, counted: _Counted) -> Literal:
    starts, _ = _dims_of(one)
    columns = [counted.places[dim] for dim in starts.columns]
    values = columns[0]
    if starts.vector_dim < shape.rank:
        values = np.stack(columns, axis=starts.vector_dim)
    shape = row_major(shape, shape.dims)
    return Literal(
        shape, np.ascontiguousarray(values.reshape(shape.dims)).astype(shape.dtype.numpy)
    )
