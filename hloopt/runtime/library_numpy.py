"""One instruction on the host: library calls of the emulator, and what the user allows to run there.

The interpreter evaluates it, so that it rounds and refuses as the interpreter does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hloopt.interpret import EVALUATORS, Value
from hloopt.interpret.interpreter import Interpreter
from hloopt.interpret.rounding import moved
from hloopt.interpret.values import flatten_results, from_storage
from hloopt.ir import Instruction
from hloopt.types import Array, ArrayShape, Shape, TupleShape

__all__ = ["call"]


def call(
    instruction: Instruction, operands: Sequence[Array], context: Interpreter | None = None
) -> list[Array]:
    """The leaves of an instruction's result from those of its operands; tokens have no array.

    Arrays are logical, row-major, of their element types' storage types or views of these
    (``interpret.values.parameter_values``).  ``context`` holds what outlives one instruction of a run: the
    host's queues, states of generators.  Raises ``UnsupportedError`` for an instruction without evaluation
    and whatever its evaluation raises; ``ValueError`` for another number of arrays.
    """
    module = instruction.computation.module if instruction.computation is not None else None
    if module is None:
        raise ValueError(f"{instruction.name} is in no module")
    context = context or Interpreter(module, EVALUATORS)
    evaluate = EVALUATORS.get(instruction.opcode)
    if evaluate is None:
        raise context.unsupported(instruction, f"{instruction.opcode} has no evaluation")
    if context.rounding is not None:
        evaluate = moved(instruction, evaluate, context.rounding)
    arrays = iter(operands)
    with np.errstate(all="ignore"):
        values = tuple(
            _value(operand.shape, arrays, operand.name) for operand in instruction.operands
        )
        if next(arrays, None) is not None:
            raise ValueError(f"{instruction.name} has fewer than {len(operands)} operands")
        result = evaluate(instruction, values, context)
        return flatten_results(result, instruction.shape, context)


def _value(shape: Shape, arrays: Iterator[Array], name: str) -> Value:
    if isinstance(shape, TupleShape):
        return tuple(_value(element, arrays, name) for element in shape.elements)
    held = shape if isinstance(shape, ArrayShape) else shape.element
    if not held.dtype.is_array:
        return np.zeros((), np.bool_)
    array = next(arrays, None)
    if array is None:
        raise ValueError(f"no array for {name}")
    return from_storage(array, held.dtype, name)
