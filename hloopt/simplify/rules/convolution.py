"""Rules for convolution: constant factors, padding, and kernels of one place."""

from __future__ import annotations

from dataclasses import replace

from hloopt.ir import Instruction
from hloopt.rewrite import Match, Rule, op, splat, splat_literal, var
from hloopt.rewrite.dimension_numbers import conv_dims
from hloopt.simplify.predicates import (
    INTEGER,
    exact_or_fast,
    exact_or_real,
    resized,
    scalar_value,
)
from hloopt.simplify.rules.reduce_window import padded_window
from hloopt.types import Dims, PaddingDim, Window, WindowDim

__all__ = ["FACTORS", "RULES"]


def _is_array(instruction: Instruction) -> bool:
    return instruction.is_array


A, B, D = var("A", _is_array), var("B", _is_array), var("D")
C, PADDING = splat(name="C"), var("C")
CONVOLUTION = op("convolution", A, B).one_use.bind("P")


def _may_move(match: Match) -> bool:
    """Whether products may be made in another order: integers of one type wrap alike in any."""
    return exact_or_real(match) and (match.floats_are_real or _one_type(match))


def _may_fold(match: Match) -> bool:
    """The same where filter and bias are constants, which XLA multiplies by default."""
    return exact_or_fast(match) and (match.fast_math or _one_type(match))


def _one_type(match: Match) -> bool:
    dtype = match.array.dtype
    return match.A.array.dtype is match.B.array.dtype is dtype


def _scaled(match: Match, operand: Instruction) -> Instruction | None:
    """An operand times the constant, if both have the element type of the result."""
    literal = splat_literal(match.C)
    if literal is None or operand.array.dtype is not match.array.dtype:
        return None
    factor = match.splat_of(operand.array, literal)
    return match.make("multiply", operand, factor, shape=operand.array)


def _on_operand(match: Match) -> Instruction | None:
    """Onto the filter or the input, whichever is smaller, if it is smaller than the result."""
    at = 0 if match.A.array.elements < match.B.array.elements else 1
    smaller = (match.A, match.B)[at]
    if smaller.array.elements >= match.array.elements:
        return None
    return _convolved(match, at)


def _convolved(match: Match, at: int) -> Instruction | None:
    operands = [match.A, match.B]
    product = _scaled(match, operands[at])
    if product is None:
        return None
    operands[at] = product
    return match.make("convolution", *operands, shape=match.P.shape, **match.P.attributes)


def _with_bias(match: Match) -> Instruction | None:
    """Filter and bias are constants: then both products are computed once and for all."""
    if match.B.opcode != "constant" or not _is_constant(match.D):
        return None
    convolved, bias = _convolved(match, 1), _scaled(match, match.D)
    if convolved is None or bias is None:
        return None
    return match.result("add", convolved, bias)


def _is_constant(instruction: Instruction) -> bool:
    if instruction.opcode == "broadcast":
        instruction = instruction.operands[0]
    return instruction.opcode == "constant"


def _from_input(match: Match) -> Instruction | None:
    """From the larger operand to the smaller one."""
    left, right = match.A.array, match.B.array
    if left.dtype is not right.dtype or right.elements >= left.elements:
        return None
    literal = splat_literal(match.C)
    if literal is None:
        return None
    product = match.make("multiply", match.B, match.splat_of(right, literal), shape=right)
    return match.result("convolution", match.A, product, **match.root.attributes)


FACTORS = (
    Rule(
        "convolution(A, B) * C => convolution(A, B * C)",
        CONVOLUTION * C,
        _on_operand,
        when=_may_move,
    ),
    Rule(
        "(convolution(A, B) + D) * C => convolution(A, B * C) + D * C",
        (CONVOLUTION + D).one_use * C,
        _with_bias,
        when=_may_fold,
    ),
    Rule(
        "convolution(A * C, B) => convolution(A, B * C)",
        op("convolution", (A * C).one_use, B),
        _from_input,
        when=_may_move,
    ),
)


_NOTHING = PaddingDim(0, 0, 0)


def _sums_nothing(match: Match) -> Instruction | None:
    root = match.root
    if any(not operand.is_array for operand in root.operands):
        # A sparse kernel is a tuple.
        return None
    if all(operand.array.elements for operand in root.operands[:2]) or not root.array.elements:
        return None
    return match.splat(root.array, 0)


def _zeros(match: Match, number: int, plain: Dims) -> tuple[PaddingDim, ...] | None:
    """The padding of an operand with zeros, which ``plain`` dimensions have none of."""
    paddings: tuple[PaddingDim, ...] = match.root.operands[number].attributes["padding"]
    zero = scalar_value(match.C)
    if zero is None or complex(zero) or not _exact(match):
        return None
    return None if any(paddings[dim] != _NOTHING for dim in plain) else paddings


