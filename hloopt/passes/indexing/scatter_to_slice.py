"""Scatters whose windows lie in a row replaced by updates of slices."""

from __future__ import annotations

from math import prod
from typing import ClassVar

import numpy as np

from hloopt.analysis.values import Values
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.interpret.regions import combiner
from hloopt.ir import Instruction, Module
from hloopt.ops import op_of
from hloopt.passes.indexing.known import KnownArrays
from hloopt.passes.indexing.windows import AffineStarts, Starts, affine, is_inside
from hloopt.rewrite import Pass, PassLog
from hloopt.rewrite.regions import is_liftable, lifted, named_combiner
from hloopt.rewrite.site import Site, row_major, sites
from hloopt.types import DTYPES, Array, ArrayShape, Dims, DType, PaddingDim, ScatterDims

__all__ = ["ScatterToSlice"]


@dataclass(frozen=True)
class ScatterToSlice(Pass):
    """Replace scatters of one window, or of windows at regular places, by ops on whole slices.

    1. One window, ``x.at[i].set(u)``: a dynamic-update-slice of ``select(i is inside, new, old)``, where old
       is a dynamic-slice of x and new is ``to_apply(old, u)``.  A scatter leaves out what is not wholly
       inside, where a dynamic-update-slice would move it; the select goes where the start is known to be
       inside.  A window as large as the operand needs neither.
    2. Start indices that come out of iotas and constants alone are computed.  Where all windows are inside
       and each start is ``offset + stride * b`` of at most one batch index, each of which moves one
       dimension (or two neighbouring ones, a diagonal), the windows are disjoint: the updates are padded,
       also in between, with a value that the combiner passes over (-0.0 for add) and combined with the
       whole operand, or selected where they lie.

    Everything else is left alone: other indices, combiners that are not elementwise ops, control edges,
    dynamic shapes, several operands with more than one window.

    limit   the most elements of index arrays that are computed
    """

    example: ClassVar[str] = """HloModule one_row

second {
  old = f32[] parameter(0)
  ROOT new = f32[] parameter(1)
}

ENTRY main {
  x = f32[8,3]{1,0} parameter(0)
  i = s32[1]{0} parameter(1)
  row = f32[3]{0} parameter(2)
  ROOT r = f32[8,3]{1,0} scatter(x, i, row), update_window_dims={0}, inserted_window_dims={0},
      scatter_dims_to_operand_dims={0}, index_vector_dim=0, to_apply=second
}
"""

    limit: int = 1 << 16

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise UsageError(f"{self.name}: limit must be at least 1, got {self.limit}")

    def run(self, module: Module, log: PassLog) -> bool:
        """Look at each scatter once."""
        arrays, values = KnownArrays(module, self.limit), Values()
        changed = False
        for scatter in sites(module, "scatter"):
            if not log.allows():
                break
            changed |= _rewrite(scatter, arrays, values, log)
        return changed

    def rewrite(self, scatter: Instruction, arrays: KnownArrays, log: PassLog) -> bool:
        """Replace one scatter, if it can be."""
        return _rewrite(scatter, arrays, Values(), log)


def _rewrite(scatter: Instruction, arrays: KnownArrays, values: Values, log: PassLog) -> bool:
    count = len(scatter.operands) // 2
    operands, updates = scatter.fold_inputs, scatter.scatter_updates
    region = scatter.to_apply
    dims = ScatterDims.of(scatter.attributes)
    starts = Starts.of_scatter(scatter, dims)
    if not operands[0].array.elements or not updates[0].array.elements:
        return False
    if not starts.indices.array.rank:
        return False
    if not is_liftable(region, (*operands, *updates)):
        log.miss("one window => slice", scatter, "its computation is not of elementwise ops alone")
        return False
    if starts.is_single and _is_outside(scatter, dims, starts, arrays):
        log.hit("one window outside => operand", scatter)
        site = Site(scatter)
        site.replace(site.results(operands))
        return True
    if starts.is_single:
        log.hit("one window => slice", scatter)
        _single(scatter, dims, starts, arrays, values)
        return True
    if count > 1 or prod(starts.batch) > arrays.limit:
        return False
    plan = _plan(scatter, dims, starts, arrays)
    if plan is None:
        return False
    neutral = _neutral(named_combiner(region), operands[0].array.dtype)
    if neutral is None and combiner(region) != "second":
        log.miss("regular windows => pad", scatter, "its combiner has no value it passes over")
        return False
    log.hit("regular windows => pad", scatter)
    _regular(scatter, plan, neutral)
    return True


