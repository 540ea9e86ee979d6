"""Which elements of its operands an element of an instruction's result was made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from hloopt.analysis.layout import moves_nothing
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.ops.traits import ELEMENTWISE, op_table
from hloopt.types import Array, DotDims, of_numpy

__all__ = ["ElementRead", "reads"]

_Index: TypeAlias = "tuple[int, ...]"


@dataclass(frozen=True)
class ElementRead:
    """What an element read of one operand.

    index  the element, where it is one; None where it is several, or not known which
    text   the element's value, or what the elements are in short
    """

    index: _Index | None
    text: str


def reads(one: Instruction, at: _Index | None, operands: Sequence[Array]) -> list[ElementRead]:
    """What the element ``at`` of a result read of each operand; of all of it where that is not known.

    ``operands`` are the operands' arrays, each with its own dimensions.
    """
    find = _FOUND.get(one.opcode)
    if at is not None and one.opcode in ELEMENTWISE:
        found: Sequence[_Index | Array | None] = [at if array.shape else () for array in operands]
    elif at is not None and find is not None:
        found = find(one, at, operands)
    else:
        found = [None] * len(operands)
    return [_read(array, where) for array, where in zip(operands, found, strict=True)]


def _read(array: Array, where: _Index | Array | None) -> ElementRead:
    if isinstance(where, tuple) and len(where) == array.ndim:
        inside = all(0 <= i < size for i, size in zip(where, array.shape, strict=True))
        return ElementRead(where, str(array[where])) if inside else ElementRead(None, "not read")
    if array.ndim == 0:
        return ElementRead((), str(array[()]))
    return ElementRead(
        None, _summary(array if where is None or isinstance(where, tuple) else where)
    )


def _summary(array: Array) -> str:
    """``64 terms, sum 3.25, largest 7.5``; of what is not a number how many NaN there are."""
    kind = of_numpy(array.dtype)
    text = f"{array.size:,} element{'s' * (array.size != 1)}"
    if not array.size or kind.is_pred:
        return text + (f", {np.count_nonzero(array):,} true" if kind.is_pred else "")
    wide = array.astype(np.complex128 if kind.is_complex else np.float64)
    with np.errstate(all="ignore"):
        magnitudes = np.abs(wide)
        text += f", sum {wide.sum():.6g}"
        if not np.isnan(magnitudes).all():
            text += f", largest magnitude {np.nanmax(magnitudes):.6g}"
    nans = int(np.count_nonzero(np.isnan(magnitudes)))
    return text + (f", {nans:,} NaN" if nans else "")


def _same(one: Instruction, at: _Index, operands: Sequence[Array]) -> list[_Index | Array | None]:
    """The same element in row-major order."""
    (array,) = operands[:1]
    dims = one.array.dims
    if array.size != int(np.prod(dims)) or (one.opcode == "bitcast" and not moves_nothing(one)):
        return [None]
    flat = int(np.ravel_multi_index(at, dims)) if at else 0
    return [tuple(int(i) for i in np.unravel_index(flat, array.shape))]


def _broadcast(one: Instruction, at: _Index, _: Sequence[Array]) -> list[_Index | Array | None]:
    return [tuple(at[axis] for axis in one.dimensions)]


def _transpose(one: Instruction, at: _Index, _: Sequence[Array]) -> list[_Index | Array | None]:
    found = [0] * len(at)
    for position, axis in enumerate(one.dimensions):
        found[axis] = at[position]
    return [tuple(found)]


def _slice(one: Instruction, at: _Index, _: Sequence[Array]) -> list[_Index | Array | None]:
    entries = one.attributes["slice"]
    return [tuple(entry.start + i * entry.stride for i, entry in zip(at, entries, strict=True))]


def _reverse(
    one: Instruction, at: _Index, operands: Sequence[Array]
) -> list[_Index | Array | None]:
    sizes = operands[0].shape
    return [
        tuple(sizes[axis] - 1 - i if axis in one.dimensions else i for axis, i in enumerate(at))
    ]


def _concatenate(
    one: Instruction, at: _Index, operands: Sequence[Array]
) -> list[_Index | Array | None]:
    (axis,) = one.dimensions
    found: list[_Index | Array | None] = []
    start = 0
    for array in operands:
        found.append((*at[:axis], at[axis] - start, *at[axis + 1 :]))
        start += array.shape[axis]
    return found


def _dynamic_slice(
    one: Instruction, at: _Index, operands: Sequence[Array]
) -> list[_Index | Array | None]:
    whole, starts = operands[0].shape, [int(start) for start in operands[1:]]
    sizes = one.array.dims
    moved = (
        min(max(start, 0), most - size) + i
        for start, most, size, i in zip(starts, whole, sizes, at, strict=True)
    )
    return [tuple(moved), *[()] * len(starts)]


def _reduce(one: Instruction, at: _Index, operands: Sequence[Array]) -> list[_Index | Array | None]:
    rest = iter(at)
    count = len(operands) // 2
    place = tuple(
        slice(None) if axis in one.dimensions else next(rest) for axis in range(operands[0].ndim)
    )
    return [*(array[place] for array in operands[:count]), *[()] * count]


def _dot(one: Instruction, at: _Index, operands: Sequence[Array]) -> list[_Index | Array | None]:
    """The row of the left operand and the column of the right one."""
    dims = DotDims.of(one.attributes)
    batch = at[: len(dims.lhs_batch)]
    free = at[len(batch) :]
    found: list[_Index | Array | None] = []
    for array, batches, summed in (
        (operands[0], dims.lhs_batch, dims.lhs_contracting),
        (operands[1], dims.rhs_batch, dims.rhs_contracting),
    ):
        place: list[int | slice] = [slice(None)] * array.ndim
        for axis, i in zip(batches, batch, strict=True):
            place[axis] = i
        own = [axis for axis in range(array.ndim) if axis not in (*batches, *summed)]
        for axis, i in zip(own, free, strict=False):
            place[axis] = i
        free = free[len(own) :]
        found.append(array[tuple(place)])
    return found + [None] * (len(operands) - 2)


_Finder: TypeAlias = "Callable[[Instruction, _Index, Sequence[Array]], list[_Index | Array | None]]"

_FOUND: Final[Mapping[str, _Finder]] = op_table(
    {
        "bitcast": _same,
        "broadcast": _broadcast,
        "concatenate": _concatenate,
        "copy": _same,
        "dot": _dot,
        "dynamic-slice": _dynamic_slice,
        "reduce": _reduce,
        "reshape": _same,
        "reverse": _reverse,
        "slice": _slice,
        "transpose": _transpose,
    },
    otherwise="the operands as a whole are shown",
)
