"""Running one row of the op table on arrays, as every executor does."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import settings

from hloopt.ops import OPS, ScalarArgs
from hloopt.ops.elementwise import keeps_bits
from hloopt.types import dtype, of_numpy, rounded
from tests.helpers.rarely import examples

Array = np.ndarray[Any, Any]

# Many rows are tested; a loaded machine is no reason to fail.
FEW = settings(max_examples=examples(40), deadline=None)


def apply(
    opcode: str,
    element: str,
    *operands: Any,
    result: str | None = None,
    last: str | None = None,
    **attributes: Any,
) -> Array:
    """``element`` is the operands' type where they are no arrays yet, ``last`` that of the last."""
    kind = dtype(element)
    arrays = [
        operand if isinstance(operand, np.ndarray) else np.array(operand).astype(kind.numpy)
        for operand in operands
    ]
    args = ScalarArgs(dtype(last or element), dtype(result or element), attributes)
    function = OPS[opcode].numpy
    assert function is not None
    if opcode != "copy" and not keeps_bits(opcode, attributes, args.operand):
        arrays = [array.astype(of_numpy(array.dtype).compute, copy=False) for array in arrays]
    with np.errstate(all="ignore"):
        return rounded(function(args, *arrays), args.result.numpy)


def all_pairs(element: str) -> tuple[Array, Array]:
    """Every value of a type of at most 8 bits against every other."""
    kind = dtype(element)
    least = -(1 << (kind.bits - 1)) if kind.kind == "signed" else 0
    values = np.arange(least, least + (1 << kind.bits)).astype(kind.numpy)
    return np.repeat(values, len(values)), np.tile(values, len(values))


def integers(array: Array) -> list[int]:
    """The values as Python numbers, whatever the storage type."""
    return [int(value) for value in array.astype(np.int64 if array.dtype != np.uint64 else object)]
