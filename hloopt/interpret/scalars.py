"""Regions as Python functions of NumPy's scalars.

A fold that has to take one step after the other, in one lane or few, pays for whole arrays of one element
at every step.  Scalars of NumPy cost a tenth of that and compute the same bits.  The function is written out
as text made of numbers alone (``v3 = v1 * v2``): no text of the module ever reaches it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from hloopt.interpret.context import Context, array_of
from hloopt.interpret.elementwise import bound
from hloopt.ir import Computation, Instruction
from hloopt.ops.traits import BITWISE, EXTREMA, MODULAR, op_table
from hloopt.types import Array, ArrayShape, DType, leaves

__all__ = ["FEW_LANES", "OPERATORS", "ScalarStep", "folded", "running", "scalar_function"]

ScalarStep: TypeAlias = "Callable[..., tuple[Any, ...]]"
"""Scalars in the order of a region's parameters, to the scalars of its result."""

FEW_LANES = 16
"""Up to so many lanes scalars are quicker than arrays."""


def folded(columns: Sequence[Array], inits: Sequence[Array], step: ScalarStep) -> list[Array]:
    """Columns [n, ...] folded along their first dimension, one lane after the other."""
    dims = columns[0].shape[1:]
    results = [np.empty(dims, init.dtype) for init in inits]
    for lane in np.ndindex(*dims):
        state = tuple(np.broadcast_to(init, dims)[lane] for init in inits)
        for new in _elements(columns, lane):
            state = step(*state, *new)
        for result, number in zip(results, state, strict=True):
            result[lane] = number
    return results


def running(columns: Sequence[Array], inits: Sequence[Array], step: ScalarStep) -> list[Array]:
    """As ``folded``, but with what the fold is before the first element and after each: [n + 1, ...]."""
    count, *dims = columns[0].shape
    results = [np.empty((count + 1, *dims), init.dtype) for init in inits]
    for lane in np.ndindex(*dims):
        state = tuple(np.broadcast_to(init, dims)[lane] for init in inits)
        states = [state]
        for new in _elements(columns, lane):
            state = step(*state, *new)
            states.append(state)
        for result, numbers in zip(results, zip(*states, strict=True), strict=True):
            result[(slice(None), *lane)] = np.array(numbers, result.dtype)
    return results


def _elements(columns: Sequence[Array], lane: tuple[int, ...]) -> Iterator[tuple[Any, ...]]:
    place: Any = (slice(None), *lane)
    return zip(*(column[place] for column in columns), strict=True)


_BINARY = op_table(
    {"add": "+", "and": "&", "multiply": "*", "or": "|", "subtract": "-", "xor": "^"},
    MODULAR - {"negate", "not"},
)
OPERATORS = {"EQ": "==", "GE": ">=", "GT": ">", "LE": "<=", "LT": "<", "NE": "!="}
"""Python\'s operator of each direction of a comparison."""
# Their scalars compute in float32 and round once, as the op on arrays does.
_FLOATS = frozenset({"bf16", "f16", "f32", "f64"})


def scalar_function(computation: Computation, context: Context) -> ScalarStep | None:
    """The region as a function; None where it is more than elementwise ops on scalars."""
    key = ("scalar_function", computation)
    if key not in context.memory:
        context.memory[key] = _written(computation, context)
    function: ScalarStep | None = context.memory[key]
    return function


def _written(computation: Computation, context: Context) -> ScalarStep | None:
    names: dict[Instruction, str] = {
        parameter: f"v{number}" for number, parameter in enumerate(computation.parameters)
    }
    scope: dict[str, Any] = {"maximum": _maximum, "minimum": _minimum}
    lines: list[str] = []
    root = computation.root
    for instruction in computation:
        if instruction.opcode == "parameter":
            if not _is_scalar(instruction):
                return None
            continue
        if instruction is root and instruction.opcode == "tuple":
            continue
        text = _expression(instruction, names, scope, context)
        if text is None:
            return None
        names[instruction] = f"v{len(names)}"
        lines.append(f"    {names[instruction]} = {text}")
    results = root.operands if root.opcode == "tuple" else (root,)
    returned = "".join(f"{names[result]}, " for result in results)
    arguments = ", ".join(f"v{number}" for number in range(len(computation.parameters)))
    source = "\n".join([f"def step({arguments}):", *lines, f"    return ({returned})"])
    exec(compile(source, "<region>", "exec"), scope)  # noqa: S102 - made of numbers, see above
    step: ScalarStep = scope["step"]
    return step