def _of_padded_input(match: Match) -> Instruction | None:
    """Zeros around and between the elements are the window's own padding."""
    root, dims = match.root, conv_dims(match.root)
    paddings = _zeros(match, 0, (dims.input_batch, dims.input_feature))
    if paddings is None:
        return None
    window = padded_window(
        match,
        root.window.dims,
        [paddings[dim] for dim in dims.input_spatial],
    )
    if window is None:
        return None
    attributes = {**root.attributes, "window": window}
    return match.result("convolution", match.A, *root.operands[1:], **attributes)


def _of_dilated_kernel(match: Match) -> Instruction | None:
    """Zeros between weights are the window's dilation."""
    root, dims = match.root, conv_dims(match.root)
    paddings = _zeros(match, 1, (dims.kernel_input_feature, dims.kernel_output_feature))
    if paddings is None:
        return None
    window: list[WindowDim] = []
    pairs = zip(root.window.dims, dims.kernel_spatial, strict=True)
    for entry, dim in pairs:
        padding = paddings[dim]
        if padding.low or padding.high or (padding.interior and entry.window_dilation != 1):
            return None
        window.append(
            replace(
                entry,
                size=match.B.array.dims[dim],
                window_dilation=entry.window_dilation * (padding.interior + 1),
            )
        )
    attributes = {**root.attributes, "window": Window(tuple(window))}
    return match.result("convolution", root.operands[0], match.B, *root.operands[2:], **attributes)


def _exact(match: Match) -> bool:
    """Zeros in a sum change neither integers nor the sum of real numbers.

    A zero times an infinite or NaN weight is NaN, though, where padding takes no part; and an executor may
    add floats in another order when there are fewer of them.
    """
    if match.fast_math or match.array.dtype.kind in INTEGER:
        return True
    match.refuse("floats may be added in another order, and infinite ones would meet zeros")
    return False


def _of_single_places(match: Match) -> Instruction | None:
    """A kernel of one place: a product of matrices, whose sums may be made in another order."""
    root, dims = match.root, conv_dims(match.root)
    exact = root.array.dtype.kind in INTEGER
    if any(entry != WindowDim(1) for entry in root.window.dims):
        return None
    if len(root.operands) != 2 or not root.array.elements:
        return None
    groups = (root.attributes.get(f"{kind}_group_count", 1) for kind in ("feature", "batch"))
    if any(count != 1 for count in groups) or "sparsity_config" in root.attributes:
        return None
    if not exact and not match.fast_math:
        return match.refuse("a dot may add floats in another order")
    features = sorted((dims.kernel_input_feature, dims.kernel_output_feature))
    shape = resized(match.B.array, tuple(match.B.array.dims[dim] for dim in features))
    kernel = match.make("reshape", match.B, shape=shape)
    attributes = {
        "lhs_contracting_dims": (dims.input_feature,),
        "rhs_contracting_dims": (features.index(dims.kernel_input_feature),),
    }
    if "operand_precision" in root.attributes:
        attributes["operand_precision"] = root.attributes["operand_precision"]
    # The dot's result: the input's dimensions but its features, then the output's features.
    kept = [dim for dim in range(match.A.array.rank) if dim != dims.input_feature]
    place = dict(zip(dims.input_spatial, dims.output_spatial, strict=True))
    place[dims.input_batch] = dims.output_batch
    target = [place[dim] for dim in kept] + [dims.output_feature]
    sizes = tuple(root.array.dims[dim] for dim in target)
    product = match.make("dot", match.A, kernel, shape=resized(root.array, sizes), **attributes)
    order = tuple(target.index(dim) for dim in range(len(target)))
    if order == tuple(range(len(order))):
        return product
    return match.result("transpose", product, dimensions=order)


RULES = (
    Rule("convolution(A, B) over nothing => 0", op("convolution"), _sums_nothing),
    Rule(
        "convolution(pad(A, 0), B) => convolution(A, B)",
        op("convolution", op("pad", A, PADDING), B),
        _of_padded_input,
    ),
    Rule(
        "convolution(A, pad(B, 0)) => convolution(A, B) with a dilated window",
        op("convolution", A, op("pad", B, PADDING)),
        _of_dilated_kernel,
    ),
    Rule(
        "convolution(A, B) of single places => dot(A, B)",
        op("convolution", A, B),
        _of_single_places,
    ),
)
