"""Running one row of the op table on arrays, as every executor does."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import settings

from hloopt.ops import OPS, ScalarArgs
from hloopt.ops.elementwise import evaluate
from hloopt.types import dtype

Array = np.ndarray[Any, Any]

# Many rows are tested; a loaded machine is no reason to fail.
FEW = settings(max_examples=40, deadline=None)


def apply(
    opcode: str,
    element: str,
    *operands: Any,
    result: str | None = None,
    last: str | None = None,
    keep_wide: bool = False,
    **attributes: Any,
) -> Array:
    """``element`` is the operands' type where they are no arrays yet, ``last`` that of the last."""
    kind = dtype(element)
    arrays = [
        operand if isinstance(operand, np.ndarray) else np.array(operand).astype(kind.numpy)
        for operand in operands
    ]
    args = ScalarArgs(dtype(last or element), dtype(result or element), attributes)
    return evaluate(OPS[opcode], args, arrays, keep_wide=keep_wide)


def all_pairs(element: str) -> tuple[Array, Array]:
    """Every value of a type of at most 8 bits against every other."""
    kind = dtype(element)
    least = -(1 << (kind.bits - 1)) if kind.kind == "signed" else 0
    values = np.arange(least, least + (1 << kind.bits)).astype(kind.numpy)
    return np.repeat(values, len(values)), np.tile(values, len(values))


def integers(array: Array) -> list[int]:
    """The values as Python numbers, whatever the storage type."""
    return [int(value) for value in array.astype(np.int64 if array.dtype != np.uint64 else object)]
