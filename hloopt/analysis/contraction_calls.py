"""Calls of cuBLAS and cuDNN as contractions, and what they do with the sums.

``interpret/cublas.py`` and ``interpret/cudnn.py`` define what the calls mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from hloopt.analysis.contraction import Contraction, dot_contraction
from hloopt.analysis.convolutions import of_convolution
from hloopt.dataclass import dataclass
from hloopt.interpret import cublas, cudnn
from hloopt.interpret.library_calls import (
    LibraryOptions,
    config,
    dot_dims,
    epilogue,
    result_shape,
)
from hloopt.ir import Instruction
from hloopt.types import ConvDims, DotDims, TupleShape, dtype

__all__ = ["Addend", "CallFinish", "call_finish", "call_problem", "is_product_call", "of_call"]

_F8 = "__cublas$lt$matmul$f8"
_BLOCK_SCALED = "__op$block_scaled_dot"
_GEMMS = frozenset({"__cublas$gemm", "__cublas$lt$matmul", _F8, _BLOCK_SCALED})
_CONVOLUTIONS = frozenset(
    {
        "__cudnn$convForward",
        "__cudnn$convBiasActivationForward",
        "__cudnn$convBackwardInput",
        "__cudnn$convBackwardFilter",
    }
)


@dataclass(frozen=True, slots=True)
class Addend:
    """An operand that is added to the sums.

    operand  its number
    along    for each of its dimensions that of the result it goes along; None where it has one element
    scale    what it is multiplied by, and by which scalar operand, if any
    """

    operand: int
    along: tuple[int | None, ...]
    scale: float = 1.0
    scale_operand: int | None = None


@dataclass(frozen=True, slots=True)
class CallFinish:
    """What a call does with the sums, in their type.

    alpha       what they are multiplied by, and by which scalar operands
    addends     what is added, in order
    activation  a name of ``cublas`` or ``cudnn``, empty for none; ``slope`` is that of a leaky relu
    keeps       whether the sums before the activation are the second result
    last        the scalar operand the first result is multiplied by at the end, if any
    saturates   whether it is clamped to what its type can hold
    """

    alpha: complex = 1.0
    factors: tuple[int, ...] = ()
    addends: tuple[Addend, ...] = ()
    activation: str = ""
    slope: float = 0.0
    keeps: bool = False
    last: int | None = None
    saturates: bool = False


def is_product_call(instruction: Instruction) -> bool:
    """Whether it is a call of a matrix product or a convolution."""
    return instruction.custom_call_target in _GEMMS | _CONVOLUTIONS


def call_problem(instruction: Instruction) -> str:
    """Why a product call cannot be computed by a kernel; empty if it can."""
    name = instruction.custom_call_target
    check = (cublas.CHECKS if name in _GEMMS else cudnn.CHECKS)[name]
    problem = check(instruction)
    if problem is not None:
        return problem
    contraction = of_call(instruction)
    if any(not contraction.size(group) for group in contraction.axes):
        return f"{name} has a dimension of no elements"
    if contraction.result_extents() != contraction.hero_dims:
        return f"{name} gives {list(contraction.result_extents())}, not {result_shape(instruction)}"
    shape = instruction.shape
    if name == _F8 and isinstance(shape, TupleShape) and len(shape.elements) == 3:
        return f"{name} also returns the largest magnitude of all results"
    finish = call_finish(instruction)
    is_plain = finish.alpha == 1 and not finish.addends and not finish.activation
    if not contraction.kind.is_float and not contraction.kind.is_complex and not is_plain:
        return f"{name} does more than multiply integers"
    if contraction.kind.is_complex and finish.activation:
        return f"{name} with the activation {finish.activation} of complex numbers"
    if result_shape(instruction).dtype.bits < 8:
        return f"{name} gives elements that share bytes"
    return ""


def of_call(instruction: Instruction) -> Contraction:
    """The contraction of a product call."""
    name = instruction.custom_call_target
    if name == _BLOCK_SCALED:
        return _block_scaled(instruction)
    if name in _GEMMS:
        settings = config(instruction, "gemm_backend_config")
        dims = dot_dims(settings["dot_dimension_numbers"])
        return dot_contraction(instruction, dims, result_shape(instruction).dtype)
    if name == "__cudnn$convBackwardInput":
        return of_convolution(instruction, "input")
    if name == "__cudnn$convBackwardFilter":
        return of_convolution(instruction, "kernel")
    return of_convolution(instruction)


def _block_scaled(instruction: Instruction) -> Contraction:
    """Rows of both operands meet, each block of them with a scale."""
    rank = instruction.operands[0].array.rank
    batch = tuple(range(rank - 2))
    dims = DotDims((rank - 1,), (rank - 1,), batch, batch)
    plain = dot_contraction(instruction, dims, result_shape(instruction).dtype)
    sides = []
    for number, side in enumerate((plain.lhs, plain.rhs)):
        scale = instruction.operands[number + 2] if number < _scales(instruction) else None
        if scale is not None:
            block = cublas.scale_block(side.instruction.array, scale.array)
            assert block is not None, "checked before"
            side = replace(side, scale=scale, blocks=(1,) * (rank - 1) + (block,))
        sides.append(side)
    return replace(plain, lhs=sides[0], rhs=sides[1], kind=dtype("f32"))


def _scales(instruction: Instruction) -> int:
    """How many of the two operands of a block-scaled product have scales."""
    has_factor = not instruction.operands[-1].array.rank
    return len(instruction.operands) - 2 - has_factor


def call_finish(instruction: Instruction) -> CallFinish:
    """What a product call does with the sums."""
    name = instruction.custom_call_target
    if name == _BLOCK_SCALED:
        last = len(instruction.operands) - 1
        return CallFinish(factors=() if instruction.operands[last].array.rank else (last,))
    if name in _GEMMS:
        return _gemm_finish(instruction, config(instruction, "gemm_backend_config"))
    return _convolution_finish(instruction, config(instruction, "cudnn_conv_backend_config"))


def _gemm_finish(instruction: Instruction, settings: LibraryOptions) -> CallFinish:
    is_f8 = instruction.custom_call_target == _F8
    numbers = range(2, len(instruction.operands))
    scales = [at for at in numbers if is_f8 and not instruction.operands[at].array.rank]
    others = [at for at in numbers if at not in scales]
    rank = result_shape(instruction).rank
    beta = float(settings.get("beta", 0))
    has_bias, activation, keeps = epilogue(settings)
    addends = []
    if beta:
        matrix = others.pop(0)
        scale = scales[2] if len(scales) == 4 else None
        addends.append(Addend(matrix, _trailing(instruction, matrix, rank), beta, scale))
    if has_bias:
        vector = others.pop(0)
        addends.append(Addend(vector, _trailing(instruction, vector, rank)))
    alpha = complex(float(settings.get("alpha_real", 1)), float(settings.get("alpha_imag", 0)))
    return CallFinish(
        alpha if alpha.imag else alpha.real,
        tuple(scales[:2]),
        tuple(addends),
        activation,
        keeps=keeps,
        last=scales[-1] if len(scales) > 2 else None,
        saturates=is_f8,
    )


def _trailing(instruction: Instruction, number: int, rank: int) -> tuple[int | None, ...]:
    """The dimensions of a result that an operand goes along: the last ones."""
    dims = instruction.operands[number].array.dims
    first = rank - len(dims)
    return tuple(None if size == 1 else first + at for at, size in enumerate(dims))


# Names of cuDNN's activations; those of cuBLAS are as the configuration has them.
_ACTIVATIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "kNone": "",
        "kSigmoid": "LOGISTIC",
        "kRelu": "RELU",
        "kRelu6": "RELU6",
        "kTanh": "TANH",
        "kElu": "ELU",
        "kLeakyRelu": "LEAKY_RELU",
    }
)


def _convolution_finish(instruction: Instruction, settings: LibraryOptions) -> CallFinish:
    labels: ConvDims = instruction.attributes["dim_labels"]
    addends = []
    if len(instruction.operands) > 3:
        along: tuple[int | None, ...] = tuple(range(result_shape(instruction).rank))
        addends.append(Addend(3, along, float(settings.get("side_input_scale", 1))))
    if len(instruction.operands) > 2:
        bias = instruction.operands[2].array
        feature = tuple(labels.output_feature if size > 1 else None for size in bias.dims)
        addends.append(Addend(2, feature))
    return CallFinish(
        float(settings.get("conv_result_scale", 1)),
        (),
        tuple(addends),
        _ACTIVATIONS[cudnn.activation(settings)],
        float(settings.get("leakyrelu_alpha", 0)),
    )
