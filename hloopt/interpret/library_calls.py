"""What calls of NVIDIA's libraries share: options in JSON, and results beside scratch space."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from hloopt.interpret.context import Context, Evaluator, Value, array_of, leaf_arrays
from hloopt.interpret.failures import failure
from hloopt.interpret.linear import accumulated, sum_type
from hloopt.ir import Instruction
from hloopt.types import Array, ArrayShape, DotDims, DType, Shape, TupleShape, leaves, parts_of

__all__ = [
    "LibraryOptions",
    "config",
    "dot_dims",
    "epilogue",
    "guarded",
    "is_arrays",
    "operands_of",
    "result_shape",
    "saturated",
    "with_scratch",
]

LibraryOptions: TypeAlias = Mapping[str, Any]


def config(instruction: Instruction, part: str) -> LibraryOptions:
    """The named part of ``backend_config``; dumps of before 2023 have its fields at the top.

    Raises ``ValueError`` where it is not a JSON object.
    """
    try:
        found = json.loads(str(instruction.attributes.get("backend_config", "{}")))
        if isinstance(found, str):  # JSON in a string
            found = json.loads(found)
    except RecursionError as error:
        raise ValueError(f"{part} is nested too deeply") from error
    found = found.get(part, found) if isinstance(found, dict) else found
    if not isinstance(found, dict):
        raise ValueError(f"{part} is not a JSON object")  # noqa: TRY004 - wrong text, not a wrong type
    return found


def epilogue(settings: LibraryOptions) -> tuple[bool, str, bool]:
    """Whether a vector is added, the activation or nothing, and whether its operand is a result too."""
    words = str(settings.get("epilogue", "DEFAULT")).split("_")
    names = [word for word in words if word not in {"DEFAULT", "BIAS", "AUX"}]
    return "BIAS" in words, "_".join(names), "AUX" in words


def guarded(evaluate: Evaluator) -> Evaluator:
    """An evaluator of a call for which nothing but the call itself says what is right.

    HLO has no rule for the shapes of custom calls, so that no verifier has checked them, nor the numbers
    of ``backend_config``: where these contradict each other, or the result has other sizes than the call
    says, ``EvaluationError`` is raised.
    """

    def run(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
        try:
            result = evaluate(instruction, values, context)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            message = (
                f"operands and options of {instruction.custom_call_target} do not fit: {error}"
            )
            raise failure(instruction, message) from error
        for array, shape in zip(leaf_arrays(result), leaves(instruction.shape), strict=True):
            if isinstance(shape, ArrayShape) and not shape.holds(array.shape):
                given = f"{instruction.custom_call_target} of these operands"
                raise failure(instruction, f"{given} gives {list(array.shape)}, not {shape}")
        return result

    return run


def operands_of(instruction: Instruction, values: Sequence[Value], context: Context) -> list[Array]:
    """All operands in the type that a product of the first two is made in."""
    types = [operand.array.dtype for operand in instruction.operands]
    kind = sum_type(types[:2], result_shape(instruction).dtype)
    return [
        accumulated(array_of(value), source, kind, context)
        for value, source in zip(values, types, strict=True)
    ]


def result_shape(instruction: Instruction) -> ArrayShape:
    """The shape of the product."""
    shape = instruction.shape
    first = shape.elements[0] if isinstance(shape, TupleShape) else shape
    assert isinstance(first, ArrayShape), "checked before anything runs"
    return first


def with_scratch(instruction: Instruction, results: Sequence[Array], context: Context) -> Value:
    """Results rounded to their types, and zeros for the rest of the tuple."""
    shape = instruction.shape
    if not isinstance(shape, TupleShape):
        return context.round(results[0], result_shape(instruction).dtype)
    parts: list[Value] = []
    for number, element in enumerate(shape.elements):
        assert isinstance(element, ArrayShape), "checked before anything runs"
        if number < len(results):
            parts.append(context.round(results[number], element.dtype))
        else:
            parts.append(np.zeros(element.dims, element.dtype.numpy))
    return tuple(parts)


def is_arrays(shape: Shape) -> bool:
    """Whether this is an array or a tuple of arrays."""
    parts = parts_of(shape)
    return bool(parts) and all(isinstance(part, ArrayShape) for part in parts)


def dot_dims(numbers: Mapping[str, Any]) -> DotDims:
    """Dimension numbers of a dot, as XLA's protocol buffer has them in JSON."""

    def dims(name: str) -> tuple[int, ...]:
        return tuple(int(axis) for axis in numbers.get(name, ()))

    return DotDims(
        dims("lhs_contracting_dimensions"),
        dims("rhs_contracting_dimensions"),
        dims("lhs_batch_dimensions"),
        dims("rhs_batch_dimensions"),
    )


def saturated(array: Array, dtype: DType) -> Array:
    """Clamped to the largest number of a type of 8 bits, as the libraries convert."""
    if not dtype.is_float or dtype.bits > 8:
        return array
    most = float(ml_dtypes.finfo(dtype.numpy).max)  # type: ignore[no-untyped-call]
    return np.clip(array, -most, most)
