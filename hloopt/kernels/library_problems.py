"""Why an instruction is not one call of a library that NumPy has; the executor asks, and so do the kernels."""

from __future__ import annotations

from typing import Any

from hloopt.interpret.linear import sum_type
from hloopt.interpret.reducer import Reducer
from hloopt.interpret.regions import combiner
from hloopt.ir import Computation, Instruction

__all__ = [
    "blas_problem",
    "named_reducer",
    "product_problem",
]


_BLAS = frozenset({"f32", "f64", "c64", "c128"})
_NARROW = frozenset({"bf16", "f16"})


def blas_problem(dot: Instruction) -> str:
    """Why BLAS does not make a product of operands as they are, empty where it does."""
    if len(dot.operands) != 2:
        return "the product has sparse operands"
    result = dot.array.dtype
    if result.name not in _BLAS | _NARROW:
        return f"BLAS has no products of {result}"
    for operand in dot.operands:
        kind = operand.array.dtype
        if kind is not result and not (kind.is_narrow_float and result.name in _BLAS):
            return f"BLAS has no products of {kind} in {result}"
    return ""


def product_problem(dot: Instruction) -> str:
    """Why a product is not made by BLAS of operands that are converted first: integers to floats that hold
    every partial sum, narrow floats to f32.  Empty where it is.
    """
    if len(dot.operands) != 2:
        return "the product has sparse operands"
    kinds = [operand.array.dtype for operand in dot.operands]
    return "pred has no sums of products" if sum_type(kinds, dot.array.dtype).is_pred else ""


def named_reducer(region: Computation) -> Reducer | None:
    """The reducer of a region that is a single op NumPy may have; it has no ``apply``."""
    name = combiner(region)
    if name is None or name in ("first", "second"):
        return None
    kind = region.parameters[0].array.dtype
    return Reducer(name, (kind,), _not_applied, kind.is_integer or kind.is_pred)


def _not_applied(*_: Any) -> Any:
    raise AssertionError("a named reducer is asked for its ufunc alone")
