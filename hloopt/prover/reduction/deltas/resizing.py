"""Attributes that speak of sizes, for operands and results of other sizes than they were written for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

from hloopt.errors import ShapeError
from hloopt.interpret.groups import groups_of
from hloopt.ir import Instruction
from hloopt.ops.traits import op_table
from hloopt.types import (
    ArrayShape,
    ConvNumbers,
    Shape,
    SliceRange,
    TupleShape,
    Window,
    WindowDim,
    dilated,
    parts_of,
)

__all__ = ["gathered", "resized_attributes", "shrunk"]

_Rule: TypeAlias = Callable[[Instruction, ArrayShape, ArrayShape], dict[str, Any]]


def resized_attributes(one: Instruction, before: Shape, wanted: Shape) -> dict[str, Any]:
    """The attributes that change where the operands have new shapes and the result is to be ``wanted``.

    ``before`` is the result's shape so far.  Raises ``ShapeError`` where the op cannot have these sizes.
    """
    rule = _RULES.get(one.opcode)
    if rule is None or not isinstance(before, ArrayShape) or not isinstance(wanted, ArrayShape):
        return {}
    return rule(one, before, wanted)


def _slice(one: Instruction, before: ArrayShape, wanted: ArrayShape) -> dict[str, Any]:
    """As many elements as wanted, from the same start, or from an earlier one where there is no room."""
    found = []
    ranges: tuple[SliceRange, ...] = one.attributes["slice"]
    for part, size, old, new in zip(
        ranges, one.operands[0].array.dims, before.dims, wanted.dims, strict=True
    ):
        count = min(new, size) if old == part.size else new
        reach = (count - 1) * part.stride + 1 if count else 0
        if reach > size:
            count, reach = 1, 1
        start = min(part.start, max(size - reach, 0))
        found.append(SliceRange(start, start + reach, part.stride))
    return {"slice": tuple(found)}


def _dynamic_slice(one: Instruction, before: ArrayShape, wanted: ArrayShape) -> dict[str, Any]:
    sizes = zip(wanted.dims, one.operands[0].array.dims, strict=True)
    return {"dynamic_slice_sizes": tuple(min(size, room) for size, room in sizes)}


def _gather(one: Instruction, before: ArrayShape, wanted: ArrayShape) -> dict[str, Any]:
    sizes = zip(one.attributes["slice_sizes"], one.operands[0].array.dims, strict=True)
    return {"slice_sizes": tuple(min(size, room) for size, room in sizes)}


def _pad(one: Instruction, before: ArrayShape, wanted: ArrayShape) -> dict[str, Any]:
    """Padding that crops must leave something."""
    padding = list(one.attributes["padding"])
    for number, (part, size) in enumerate(zip(padding, one.operands[0].array.dims, strict=True)):
        if size + part.low + part.high + part.interior * max(size - 1, 0) < 1:
            padding[number] = replace(part, low=max(part.low, 0), high=max(part.high, 0))
    return {"padding": tuple(padding)}


def _convolution(one: Instruction, before: ArrayShape, wanted: ArrayShape) -> dict[str, Any]:
    """The window is as large as the kernel, and padded by as much less as it reaches less far."""
    numbers, kernel = ConvNumbers.of(one.attributes), one.operands[1].array.dims
    sizes = [kernel[dim] for dim in numbers.labels.kernel_spatial]
    window = Window.of(one.attributes, len(sizes))
    dims = tuple(shrunk(part, size) for part, size in zip(window.dims, sizes, strict=True))
    return {} if dims == window.dims else {"window": Window(dims)}


def shrunk(window: WindowDim, size: int) -> WindowDim:
    """A smaller window, padded by as much less as it reaches less far, so that it has as many places."""
    less = max(window.reach - dilated(size, window.window_dilation), 0)
    high = min(less, max(window.pad_high, 0))
    low = min(less - high, max(window.pad_low, 0))
    return replace(window, size=size, pad_low=window.pad_low - low, pad_high=window.pad_high - high)


def _fft(one: Instruction, before: ArrayShape, wanted: ArrayShape) -> dict[str, Any]:
    """As long as the operand; for an IRFFT as long as what has an operand of that length."""
    lengths, dims = one.attributes["fft_length"], one.operands[0].array.dims
    last = dims[-1]
    if one.attributes["fft_type"] == "IRFFT":
        keeps = lengths[-1] // 2 + 1 == last
        last = lengths[-1] if keeps else max(2 * (last - 1), 1)
    return {"fft_length": (*dims[len(dims) - len(lengths) : -1], last)}


def gathered(one: Instruction, wanted: Shape, counts: tuple[int, int]) -> Shape:
    """The result of an ``all-gather`` or a ``reduce-scatter`` among so many replicas and partitions.

    Raises ``ShapeError`` where the operands cannot be scattered.
    """
    try:
        (size,) = {len(group) for group in groups_of(one, *counts)}
    except ValueError as error:
        raise ShapeError(f"{one.name}: its groups are not of one size") from error
    (dim,) = one.dimensions
    found: list[Shape] = []
    for operand, part in zip(one.operands, parts_of(wanted), strict=True):
        assert isinstance(part, ArrayShape)
        dims = list(operand.array.dims)
        given = dims[dim]
        if one.opcode == "reduce-scatter" and given % size:
            raise ShapeError(f"{one.name}: {given} are not scattered among {size}")
        dims[dim] = given * size if one.opcode == "all-gather" else given // size
        found.append(replace(part, dims=tuple(dims)))
    return TupleShape(tuple(found)) if isinstance(wanted, TupleShape) else found[0]


def _reshape(one: Instruction, before: ArrayShape, wanted: ArrayShape) -> dict[str, Any]:
    """No attribute: sizes that do not fit are refused here, with a message that says so."""
    if one.operands[0].array.elements != wanted.elements:
        raise ShapeError(f"{one.name}: {one.operands[0].array} has other elements than {wanted}")
    return {}


_RULES: Final[Mapping[str, _Rule]] = op_table(
    {
        "slice": _slice,
        "dynamic-slice": _dynamic_slice,
        "gather": _gather,
        "convolution": _convolution,
        "fft": _fft,
        "pad": _pad,
        "reshape": _reshape,
    },
    otherwise="no attribute of it speaks of sizes, or inference says what does not fit",
)
