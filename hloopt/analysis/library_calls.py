"""Flops of library calls: products, triangular systems and convolutions in cuBLAS and cuDNN, and factors and
triangular systems in LAPACK and cuSOLVER.

XLA's HLO cost analysis gives custom calls none; here a call counts as the op that it replaces.
Epilogues are not counted: they are a flop or two per element of a product.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import prod
from typing import Final

from hloopt.interpret.library_calls import config, dot_dims, epilogue, result_shape
from hloopt.ir import Instruction
from hloopt.types import ArrayShape, ConvDims, ConvNumbers, DotDims, TupleShape, WindowDim, dilated

__all__ = [
    "convolution_arrays",
    "convolution_flops",
    "is_convolution_call",
    "is_product_call",
    "library_flops",
    "product_activation",
    "product_dims",
    "result_bytes",
    "valid_multiply_adds",
    "valid_products",
]


def library_flops(instruction: Instruction) -> int:
    """Multiplications and additions of a custom call; 0 for other targets and for unclear calls."""
    name = instruction.custom_call_target
    if routine := _ROUTINE.fullmatch(name):
        return _routine_flops(routine[1], instruction)
    rule = _RULES.get(name)
    if rule is None or _problem(name, instruction) is not None:
        return 0
    return rule(instruction)


def result_bytes(instruction: Instruction) -> int:
    """Bytes a custom call writes that are read: of a library's call all but the scratch space."""
    shape = instruction.shape
    known = instruction.custom_call_target in _RULES
    if known and isinstance(shape, TupleShape) and len(shape.elements) > 1:
        return sum(element.byte_size for element in shape.elements[:-1])
    return shape.byte_size


def is_product_call(instruction: Instruction) -> bool:
    """Whether a custom call is a matrix product of a library that can be read."""
    name = instruction.custom_call_target
    return _RULES.get(name) is _product and _problem(name, instruction) is None


def product_dims(instruction: Instruction) -> DotDims:
    """The dimensions of a product: raises ``ValueError`` for what ``is_product_call`` is not true of."""
    if not is_product_call(instruction):
        raise ValueError(f"{instruction.name} is not a matrix product of a library")
    return dot_dims(config(instruction, "gemm_backend_config")["dot_dimension_numbers"])


def product_activation(instruction: Instruction) -> str:
    """What a product's call applies to its results, as cuBLAS names it; empty for nothing."""
    return epilogue(config(instruction, "gemm_backend_config"))[1]


def _product(instruction: Instruction) -> int:
    dims = dot_dims(config(instruction, "gemm_backend_config")["dot_dimension_numbers"])
    lhs = instruction.operands[0].array
    contracted = prod(lhs.dims[axis] for axis in dims.lhs_contracting)
    return 2 * result_shape(instruction).elements * contracted


def _triangular(instruction: Instruction) -> int:
    return result_shape(instruction).elements * instruction.operands[0].array.dims[-1] // 2


def is_convolution_call(instruction: Instruction) -> bool:
    """Whether a custom call is a convolution of a library that can be read."""
    name = instruction.custom_call_target
    return name in _ROLES and _problem(name, instruction) is None


def convolution_arrays(instruction: Instruction) -> tuple[ArrayShape, ArrayShape, ArrayShape]:
    """Input, kernel and result of the forward convolution, whichever of them a library's call computes."""
    lhs, rhs = (operand.array for operand in instruction.operands[:2])
    roles = _ROLES[instruction.custom_call_target]
    return roles(lhs, rhs, result_shape(instruction))


