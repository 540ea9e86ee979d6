"""Literals, expressions as text, C types, errors, and the device library as data."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hloopt
from hloopt.codegen.device import Uses, library, names
from hloopt.codegen.scalars import convert, elementwise, literal, reinterpret, scalar_op
from hloopt.codegen.types import (
    device_problem,
    elements_per_byte,
    is_packed,
    register_type,
    storage_type,
)
from hloopt.errors import UnsupportedError
from hloopt.kernel_ir.expressions import Expr, Var
from hloopt.kernel_ir.printer import expression_text
from hloopt.kernel_ir.types import BYTE, FLOAT, SBYTE, struct
from hloopt.types import DTYPES


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("pred", True, "true"),
        ("s32", -(2**31), "(-2147483647 - 1)"),
        ("s64", -(2**63), "(-9223372036854775807ll - 1)"),
        ("s64", -5, "(-5ll)"),
        ("u64", 2**64 - 1, "18446744073709551615ull"),
        ("u32", 7, "7u"),
        ("s8", -128, "(signed char)-128"),
        ("u16", 65535, "(unsigned short)65535"),
        ("s4", -8, "(signed char)-8"),
        ("u4", 15, "(unsigned char)15"),
        ("f32", 0.5, "0.5f"),
        ("f32", 3.0, "3.0f"),
        ("f32", -0.0, "(-0.0f)"),
        ("f32", 0.1, "0x1.99999ap-4f"),
        ("f32", np.inf, "__uint_as_float(0x7f800000u)"),
        ("f32", -1.0, "(-1.0f)"),
        ("f64", 0.1, "0x1.999999999999ap-4"),
        ("f64", -np.inf, "__longlong_as_double((long long)0xfff0000000000000ull)"),
        ("f64", 5e-324, "0x0.0000000000001p-1022"),
        ("f16", 1.0, "f16{0x3c00}"),
        ("bf16", -2.0, "bf16{0xc000}"),
        ("f8e4m3fn", 448.0, "f8e4m3fn{0x7e}"),
        ("f4e2m1fn", -6.0, "f4e2m1fn{0xf}"),
        ("c64", 1 - 2j, "c64{1.0f, (-2.0f)}"),
        ("c128", complex(0.0, -0.0), "c128{0.0, (-0.0)}"),
    ],
)
def test_literals(kind: str, value: object, text: str) -> None:
    """A literal has the register type and is safe as an operand of any operator."""
    written = literal(value, DTYPES[kind])
    assert (written.text, written.type) == (text, register_type(DTYPES[kind]))


def test_literals_keep_the_bits_of_a_nan() -> None:
    """An element of the storage type is taken bit for bit, payload and sign of a NaN included."""
    single = np.array([0xFFC00123], np.uint32).view(np.float32)[0]
    assert literal(single, DTYPES["f32"]).text == "__uint_as_float(0xffc00123u)"
    half = np.array([0x7E55], np.uint16).view(np.float16)[0]
    assert literal(half, DTYPES["f16"]).text == "f16{0x7e55}"
    fnuz = np.array([0x80], np.uint8).view(ml_dtypes.float8_e4m3fnuz)[0]
    assert literal(fnuz, DTYPES["f8e4m3fnuz"]).text == "f8e4m3fnuz{0x80}"


def test_a_literal_of_a_wider_number_wraps_or_rounds() -> None:
    """What is no element of the storage type is converted: integers wrap, floats round once."""
    assert literal(300, DTYPES["u8"]).text == "(unsigned char)44"
    assert literal(9, DTYPES["s4"]).text == "(signed char)-7"
    assert literal(2.0**-149 * 0.75, DTYPES["f32"]).text == "0x1p-149f"


def _x(kind: str, name: str = "x") -> Var:
    return Var(name, register_type(DTYPES[kind]))


def _op(opcode: str, kind: str, operands: int, uses: Uses) -> Expr:
    return scalar_op(opcode, DTYPES[kind], [_x(kind, name) for name in "xy"[:operands]], uses)


@pytest.mark.parametrize(
    ("text", "write"),
    [
        (
            "(int)((unsigned)x + (unsigned)y)",
            lambda u: _op("add", "s32", 2, u),
        ),
        ("x + y", lambda u: _op("add", "u32", 2, u)),
        ("x * y", lambda u: _op("multiply", "f32", 2, u)),
        ("expf(x)", lambda u: _op("exponential", "f32", 1, u)),
        ("tanh(x)", lambda u: _op("tanh", "f64", 1, u)),
        (
            "round_bf16(widen_bf16(x) * widen_bf16(y))",
            lambda u: _op("multiply", "bf16", 2, u),
        ),
        ("add_bf16(x, y)", lambda u: _op("add", "bf16", 2, u)),
        ("multiply_c64(x, y)", lambda u: _op("multiply", "c64", 2, u)),
        ("x || y", lambda u: _op("maximum", "pred", 2, u)),
        ("(float)x", lambda u: convert(_x("s32"), DTYPES["s32"], DTYPES["f32"], u)),
        ("x", lambda u: convert(_x("s32"), DTYPES["s32"], DTYPES["s32"], u)),
        ("__float_as_uint(x)", lambda u: reinterpret(_x("f32"), DTYPES["f32"], DTYPES["u32"], u)),
    ],
)
def test_expressions_read_as_people_write_them(text: str, write: Callable[[Uses], Expr]) -> None:
    """Plain operators and C's functions where they do, a named function where they do not."""
    assert expression_text(write(Uses())) == text


