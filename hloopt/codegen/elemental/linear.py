"""Dots and convolutions inside a kernel: each thread sums the products of its results."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Final

from hloopt.analysis.windows import window_dims
from hloopt.codegen.elemental.window import window_position
from hloopt.codegen.elements import At, Elements, Emission, Emit
from hloopt.codegen.index import Index
from hloopt.codegen.scalars import convert, literal, scalar_op
from hloopt.ir import Instruction
from hloopt.types import ConvDims, DotDims, DType, dtype

__all__ = ["EMITTERS", "accumulator", "dot_positions"]

_Position = tuple[Index, ...]


def accumulator(kind: DType, *, is_convolution: bool = False) -> DType:
    """In which type products of a result type are summed: f32 for narrower floats, wide integers.

    Sums of integers wrap, so any width not below the result's will do; a convolution saturates at the end
    and needs 64 bits.
    """
    if kind.is_narrow_float:
        return dtype("f32")
    if kind.is_pred:
        return kind
    if kind.is_integer:
        unsigned = "u" if kind.kind == "unsigned" else "s"
        return dtype(f"{unsigned}64" if is_convolution or kind.bits == 64 else f"{unsigned}32")
    return kind


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
    kind = instruction.array.dtype
    wide = accumulator(kind)
    dims = DotDims.of(instruction.attributes)
    total = e.scope.variable(e.uses.type(wide), f"{instruction.name}_sum", literal(0, wide))
    with ExitStack() as blocks:
        contracted = []
        for dimension in dims.lhs_contracting:
            block, at = e.loop(lhs.array.dims[dimension], "k")
            blocks.enter_context(e.within(block))
            contracted.append(at)
        left_at, right_at = dot_positions(instruction, index, tuple(contracted))
        left = yield At(lhs, left_at)
        right = yield At(rhs, right_at)
        _accumulate(e, total, wide, kind, (left, lhs.array.dtype), (right, rhs.array.dtype))
    return _result(e, total, wide, kind, instruction)


def _convolution(e: Elements, instruction: Instruction, index: _Position, leaf: int) -> Emission:
    lhs, rhs = instruction.operands[:2]
    labels: ConvDims = instruction.attributes["dim_labels"]
    kind = instruction.array.dtype
    wide = accumulator(kind, is_convolution=True)
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


def _accumulate(
    e: Elements,
    total: str,
    wide: DType,
    kind: DType,
    left: tuple[str, DType],
    right: tuple[str, DType],
) -> None:
    """``total += left * right``; operands are converted to the result's type first, as HLO says."""
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
    if kind is wide:
        return total
    if kind.is_integer and kind.bits < wide.bits and instruction.opcode == "convolution":
        value = _saturated(total, kind, e)
    else:
        value = convert(total, wide, kind, e.uses)
    return e.scope.declare(e.uses.type(kind), value, instruction.name)


def _saturated(total: str, kind: DType, e: Elements) -> str:
    low = -(1 << (kind.bits - 1)) if kind.kind == "signed" else 0
    high = (1 << (kind.bits - (kind.kind == "signed"))) - 1
    below = f"{total} < {low} ? {literal(low, kind)} : " if low else ""
    return f"({below}{total} > {high} ? {literal(high, kind)} : ({e.uses.type(kind)}){total})"


EMITTERS: Final[Mapping[str, Emit]] = {"dot": _dot, "convolution": _convolution}