def _is_scalar(instruction: Instruction) -> bool:
    parts = list(leaves(instruction.shape))
    return len(parts) == 1 and instruction.shape is parts[0] and _is_element(parts[0])


def _is_element(shape: object) -> bool:
    return isinstance(shape, ArrayShape) and not shape.dims and shape.dtype.is_array


def _expression(
    instruction: Instruction,
    names: Mapping[Instruction, str],
    scope: dict[str, Any],
    context: Context,
) -> str | None:
    """The right side of a line; what it needs is put into ``scope``."""
    if not _is_scalar(instruction):
        return None
    operands = [names[operand] for operand in instruction.operands]
    opcode, kind = instruction.opcode, instruction.array.dtype
    if opcode == "constant":
        literal = instruction.literal
        assert literal is not None
        assert literal.array is not None
        return _kept(context.round(literal.array, kind)[()], scope)
    if opcode == "copy" and instruction.operands[0].array.dtype is kind:
        return operands[0]
    if not instruction.op.is_elementwise or instruction.op.numpy is None:
        return None
    text = _written_out(instruction, operands, scope, context)
    if text is not None:
        return text
    run = bound(instruction, context)

    def general(*scalars: Any) -> Any:
        arrays = tuple(map(np.asarray, scalars))
        return array_of(run(instruction, arrays, context))[()]

    return f"{_kept(general, scope)}({', '.join(operands)})"


def _kept(value: Any, scope: dict[str, Any]) -> str:
    name = f"k{len(scope)}"
    scope[name] = value
    return name


def _written_out(
    instruction: Instruction, operands: Sequence[str], scope: dict[str, Any], context: Context
) -> str | None:
    """Python's operators, where those of NumPy's scalars are the op."""
    opcode = instruction.opcode
    kind = instruction.operands[-1].array.dtype
    number = kind.name in _FLOATS or (kind.is_integer and kind.bits >= 8)
    logical = kind.is_pred or (kind.is_integer and kind.bits >= 8)
    if opcode in BITWISE and logical:
        return f"~{operands[0]}" if opcode == "not" else f" {_BINARY[opcode]} ".join(operands)
    if opcode in _BINARY and number and opcode not in BITWISE:
        return f" {_BINARY[opcode]} ".join(operands)
    if opcode == "select":
        return f"{operands[1]} if {operands[0]} else {operands[2]}"
    if opcode == "compare" and (number or kind.is_pred):
        total = instruction.attributes.get("type") == "TOTALORDER" and kind.is_float
        direction = OPERATORS[instruction.attributes["direction"]]
        return None if total else f"{operands[0]} {direction} {operands[1]}"
    if opcode in EXTREMA and number:
        return f"{opcode}({', '.join(operands)})"
    if opcode == "negate" and kind.name in _FLOATS:
        return f"-{operands[0]}"
    if opcode == "convert" and _converts(kind, instruction.array.dtype):
        target = _kept(context.carrier(instruction.array.dtype), scope)
        return f"{operands[0]}.astype({target})"
    return None


def _converts(source: DType, target: DType) -> bool:
    """Whether ``astype`` is the op: integers wrap, and floats are rounded once."""
    if source.is_integer and source.bits >= 8:
        return (target.is_integer and target.bits >= 8) or target.name in ("f32", "f64")
    narrow = ("bf16", "f16")
    return (source.name in narrow and target.name in ("f32", "f64")) or (
        source.name == "f32" and target.name in (*narrow, "f64")
    )


def _maximum(x: Any, y: Any) -> Any:
    if x > y or x != x:  # noqa: PLR0124 - a NaN
        return x
    return x if x == y and (x != 0 or math.copysign(1, x) > 0) else y


def _minimum(x: Any, y: Any) -> Any:
    if x < y or x != x:  # noqa: PLR0124 - a NaN
        return x
    return x if x == y and (x != 0 or math.copysign(1, x) < 0) else y
