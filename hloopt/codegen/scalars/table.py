"""The value of any elementwise op, by opcode and element types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from hloopt.codegen.device import Uses
from hloopt.codegen.scalars.complexes import COMPLEXES
from hloopt.codegen.scalars.conversions import convert, reinterpret
from hloopt.codegen.scalars.floats import FLOATS, finite
from hloopt.codegen.scalars.forms import code, narrow, of_code, parts, widen
from hloopt.codegen.scalars.integers import INTEGERS, PREDS, IntegerRule
from hloopt.codegen.scalars.literals import literal
from hloopt.codegen.types import device_problem, register_type
from hloopt.dataclass import dataclass
from hloopt.errors import UnsupportedError
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import Binary, Expr, Make, Operand, Select, as_expr, both, either
from hloopt.kernel_ir.types import DOUBLE, INT, LONG, UINT, ULONG, USHORT
from hloopt.kernels.kernel import unsupported
from hloopt.ops.elementwise import keeps_bits
from hloopt.ops.traits import ELEMENTWISE, op_table
from hloopt.types import DType, dtype

__all__ = ["elementwise", "expression", "scalar_op", "scalar_problem"]

_TABLES: Mapping[str, Mapping[str, IntegerRule]] = {
    "pred": PREDS,
    "signed": INTEGERS,
    "unsigned": INTEGERS,
    "float": FLOATS,
    "complex": COMPLEXES,
}

_SIGNS = {"EQ": "==", "NE": "!=", "GE": ">=", "GT": ">", "LE": "<=", "LT": "<"}

# (exponent bits, mantissa bits) of the format on whose bits reduce-precision works.
_FORMATS = {"f64": (11, 52), "f32": (8, 23), "f16": (5, 10), "bf16": (8, 7)}

Attributes: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Op:
    """An op, of operands of types ``kinds``."""

    kinds: Sequence[DType]
    result: DType
    attributes: Attributes
    uses: Uses


_Special: TypeAlias = Callable[..., Expr]
"""Given the op and the operands."""


def _compare(op: _Op, x: Expr, y: Expr) -> Expr:
    kind, sign = op.kinds[0], _SIGNS[op.attributes["direction"]]
    if kind.is_complex:
        pairs = zip(parts(x, kind), parts(y, kind), strict=True)
        tests = [Binary.of(sign, left, right) for left, right in pairs]
        return both(tests) if sign == "==" else either(tests)
    if kind.is_float:
        x, y = (_ordered(op, one) for one in (x, y))
    return Binary.of(sign, x, y)


def _ordered(op: _Op, x: Expr) -> Expr:
    """A number that C compares as ``compare`` does with a float."""
    kind, uses = op.kinds[0], op.uses
    if op.attributes.get("type") != "TOTALORDER":
        return widen(x, kind, uses)
    if keeps_bits("compare", op.attributes, kind):
        return uses.call(f"total_order_{kind.bits}", code(x, kind), type=INT)
    if kind.name == "f64":
        return uses.call("total_order_f64", x, type=LONG)
    return uses.call("total_order_f32", widen(x, kind, uses), type=INT)


def _select(op: _Op, test: Expr, chosen: Expr, other: Expr) -> Expr:
    return Select(test, chosen, other)


def _convert(op: _Op, x: Expr) -> Expr:
    return convert(x, op.kinds[0], op.result, op.uses)


def _reinterpret(op: _Op, x: Expr) -> Expr:
    return reinterpret(x, op.kinds[0], op.result, op.uses)


def _complex(op: _Op, real: Expr, imag: Expr) -> Expr:
    return Make(op.uses.type(op.result), (real, imag))


def _real(op: _Op, x: Expr) -> Expr:
    return parts(x, op.kinds[0])[0] if op.kinds[0].is_complex else x


def _imag(op: _Op, x: Expr) -> Expr:
    kind = op.kinds[0]
    if kind.is_complex:
        return parts(x, kind)[1]
    return narrow(literal(0, kind if kind.name == "f64" else dtype("f32")), op.result, op.uses)


def _finite(op: _Op, x: Expr) -> Expr:
    return finite(op.kinds[0], op.uses, x)


def _reduce_precision(op: _Op, x: Expr) -> Expr:
    kind, uses = op.kinds[0], op.uses
    # 8-bit types with a sign are reduced in f16, the others in f32, and rounded again.
    name = kind.name
    if name not in _FORMATS:
        name = "f16" if kind.bits == 8 and name != "f8e8m0fnu" else "f32"
    exponent, mantissa = _FORMATS[name]
    bits = 1 + exponent + mantissa
    word = {64: ULONG, 32: UINT, 16: USHORT}[bits]
    wide = UINT if word == USHORT else word
    to = [min(op.attributes["exponent_bits"], 30), min(op.attributes["mantissa_bits"], 60)]
    call = f"reduce_bits<{word}, {wide}, {exponent}, {mantissa}, {to[0]}, {to[1]}>"
    format, unsigned = dtype(name), dtype(f"u{bits}")
    held = x if kind is format else narrow(widen(x, kind, uses), format, uses)
    if bits == 16:
        reduced: Expr = of_code(uses.call(call, code(held, format), type=word), format, uses)
    else:
        given = reinterpret(held, format, unsigned, uses)
        reduced = reinterpret(uses.call(call, given, type=word), unsigned, format, uses)
    return reduced if kind is format else narrow(widen(reduced, format, uses), kind, uses)


def _stochastic_convert(op: _Op, x: Expr, random: Expr) -> Expr:
    kind, bits = op.kinds[0], op.kinds[1].bits
    type = register_type(op.result)
    value = widen(x, kind, op.uses)
    return op.uses.call(
        f"stochastic_signed<{type}, {op.result.bits}, {bits}>",
        value if kind.name == "f64" else value.cast(DOUBLE),
        random.cast(ULONG),
        type=type,
    )


_SPECIALS: Mapping[str, _Special] = op_table(
    {
        "bitcast-convert": _reinterpret,
        "compare": _compare,
        "complex": _complex,
        "convert": _convert,
        "copy": _convert,
        "imag": _imag,
        "is-finite": _finite,
        "real": _real,
        "reduce-precision": _reduce_precision,
        "select": _select,
        "stochastic-convert": _stochastic_convert,
    },
    ELEMENTWISE | {"bitcast-convert"},
    "by the kind of its type",
)


def scalar_problem(
    opcode: str, kinds: Sequence[DType], result: DType, attributes: Attributes | None = None
) -> str:
    """Why an op on such element types has no expression; empty where it has one."""
    for kind in (*kinds, result):
        if problem := device_problem(kind):
            return f"of {kind.name}: {problem}"
    if opcode == "bitcast-convert" and kinds[0].bits != result.bits:
        return f"from {kinds[0].name} to {result.name} is not of one element"
    if opcode in _SPECIALS:
        return ""
    if opcode not in _TABLES[kinds[0].kind]:
        return f"of {kinds[0].name} has no expression in CUDA C"
    return ""


def expression(
    opcode: str,
    kinds: Sequence[DType],
    result: DType,
    attributes: Attributes,
    operands: Sequence[Operand],
    uses: Uses,
) -> Expr:
    """The value of an elementwise op on operands of element types ``kinds``.

    Raises ``UnsupportedError`` naming the op and the type where ``scalar_problem`` says something.
    """
    if problem := scalar_problem(opcode, kinds, result, attributes):
        raise UnsupportedError(f"{opcode} {problem}")
    for kind in (*kinds, result):
        uses.type(kind)
    values = map(as_expr, operands)
    special = _SPECIALS.get(opcode)
    if special is not None:
        return special(_Op(kinds, result, attributes, uses), *values)
    return _TABLES[kinds[0].kind][opcode](kinds[0], uses, *values)


def elementwise(instruction: Instruction, operands: Sequence[Operand], uses: Uses) -> Expr:
    """The value of an elementwise instruction, of the register type of its result.

    ``operands`` are names or literals, one an operand of the instruction.  Raises
    ``UnsupportedError``, which names the instruction, its line, the op and the type, where there is none.
    """
    kinds = [operand.array.dtype for operand in instruction.operands]
    result = instruction.array.dtype
    problem = scalar_problem(instruction.opcode, kinds, result, instruction.attributes)
    if problem:
        raise unsupported(instruction, problem)
    return expression(instruction.opcode, kinds, result, instruction.attributes, operands, uses)


def scalar_op(opcode: str, dtype: DType, operands: Sequence[Operand], uses: Uses) -> Expr:
    """The value of an op whose operands and result have one type (add, maximum ...).

    Raises ``UnsupportedError`` naming the op and the type where there is none.
    """
    return expression(opcode, [dtype] * len(operands), dtype, {}, operands, uses)
