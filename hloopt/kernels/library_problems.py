"""Why an instruction is not one call of a library that NumPy has; the executor asks, and so do the kernels."""

from __future__ import annotations

from typing import Any

from hloopt.interpret.linear import sum_type
from hloopt.interpret.reducer import Reducer
from hloopt.interpret.regions import combiner
from hloopt.ir import Computation, Instruction
from hloopt.types import ArrayShape, Window, WindowDim

__all__ = [
    "blas_problem",
    "matmul_problem",
    "named_reducer",
    "product_problem",
    "ufunc_problem",
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


def ufunc_problem(reduce: Instruction) -> str:
    """Why no reduction of NumPy's gives the bits of a fold by the region, empty where one does."""
    if len(reduce.operands) != 2:
        return "it reduces several operands at once"
    if not isinstance(reduce.shape, ArrayShape):
        return "its result is a tuple"
    region = reduce.attributes["to_apply"]
    reducer = named_reducer(region)
    if reducer is None:
        return f"the region is {combiner(region) or 'no single op'}"
    kind = reducer.dtypes[0]
    if reducer.wide is not None or reducer.ufunc() is not None:
        return ""
    if reducer.name in ("maximum", "minimum") and kind.is_float:
        return ""
    return f"NumPy has no {reducer.name} of {kind} that rounds at every step"


def named_reducer(region: Computation) -> Reducer | None:
    """The reducer of a region that is a single op NumPy may have; it has no ``apply``."""
    name = combiner(region)
    if name is None or name in ("first", "second"):
        return None
    kind = region.parameters[0].array.dtype
    return Reducer(name, (kind,), _not_applied, kind.is_integer or kind.is_pred)


def _not_applied(*_: Any) -> Any:
    raise AssertionError("a named reducer is asked for its ufunc alone")


def matmul_problem(convolution: Instruction) -> str:
    """Why a convolution is not one product of matrices, empty where it is: a window of one place."""
    dims = convolution.attributes["dim_labels"]
    window = Window.given(convolution.attributes.get("window"), len(dims.input_spatial))
    for number, dimension in enumerate(window.dims):
        if dimension != WindowDim(1):
            return f"window dimension {number} is {dimension}, not of size 1 without stride and padding"
    for name in ("feature_group_count", "batch_group_count"):
        if convolution.attributes.get(name, 1) != 1:
            return f"{name} is {convolution.attributes[name]}"
    return ""