def test_what_is_used_is_written_with_what_it_needs() -> None:
    """The source has structs first, then functions, each behind what it needs, and nothing else."""
    uses = Uses()
    type = uses.type(DTYPES["f8e4m3fn"])
    call = uses.call("round_f8e4m3fn", _x("f32"), type=type)
    assert expression_text(call) == "round_f8e4m3fn(x)"
    uses.type(DTYPES["c64"])
    assert uses.names() == ("f8e4m3fn", "c64", "narrow_size", "round_f8e4m3fn")
    source = uses.source()
    assert source.index("struct alignas(8) c64") < source.index("narrow_size(")
    assert source.index("unsigned narrow_size(") < source.index("round_f8e4m3fn(float")
    with pytest.raises(KeyError):
        uses.call("round_f5", _x("f32"), type=type)


def test_what_another_program_uses_is_used() -> None:
    """A program may take over what another one uses."""
    uses, other = Uses(), Uses()
    uses.call("widen_f16", _x("f16"), type=FLOAT)
    assert uses.names() == ("f16", "widen_size", "widen_f16")
    other.update(uses)
    assert other.source() == uses.source()
    assert Uses().source() == ""


def test_the_library_is_in_order_and_explained() -> None:
    """Each definition has a comment and needs only such as stand before it."""
    before: set[str] = set()
    for entry in library().values():
        assert entry.source.startswith("// "), entry.name
        assert set(entry.needs) <= before, entry.name
        # Types in instructions of PTX, which are strings, are none of the library's.
        code = re.sub(r'//.*|"[^"\n]*"', "", entry.source)
        words = set(re.findall(r"[A-Za-z_]\w*", code))
        assert (words & names()) - {entry.name} == set(entry.needs)
        needed = [library()[name] for name in entry.needs]
        exchanges = any(word.startswith("__shfl") for word in words)
        assert entry.synchronizes == (exchanges or any(one.synchronizes for one in needed))
        loops = not words.isdisjoint(("for", "while"))
        assert entry.has_loop == (loops or any(one.has_loop for one in needed))
        begins = re.search(
            rf"^(struct|__device__|template)\b.*\b{entry.name}\b", entry.source, re.MULTILINE
        )
        assert begins or f" {entry.name}(" in entry.source
        assert entry.is_type == (
            re.search(rf"\bstruct .*\b{entry.name} {{", entry.source) is not None
        )
        before.add(entry.name)


def test_types_in_registers_and_memory() -> None:
    """Packed types lie in bytes; f6, token and opaque have no form, and the reason is said."""
    assert register_type(DTYPES["s4"]) == SBYTE
    assert storage_type(DTYPES["s4"]) == BYTE
    assert register_type(DTYPES["f4e2m1fn"]) == struct("f4e2m1fn")
    assert storage_type(DTYPES["f16"]) == struct("f16")
    assert (is_packed(DTYPES["u2"]), is_packed(DTYPES["pred"])) == (True, False)
    assert [elements_per_byte(DTYPES[name]) for name in ("u1", "s2", "u4", "s8")] == [8, 4, 2, 1]
    assert device_problem(DTYPES["f32"]) == ""
    assert device_problem(DTYPES["token"]) == "token has no elements"
    with pytest.raises(ValueError, match="6 bits wide"):
        register_type(DTYPES["f6e3m2fn"])


def _instruction(text: str) -> Any:
    return hloopt.parse(text, name="m.hlo").entry.root


def test_elementwise_of_an_instruction() -> None:
    """An instruction's own types and attributes choose the expression."""
    root = _instruction(
        "HloModule m\n\nENTRY e {\n  x = f32[2] parameter(0)\n"
        "  ROOT c = pred[2] compare(x, x), direction=LT\n}\n"
    )
    a, b = Var("a", FLOAT), Var("b", FLOAT)
    assert elementwise(root, (a, b), Uses()) == (a < b)


def test_an_op_without_an_expression_is_named_with_its_line() -> None:
    """The error names the instruction, the op, the type and the place."""
    root = _instruction(
        "HloModule m\n\nENTRY e {\n  x = f6e3m2fn[2] parameter(0)\n"
        "  ROOT n = f6e3m2fn[2] negate(x)\n}\n"
    )
    with pytest.raises(UnsupportedError) as found:
        elementwise(root, (Var("x", FLOAT),), Uses())
    assert (found.value.line, found.value.column) == (5, 8)
    assert str(found.value.message) == (
        "n: negate of f6e3m2fn: f6e3m2fn elements are 6 bits wide, "
        "which have no packed form in memory"
    )
    with pytest.raises(UnsupportedError, match="popcnt of f32 has no expression"):
        _op("popcnt", "f32", 1, Uses())
