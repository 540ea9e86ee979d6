"""Calls of cuBLAS in modules that were optimised for a GPU: products with epilogues, triangular systems.

What is computed is said by ``backend_config``.  The result is a tuple whose first element is the product;
scratch space, its last, is zero here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hloopt.interpret.context import Check, Context, Evaluator, Value, array_of, arrays_of
from hloopt.interpret.library_calls import (
    LibraryOptions,
    config,
    dot_dims,
    epilogue,
    is_arrays,
    operands_of,
    result_shape,
    saturated,
    with_scratch,
)
from hloopt.interpret.linalg import solved
from hloopt.interpret.linear import dot
from hloopt.ir import Instruction
from hloopt.types import Array, ArrayShape, DotDims, TupleShape

__all__ = ["CHECKS", "EVALUATORS", "relu", "scale_block"]

# sqrt(2 / pi) and the factor of the cube: the approximation of GELU by tanh.
_GELU_SCALE, _GELU_CUBE = 0.7978845608028654, 0.044715


def _gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(_GELU_SCALE * (x + _GELU_CUBE * x * x * x))))


def _silu(x: Array) -> Array:
    return np.asarray(x / (1 + np.exp(-x)))


def relu(x: Array) -> Array:
    """Negative numbers are 0."""
    return np.maximum(x, 0)


_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"RELU": relu, "GELU": _gelu, "SILU": _silu}


def _product(
    lhs: Array, rhs: Array, settings: LibraryOptions, factor: float | Array = 1.0
) -> Array:
    """Alpha lhs rhs, times ``factor``."""
    total = dot(lhs, rhs, dot_dims(settings["dot_dimension_numbers"]))
    alpha = complex(float(settings.get("alpha_real", 1)), float(settings.get("alpha_imag", 0)))
    scale = (alpha if np.iscomplexobj(total) else alpha.real) * factor
    return total if np.all(scale == 1) else (total * scale).astype(total.dtype)


def _finished(total: Array, settings: LibraryOptions, others: list[Array]) -> list[Array]:
    """activation(total + beta C + bias), and before the activation where that is a result, too."""
    beta = float(settings.get("beta", 0))
    with np.errstate(all="ignore"):
        if beta:
            total = (total + beta * others.pop(0)).astype(total.dtype)
        bias, name, keeps = epilogue(settings)
        if bias:
            total = total + others.pop(0)
        activated = _ACTIVATIONS[name](total) if name else total
    return [activated.astype(total.dtype), *([total] if keeps else [])]


def _gemm(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    """activation(alpha lhs rhs + beta C + bias), rounded once."""
    settings = config(instruction, "gemm_backend_config")
    lhs, rhs, *others = operands_of(instruction, values, context)
    results = _finished(_product(lhs, rhs, settings), settings, others)
    return with_scratch(instruction, results, context)


def _gemm_f8(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    """d_scale activation(alpha a_scale b_scale lhs rhs + beta C + bias), and the largest magnitude before
    d_scale.

    Scales are scalars: those of the two factors, and of C and the result where these have 8 bits (older
    modules always have all four).  A result of 8 bits saturates.
    """
    settings = config(instruction, "gemm_backend_config")
    arrays = operands_of(instruction, values, context)
    scales = [array for array in arrays[2:] if not array.ndim]
    others = [array for array in arrays[2:] if array.ndim]
    if len(scales) == 4 and settings.get("beta", 0):
        others[0] = others[0] * scales[2]
    results = _finished(
        _product(arrays[0], arrays[1], settings, scales[0] * scales[1]), settings, others
    )
    shape = result_shape(instruction)
    largest = np.abs(results[0]).max(initial=0.0)
    if len(scales) > 2:
        results[0] = results[0] * scales[-1]
    results[0] = saturated(results[0], shape.dtype)
    if _tells_largest(instruction):
        results.append(np.asarray(largest))
    return with_scratch(instruction, results, context)


def _tells_largest(instruction: Instruction) -> bool:
    """Whether the second of three results is a scalar."""
    parts = instruction.shape.elements if isinstance(instruction.shape, TupleShape) else ()
    return len(parts) == 3 and isinstance(parts[1], ArrayShape) and not parts[1].rank


# The blocks of the formats of the Open Compute Project, and of NVIDIA's 4 bits, by the types of their scales.
_BLOCKS = {"f8e8m0fnu": 32, "f8e4m3fn": 16}


def scale_block(side: ArrayShape, scale: ArrayShape) -> int | None:
    """Elements of a row that share a scale; padded scales do not divide the row.  None: it is not known."""
    if scale.dims[-1] and side.dims[-1] % scale.dims[-1] == 0 and side.dims[:-1] == scale.dims[:-1]:
        return side.dims[-1] // scale.dims[-1]
    block = _BLOCKS.get(scale.dtype.name)
    reach = (*side.dims[:-1], -(-side.dims[-1] // block)) if block else side.dims
    return block if all(a >= b for a, b in zip(scale.dims, reach, strict=True)) else None


def _block_scaled(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    """Rows of both operands meet; each of their blocks has a scale.  A scalar at the end scales the result."""
    shapes = [operand.array for operand in instruction.operands]
    arrays = [array_of(value).astype(np.float32) for value in values]
    factor = arrays.pop() if not arrays[-1].ndim else np.float32(1)
    sides = arrays[:2]
    for number, scale in enumerate(arrays[2:]):
        block = scale_block(shapes[number], shapes[number + 2])
        assert block is not None, "checked before anything runs"
        spread = scale.repeat(block, axis=-1)
        side = sides[number]
        sides[number] = side * spread[tuple(slice(size) for size in side.shape)]
    batch, last = tuple(range(sides[0].ndim - 2)), (sides[0].ndim - 1,)
    total = dot(sides[0], sides[1], DotDims(last, last, batch, batch)) * factor
    return context.round(np.asarray(total), instruction.array.dtype)


def _check_gemm(instruction: Instruction) -> str | None:
    complaint, scales = _check_product(instruction), 0
    if complaint is not None:
        return complaint
    settings = config(instruction, "gemm_backend_config")
    if instruction.custom_call_target == _F8:
        scales = sum(not operand.array.rank for operand in instruction.operands[2:])
        if scales not in (2, 3, 4):
            return f"{_F8} with {scales} scales instead of 2, 3 or 4"
    wanted = 2 + bool(float(settings.get("beta", 0))) + epilogue(settings)[0] + scales
    if len(instruction.operands) != wanted:
        return f"{instruction.custom_call_target} with {len(instruction.operands)} operands instead of {wanted}"
    return None


def _check_product(instruction: Instruction) -> str | None:
    name = instruction.custom_call_target
    try:
        settings = config(instruction, "gemm_backend_config")
        dims = dot_dims(settings["dot_dimension_numbers"])
        float(settings.get("beta", 0))
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{name} without a gemm_backend_config that says which dimensions meet"
    if not is_arrays(instruction.shape):
        return f"{name} does not give a product and scratch space"
    activation = epilogue(settings)[1]
    if activation and activation not in _ACTIVATIONS:
        return f"{name} with the epilogue {settings['epilogue']}"
    shapes = [operand.shape for operand in instruction.operands]
    if not all(isinstance(shape, ArrayShape) for shape in shapes):
        return f"{name} of operands that are not arrays"
    if len(shapes) < 2:
        return f"{name} with {len(shapes)} operands instead of 2 or more"
    lhs, rhs = instruction.operands[0].array, instruction.operands[1].array
    left = [lhs.dims[axis] for axis in (*dims.lhs_batch, *dims.lhs_contracting) if axis < lhs.rank]
    right = [rhs.dims[axis] for axis in (*dims.rhs_batch, *dims.rhs_contracting) if axis < rhs.rank]
    if left != right:
        return f"{name} of {lhs} and {rhs}, whose dimensions do not meet"
    return None


def _check_block_scaled(instruction: Instruction) -> str | None:
    name = instruction.custom_call_target
    found = [o.shape for o in instruction.operands if isinstance(o.shape, ArrayShape)]
    scales = found[2:-1] if found and not found[-1].rank else found[2:]
    if (
        len(found) != len(instruction.operands)
        or len(scales) not in (1, 2)
        or not isinstance(instruction.shape, ArrayShape)
    ):
        return f"{name} is not one product of two operands and one or two scales"
    if len({shape.rank for shape in (*found[:2], *scales)}) != 1 or found[0].rank < 2:
        return f"{name} of operands and scales of different ranks"
    if found[0].dims[:-2] != found[1].dims[:-2] or found[0].dims[-1] != found[1].dims[-1]:
        return f"{name} of {found[0]} and {found[1]}, whose dimensions do not meet"
    for side, scale in zip(found, scales, strict=False):
        if scale_block(side, scale) is None:
            return f"{name} with the scale {scale}, which does not divide {side} into blocks"
    return None


def _triangular(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    settings = config(instruction, "triangular_solve_options")
    solution = solved(settings, *arrays_of(values))
    return with_scratch(instruction, [solution], context)


_TRANSPOSES = ("ADJOINT", "NO_TRANSPOSE", "TRANSPOSE")
_FLAGS = ("left_side", "lower", "unit_diagonal")


def _check_triangular(instruction: Instruction) -> str | None:
    try:
        settings = config(instruction, "triangular_solve_options")
    except ValueError:
        settings = {}
    known = settings.get("transpose_a") in _TRANSPOSES and all(
        isinstance(settings.get(name, False), bool) for name in _FLAGS
    )
    if not known or len(instruction.operands) != 2 or not is_arrays(instruction.shape):
        return f"{instruction.custom_call_target} without options that say which system is to be solved"
    return None


_F8 = "__cublas$lt$matmul$f8"

EVALUATORS: dict[str, Evaluator] = {
    "__cublas$gemm": _gemm,
    "__cublas$lt$matmul": _gemm,
    _F8: _gemm_f8,
    "__cublas$triangularSolve": _triangular,
    "__op$block_scaled_dot": _block_scaled,
}
"""By target, as in ``custom_calls.CUSTOM_CALLS``."""

CHECKS: dict[str, Check] = {
    "__cublas$gemm": _check_gemm,
    "__cublas$lt$matmul": _check_gemm,
    _F8: _check_gemm,
    "__cublas$triangularSolve": _check_triangular,
    "__op$block_scaled_dot": _check_block_scaled,
}
"""Why a call cannot be evaluated, or None."""
