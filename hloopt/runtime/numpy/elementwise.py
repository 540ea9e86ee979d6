"""Elementwise ops as functions of arrays.

Where a NumPy function is what the op's row calls, it is used as it is; everything else goes through the
row.  Both give the same bits, but for the f32 functions of ``quick_math``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hloopt.interpret.context import Context
from hloopt.ir import Instruction
from hloopt.ops import ScalarArgs
from hloopt.ops.elementwise import STEADY, keeps_bits
from hloopt.runtime.numpy.builder import Builder
from hloopt.runtime.numpy.plan import Function
from hloopt.runtime.numpy.quick_math import QUICK
from hloopt.types import DType, rounded

__all__ = ["elementwise"]

Known = Sequence["np.ndarray[Any, Any] | None"]


@dataclass(frozen=True, slots=True)
class _Lowered:
    """``ufunc``: takes ``out=``, an array to write into; ``view``: may return an operand."""

    function: Function
    ufunc: bool = False
    view: bool = False


_FLOATS = frozenset({"f32", "f64"})
_COMPLEX = frozenset({"c64", "c128"})
_SIGNED = frozenset({"s8", "s16", "s32", "s64"})
_UNSIGNED = frozenset({"u8", "u16", "u32", "u64"})
_INTEGERS = _SIGNED | _UNSIGNED
_BITS = _INTEGERS | {"pred"}
_REALS = _FLOATS | _INTEGERS
_NUMBERS = _REALS | _COMPLEX

# opcode -> ufunc (or what takes ``out=`` like one) and the element types for which the op's row does
# nothing else.
_UFUNCS: Mapping[str, tuple[Function, frozenset[str]]] = {
    **{opcode: (function, _FLOATS) for opcode, function in STEADY.items()},
    "abs": (np.absolute, _REALS),
    "add": (np.add, _NUMBERS | {"pred"}),
    "and": (np.bitwise_and, _BITS),
    "ceil": (np.ceil, _FLOATS),
    "divide": (np.divide, _FLOATS),
    "floor": (np.floor, _FLOATS),
    "maximum": (np.maximum, _BITS),
    "minimum": (np.minimum, _BITS),
    "multiply": (np.multiply, _REALS | {"pred"}),
    "negate": (np.negative, _NUMBERS),
    "not": (np.invert, _BITS),
    "or": (np.bitwise_or, _BITS),
    "remainder": (np.fmod, _FLOATS),
    "round-nearest-even": (np.rint, _FLOATS),
    "sqrt": (np.sqrt, _FLOATS),
    "subtract": (np.subtract, _NUMBERS),
    "xor": (np.bitwise_xor, _BITS),
}
_COMPARISONS: Mapping[str, np.ufunc] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}
# Their functions may hand an operand back as it is.
_PASSING = frozenset({"convert", "copy", "imag", "real"})


def elementwise(builder: Builder, instruction: Instruction, operands: Sequence[int]) -> int:
    """Add an elementwise op; its result is as large as the largest array among its operands."""
    line = builder.line
    same_type = instruction.array.dtype is instruction.operands[0].array.dtype
    if instruction.opcode in ("copy", "convert") and same_type:
        # Values are never written over while anything can see them, so a copy is a name.
        return operands[0]
    dims = np.broadcast_shapes(*[line.dims[slot] for slot in operands])
    known = [line.constants.get(slot) for slot in operands]
    lowered = _lower(instruction, builder.context, known)
    out = line.slot(builder.context.carrier(instruction.array.dtype), dims)
    return line.step(lowered.function, tuple(operands), out, ufunc=lowered.ufunc, view=lowered.view)


def _lower(instruction: Instruction, context: Context, known: Known) -> _Lowered:
    opcode = instruction.opcode
    result = instruction.array.dtype
    kinds = [operand.array.dtype for operand in instruction.operands]
    ufunc, names = _UFUNCS.get(opcode, (None, frozenset()))
    if opcode in QUICK and not context.exact:
        ufunc, names = QUICK[opcode], _FLOATS
    if ufunc is not None and result.name in names and all(kind is result for kind in kinds):
        return _Lowered(ufunc, ufunc=True)
    special = _SPECIAL.get(opcode)
    lowered = special(instruction, context, known) if special is not None else None
    return lowered or _by_row(instruction, context, kinds)


def _by_row(instruction: Instruction, context: Context, kinds: list[DType]) -> _Lowered:
    """Widen the operands, apply the row's function, round the result."""
    function = instruction.op.numpy
    assert function is not None
    # A row silences NumPy's warnings around its function; here a whole run does so once.
    function = getattr(function, "__wrapped__", function)
    quick = None if context.exact else QUICK.get(instruction.opcode)
    if quick is not None and all(kind.compute == np.float32 for kind in kinds):
        function = _without_args(quick)
    args = ScalarArgs(kinds[-1], instruction.array.dtype, instruction.attributes)
    carrier = context.carrier(instruction.array.dtype)
    view = instruction.opcode in _PASSING
    stored = keeps_bits(instruction.opcode, instruction.attributes, kinds[-1])
    if stored or all(context.carrier(kind) == kind.compute for kind in kinds):
        return _Lowered(
            lambda *arrays: rounded(np.asarray(function(args, *arrays)), carrier),
            view=view,
        )
    types = [kind.compute for kind in kinds]

    def widened(*arrays: Any) -> Any:
        wide = [
            array.astype(compute, copy=False) for array, compute in zip(arrays, types, strict=True)
        ]
        return rounded(np.asarray(function(args, *wide)), carrier)

    return _Lowered(widened, view=view)


