"""Instructions as functions of arrays: what a step of the executor calls.

A lowering looks at an instruction once and returns a function of its operands' arrays; shapes, types and
attributes are settled by then.  Where NumPy's own function has exactly HLO's meaning for a type it is
used as it is; everything else goes through the function that defines the op in the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hloopt.interpret import EVALUATORS, Context
from hloopt.interpret.movement import broadcast
from hloopt.ir import Instruction
from hloopt.ops import ScalarArgs
from hloopt.types import ArrayShape, DType

__all__ = ["Lowered", "lower"]

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Lowered:
    """``function`` takes the operands' values and returns the result's.

    view     the result may share memory with operands
    ufunc    the function is a NumPy ufunc: a dead operand of the same type may be its ``out``
    """

    function: Function
    view: bool = False
    ufunc: bool = False


_FLOATS = frozenset({"f32", "f64"})
_COMPLEX = frozenset({"c64", "c128"})
_INTEGERS = frozenset({"s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64"})
_PRED = frozenset({"pred"})
_NUMBERS = _FLOATS | _INTEGERS

# Where NumPy and HLO agree bit for bit: opcode -> ufunc and the element types it holds for.
_UFUNCS: Mapping[str, tuple[np.ufunc, frozenset[str]]] = {
    "abs": (np.absolute, _FLOATS | frozenset({"s8", "s16", "s32", "s64"})),
    "add": (np.add, _NUMBERS | _COMPLEX),
    "and": (np.bitwise_and, _INTEGERS | _PRED),
    "ceil": (np.ceil, _FLOATS),
    "divide": (np.divide, _FLOATS),
    "floor": (np.floor, _FLOATS),
    "multiply": (np.multiply, _NUMBERS),
    "negate": (np.negative, _NUMBERS),
    "not": (np.invert, _INTEGERS | _PRED),
    "or": (np.bitwise_or, _INTEGERS | _PRED),
    "round-nearest-even": (np.rint, _FLOATS),
    "sqrt": (np.sqrt, _FLOATS),
    "subtract": (np.subtract, _NUMBERS | _COMPLEX),
    "xor": (np.bitwise_xor, _INTEGERS | _PRED),
}
_COMPARISONS: Mapping[str, np.ufunc] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def lower(instruction: Instruction, context: Context) -> Lowered:
    """The function of one instruction that is neither structure nor control flow."""
    special = _LOWERINGS.get(instruction.opcode)
    lowered = special(instruction, context) if special else None
    if lowered is None and instruction.op.numpy is not None:
        lowered = _elementwise(instruction, context)
    return lowered or _defined(instruction, context)


def _defined(instruction: Instruction, context: Context) -> Lowered:
    """Through the interpreter's evaluator; its result may be a view of any operand."""
    evaluate = EVALUATORS[instruction.opcode]
    return Lowered(lambda *values: evaluate(instruction, values, context), view=True)


def _elementwise(instruction: Instruction, context: Context) -> Lowered:
    result = instruction.array.dtype
    kinds = [operand.array.dtype for operand in instruction.operands]
    entry = _UFUNCS.get(instruction.opcode)
    if entry is not None and result.name in entry[1] and all(kind is result for kind in kinds):
        return Lowered(entry[0], ufunc=True)
    function = instruction.op.numpy
    assert function is not None
    args = ScalarArgs(kinds[-1], result, instruction.attributes)
    carrier = context.carrier(result)
    if all(context.carrier(kind) == kind.compute for kind in kinds):
        return Lowered(
            lambda *arrays: np.asarray(function(args, *arrays)).astype(carrier, copy=False),
            view=True,
        )
    types = [kind.compute for kind in kinds]

    def widened(*arrays: Any) -> Any:
        wide = [
            array.astype(compute, copy=False) for array, compute in zip(arrays, types, strict=True)
        ]
        return np.asarray(function(args, *wide)).astype(carrier, copy=False)

    return Lowered(widened, view=True)


def _compare(instruction: Instruction, context: Context) -> Lowered | None:
    kind = instruction.operands[0].array.dtype
    direction = instruction.attributes["direction"]
    order = instruction.attributes.get("type")
    if order == "TOTALORDER":
        return None
    if kind.name in _NUMBERS | _PRED and order in (None, "FLOAT", _order(kind)):
        return Lowered(_COMPARISONS[direction], ufunc=True)
    return None


def _order(kind: DType) -> str:
    return "SIGNED" if kind.kind == "signed" else "UNSIGNED"


def _select(instruction: Instruction, context: Context) -> Lowered | None:
    return Lowered(np.where)


def _convert(instruction: Instruction, context: Context) -> Lowered | None:
    source, target = instruction.operands[0].array.dtype, instruction.array.dtype
    carrier = context.carrier(target)
    if source is target:
        return Lowered(lambda x: x, view=True)
    plain = (
        (source.is_pred and target.name in _NUMBERS)
        or (source.name in _INTEGERS and target.name in _NUMBERS)
        or (source.name in _FLOATS and target.name in _FLOATS)
        or (source.is_narrow_float and target.name in _FLOATS)
    )
    return Lowered(lambda x: x.astype(carrier)) if plain else None


def _broadcast(instruction: Instruction, context: Context) -> Lowered:
    dimensions = instruction.attributes.get("dimensions", ())
    dims = instruction.array.dims
    return Lowered(lambda x: broadcast(x, dimensions, dims), view=True)


def _reshape(instruction: Instruction, context: Context) -> Lowered:
    dims = instruction.array.dims
    return Lowered(lambda x: x.reshape(dims), view=True)


def _transpose(instruction: Instruction, context: Context) -> Lowered:
    order = instruction.attributes["dimensions"]
    return Lowered(lambda x: x.transpose(order), view=True)


def _slice(instruction: Instruction, context: Context) -> Lowered:
    ranges = instruction.attributes["slice"]
    index = tuple(slice(entry.start, entry.limit, entry.stride) for entry in ranges)
    return Lowered(lambda x: x[index], view=True)


def _copy(instruction: Instruction, context: Context) -> Lowered | None:
    # Values are never written in place while anything else can see them, so a copy is a name.
    same = instruction.array.dtype is instruction.operands[0].array.dtype
    return Lowered(lambda x: x, view=True) if same else None


def _bitcast(instruction: Instruction, context: Context) -> Lowered | None:
    """Between row-major layouts of one type a bitcast is a reshape."""
    shape, source = instruction.array, instruction.operands[0].array
    plain = all(
        isinstance(entry, ArrayShape) and (entry.layout is None or entry.layout.is_descending)
        for entry in (shape, source)
    )
    if plain and shape.dtype is source.dtype and shape.elements == source.elements:
        return _reshape(instruction, context)
    return None


def _concatenate(instruction: Instruction, context: Context) -> Lowered:
    (dimension,) = instruction.attributes["dimensions"]
    return Lowered(lambda *arrays: np.concatenate(arrays, axis=dimension))


_LOWERINGS: Mapping[str, Callable[[Instruction, Context], Lowered | None]] = {
    "bitcast": _bitcast,
    "broadcast": _broadcast,
    "compare": _compare,
    "concatenate": _concatenate,
    "convert": _convert,
    "copy": _copy,
    "reshape": _reshape,
    "select": _select,
    "slice": _slice,
    "transpose": _transpose,
}