def _is_outside(
    scatter: Instruction, dims: ScatterDims, starts: Starts, arrays: KnownArrays
) -> bool:
    """Whether the one window has a start that is known to be outside."""
    operand = scatter.operands[0].array
    sizes = dims.window_sizes(operand.rank, scatter.operands[-1].array.dims)
    for column, dim in enumerate(starts.columns):
        known = starts.known(column, arrays)
        if known is not None and not is_inside(known, operand.dims[dim], sizes[dim]):
            return True
    return False


# ---- one window ------------------------------------------------------------------------------------------


def _single(
    scatter: Instruction, dims: ScatterDims, starts: Starts, arrays: KnownArrays, values: Values
) -> None:
    site = Site(scatter)
    operands, updates = scatter.fold_inputs, scatter.scatter_updates
    sizes = dims.window_sizes(operands[0].array.rank, updates[0].array.dims)
    places, conditions = _places(site, scatter, starts, sizes, arrays, values)
    parts = tuple(site.reshape(update, row_major(update.array, sizes)) for update in updates)
    whole = sizes == operands[0].array.dims
    region = scatter.to_apply
    old = operands
    if not whole and (conditions or combiner(region) != "second"):
        attributes = {"dynamic_slice_sizes": sizes}
        old = tuple(
            site.make(
                "dynamic-slice",
                operand,
                *places,
                shape=row_major(operand.array, sizes),
                **attributes,
            )
            for operand in operands
        )
    # Where the old value is not read (combiner "second"), any array of its dimensions stands for it.
    before = old if old[0].array.dims == sizes else parts
    new = lifted(region, (*before, *parts), row_major(parts[0].array, sizes), site)
    if conditions:
        inside = conditions[0]
        for condition in conditions[1:]:
            inside = site.make("and", inside, condition, shape=inside.shape)
        mask = site.fill(_pred(row_major(parts[0].array, sizes)), inside)
        new = tuple(
            site.make("select", mask, value, before, shape=before.shape)
            for value, before in zip(new, old, strict=True)
        )
    results = new
    if not whole:
        results = tuple(
            site.make("dynamic-update-slice", operand, value, *places, shape=operand.shape)
            for operand, value in zip(operands, new, strict=True)
        )
    site.replace(site.results(results))


def _pred(shape: ArrayShape) -> ArrayShape:
    return ArrayShape(DTYPES["pred"], shape.dims, shape.layout)


def _places(
    site: Site,
    scatter: Instruction,
    starts: Starts,
    sizes: Dims,
    arrays: KnownArrays,
    values: Values,
) -> tuple[list[Instruction], list[Instruction]]:
    """The start in each dimension, and what must hold so that the window is inside."""
    shape = scatter.operands[0].array
    element = starts.indices.array.dtype
    zero = site.scalar(element.name, 0)
    places = [zero] * shape.rank
    conditions: list[Instruction] = []
    for column, dim in enumerate(starts.columns):
        room = shape.dims[dim] - sizes[dim]
        known = starts.known(column, arrays)
        if known is not None and is_inside(known, shape.dims[dim], sizes[dim]):
            places[dim] = site.scalar(element.name, int(known.reshape(-1)[0]))
            continue
        start = places[dim] = starts.scalar(column, site)
        bounds = values.of(start)
        if bounds.low < 0:
            conditions.append(_compare(site, start, zero, "GE"))
        if bounds.high > room:
            limit = site.scalar(element.name, room)
            conditions.append(_compare(site, start, limit, "LE"))
    return places, conditions


def _compare(site: Site, left: Instruction, right: Instruction, direction: str) -> Instruction:
    return site.make("compare", left, right, direction=direction)


# ---- regular windows -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Row:
    """What lands in a dimension: updates of size ``count``, ``stride`` apart from ``offset`` on.

    ``source`` is the update's dimension, or None for a window of one element that the update lacks.
    """

    offset: int
    stride: int
    count: int
    source: int | None

    @property
    def low(self) -> int:
        """The first place."""
        return min(self.offset, self.offset + (self.count - 1) * self.stride)


@dataclass(frozen=True)
class _Plan:
    """One row for each dimension of the operand after neighbours were merged into ``dims``."""

    dims: Dims
    rows: tuple[_Row, ...]


