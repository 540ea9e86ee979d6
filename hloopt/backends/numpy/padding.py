"""pad: the places of the operand's elements, worked out when the line is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hloopt.backends.numpy.builder import Builder
from hloopt.backends.numpy.movement import Emitter
from hloopt.backends.numpy.plan import Function
from hloopt.interpret.movement import place
from hloopt.ir import Instruction

__all__ = ["EMITTERS"]

# From so many elements on only the borders are filled with the value, each by a separate assignment.
_LARGE = 1 << 14


def _pad(builder: Builder, instruction: Instruction, operands: Sequence[int]) -> int:
    dims = instruction.array.dims
    source = instruction.operands[0].array
    paddings = instruction.attributes["padding"]
    places = [
        place(size, p.low, p.interior, dim)
        for size, p, dim in zip(source.dims, paddings, dims, strict=True)
    ]
    taken = tuple(inside for inside, _ in places)
    target = tuple(where for _, where in places)
    holes = any(p.interior for p in paddings)
    large = instruction.array.elements >= _LARGE and not holes
    borders = _borders(dims, target) if large else [(...,)]
    line = builder.line
    carrier = builder.context.carrier(instruction.array.dtype)
    slot = operands[0]
    if line.dims[slot]:
        slot = builder.full(slot, source.dims)
        crop = any(
            where.indices(n) != (0, n, 1) for where, n in zip(taken, source.dims, strict=True)
        )
        if crop:
            slot = builder.view(lambda x: x[taken], slot, _sizes(taken, source.dims))
        if line.dims[slot] == dims:
            return slot
    out = line.slot(carrier, dims)
    value = line.constants.get(operands[1])
    if value is not None:
        function = _filling(dims, carrier, target, borders, value)
        return line.step(function, (slot,), out, fills=True)

    def padded(array: Any, filler: Any, out: Any = None) -> Any:
        result = np.empty(dims, carrier) if out is None else out
        for border in borders:
            result[border] = filler
        result[target] = array
        return result

    return line.step(padded, (slot, operands[1]), out, fills=True)


def _filling(
    dims: tuple[int, ...],
    carrier: np.dtype[Any],
    target: tuple[slice, ...],
    borders: Sequence[tuple[Any, ...]],
    value: Any,
) -> Function:
    """With a value known before."""
    # Large arrays of zeros are free: the system maps zeroed pages.
    clear = not value.tobytes().strip(b"\0") and len(borders) == 1

    def padded(array: Any, out: Any = None) -> Any:
        if clear and out is None:
            result = np.zeros(dims, carrier)
        else:
            result = np.empty(dims, carrier) if out is None else out
            for border in borders:
                result[border] = value
        result[target] = array
        return result

    return padded


def _borders(dims: tuple[int, ...], target: tuple[slice, ...]) -> list[tuple[Any, ...]]:
    """What lies around a block of an array, in parts that do not meet."""
    parts: list[tuple[Any, ...]] = []
    for axis, (where, size) in enumerate(zip(target, dims, strict=True)):
        if where.start > 0:
            parts.append((*target[:axis], slice(0, where.start)))
        if where.stop < size:
            parts.append((*target[:axis], slice(where.stop, size)))
    return parts


def _sizes(places: tuple[slice, ...], dims: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(len(range(size)[where]) for where, size in zip(places, dims, strict=True))


EMITTERS: Mapping[str, Emitter] = {"pad": _pad}
