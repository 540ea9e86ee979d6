"""Conversion between the caller's arrays and the interpreter's values: inputs checked, results flattened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hloopt.errors import EvaluationError
from hloopt.interpret.context import Context, Value, array_of, token
from hloopt.ir import Computation
from hloopt.types import Array, ArrayShape, DType, Shape, TupleShape, leaves

__all__ = ["array_leaves", "flatten_results", "from_storage", "parameter_values"]


def parameter_values(entry: Computation, inputs: Sequence[Array], context: Context) -> list[Value]:
    """The values of the entry's parameters.

    ``inputs`` has one array for every array of the parameters, in order; elements of tuples stand
    in its place, tokens have none.  An element type that NumPy lacks may also come as its storage
    view: an integer array of the same item size (bf16 as uint16, f8 as uint8, s4 as uint8 or int8
    with one element a byte).

    Raises ``EvaluationError`` when number, dimensions or element types do not fit.
    """
    wanted = [
        shape
        for parameter in entry.parameters
        for shape in leaves(parameter.shape)
        if isinstance(shape, ArrayShape) and shape.dtype.is_array
    ]
    if len(inputs) != len(wanted):
        raise EvaluationError(
            f"computation {entry.name} has {len(wanted)} parameter array{'s' if len(wanted) != 1 else ''}, "
            f"but {len(inputs)} input{'s were' if len(inputs) != 1 else ' was'} given"
        )
    remaining = iter(inputs)
    return [
        _value(parameter.shape, remaining, f"parameter {number} ({parameter.name})", context)
        for number, parameter in enumerate(entry.parameters)
    ]


def _value(shape: Shape, inputs: Iterator[Array], what: str, context: Context) -> Value:
    if isinstance(shape, TupleShape):
        return tuple(_value(element, inputs, what, context) for element in shape.elements)
    if not isinstance(shape, ArrayShape):
        raise EvaluationError(f"{what} has shape {shape}, which cannot be given as an input")
    if not shape.dtype.is_array:
        return token()
    array = np.asarray(next(inputs))
    if not shape.holds(array.shape):
        raise EvaluationError(
            f"{what} has dimensions {shape.sizes_text}, but the input has {list(array.shape)}"
        )
    return context.round(from_storage(array, shape.dtype, what), shape.dtype)


def from_storage(array: Array, dtype: DType, what: str) -> Array:
    """An array of ``dtype`` from its storage type or a view of that (see ``parameter_values``).

    Raises ``EvaluationError``, which begins with ``what``, where it is neither.
    """
    storage = dtype.numpy
    if array.dtype == storage:
        return array
    foreign = dtype.is_narrow_float or (dtype.is_integer and dtype.bits < 8)
    is_view = foreign and array.dtype.itemsize == storage.itemsize
    if is_view and array.dtype.kind == "V":
        # What NumPy writes to a file when it does not know the type.
        return array.view(storage)
    if is_view and array.dtype.kind == "u" and not dtype.is_integer:
        return array.view(storage)
    if is_view and array.dtype.kind in "ui" and dtype.is_integer:
        # One element a byte: a sign-extended s4 has the bits of an int8.
        signed = array.view(np.int8) if dtype.kind == "signed" else array.view(np.uint8)
        bound = 1 << dtype.bits
        low = -(bound >> 1) if dtype.kind == "signed" else 0
        if ((signed < low) | (signed >= low + bound)).any():
            raise EvaluationError(f"{what} is {dtype.name}, but the input has values outside of it")
        return signed.astype(storage)
    raise EvaluationError(f"{what} is {dtype.name}, but the input is {array.dtype}")


def flatten_results(value: Value, shape: Shape, context: Context) -> list[Array]:
    """The arrays of a result, depth first, tokens left out, rounded to their storage types."""
    return [
        np.array(context.narrow(array, kind), order="C")
        for array, kind in array_leaves(value, shape)
    ]


def array_leaves(value: Value, shape: Shape) -> Iterator[tuple[Array, DType]]:
    """The arrays of a value and their element types, depth first, tokens left out."""
    if isinstance(shape, TupleShape):
        assert isinstance(value, tuple)
        for part, element in zip(value, shape.elements, strict=True):
            yield from array_leaves(part, element)
    elif not isinstance(shape, ArrayShape):
        yield array_of(value), shape.element.dtype
    elif shape.dtype.is_array:
        yield array_of(value), shape.dtype
