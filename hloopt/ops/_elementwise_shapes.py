"""Shapes of elementwise ops: operands agree in dimensions and element type; the row says which."""

from __future__ import annotations

from hloopt.ops.opdef import Infer, InferArgs
from hloopt.ops.shapes import (
    PRED,
    array_operand,
    array_operands,
    attribute,
    declared_array,
    dims_agree,
    error,
    like,
    merged,
    require_same,
    require_same_dtype,
    result,
)
from hloopt.types import ArrayShape, DType, Shape, dtype

__all__ = [
    "infer_clamp",
    "infer_compare",
    "infer_complex",
    "infer_convert",
    "infer_copy",
    "infer_reduce_precision",
    "infer_select",
    "infer_stochastic_convert",
    "same_shape",
]

_PARTS = {"c64": dtype("f32"), "c128": dtype("f64")}
_WHOLES = {"f32": dtype("c64"), "f64": dtype("c128")}


def _common(args: InferArgs, shapes: list[ArrayShape]) -> ArrayShape:
    """The common shape, dynamic where any operand is."""
    require_same(args, shapes)
    first = shapes[0]
    if not any(shape.dynamic for shape in shapes):
        return first
    sizes, marks = merged(shapes)
    return ArrayShape(first.dtype, sizes, first.layout, marks if any(marks) else ())


def _require_kind(args: InferArgs, shape: ArrayShape, kinds: tuple[str, ...]) -> None:
    if shape.dtype.kind not in kinds:
        raise error(
            args,
            f"operand 0 has element type {shape.dtype.name}, the op takes {' or '.join(kinds)}",
        )


def _typed(args: InferArgs, shape: ArrayShape, element: DType) -> Shape:
    """The shape with another element type; the declared one where that fits."""
    if shape.dtype is not element:
        shape = shape.with_dtype(element)
    return like(args, shape)


def same_shape(*kinds: str, result: str = "") -> Infer:
    """Inference of an op whose operands all have one shape, of the given kinds of element type.

    The result has that shape too; ``result`` is ``pred``, or ``real`` for the parts of a complex type.
    The size of a complex number is real as well.
    """

    def infer(args: InferArgs) -> Shape:
        shapes = array_operands(args)
        require_same_dtype(args, shapes)
        _require_kind(args, shapes[0], kinds)
        common = _common(args, shapes)
        element = common.dtype
        if result == "pred":
            element = PRED
        elif result == "real" or args.opcode == "abs":
            element = _PARTS.get(element.name, element)
        return _typed(args, common, element)

    return infer


def infer_compare(args: InferArgs) -> Shape:
    """A pred of the operands' dimensions; complex numbers have no order."""
    shapes = array_operands(args)
    require_same_dtype(args, shapes)
    common = _common(args, shapes)
    element = common.dtype
    direction = attribute(args, "direction")
    if element.is_complex and direction not in ("EQ", "NE"):
        raise error(args, f"direction={direction} does not apply to {element.name}")
    order = args.attributes.get("type")
    kinds = {
        "FLOAT": ("float", "complex"),
        "TOTALORDER": ("float",),
        "SIGNED": ("signed",),
        "UNSIGNED": ("unsigned", "pred"),
    }
    if order in kinds and element.kind not in kinds[order]:
        raise error(args, f"type={order} does not apply to {element.name}")
    return _typed(args, common, PRED)


def infer_complex(args: InferArgs) -> Shape:
    """c64 of f32 parts, c128 of f64 parts."""
    shapes = array_operands(args)
    require_same_dtype(args, shapes)
    common = _common(args, shapes)
    whole = _WHOLES.get(common.dtype.name)
    if whole is None:
        raise error(args, f"the parts have element type {common.dtype.name}, not f32 or f64")
    return _typed(args, common, whole)


def infer_clamp(args: InferArgs) -> Shape:
    """The shape of the middle operand; the bounds may be scalars."""
    least, middle, greatest = array_operands(args)
    _require_kind(args, middle, ("pred", "signed", "unsigned", "float"))
    for name, bound in (("lower", least), ("upper", greatest)):
        if bound.dtype is not middle.dtype:
            raise error(
                args,
                f"the {name} bound has element type {bound.dtype.name}, the operand "
                f"{middle.dtype.name}; they must be equal",
            )
        if bound.rank and not dims_agree(bound.dims, middle.dims):
            raise error(args, f"the {name} bound has shape {bound}, neither a scalar nor {middle}")
    return like(args, middle)


def infer_select(args: InferArgs) -> Shape:
    """The shape of the second and third operands; the first is pred of that shape or a scalar."""
    predicate, chosen, other = array_operands(args)
    if not predicate.dtype.is_pred:
        raise error(args, f"operand 0 has element type {predicate.dtype.name}, not pred")
    if predicate.rank and not dims_agree(predicate.dims, chosen.dims):
        raise error(
            args,
            f"the predicate has dimensions {list(predicate.dims)}, the values "
            f"{list(chosen.dims)}; they must be equal, or the predicate a scalar",
        )
    if chosen.dtype is not other.dtype or not dims_agree(chosen.dims, other.dims):
        raise error(args, f"the values have shapes {chosen} and {other}; they must be equal")
    common = _common(args, [chosen, other])
    if predicate.dynamic:
        _, marks = merged([predicate, common])
        common = ArrayShape(common.dtype, common.dims, common.layout, marks)
    return like(args, common)


def infer_convert(args: InferArgs) -> Shape:
    """The declared element type with the operand's dimensions."""
    source = array_operand(args, 0)
    element = declared_array(args).dtype
    if source.dtype.is_complex and not element.is_complex:
        raise error(
            args, f"{source.dtype.name} does not convert to {element.name}; take real or imag"
        )
    return _typed(args, source, element)


def infer_copy(args: InferArgs) -> Shape:
    """The operand's shape, whatever it is."""
    return like(args, args.operands[0])


def infer_reduce_precision(args: InferArgs) -> Shape:
    """The operand's shape."""
    source = array_operand(args, 0)
    _require_kind(args, source, ("float",))
    for name, least in (("exponent_bits", 1), ("mantissa_bits", 0)):
        bits = attribute(args, name)
        if bits < least:
            raise error(args, f"{name}={bits} must be at least {least}")
    return like(args, source)


def infer_stochastic_convert(args: InferArgs) -> Shape:
    """The declared integer type; the random operand is unsigned and as wide as the operand."""
    source, random = array_operand(args, 0), array_operand(args, 1)
    element = declared_array(args).dtype
    require_same(args, (source, random))
    _require_kind(args, source, ("float",))
    if random.dtype.kind != "unsigned" or random.dtype.bits != source.dtype.bits:
        raise error(
            args,
            f"the random operand has element type {random.dtype.name}, not unsigned with "
            f"{source.dtype.bits} bits",
        )
    if element.kind != "signed":
        raise error(args, f"the result has element type {element.name}, not a signed integer")
    return result(args, element, source.dims, source.dynamic)