def _plan(
    scatter: Instruction, dims: ScatterDims, starts: Starts, arrays: KnownArrays
) -> _Plan | None:
    shape, update = scatter.operands[0].array, scatter.operands[2].array
    sizes = dims.window_sizes(shape.rank, update.dims)
    found = _affine_starts(shape, sizes, starts, arrays)
    if found is None:
        return None
    window, batch = dims.windows(shape.rank), dims.batch_dims(update.rank)
    rows: list[_Row] = []
    merged: list[int] = []
    movers: list[int] = []
    for dim, row in enumerate(found):
        moving = [axis for axis, stride in enumerate(row.strides) if stride]
        source = window.get(dim)
        if len(moving) > 1 or (moving and sizes[dim] != 1):
            return None
        if not moving:
            rows.append(_Row(row.offset, 1, sizes[dim], source))
            movers.append(-1)
        else:
            (mover,) = moving
            stride = row.strides[mover]
            if movers and movers[-1] == mover:
                size, last = shape.dims[dim], rows[-1]
                rows[-1] = _Row(last.offset * size + row.offset, last.stride * size + stride,
                                last.count, last.source)  # fmt: skip
                merged[-1] *= size
                continue
            if mover in movers:
                return None
            rows.append(_Row(row.offset, stride, update.dims[batch[mover]], batch[mover]))
            movers.append(mover)
        merged.append(shape.dims[dim])
    moved = {mover for mover in movers if mover >= 0}
    if any(size > 1 and axis not in moved for axis, size in enumerate(starts.batch)):
        return None
    return _Plan(tuple(merged), tuple(rows)) if all(row.stride for row in rows) else None


def _affine_starts(
    shape: ArrayShape, sizes: Dims, starts: Starts, arrays: KnownArrays
) -> list[AffineStarts] | None:
    """For each operand dimension its starts, where all are known, affine and inside."""
    batch = starts.batch
    found: list[Array] = [np.zeros(batch, np.int64) for _ in shape.dims]
    for column, dim in enumerate(starts.columns):
        known = starts.known(column, arrays)
        if known is None or not is_inside(known, shape.dims[dim], sizes[dim]):
            return None
        found[dim] = known
    for dim, values in starts.counted():
        found[dim] = values
    rows = [affine(values) for values in found]
    complete = [row for row in rows if row is not None]
    return complete if len(complete) == len(rows) else None


def _neutral(opcode: str, dtype: DType) -> object:
    """X such that ``opcode(a, x)`` is a, bit for bit, for every a; None where there is none."""
    if dtype.is_pred:
        return {"and": True, "or": False, "xor": False}.get(opcode)
    zero: float = 0
    low: float
    high: float
    if dtype.is_integer:
        half = 1 << (dtype.bits - 1)
        low, high = (-half, half - 1) if dtype.kind == "signed" else (0, 2 * half - 1)
    elif dtype.name in ("f16", "bf16", "f32", "f64"):
        zero, low, high = -0.0, -np.inf, np.inf
    else:
        return None
    found = op_of(opcode).identity if opcode != "and" else None
    return {"lowest": low, "highest": high, 0: zero}.get(found, found)


def _regular(scatter: Instruction, plan: _Plan, neutral: object) -> None:
    site, operand, update = Site(scatter), scatter.operands[0], scatter.operands[2]
    value = _arranged(site, update, plan)
    target = site.reshape(operand, row_major(operand.array, plan.dims))
    element = operand.array.dtype.name
    if neutral is not None:
        padded = _padded(site, value, site.scalar(element, neutral), plan)
        opcode = named_combiner(scatter.to_apply)
        result = site.make(opcode, target, padded, shape=target.shape)
    elif all(abs(row.stride) == 1 for row in plan.rows):
        index = "s64" if scatter.operands[1].array.dtype.bits == 64 else "s32"
        places = tuple(site.scalar(index, row.low) for row in plan.rows)
        result = site.make("dynamic-update-slice", target, value, *places, shape=target.shape)
    else:
        padded = _padded(site, value, site.scalar(element, 0), plan)
        ones = site.splat(_pred(value.array), True)
        mask = _padded(site, ones, site.scalar("pred", False), plan)
        result = site.make("select", mask, padded, target, shape=target.shape)
    site.replace(site.reshape(result, scatter.array))


def _arranged(site: Site, update: Instruction, plan: _Plan) -> Instruction:
    """The update with a dimension for each of the plan's, going up in all of them."""
    used = [row.source for row in plan.rows if row.source is not None]
    rest = [axis for axis in range(update.array.rank) if axis not in used]
    value = site.transpose(update, (*used, *rest))
    shape = row_major(update.array, tuple(row.count for row in plan.rows))
    value = site.reshape(value, shape)
    backwards = tuple(k for k, row in enumerate(plan.rows) if row.stride < 0)
    if backwards:
        value = site.make("reverse", value, shape=value.shape, dimensions=backwards)
    return value


def _padded(site: Site, value: Instruction, filler: Instruction, plan: _Plan) -> Instruction:
    padding: list[PaddingDim] = []
    for size, row in zip(plan.dims, plan.rows, strict=True):
        high = row.low + (row.count - 1) * abs(row.stride)
        padding.append(PaddingDim(row.low, size - 1 - high, abs(row.stride) - 1))
    shape = row_major(value.array, plan.dims)
    return site.make("pad", value, filler, shape=shape, padding=tuple(padding))
