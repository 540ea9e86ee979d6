"""bitcast-convert as a view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hloopt.backends.numpy.builder import Builder
from hloopt.backends.numpy.movement import Emitter
from hloopt.backends.numpy.plan import Code, Dims, Function
from hloopt.ir import Instruction
from hloopt.types import DType

__all__ = ["EMITTERS"]


def _bitcast_convert(
    builder: Builder, instruction: Instruction, operands: Sequence[int]
) -> int | None:
    (slot,) = operands
    source, target = instruction.operands[0].array, instruction.array
    if source.dtype is target.dtype:
        return slot
    if not all(_is_viewed(builder, kind) for kind in (source.dtype, target.dtype)):
        return None
    kind = target.dtype.numpy
    if source.dtype.bits == target.dtype.bits:
        code = Code("{r} = {0}.view({kind})", bound={"kind": kind})
        dims = builder.line.dims[slot]
        return _viewed(builder, lambda x: x.view(kind), slot, kind, dims, code)
    dims = target.dims

    def split(array: Any) -> Any:
        return np.ascontiguousarray(array).reshape(-1).view(kind).reshape(dims)

    return _viewed(builder, split, builder.full(slot, source.dims), kind, dims)


def _is_viewed(builder: Builder, kind: DType) -> bool:
    """Whether elements are carried as their own bits, in whole bytes of which any is a value."""
    return kind.bits >= 8 and not kind.is_pred and builder.context.carrier(kind) == kind.numpy


def _viewed(
    builder: Builder,
    function: Function,
    slot: int,
    kind: np.dtype[Any],
    dims: Dims,
    code: Code | None = None,
) -> int:
    known = builder.line.constants.get(slot)
    if known is not None:
        return builder.constant(function(known))
    return builder.line.step(function, (slot,), builder.line.slot(kind, dims), view=True, code=code)


EMITTERS: Mapping[str, Emitter] = {"bitcast-convert": _bitcast_convert}
