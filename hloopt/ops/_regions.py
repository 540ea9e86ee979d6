"""Checks of the scalar computations that reduce, scatter, map and sort call."""

from __future__ import annotations

from collections.abc import Sequence

from hloopt.ops.opdef import InferArgs, Signature
from hloopt.ops.shapes import error, signature
from hloopt.types import ArrayShape, DType, Shape, parts_of

__all__ = ["check_combiner", "check_parameters", "check_predicate", "scalar_results"]


def check_parameters(
    args: InferArgs,
    name: str,
    called: Signature,
    expected: Sequence[DType],
    *,
    any_precision: bool = False,
) -> None:
    """The computation takes these scalars; ``any_precision`` lets float types stand for each other."""
    found = called.parameters
    if len(found) != len(expected):
        raise error(args, f"{name}= takes {len(found)} parameters, {len(expected)} are passed")
    for index, (shape, element) in enumerate(zip(found, expected, strict=True)):
        if not _is_scalar(shape, element, any_precision):
            raise error(
                args, f"{name}=: parameter {index} has shape {shape}, {element.name}[] is passed"
            )


def scalar_results(args: InferArgs, name: str, called: Signature) -> tuple[DType, ...]:
    """The element types of a result that is a scalar or a tuple of scalars."""
    shape = called.result
    parts = parts_of(shape)
    types = []
    for part in parts:
        if not isinstance(part, ArrayShape) or part.dims or not part.dtype.is_array:
            raise error(args, f"{name}= returns {shape}, not scalars")
        types.append(part.dtype)
    return tuple(types)


def check_combiner(
    args: InferArgs,
    name: str,
    accumulators: Sequence[ArrayShape],
    values: Sequence[ArrayShape],
    *,
    any_precision: bool = False,
) -> Signature:
    """Accumulators and values go in as scalars, new accumulators come out.

    An accumulator and its values have the same type, or two float types.  With ``any_precision`` the
    computation may use other float types, to which its operands are converted.
    """
    called = signature(args, name)
    expected = [shape.dtype for shape in (*accumulators, *values)]
    check_parameters(args, name, called, expected, any_precision=any_precision)
    for index, (into, value) in enumerate(zip(accumulators, values, strict=True)):
        if not _same_type(into.dtype, value.dtype, any_precision=True):
            raise error(
                args,
                f"{name}= combines {into.dtype.name}[] with {value.dtype.name}[] (value {index}); "
                "the types must be equal, or both float",
            )
    results = scalar_results(args, name, called)
    taken = called.parameters[: len(accumulators)]
    if results != tuple(shape.dtype for shape in taken if isinstance(shape, ArrayShape)):
        wanted = ", ".join(map(str, taken))
        raise error(args, f"{name}= returns {called.result}, the accumulators are {wanted}")
    return called


def check_predicate(args: InferArgs, name: str, operands: Sequence[DType]) -> None:
    """The computation takes these scalars, floats in any precision, and returns ``pred[]``."""
    called = signature(args, name)
    check_parameters(args, name, called, operands, any_precision=True)
    result = called.result
    if not isinstance(result, ArrayShape) or not result.dtype.is_pred or result.dims:
        raise error(args, f"{name}= returns {result}, not pred[]")


def _is_scalar(shape: Shape, element: DType, any_precision: bool) -> bool:
    return (
        isinstance(shape, ArrayShape)
        and not shape.dims
        and _same_type(shape.dtype, element, any_precision=any_precision)
    )


def _same_type(left: DType, right: DType, *, any_precision: bool) -> bool:
    return left is right or (any_precision and left.is_float and right.is_float)
