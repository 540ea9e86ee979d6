"""Tuples, tokens, and ops that pass a value on: they compute nothing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hloopt.interpret.context import Check, Context, Evaluator, Value, array_of, token
from hloopt.interpret.control import zeros
from hloopt.ir import Instruction
from hloopt.ops.traits import CONSTRAINTS, SIZES, TUPLES, op_table
from hloopt.types import TupleShape

__all__ = ["CHECKS", "EVALUATORS"]


def _tuple(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    return operands


def _get_tuple_element(
    instruction: Instruction, operands: tuple[Value, ...], context: Context
) -> Value:
    value = operands[0]
    assert isinstance(value, tuple)
    index: int = instruction.attributes["index"]
    return value[index]


def _first(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    return operands[0]


def _after_all(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    return token()


def _copy_start(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    """(destination, source, context words); the older form has the shape of the array."""
    shape = instruction.shape
    if not isinstance(shape, TupleShape):
        return operands[0]
    return (
        operands[0],
        operands[0],
        *(zeros(word, context) for word in shape.elements[2:]),
    )


def _copy_done(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    started = operands[0]
    return started[0] if isinstance(started, tuple) else started


def _get_dimension_size(
    instruction: Instruction, operands: tuple[Value, ...], context: Context
) -> Value:
    return np.array(array_of(operands[0]).shape[_dimension(instruction)], np.int32)


def _dimension(instruction: Instruction) -> int:
    dimension: int = instruction.attributes["dimensions"][0]
    return dimension


def _check_set_dimension_size(instruction: Instruction) -> str | None:
    """A static dimension can only be set to its full size."""
    dimension, bound = _dimension(instruction), instruction.array.dims[_dimension(instruction)]
    if instruction.array.dynamic and instruction.array.dynamic[dimension]:
        return None
    literal = instruction.operands[1].literal
    if literal is not None and literal.array is not None and int(literal.array) == bound:
        return None
    return f"dimension {dimension} of {instruction.shape} may be set to a size other than {bound}"


EVALUATORS: Mapping[str, Evaluator] = op_table(
    {
        "add-dependency": _first,
        "after-all": _after_all,
        "copy-done": _copy_done,
        "copy-start": _copy_start,
        "domain": _first,
        "get-dimension-size": _get_dimension_size,
        "get-tuple-element": _get_tuple_element,
        "opt-barrier": _first,
        "set-dimension-size": _first,
        "tuple": _tuple,
    },
    TUPLES | CONSTRAINTS | SIZES - {"dynamic-reshape"} | {"copy-done", "copy-start"},
)

CHECKS: dict[str, Check] = {"set-dimension-size": _check_set_dimension_size}
