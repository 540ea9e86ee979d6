"""Checks of the scalar computations that reduce, scatter, map and sort call."""

from __future__ import annotations

from collections.abc import Sequence

from hloopt.ops.opdef import InferArgs, Signature
from hloopt.ops.shapes import error, signature
from hloopt.types import ArrayShape, DType, Shape, TupleShape

__all__ = ["check_combiner", "check_parameters", "check_predicate", "scalar_results"]


def check_parameters(
    args: InferArgs, name: str, called: Signature, expected: Sequence[DType]
) -> None:
    """The computation takes exactly these scalars."""
    found = called.parameters
    if len(found) != len(expected):
        raise error(args, f"{name}= takes {len(found)} parameters, {len(expected)} are passed")
    for index, (shape, element) in enumerate(zip(found, expected, strict=True)):
        if not _is_scalar(shape, element):
            raise error(
                args, f"{name}=: parameter {index} has shape {shape}, {element.name}[] is passed"
            )


def scalar_results(args: InferArgs, name: str, called: Signature) -> tuple[DType, ...]:
    """The element types of a result that is a scalar or a tuple of scalars."""
    shape = called.result
    parts = shape.elements if isinstance(shape, TupleShape) else (shape,)
    types = []
    for part in parts:
        if not isinstance(part, ArrayShape) or part.dims or not part.dtype.is_array:
            raise error(args, f"{name}= returns {shape}, not scalars")
        types.append(part.dtype)
    return tuple(types)


def check_combiner(
    args: InferArgs, name: str, accumulators: Sequence[ArrayShape], values: Sequence[ArrayShape]
) -> Signature:
    """Accumulators and values go in as scalars, new accumulators come out.

    Reductions may accumulate in a wider type than that of the values: the computation's own types
    decide, and they must be those of ``accumulators``.
    """
    called = signature(args, name)
    expected = [shape.dtype for shape in (*accumulators, *values)]
    check_parameters(args, name, called, expected)
    results = scalar_results(args, name, called)
    if results != tuple(shape.dtype for shape in accumulators):
        wanted = ", ".join(f"{shape.dtype.name}[]" for shape in accumulators)
        raise error(args, f"{name}= returns {called.result}, the accumulators are {wanted}")
    return called


def check_predicate(args: InferArgs, name: str, operands: Sequence[DType]) -> None:
    """The computation takes these scalars and returns ``pred[]``."""
    called = signature(args, name)
    check_parameters(args, name, called, operands)
    result = called.result
    if not isinstance(result, ArrayShape) or not result.dtype.is_pred or result.dims:
        raise error(args, f"{name}= returns {result}, not pred[]")


def _is_scalar(shape: Shape, element: DType) -> bool:
    return isinstance(shape, ArrayShape) and not shape.dims and shape.dtype is element
