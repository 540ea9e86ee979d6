"""scatter: places planned when the line is made, updates combined in place where the operand is not needed.

Updates of one place are combined in the order of the interpreter (``interpret.duplicates``), by NumPy's
``ufunc.at`` where the region is one op: its loop over flat arrays takes the updates one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np

from hloopt.backends.numpy.builder import Builder
from hloopt.backends.numpy.gathering import batch_line, index_columns
from hloopt.backends.numpy.movement import Emitter
from hloopt.backends.numpy.plan import Dims, Function, Slots, Step
from hloopt.dataclass import dataclass
from hloopt.interpret.context import Context
from hloopt.interpret.duplicates import combine_at, update_at
from hloopt.interpret.reducer import Reducer, named_reducer, reducer_of
from hloopt.interpret.regions import combiner
from hloopt.ir import Instruction
from hloopt.types import Array, ScatterDims, inverse_permutation

__all__ = ["EMITTERS"]

_Rows: TypeAlias = "tuple[Array, Array | None]"
"""Flat places [n], and which of the batch are inside where not all are."""

_Combine: TypeAlias = "Callable[[Sequence[Array], Array, Sequence[Array]], None]"


@dataclass(frozen=True)
class _Scatter:
    """A scatter's numbers.

    picked and whole are the operand's dimensions that an update has a place in, and those it covers;
    ``partial`` are dimensions of the window that are picked; ``most`` the greatest start of each dimension
    that has one.
    """

    shape: Dims
    size: Dims
    batch: Dims
    picked: Dims
    partial: Dims
    whole: Dims
    most: dict[int, int]
    axes: Dims
    dims: ScatterDims

    @classmethod
    def of(cls, instruction: Instruction) -> _Scatter:
        """Read from an instruction."""
        dims = ScatterDims.of(instruction.attributes)
        count = len(instruction.operands) // 2
        shape = instruction.operands[0].array.dims
        indices = instruction.scatter_indices.array.dims
        update = instruction.operands[count + 1].array.dims
        window, size = dims.windows(len(shape)), dims.window_sizes(len(shape), update)
        starting = {*dims.scatter_dims_to_operand_dims, *dims.input_batching_dims}
        whole = [axis for axis in window if size[axis] == shape[axis] and axis not in starting]
        partial = [axis for axis in window if axis not in whole]
        return cls(
            shape,
            size,
            dims.batch_of(indices),
            tuple(axis for axis in range(len(shape)) if axis not in whole),
            tuple(partial),
            tuple(whole),
            {axis: shape[axis] - size[axis] for axis in starting},
            (*dims.batch_dims(len(update)), *(window[axis] for axis in partial + whole)),
            dims,
        )

    @property
    def block(self) -> int:
        """Elements that an update has at one place."""
        return prod(self.shape[axis] for axis in self.whole)


def _scatter(builder: Builder, instruction: Instruction, operands: Sequence[int]) -> Slots:
    count = len(operands) // 2
    plan = _Scatter.of(instruction)
    full = builder.full_operands(instruction, operands)
    targets, indices, updates = full[:count], full[count], full[count + 1 :]
    if not prod(plan.shape) or not instruction.operands[-1].array.elements:
        return targets if count > 1 else targets[0]
    reducer = _Region(instruction, builder.context)
    known = builder.line.constants.get(indices)
    if known is not None:
        indices = updates[0]  # any slot that is not written over: the places are known
    single = prod(plan.batch) == 1
    rows = _single_place(instruction, plan) if single else _rows(instruction, plan)
    found = rows(known) if known is not None else None
    put = _putting(plan, reducer, count) if single else _many(plan, reducer, count)
    kinds = [builder.context.carrier(operand.array.dtype) for operand in instruction.operands]
    outs = tuple(builder.line.slot(kind, plan.shape) for kind in kinds[:count])

    def choose(own: frozenset[int]) -> Function:
        def step(*arrays: Any) -> Any:
            places = found if known is not None else rows(arrays[count])
            results = put(own, arrays[:count], places, arrays[count + 1 :])
            return results if count > 1 else results[0]

        return step

    step = Step(
        choose(frozenset()),
        (*targets, indices, *updates),
        outs,
        several=count > 1,
        view=True,
        writes=tuple(range(count)),
        choose=choose,
    )
    builder.line.steps.append(step)
    return outs if count > 1 else outs[0]


class _Region:
    """The combining function of two values, made lazily: a proof that it is associative takes time."""

    def __init__(self, instruction: Instruction, context: Context) -> None:
        self._computation = instruction.attributes["to_apply"]
        self._context = context
        count = len(instruction.operands) // 2
        self._kinds = [operand.array.dtype for operand in instruction.fold_inputs]
        own = [parameter.array.dtype for parameter in self._computation.parameters[:count]]
        alike = own == self._kinds
        self.name = combiner(self._computation) if alike else None
        named = named_reducer(self._computation) if alike else None
        self.ufunc = named.ufunc(step_by_step=True) if named is not None else None
        self.extremum: np.ufunc | None = None
        if self.name in ("maximum", "minimum") and self._kinds[0].name in ("f32", "f64"):
            self.extremum = np.maximum if self.name == "maximum" else np.minimum
        self._reducer: Reducer | None = None

    def reducer(self) -> Reducer:
        if self._reducer is None:
            self._reducer = reducer_of(self._computation, self._context, self._kinds)
        return self._reducer


def _single_place(
    instruction: Instruction, plan: _Scatter
) -> Callable[[Any], tuple[Any, ...] | None]:
    """Of a single update the slices of the operand, or None where it is not inside."""
    # Dimensions without an index, and a batch of one in batching ones, are at their beginning.
    whole = [slice(size) for size in plan.size]
    indexed = plan.dims.scatter_dims_to_operand_dims
    bounds = [(at, axis, plan.most[axis], plan.size[axis]) for at, axis in enumerate(indexed)]
    narrow = instruction.scatter_indices.array.dtype.bits < 8
    empty = any(most < 0 for most in plan.most.values())

    def places(vector: Any) -> tuple[Any, ...] | None:
        numbers = (vector.astype(np.int64) if narrow else vector).reshape(-1).tolist()
        found = whole.copy()
        for at, axis, most, size in bounds:
            begin = numbers[at]
            if not 0 <= begin <= most:
                return None
            found[axis] = slice(begin, begin + size)
        # With an ellipsis, NumPy gives an array of rank 0 rather than a scalar.
        return None if empty else (*found, ...)

    return places


def _putting(plan: _Scatter, region: _Region, count: int) -> Function:
    """A single update: an op on a slice."""
    size, name, ufunc = plan.size, region.name, region.ufunc

    def put(own: Any, arrays: Any, place: Any, updates: Any) -> tuple[Any, ...]:
        # Without dimensions it may be a scalar, whose copy is one.
        results = tuple(x if at in own else np.array(x, order="C") for at, x in enumerate(arrays))
        if place is None or name == "first":
            return results
        parts = [result[place] for result in results]
        new = [update.reshape(size) for update in updates]
        if name == "second":
            parts[0][...] = new[0]
        elif ufunc is not None:
            ufunc(parts[0], new[0], out=parts[0])
        else:
            for part, made in zip(parts, region.reducer().apply(parts, new), strict=True):
                part[...] = made
        return results

    return put


def _rows(instruction: Instruction, plan: _Scatter) -> Callable[[Any], _Rows]:
    """Flat places over the picked dimensions, row-major over batch and window."""
    indices = instruction.scatter_indices.array
    vector = plan.dims.scatter_dims_to_operand_dims
    columns = index_columns(plan.dims, indices, range(len(vector)))
    strides, stride = {}, 1
    for axis in reversed(plan.picked):
        strides[axis] = stride
        stride *= plan.shape[axis]
    starts = [(np.uint64(max(plan.most[axis], 0)), strides[axis]) for axis in vector]
    within = np.full(plan.batch, all(most >= 0 for most in plan.most.values()))
    base = np.zeros(plan.batch, np.int64)
    for axis, other in plan.dims.batching:
        line = batch_line(plan.batch, other)
        base += line * strides[axis]
        within &= line < plan.shape[axis]
    always = bool(within.all())
    moved = base if base.any() else None
    window = np.zeros([plan.size[axis] for axis in plan.partial], np.int64)
    for number, axis in enumerate(plan.partial):
        window += batch_line(window.shape, number) * strides[axis]
    offsets = window.reshape(-1) if window.any() else None
    wide = window.size

    def rows(vectors: Any) -> _Rows:
        inside: Any = None
        found: Any = None
        for column, (most, stride) in zip(columns(vectors), starts, strict=True):
            straight = column.astype(np.int64)
            fits = straight.view(np.uint64) <= most  # negative ones are the largest
            inside = fits if inside is None else inside & fits
            part = straight if stride == 1 else straight * stride
            found = part if found is None else found + part
        if found is None:
            found, inside = base, np.ones(base.shape, np.bool_)
        elif moved is not None:
            found = found + moved
        if not always:
            inside = inside & within
        flat, mask = found.reshape(-1), inside.reshape(-1)
        if np.count_nonzero(mask) == mask.size:
            mask = None
        else:
            flat = flat[mask]
        if offsets is not None:
            flat = (flat[:, np.newaxis] + offsets).reshape(-1)
        elif wide > 1:
            flat = np.repeat(flat, wide)
        return flat, mask

    return rows


def _many(plan: _Scatter, region: _Region, count: int) -> Function:
    """Updates of places in order."""
    order = [*plan.picked, *plan.whole]
    straight = order == sorted(order)
    back = inverse_permutation(order)
    block = plan.block
    axes = plan.axes
    turned = list(axes) != sorted(axes)
    batch = prod(plan.batch)
    combine = _combination(region)

    def put(own: Any, arrays: Any, places: _Rows, updates: Any) -> tuple[Any, ...]:
        rows, mask = places
        laid = []
        for at, array in enumerate(arrays):
            moved = array if straight else array.transpose(order)
            kept = at in own and moved.flags.c_contiguous
            laid.append(moved if kept else moved.copy())
        sources = []
        for update in updates:
            source = update.transpose(axes) if turned else update
            if mask is not None:
                source = source.reshape(batch, -1)[mask]
            sources.append(source.reshape(-1, block))
        combine([x.reshape(-1, block) for x in laid], rows, sources)
        return tuple(laid if straight else [x.transpose(back) for x in laid])

    return put


def _combination(region: _Region) -> _Combine:
    if region.name == "second":
        return _assigned
    ufunc, extremum = region.ufunc, region.extremum
    if ufunc is not None:
        return lambda targets, rows, sources: update_at(ufunc, targets[0], rows, sources[0])

    def combine(targets: Sequence[Array], rows: Array, sources: Sequence[Array]) -> None:
        if extremum is not None and _zeros_agree(targets[0], rows, sources[0]):
            update_at(extremum, targets[0], rows, sources[0])
        else:
            combine_at(targets, rows, sources, region.reducer())

    return combine


def _assigned(targets: Sequence[Array], rows: Array, sources: Sequence[Array]) -> None:
    if targets[0].shape[1] == 1:
        targets[0].reshape(-1)[rows] = sources[0].reshape(-1)  # of duplicates the last one stays
    else:
        targets[0][rows] = sources[0]


def _zeros_agree(target: Array, rows: Array, source: Array) -> bool:
    """Whether no two zeros of different signs meet, of which NumPy's extremum takes either."""
    if np.count_nonzero(source) == source.size:
        return True
    return not _has_negative_zero(source) and not _has_negative_zero(target[rows])


def _has_negative_zero(array: Array) -> bool:
    bits = np.ascontiguousarray(array).view(f"i{array.itemsize}")
    return bool((bits == np.iinfo(bits.dtype).min).any())


EMITTERS: Mapping[str, Emitter] = {"scatter": _scatter}
