"""Dots and convolutions inside a kernel: each thread sums the products of its results."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from hloopt.analysis.contraction import accumulator
from hloopt.analysis.index import Index
from hloopt.analysis.windows import window_dims
from hloopt.codegen.elemental.window import window_position
from hloopt.codegen.elements import At, Elements, Emission, Emit, every
from hloopt.codegen.scalars import convert, literal, scalar_op
from hloopt.interpret.linear import sum_type
from hloopt.ir import Instruction
from hloopt.types import ConvDims, DotDims, DType

__all__ = ["EMITTERS", "dot_positions"]

_Position = tuple[Index, ...]


def dot_positions(
    instruction: Instruction, index: _Position, contracted: _Position
) -> tuple[_Position, _Position]:
    """Where a dot reads its operands for a result and a contracted index.

    Result dimensions are batch, lhs others, rhs others, each in increasing order.
    """
    dims = DotDims.of(instruction.attributes)
    lhs, rhs = instruction.operands[0].array, instruction.operands[1].array
    left: dict[int, Index] = dict(zip(dims.lhs_contracting, contracted, strict=True))
    right: dict[int, Index] = dict(zip(dims.rhs_contracting, contracted, strict=True))
    rest = iter(index)
    for one, other in zip(dims.lhs_batch, dims.rhs_batch, strict=True):
        left[one] = right[other] = next(rest)
    for at in range(lhs.rank):
        if at not in left:
            left[at] = next(rest)
    for at in range(rhs.rank):
        if at not in right:
            right[at] = next(rest)
    return (
        tuple(left[at] for at in range(lhs.rank)),
        tuple(right[at] for at in range(rhs.rank)),
    )


def _dot(e: Elements, instruction: Instruction, index: _Position, leaf: int) -> Emission:
    lhs, rhs = instruction.operands[:2]
    kind = _product_type(instruction)
    wide = accumulator(kind)
    dims = DotDims.of(instruction.attributes)
    total = e.scope.variable(e.uses.type(wide), f"{instruction.name}_sum", literal(0, wide))

    def one(contracted: Sequence[Index]) -> Generator[At, str, None]:
        left_at, right_at = dot_positions(instruction, index, tuple(contracted))
        left = yield At(lhs, left_at)
        right = yield At(rhs, right_at)
        _accumulate(e, total, wide, kind, (left, lhs.array.dtype), (right, rhs.array.dtype))

    yield from every(e, [lhs.array.dims[at] for at in dims.lhs_contracting], "k", one)
    return _result(e, total, wide, kind, instruction)


def _convolution(e: Elements, instruction: Instruction, index: _Position, leaf: int) -> Emission:
    lhs, rhs = instruction.operands[:2]
    labels: ConvDims = instruction.attributes["dim_labels"]
    kind = _product_type(instruction)
    wide = accumulator(kind)
    groups = instruction.attributes.get("feature_group_count", 1)
    batch_groups = instruction.attributes.get("batch_group_count", 1)
    source, kernel = lhs.array.dims, rhs.array.dims
    features = kernel[labels.kernel_output_feature]
    inner = kernel[labels.kernel_input_feature]
    batch, feature = index[labels.output_batch], index[labels.output_feature]
    total = e.scope.variable(e.uses.type(wide), f"{instruction.name}_sum", literal(0, wide))
    with ExitStack() as blocks:
        left: dict[int, Index] = {}
        right: dict[int, Index] = {labels.kernel_output_feature: feature}
        windows = window_dims(instruction)
        for axis, window in enumerate(windows):
            element = Index(0)
            if window.size != 1:
                block, element = e.loop(window.size, "w")
                blocks.enter_context(e.within(block))
            dimension = labels.input_spatial[axis]
            output = index[labels.output_spatial[axis]]
            tests, place = window_position(e, output, element, window, source[dimension])
            if tests:
                blocks.enter_context(e.within(e.scope.block(f"if ({' && '.join(tests)})")))
            left[dimension] = place
            right[labels.kernel_spatial[axis]] = (
                Index(window.size - 1) - element if window.reversal else element
            )
        block, channel = e.loop(inner, "c")
        blocks.enter_context(e.within(block))
        group = feature // (features // groups) if groups > 1 else Index(0)
        left[labels.input_feature] = group * inner + channel
        right[labels.kernel_input_feature] = channel
        left[labels.input_batch] = batch
        if batch_groups > 1:
            part = feature // (features // batch_groups)
            left[labels.input_batch] = part * (source[labels.input_batch] // batch_groups) + batch
        a = yield At(lhs, tuple(left[at] for at in range(len(source))))
        b = yield At(rhs, tuple(right[at] for at in range(len(kernel))))
        _accumulate(e, total, wide, kind, (a, lhs.array.dtype), (b, rhs.array.dtype))
    return _result(e, total, wide, kind, instruction)


def _product_type(instruction: Instruction) -> DType:
    """The type whose arithmetic the product has."""
    lhs, rhs = instruction.operands[:2]
    return sum_type((lhs.array.dtype, rhs.array.dtype), instruction.array.dtype)


def _accumulate(
    e: Elements,
    total: str,
    wide: DType,
    kind: DType,
    left: tuple[str, DType],
    right: tuple[str, DType],
) -> None:
    """``total += left * right``; operands are converted to the type of the product first."""
    parts = []
    for value, source in (left, right):
        same = convert(value, source, kind, e.uses) if source is not kind else value
        if kind is not wide:
            if source is not kind:
                same = e.scope.declare(e.uses.type(kind), same, "factor")
            same = convert(same, kind, wide, e.uses)
        parts.append(e.scope.declare(e.uses.type(wide), same, "factor"))
    product = e.scope.declare(
        e.uses.type(wide), scalar_op("multiply", wide, parts, e.uses), "product"
    )
    e.scope.line(f"{total} = {scalar_op('add', wide, [total, product], e.uses)};")


def _result(e: Elements, total: str, wide: DType, kind: DType, instruction: Instruction) -> str:
    """A sum as an element: rounded, or wrapped, to the type of the product, then to the result's."""
    result = instruction.array.dtype
    if wide is not kind:
        total = e.scope.declare(e.uses.type(kind), convert(total, wide, kind, e.uses), "rounded")
    if kind is result:
        return total
    return e.scope.declare(
        e.uses.type(result), convert(total, kind, result, e.uses), instruction.name
    )


EMITTERS: Final[Mapping[str, Emit]] = {"dot": _dot, "convolution": _convolution}
