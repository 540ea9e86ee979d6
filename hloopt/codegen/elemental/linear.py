"""Dots and convolutions inside a kernel: each thread sums the products of its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from hloopt.analysis.contraction import accumulator
from hloopt.analysis.index import Index, Indices
from hloopt.analysis.written_ops import dot_positions
from hloopt.codegen.elemental.window import window_position
from hloopt.codegen.elements import Elements
from hloopt.codegen.emission import Asking, At, Emission, Emit, every
from hloopt.codegen.scalars import convert, literal, scalar_op
from hloopt.dataclass import dataclass
from hloopt.interpret.linear import sum_type
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import Expr, Var
from hloopt.types import ConvNumbers, DotDims, DType

__all__ = ["EMITTERS", "Products"]


def _dot(e: Elements, instruction: Instruction, index: Indices, leaf: int) -> Emission:
    lhs, rhs = instruction.operands[:2]
    products = Products.of(instruction)
    dims = DotDims.of(instruction.attributes)
    total = products.begin(e)

    def one(contracted: Sequence[Index]) -> Asking:
        left_at, right_at = dot_positions(instruction, index, tuple(contracted))
        left = yield At(lhs, left_at)
        right = yield At(rhs, right_at)
        products.accumulate(e, total, left, right)

    sizes = [lhs.array.dims[at] for at in dims.lhs_contracting]
    yield from every(e, sizes, "k", one, around=index)
    return products.result(e, total)


def _convolution(e: Elements, instruction: Instruction, index: Indices, leaf: int) -> Emission:
    lhs, rhs = instruction.operands[:2]
    numbers = ConvNumbers.of(instruction.attributes)
    labels, groups, batch_groups = numbers.labels, numbers.feature_groups, numbers.batch_groups
    products = Products.of(instruction)
    source, kernel = lhs.array.dims, rhs.array.dims
    features = kernel[labels.kernel_output_feature]
    inner = kernel[labels.kernel_input_feature]
    batch, feature = index[labels.output_batch], index[labels.output_feature]
    total = products.begin(e)
    with ExitStack() as blocks:
        blocks.enter_context(e.before(index))
        left: dict[int, Index] = {}
        right: dict[int, Index] = {labels.kernel_output_feature: feature}
        windows = numbers.window.dims
        for axis, window in enumerate(windows):
            element = Index(0)
            if window.size != 1:
                element = blocks.enter_context(e.counting(0, window.size, "w"))
            dimension = labels.input_spatial[axis]
            output = index[labels.output_spatial[axis]]
            tests, place = window_position(output, element, window, source[dimension])
            blocks.enter_context(e.when(*tests))
            left[dimension] = place
            right[labels.kernel_spatial[axis]] = (
                Index(window.size - 1) - element if window.reversal else element
            )
        channel = blocks.enter_context(e.counting(0, inner, "c"))
        group = feature // (features // groups) if groups > 1 else Index(0)
        left[labels.input_feature] = group * inner + channel
        right[labels.kernel_input_feature] = channel
        left[labels.input_batch] = batch
        if batch_groups > 1:
            part = feature // (features // batch_groups)
            left[labels.input_batch] = part * (source[labels.input_batch] // batch_groups) + batch
        a = yield At(lhs, tuple(left[at] for at in range(len(source))))
        b = yield At(rhs, tuple(right[at] for at in range(len(kernel))))
        products.accumulate(e, total, a, b)
    return products.result(e, total)


@dataclass(frozen=True)
class Products:
    """The arithmetic of a dot or convolution: ``kind`` of the products, ``wide`` of their sum."""

    instruction: Instruction
    kind: DType
    wide: DType

    @staticmethod
    def of(instruction: Instruction) -> Products:
        """The arithmetic that an instruction's types require."""
        lhs, rhs = instruction.operands[:2]
        kind = sum_type((lhs.array.dtype, rhs.array.dtype), instruction.array.dtype)
        return Products(instruction, kind, accumulator(kind))

    def begin(self, e: Elements) -> Var:
        """A variable for the sum."""
        hint = f"{self.instruction.name}_sum"
        return e.variable(self.wide, hint, literal(0, self.wide))

    def product(self, e: Elements, left: Expr, right: Expr) -> Expr:
        """The product of two elements, which are converted to the type of the product first."""
        parts = []
        for value, operand in zip((left, right), self.instruction.operands, strict=False):
            source = operand.array.dtype
            same = convert(value, source, self.kind, e.uses) if source is not self.kind else value
            if self.kind is not self.wide:
                if source is not self.kind:
                    same = e.declare(self.kind, same, "factor")
                same = convert(same, self.kind, self.wide, e.uses)
            is_new = same != value
            parts.append(e.declare(self.wide, same, "factor") if is_new else same)
        return e.declare(self.wide, scalar_op("multiply", self.wide, parts, e.uses), "product")

    def accumulate(self, e: Elements, total: Var, left: Expr, right: Expr) -> None:
        """``total += left * right``."""
        product = self.product(e, left, right)
        e.scope.set(total, scalar_op("add", self.wide, [total, product], e.uses))

    def result(self, e: Elements, total: Expr) -> Expr:
        """A sum as an element: rounded, or wrapped, to the type of the product, then to the result's."""
        result, name = self.instruction.array.dtype, self.instruction.name
        if self.wide is not self.kind:
            rounded = convert(total, self.wide, self.kind, e.uses)
            total = e.declare(self.kind, rounded, "rounded")
        if self.kind is result:
            return total
        return e.declare(result, convert(total, self.kind, result, e.uses), name)


EMITTERS: Final[Mapping[str, Emit]] = {"dot": _dot, "convolution": _convolution}
