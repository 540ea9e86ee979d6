"""dot: BLAS on operands as they lie, planned when the line is made.

Dimensions are put in order by views.  A large operand is copied only where no order of its dimensions is
one that BLAS reads.  Sums of f32 and f64 are BLAS's, in its order; sums of integers are exact, made of
floats that hold every partial sum (``integer_dot``); narrow floats are widened block by block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from hloopt.backends.numpy.builder import Builder
from hloopt.backends.numpy.contraction import ProductDims
from hloopt.backends.numpy.integer_dot import IntegerForm, integer_form
from hloopt.backends.numpy.movement import Emitter
from hloopt.backends.numpy.plan import Code, Function
from hloopt.backends.numpy.product import BLOCK, BlasProduct, Widening
from hloopt.interpret.context import Context
from hloopt.interpret.linear import accumulated, rounded, sum_type
from hloopt.ir import Instruction
from hloopt.types import DotDims, DType

__all__ = ["EMITTERS"]

# Multiplications up to which inspecting strides costs more than copies of operands to merge dimensions
# (measured on Zen 5: 4 us for the look, 0.3 ns an element copied).
_SMALL = 1 << 17
# Bytes of a result from which reusing a free array pays (``sharing``).
_LARGE_RESULT = 1 << 17


def _dot(builder: Builder, instruction: Instruction, operands: Sequence[int]) -> int | None:
    if _product_problem(instruction):
        return None
    context, result = builder.context, instruction.array.dtype
    left, right = instruction.operands
    contraction = ProductDims.of(
        left.array.dims, right.array.dims, DotDims.of(instruction.attributes)
    )
    kinds = left.array.dtype, right.array.dtype
    kind = sum_type(kinds, result)
    carrier = context.carrier(result)
    full = builder.full_operands(instruction, operands)
    out = builder.line.slot(carrier, instruction.array.dims)
    if kind.is_integer:
        form = integer_form(kinds, kind, result, contraction.contracted, contraction.work, context)
        return _integer(builder, contraction, form, full, out)
    wide = _widening(kinds[0], kind, context), _widening(kinds[1], kind, context)
    finish = _finish(kind, result, context)
    if _is_small(contraction, wide, carrier):
        return builder.line.step(None, full, out, code=_code(contraction, wide, finish))
    product = BlasProduct(contraction, wide, kind.compute, carrier, finish)
    return builder.line.step(product, full, out, fills=True)


def _product_problem(dot: Instruction) -> str:
    """Why BLAS does not compute a product from converted operands; empty where it does.

    Integers are converted to floats that hold every partial sum, narrow floats to f32.
    """
    if len(dot.operands) != 2:
        return "the product has sparse operands"
    kinds = [operand.array.dtype for operand in dot.operands]
    return "pred has no sums of products" if sum_type(kinds, dot.array.dtype).is_pred else ""


def _integer(
    builder: Builder, contraction: ProductDims, form: IntegerForm, full: tuple[int, ...], out: int
) -> int:
    if form.is_one_product and _is_small(contraction, form.widen, builder.line.kinds[out]):
        code = _code(contraction, form.widen, form.finish)
        return builder.line.step(None, full, out, code=code)
    function = form.function(contraction)
    return builder.line.step(function, full, out, fills=isinstance(function, BlasProduct))


def _is_small(contraction: ProductDims, widen: Widening, carrier: np.dtype[Any]) -> bool:
    """Whether a product is best written in place, with copies of operands where it needs them."""
    converted = [size for size, wide in zip(contraction.sizes, widen, strict=True) if wide]
    return (
        prod(contraction.result) * carrier.itemsize < _LARGE_RESULT
        and max(converted, default=0) <= BLOCK
        and (contraction.is_plain or contraction.work <= _SMALL)
    )


def _code(contraction: ProductDims, widen: Widening, finish: Function | None) -> Code:
    """The product as one statement, without a Python call of ours around it."""
    text = contraction.text()
    bound: dict[str, Any] = {"matmul": np.matmul} if "{matmul}" in text else {}
    for at, function in enumerate(widen):
        if function is not None:
            bound[f"widen{at}"] = function
            text = text.replace(f"{{{at}}}", f"{{widen{at}}}({{{at}}})")
    if finish is not None:
        bound["finish"] = finish
        text = f"{{finish}}({text})"
    return Code(f"{{r}} = {text}", bound=bound)


def _widening(source: DType, kind: DType, context: Context) -> Function | None:
    """An operand as the type sums are made in; None where it is already."""
    carrier, compute = context.carrier(source), kind.compute
    if source is kind and carrier == compute:
        return None
    if source is kind or (source.is_narrow_float and kind.name in ("f32", "f64")):
        return _converted(compute)
    return lambda array: accumulated(array, source, kind, context)


def _converted(target: np.dtype[Any]) -> Callable[[Any], Any]:
    return lambda array: array.astype(target)


def _finish(kind: DType, result: DType, context: Context) -> Function | None:
    """A sum as the result; None where it is already."""
    carrier = context.carrier(result)
    if kind is not result:
        return lambda total: rounded(np.asarray(total), kind, result, context)
    return None if carrier == kind.compute else lambda total: np.asarray(total).astype(carrier)


EMITTERS: Mapping[str, Emitter] = {"dot": _dot}