def _without_args(function: Function) -> Function:
    return lambda _args, *arrays: function(*arrays)


def _compare(instruction: Instruction, context: Context, known: Known) -> _Lowered | None:
    kind = instruction.operands[0].array.dtype
    order = instruction.attributes.get("type")
    plain = kind.name in _INTEGERS | {"pred"} or (kind.name in _FLOATS and order in (None, "FLOAT"))
    return (
        _Lowered(_COMPARISONS[instruction.attributes["direction"]], ufunc=True) if plain else None
    )


def _select(instruction: Instruction, context: Context, known: Known) -> _Lowered | None:
    return _Lowered(np.where)


def _convert(instruction: Instruction, context: Context, known: Known) -> _Lowered | None:
    source, target = instruction.operands[0].array.dtype, instruction.array.dtype
    carrier = context.carrier(target)
    plain = (
        (source.name in _BITS and target.name in _REALS)
        or (source.name in _FLOATS and target.name in _FLOATS)
        or (source.is_narrow_float and target.name in _FLOATS)
        or (source.name == "f32" and target.is_narrow_float)
    )
    same = context.carrier(source) == carrier
    return _Lowered(lambda x: rounded(x, carrier), view=same) if plain else None


def _is_finite(instruction: Instruction, context: Context, known: Known) -> _Lowered | None:
    kind = instruction.operands[0].array.dtype
    return _Lowered(np.isfinite) if kind.name in _FLOATS else None


def _extremum(instruction: Instruction, context: Context, known: Known) -> _Lowered | None:
    """NumPy's maximum where no result can be a zero, whose sign it leaves open."""
    if instruction.array.dtype.name not in _FLOATS:
        return None
    quick = np.maximum if instruction.opcode == "maximum" else np.minimum
    if any(array is not None and _decides(array) for array in known):
        return _Lowered(quick, ufunc=True)
    return None


def _decides(array: Any) -> bool:
    """Whether no element is a zero or NaN, so that the order of the operands does not matter."""
    return bool(array.all() and not np.isnan(array).any())


def _shift(instruction: Instruction, context: Context, known: Known) -> _Lowered | None:
    """By amounts known to be less than the width."""
    kind, amount = instruction.array.dtype, known[1]
    if amount is None or kind.name not in _INTEGERS:
        return None
    if not ((amount >= 0) & (amount < kind.bits)).all():
        return None
    left = instruction.opcode == "shift-left"
    ufunc = np.left_shift if left else np.right_shift
    arithmetic = instruction.opcode == "shift-right-arithmetic"
    if (kind.kind == "signed") == arithmetic:
        return _Lowered(ufunc, ufunc=True)
    if arithmetic:
        return None
    bits, own = np.dtype(f"u{kind.numpy.itemsize}"), kind.numpy
    steps = amount.astype(bits)
    return _Lowered(lambda x, _: ufunc(x.view(bits), steps).view(own))


_SPECIAL: Mapping[str, Callable[[Instruction, Context, Known], _Lowered | None]] = {
    "compare": _compare,
    "convert": _convert,
    "is-finite": _is_finite,
    "maximum": _extremum,
    "minimum": _extremum,
    "select": _select,
    "shift-left": _shift,
    "shift-right-arithmetic": _shift,
    "shift-right-logical": _shift,
}
