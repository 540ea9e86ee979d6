"""Flops of library calls: products, triangular systems and convolutions handed to cuBLAS and cuDNN.

XLA's HLO cost analysis gives custom calls none; here a call does what the op it stands for would.
Epilogues are not counted: they are a flop or two per element of a product.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from hloopt.analysis.windows import convolution_flops
from hloopt.interpret.library_calls import config, dot_dims, result_shape
from hloopt.ir import Instruction
from hloopt.types import ArrayShape, DotDims, TupleShape

__all__ = [
    "convolution_arrays",
    "is_convolution_call",
    "is_product_call",
    "library_flops",
    "product_dims",
    "result_bytes",
]


def library_flops(instruction: Instruction) -> int:
    """Multiplications and additions of a custom call; 0 for other targets and for unclear calls."""
    name = instruction.custom_call_target
    rule = _RULES.get(name)
    if rule is None or _problem(name, instruction) is not None:
        return 0
    return rule(instruction)


def result_bytes(instruction: Instruction) -> int:
    """Bytes a custom call writes that anybody reads: of a library's call all but the scratch space."""
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
        raise ValueError(f"{instruction.name} is no matrix product of a library")
    return dot_dims(config(instruction, "gemm_backend_config")["dot_dimension_numbers"])


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
