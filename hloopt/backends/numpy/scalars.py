"""Elementwise ops on NumPy scalars, written as Python's operators.

An operator on two scalars costs 20 to 40 ns, a ufunc on arrays without dimensions 200 (NumPy 2.4, Zen 5);
both give the same bits.  Ops without a row here are done on arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hloopt.backends.numpy.plan import Code
from hloopt.interpret.scalars import OPERATORS
from hloopt.ir import Instruction
from hloopt.ops.traits import ELEMENTWISE, op_table
from hloopt.types import Array, DType

__all__ = ["BITS", "FLOATS", "INTEGERS", "REALS", "SIGNED", "UNSIGNED", "scalar_code"]

Known = Sequence["Array | None"]

FLOATS = frozenset({"f32", "f64"})
SIGNED = frozenset({"s8", "s16", "s32", "s64"})
UNSIGNED = frozenset({"u8", "u16", "u32", "u64"})
INTEGERS = SIGNED | UNSIGNED
REALS = FLOATS | INTEGERS
BITS = INTEGERS | {"pred"}

# opcode -> an expression and the element types, of all operands and the result, for which it is the op.
_OPERATORS: Mapping[str, tuple[str, frozenset[str]]] = op_table(
    {
        "abs": ("abs({0})", SIGNED | FLOATS),
        "add": ("{0} + {1}", REALS),
        "and": ("{0} & {1}", BITS),
        "ceil": ("{ceil}({0})", FLOATS),
        "divide": ("{0} / {1}", FLOATS),
        "floor": ("{floor}({0})", FLOATS),
        "maximum": ("{0} if {0} > {1} else {1}", INTEGERS),
        "minimum": ("{0} if {0} < {1} else {1}", INTEGERS),
        "multiply": ("{0} * {1}", REALS),
        "negate": ("-{0}", REALS),
        "not": ("~{0}", BITS),
        "or": ("{0} | {1}", BITS),
        "sqrt": ("{sqrt}({0})", FLOATS),
        "subtract": ("{0} - {1}", REALS),
        "xor": ("{0} ^ {1}", BITS),
    },
    ELEMENTWISE,
    "a call of a function",
)
_FUNCTIONS: Mapping[str, np.ufunc] = {"ceil": np.ceil, "floor": np.floor, "sqrt": np.sqrt}
_BOUNDED = "{t} = {1} if {1} > {0} else {0}\n{r} = {t} if {t} < {2} else {2}"
# The first NaN, else the larger; of zeros +0, or -0 for the smaller.
_EXTREMUM = (
    "{r} = {0} if {0} > {1} or {0} != {0} else {1} if {1} > {0} or {1} != {1} else {0} if {0} else "
)
_LARGER = _EXTREMUM + "{0} + {1}"
_SMALLER = _EXTREMUM.replace(">", "<") + "-(-{0} - {1})"
# Rounded down by Python, towards zero by HLO; the divisor is positive.
_REMAINDER = "{r} = {0} % {1}\nif {0} < 0 and {r}: {r} = {r} - {1}"
_QUOTIENT = "{r} = {0} // {1}\nif {0} < 0 and {r} * {1} != {0}: {r} = {r} + {one}"


def scalar_code(instruction: Instruction, known: Known) -> Code | None:
    """The op on scalars that are carried in their own types, or None.

    ``known`` are the operands that are constants.
    """
    kinds = [operand.array.dtype for operand in instruction.operands]
    result = instruction.array.dtype
    text, names = _OPERATORS.get(instruction.opcode, ("", frozenset()))
    if result.name in names and all(kind is result for kind in kinds):
        function = _FUNCTIONS.get(instruction.opcode)
        bound = {instruction.opcode: function} if function is not None else {}
        return _scalars(f"{{r}} = {text}", kinds, bound)
    special = _SPECIAL.get(instruction.opcode)
    return special(instruction, kinds, known) if special is not None else None


def _extremum(instruction: Instruction, kinds: Sequence[DType], known: Known) -> Code | None:
    if instruction.array.dtype.name not in FLOATS:
        return None
    return _scalars(_LARGER if instruction.opcode == "maximum" else _SMALLER, kinds)


def _scalars(text: str, kinds: Sequence[DType], bound: Mapping[str, Any] | None = None) -> Code:
    return Code(text, frozenset(range(len(kinds))), scalar=True, bound=bound or {})


def _clamp(instruction: Instruction, kinds: Sequence[DType], known: Known) -> Code | None:
    return _scalars(_BOUNDED, kinds) if kinds[1].name in INTEGERS else None


def _compare(instruction: Instruction, kinds: Sequence[DType], known: Known) -> Code | None:
    order = instruction.attributes.get("type")
    if kinds[0].name in BITS or (kinds[0].name in FLOATS and order in (None, "FLOAT")):
        operator = OPERATORS[instruction.attributes["direction"]]
        return _scalars(f"{{r}} = {{0}} {operator} {{1}}", kinds)
    return None


def _select(instruction: Instruction, kinds: Sequence[DType], known: Known) -> Code | None:
    return _scalars("{r} = {1} if {0} else {2}", kinds)


def _convert(instruction: Instruction, kinds: Sequence[DType], known: Known) -> Code | None:
    (source,), target = kinds, instruction.array.dtype
    kind = target.numpy.type
    if source.is_pred and target.name in REALS:
        return _scalars("{r} = {one} if {0} else {zero}", kinds, {"one": kind(1), "zero": kind(0)})
    if (source.name in INTEGERS or source.is_pred) and target.name in FLOATS:
        # Through f64, which has all integers of 32 bits.
        if source.bits <= 32 and target.name == "f64":
            return _scalars("{r} = {kind}({0})", kinds, {"kind": kind})
        if source.bits <= 32:
            return _assigned(kinds, target)
    if source.name in FLOATS and target.name in FLOATS:
        return _assigned(kinds, target)
    if source.name in INTEGERS and target.name in INTEGERS:
        if np.can_cast(source.numpy, target.numpy):
            return _assigned(kinds, target)
        # What is given to an array has to be in its type's range; a scalar's ``astype`` takes twice as long.
        text = "{b}[()] = {0}\n{r} = {b}.astype({kind})[()]"
        bound = {"kind": target.numpy}
        return Code(text, frozenset({0}), scalar=True, bound=bound, buffer=source.numpy)
    return None


def _assigned(kinds: Sequence[DType], target: DType) -> Code:
    """An array without dimensions converts what it is given in a quarter of the time of ``astype``."""
    text = "{b}[()] = {0}\n{r} = {b}[()]"
    return Code(text, frozenset({0}), scalar=True, buffer=target.numpy)


def _divided(instruction: Instruction, kinds: Sequence[DType], known: Known) -> Code | None:
    """By an integer that is known to be positive."""
    kind, divisor = instruction.array.dtype, known[1]
    if kind.name not in INTEGERS or divisor is None or divisor <= 0:
        return None
    quotient = instruction.opcode == "divide"
    if kind.name in UNSIGNED:
        return _scalars(f"{{r}} = {{0}} {'//' if quotient else '%'} {{1}}", kinds)
    return _scalars(_QUOTIENT if quotient else _REMAINDER, kinds, {"one": kind.numpy.type(1)})


def _shifted(instruction: Instruction, kinds: Sequence[DType], known: Known) -> Code | None:
    """By any amount, taken as an unsigned number, where NumPy's own shift brings in what is wanted."""
    kind = instruction.array.dtype
    if kind.name not in INTEGERS:
        return None
    if instruction.opcode == "shift-left":
        return _scalars("{r} = {0} << {1}", kinds)
    if (instruction.opcode == "shift-right-arithmetic") == (kind.name in SIGNED):
        return _scalars("{r} = {0} >> {1}", kinds)
    return None


_SPECIAL: Mapping[str, Callable[[Instruction, Sequence[DType], Known], Code | None]] = op_table(
    {
        "clamp": _clamp,
        "compare": _compare,
        "convert": _convert,
        "divide": _divided,
        "maximum": _extremum,
        "minimum": _extremum,
        "remainder": _divided,
        "select": _select,
        "shift-left": _shifted,
        "shift-right-arithmetic": _shifted,
        "shift-right-logical": _shifted,
    },
    ELEMENTWISE,
    "an operator, or a call of a function",
)
