"""Products whose rows in memory begin at odd addresses: units for matrices get them in small pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hloopt.cost_models.gemm import ALIGNED, COPIED, row_alignment
from hloopt.dataclass import dataclass
from hloopt.findings.finding import FindingRemedy
from hloopt.findings.planning import is_planned
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Instruction, Module, build, edit
from hloopt.rewrite.site import Site, row_major, sites
from hloopt.types import ArrayShape, Dims, DotDims, PaddingDim, SliceRange

__all__ = ["products"]

_LEAST: Final = 1 << 30
"""Flops of a product that takes longer than its launch."""


@dataclass(frozen=True)
class _Widened:
    """The sizes of the factors, and of the result, with every row a multiple of ``ALIGNED`` bytes."""

    left: Dims
    right: Dims
    result: Dims


def products(subject: Subject) -> Iterator[FindingCandidate]:
    """Products on a GPU of which a factor's rows begin at addresses that no copy to shared memory takes."""
    target = subject.planner.predictor.target
    if not target.has_threads or is_planned(subject.module):
        return
    for dot in sites(subject.module, "dot"):
        narrow = [one for one in dot.operands if row_alignment(_stored(one)[0]) < COPIED]
        if not narrow or not target.peak_flops(dot.operands[0].array.dtype.name, "matrix"):
            continue
        wide = _widened(dot)
        dims = DotDims.of(dot.attributes)
        depth = _size(dot.operands[0].array.dims, dims.lhs_contracting)
        if wide is None or 2 * dot.array.elements * depth < _LEAST:
            continue
        yield FindingCandidate(
            (dot,),
            f"%{dot.name} reads {' and '.join(map(_rows, narrow))}. A load is no wider than what every row "
            f"begins at a multiple of; pieces of less than {COPIED} bytes go to shared memory through "
            f"registers, where {ALIGNED} at a time are copied past them.",
            (
                FindingRemedy(
                    "model",
                    f"choose sizes that are multiples of {_multiple(narrow[0])} ({_sizes(dot, wide)}), with "
                    "zeros in what is added to weights; what is computed is padded (jnp.pad) where it is made",
                ),
            ),
            _padded,
            tuple(narrow),
            priced=_with_wide_arguments,
        )


def _stored(factor: Instruction) -> tuple[ArrayShape, Dims]:
    """The array that a factor is in memory, before a transposition, and which of its dimensions each one is."""
    if factor.opcode == "transpose":
        return factor.operands[0].array, factor.dimensions
    return factor.array, tuple(range(factor.array.rank))


def _rows(factor: Instruction) -> str:
    shape = _stored(factor)[0]
    length = shape.dims[_minor(shape)] * shape.dtype.bits // 8
    return f"rows of {length:,} bytes (%{factor.name} {shape.dtype.name}{list(shape.dims)})"


def _minor(shape: ArrayShape) -> int:
    return shape.layout.minor_to_major[0] if shape.layout else shape.rank - 1


def _multiple(factor: Instruction) -> int:
    return ALIGNED * 8 // factor.array.dtype.bits


def _size(dims: Dims, chosen: Sequence[int]) -> int:
    size = 1
    for dim in chosen:
        size *= dims[dim]
    return size


def _sizes(dot: Instruction, wide: _Widened) -> str:
    pairs = dict.fromkeys(
        (old, new)
        for factor, sizes in zip(dot.operands, (wide.left, wide.right), strict=True)
        for old, new in zip(factor.array.dims, sizes, strict=True)
        if old != new
    )
    return ", ".join(f"{new:,} for {old:,}" for old, new in pairs)


def _widened(dot: Instruction) -> _Widened | None:
    """None where a row goes along a batch dimension."""
    dims = DotDims.of(dot.attributes)
    sizes = [list(one.array.dims) for one in dot.operands]
    contracted = (dims.lhs_contracting, dims.rhs_contracting)
    result = list(dot.array.dims)
    ranks = [one.array.rank for one in dot.operands]
    places = dims.places(ranks[0], ranks[1])
    for side, factor in enumerate(dot.operands):
        shape, order = _stored(factor)
        if row_alignment(shape) >= COPIED:
            continue
        dim = order.index(_minor(shape))
        new = -(-sizes[side][dim] // _multiple(factor)) * _multiple(factor)
        sizes[side][dim] = new
        if dim in contracted[side]:
            other = contracted[1 - side][contracted[side].index(dim)]
            sizes[1 - side][other] = new
        elif dim in (dims.lhs_batch, dims.rhs_batch)[side]:
            return None
        else:
            result[places[side][dim]] = new
    return _Widened(tuple(sizes[0]), tuple(sizes[1]), tuple(result))


def _with_wide_arguments(module: Module, places: Sequence[Instruction]) -> bool:
    """As ``_padded``, but arguments are as wide already: each is another argument of the entry."""
    changed = _padded(module, places)
    module.attributes.pop("entry_computation_layout", None)
    for pad in [
        one for one in module.entry if one.opcode == "pad" and one.operands[0].opcode == "parameter"
    ]:
        number = {"parameter_number": len(module.entry.parameters)}
        wide = build.make(pad, "parameter", (), number, shape=pad.shape)
        edit.replace_instruction(pad, wide)
    return changed


def _padded(module: Module, places: Sequence[Instruction]) -> bool:
    """Zeros behind the rows, and of the result what was there before."""
    changed = False
    for dot in places:
        wide = _widened(dot)
        if wide is None:
            continue
        site = Site(dot)
        left, right = (
            _widen(site, factor, sizes)
            for factor, sizes in zip(dot.operands, (wide.left, wide.right), strict=True)
        )
        shape = row_major(dot.array, wide.result)
        made = site.make("dot", left, right, shape=shape, **dot.attributes)
        if wide.result != dot.array.dims:
            # Else the padding would be taken back.
            made = site.make("opt-barrier", made, shape=shape)
            ranges = tuple(SliceRange(0, size) for size in dot.array.dims)
            made = site.make("slice", made, shape=dot.array, slice=ranges)
        site.replace(made)
        changed = True
    return changed


def _widen(site: Site, factor: Instruction, sizes: Dims) -> Instruction:
    dims = factor.array.dims
    if sizes == dims:
        return factor
    zero = site.scalar(factor.array.dtype.name, 0)
    amounts = tuple(PaddingDim(0, new - old) for old, new in zip(dims, sizes, strict=True))
    return site.make("pad", factor, zero, shape=row_major(factor.array, sizes), padding=amounts)
