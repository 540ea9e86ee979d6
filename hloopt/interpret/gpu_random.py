"""JAX's Threefry for GPUs: a custom call that is the block function itself.

Its operands are u32 arrays of one shape, (key 0, key 1, counter 0, counter 1), and its results the two words
of each block.  The older target of the same name without ``_ffi`` says in an opaque word how many blocks
there are, which the shapes say already.
"""

from __future__ import annotations

from hloopt.interpret.context import Check, Context, Evaluator, Value, arrays_of
from hloopt.interpret.random import threefry2x32
from hloopt.ir import Instruction
from hloopt.types import ArrayShape, TupleShape, compatible

__all__ = ["CHECKS", "EVALUATORS"]

_TARGETS = (
    "cu_threefry2x32",
    "cu_threefry2x32_ffi",
    "hip_threefry2x32",
    "hip_threefry2x32_ffi",
)


def _threefry(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    key0, key1, x0, x1 = arrays_of(operands)
    return threefry2x32((key0, key1), x0, x1)


def _check(instruction: Instruction) -> str | None:
    shapes = [operand.shape for operand in instruction.operands]
    target = instruction.custom_call_target
    first = shapes[0] if len(shapes) == 4 else None
    if not isinstance(first, ArrayShape) or first.dtype.name != "u32":
        given = ", ".join(map(str, shapes))
        return f"{target} of ({given}); it has four operands of type u32"
    other = next((shape for shape in shapes if not compatible(first, shape)), None)
    if other is not None:
        return f"{target} of {first} and {other}; its operands have one shape"
    if not compatible(TupleShape((first, first)), instruction.shape):
        return f"{target} with the result {instruction.shape}; it has two arrays of {first}"
    return None


EVALUATORS: dict[str, Evaluator] = dict.fromkeys(_TARGETS, _threefry)

CHECKS: dict[str, Check] = dict.fromkeys(_TARGETS, _check)