def _routine_flops(routine: str, call: Instruction) -> int:
    """Of LAPACK's routine, in the leading terms of LAPACK Working Note 41; 0 for a call that is unclear.

    Solving counts as ``triangular-solve``, of which XLA has half the flops.
    """
    shapes = [
        shape for shape in (one.shape for one in call.operands) if isinstance(shape, ArrayShape)
    ]
    if (
        len(shapes) < len(call.operands)
        or not shapes
        or any(shape.rank < 2 for shape in shapes[:1])
    ):
        return 0
    *batch, rows, columns = shapes[0].dims
    least, most = sorted((rows, columns))
    if routine == "trsm":
        return shapes[1].elements * columns // 2 if len(shapes) == 2 else 0
    if routine == "potrf":
        return prod(batch) * columns**3 // 3
    if routine == "getrf":
        return prod(batch) * (least * least * most - least**3 // 3)
    # Reflections are found, or multiplied, in the same steps.
    return prod(batch) * (2 * least * least * most - 2 * least**3 // 3)


def _convolution(instruction: Instruction) -> int:
    """As many as the forward convolution has, whichever of its three arrays is the result."""
    return convolution_flops(instruction, *convolution_arrays(instruction))


_Roles = Callable[[ArrayShape, ArrayShape, ArrayShape], tuple[ArrayShape, ArrayShape, ArrayShape]]
# Input, kernel and result of the forward convolution, out of two operands and what the call gives.
_ROLES: dict[str, _Roles] = {
    "__cudnn$convForward": lambda lhs, rhs, result: (lhs, rhs, result),
    "__cudnn$convBiasActivationForward": lambda lhs, rhs, result: (lhs, rhs, result),
    "__cudnn$convForwardGraph": lambda lhs, rhs, result: (lhs, rhs, result),
    "__cudnn$convBackwardInput": lambda lhs, rhs, result: (result, rhs, lhs),
    "__cudnn$convBackwardFilter": lambda lhs, rhs, result: (lhs, result, rhs),
}

_ROUTINE: Final = re.compile(
    r"(?:lapack_[sdcz]|cusolver_|hipsolver_)(potrf|getrf|geqrf|orgqr|ungqr|trsm)_ffi"
)

_RULES: dict[str, Callable[[Instruction], int]] = {
    "__cublas$gemm": _product,
    "__cublas$lt$matmul": _product,
    "__cublas$lt$matmul$f8": _product,
    "__cublas$triangularSolve": _triangular,
    **dict.fromkeys(_ROLES, _convolution),
}


def _problem(name: str, instruction: Instruction) -> str | None:
    from hloopt.interpret import cublas, cudnn

    if name not in _ROLES:
        return cublas.CHECKS[name](instruction)
    problem = cudnn.CHECKS[name](instruction)
    rank = len(instruction.window.dims) + 2
    if problem is None and any(one.rank != rank for one in convolution_arrays(instruction)):
        return "the ranks of its arrays do not suit its window"
    return problem


def convolution_flops(
    convolution: Instruction, source: ArrayShape, kernel: ArrayShape, result: ArrayShape
) -> int:
    """Two flops per multiply-add that does not fall into padding or between dilated elements."""
    numbers = ConvNumbers.of(convolution.attributes)
    labels = numbers.labels
    batch = source.dims[labels.input_batch] // numbers.batch_groups
    inputs = kernel.dims[labels.kernel_input_feature]
    outputs = kernel.dims[labels.kernel_output_feature]
    spatial = valid_multiply_adds(convolution, source.dims, result.dims)
    return 2 * batch * inputs * outputs * spatial


def valid_multiply_adds(
    convolution: Instruction, source: Sequence[int], result: Sequence[int]
) -> int:
    """Pairs of output position and window element that read an input element, along space.

    ``source`` and ``result`` are the dimensions of the input and of the output.
    """
    labels: ConvDims = convolution.attributes["dim_labels"]
    dims = zip(convolution.window.dims, labels.input_spatial, labels.output_spatial, strict=True)
    return prod(valid_products(dim, source[at], result[to]) for dim, at, to in dims)


def valid_products(dim: WindowDim, source: int, result: int) -> int:
    """As ``valid_multiply_adds``, in one dimension.

    Elements of the padding and of the holes that base dilation makes are not counted.  Linear in the
    window's size, whatever the number of positions.
    """
    limit = dilated(source, dim.base_dilation)
    offsets = (element * dim.window_dilation - dim.pad_low for element in range(dim.size))
    return sum(_hits(at, dim.stride, result, limit, dim.base_dilation) for at in offsets)


def _hits(offset: int, stride: int, count: int, limit: int, step: int) -> int:
    """How many ``offset + k * stride`` with ``0 <= k < count`` are in ``range(0, limit, step)``."""
    first = max(0, -(offset // stride))
    last = min(count - 1, (limit - 1 - offset) // stride)
    periods, rest = divmod(max(0, last + 1 - first), step)
    valid = [(offset + k * stride) % step == 0 for k in range(first, first + step)]
    return periods * sum(valid) + sum(valid[:rest])
