"""The expression of any elementwise op, by opcode and element types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from hloopt.codegen.device import Uses
from hloopt.codegen.scalars.complexes import COMPLEXES
from hloopt.codegen.scalars.conversions import convert, reinterpret
from hloopt.codegen.scalars.floats import FLOATS, finite
from hloopt.codegen.scalars.forms import narrow, widen
from hloopt.codegen.scalars.integers import INTEGERS, PREDS, Rule
from hloopt.codegen.types import device_problem, register_type
from hloopt.errors import UnsupportedError
from hloopt.ir import Instruction
from hloopt.kernels.problem import unsupported
from hloopt.ops.elementwise import keeps_bits
from hloopt.ops.traits import ELEMENTWISE, op_table
from hloopt.types import DType, dtype

__all__ = ["elementwise", "expression", "scalar_op", "scalar_problem"]

_F16 = dtype("f16")

_TABLES: Mapping[str, Mapping[str, Rule]] = {
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
_Special: TypeAlias = Callable[[Sequence[DType], DType, Attributes, tuple[str, ...], Uses], str]


def _compare(
    kinds: Sequence[DType], result: DType, attributes: Attributes, xy: tuple[str, ...], uses: Uses
) -> str:
    kind, sign = kinds[0], _SIGNS[attributes["direction"]]
    x, y = xy
    if kind.is_complex:
        joined = "&&" if sign == "==" else "||"
        return f"({x}.re {sign} {y}.re {joined} {x}.im {sign} {y}.im)"
    if not kind.is_float:
        return f"({x} {sign} {y})"
    if attributes.get("type") != "TOTALORDER":
        return f"({widen(x, kind, uses)} {sign} {widen(y, kind, uses)})"
    if keeps_bits("compare", attributes, kind):
        x, y = (uses.call(f"total_order_{kind.bits}", f"{name}.bits") for name in xy)
    else:
        ending = "f64" if kind.name == "f64" else "f32"
        x, y = (uses.call(f"total_order_{ending}", widen(name, kind, uses)) for name in xy)
    return f"({x} {sign} {y})"


def _select(
    kinds: Sequence[DType], result: DType, attributes: Attributes, xs: tuple[str, ...], uses: Uses
) -> str:
    predicate, chosen, other = xs
    return f"({predicate} ? {chosen} : {other})"


def _convert(
    kinds: Sequence[DType], result: DType, attributes: Attributes, xs: tuple[str, ...], uses: Uses
) -> str:
    return convert(xs[0], kinds[0], result, uses)


def _reinterpret(
    kinds: Sequence[DType], result: DType, attributes: Attributes, xs: tuple[str, ...], uses: Uses
) -> str:
    return reinterpret(xs[0], kinds[0], result, uses)


def _complex(
    kinds: Sequence[DType], result: DType, attributes: Attributes, xs: tuple[str, ...], uses: Uses
) -> str:
    return f"{uses.type(result)}{{{xs[0]}, {xs[1]}}}"


def _real(
    kinds: Sequence[DType], result: DType, attributes: Attributes, xs: tuple[str, ...], uses: Uses
) -> str:
    return f"{xs[0]}.re" if kinds[0].is_complex else xs[0]


def _imag(
    kinds: Sequence[DType], result: DType, attributes: Attributes, xs: tuple[str, ...], uses: Uses
) -> str:
    if kinds[0].is_complex:
        return f"{xs[0]}.im"
    return narrow("0.0" if kinds[0].name == "f64" else "0.0f", result, uses)


def _finite(
    kinds: Sequence[DType], result: DType, attributes: Attributes, xs: tuple[str, ...], uses: Uses
) -> str:
    return finite(kinds[0], xs, uses)


def _reduce_precision(
    kinds: Sequence[DType], result: DType, attributes: Attributes, xs: tuple[str, ...], uses: Uses
) -> str:
    kind = kinds[0]
    # 8-bit types with a sign are reduced in f16, the others in f32, and rounded again.
    name = kind.name
    if name not in _FORMATS:
        name = "f16" if kind.bits == 8 and name != "f8e8m0fnu" else "f32"
    exponent, mantissa = _FORMATS[name]
    bits = 1 + exponent + mantissa
    words = {64: "unsigned long long", 32: "unsigned", 16: "unsigned short"}
    word, wide = words[bits], words[max(bits, 32)]
    to = f"{min(attributes['exponent_bits'], 30)}, {min(attributes['mantissa_bits'], 60)}"
    call = f"reduce_bits<{word}, {wide}, {exponent}, {mantissa}, {to}>"
    x = xs[0]
    if kind.name == "f64":
        reduced = uses.call(call, f"(unsigned long long)__double_as_longlong({x})")
        return f"__longlong_as_double((long long){reduced})"
    if kind.name in _FORMATS and bits == 16:
        return f"{uses.type(kind)}{{{uses.call(call, f'{x}.bits')}}}"
    wide_x = widen(x, kind, uses)
    if name == "f16":
        half = uses.call("round_f16", wide_x)
        reduced = f"{uses.type(_F16)}{{{uses.call(call, f'{half}.bits')}}}"
        return narrow(uses.call("widen_f16", reduced), kind, uses)
    return narrow(f"__uint_as_float({uses.call(call, f'__float_as_uint({wide_x})')})", kind, uses)


def _stochastic_convert(
    kinds: Sequence[DType], result: DType, attributes: Attributes, xs: tuple[str, ...], uses: Uses
) -> str:
    kind, random = kinds
    name = register_type(result)
    value = widen(xs[0], kind, uses)
    return uses.call(
        f"stochastic_signed<{name}, {result.bits}, {random.bits}>",
        value if kind.name == "f64" else f"(double){value}",
        f"(unsigned long long){xs[1]}",
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
    operands: Sequence[str],
    uses: Uses,
) -> str:
    """The C expression of an elementwise op on operands of element types ``kinds``.

    Raises ``UnsupportedError`` naming the op and the type where ``scalar_problem`` says something.
    """
    if problem := scalar_problem(opcode, kinds, result, attributes):
        raise UnsupportedError(f"{opcode} {problem}")
    for kind in (*kinds, result):
        uses.type(kind)
    special = _SPECIALS.get(opcode)
    if special is not None:
        return special(kinds, result, attributes, tuple(operands), uses)
    return _TABLES[kinds[0].kind][opcode](kinds[0], tuple(operands), uses)


def elementwise(instruction: Instruction, operands: Sequence[str], uses: Uses) -> str:
    """The C expression of an elementwise instruction, of the register type of its result.

    ``operands`` are C names or literals, one an operand of the instruction.  Raises
    ``UnsupportedError``, which names the instruction, its line, the op and the type, where there is none.
    """
    kinds = [operand.array.dtype for operand in instruction.operands]
    result = instruction.array.dtype
    problem = scalar_problem(instruction.opcode, kinds, result, instruction.attributes)
    if problem:
        raise unsupported(instruction, problem)
    return expression(instruction.opcode, kinds, result, instruction.attributes, operands, uses)


def scalar_op(opcode: str, dtype: DType, operands: Sequence[str], uses: Uses) -> str:
    """The C expression of an op whose operands and result have one type (add, maximum ...).

    Raises ``UnsupportedError`` naming the op and the type where there is none.
    """
    return expression(opcode, [dtype] * len(operands), dtype, {}, operands, uses)
