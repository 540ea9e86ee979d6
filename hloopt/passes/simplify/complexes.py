"""Rules for complex numbers and their parts."""

from __future__ import annotations

from hloopt.ir import Instruction
from hloopt.passes.simplify.conditions import COMPLEX, FLOAT, has_kind, scalar_value
from hloopt.rewrite import Match, Rule, op, splat, var
from hloopt.types import DTYPES

__all__ = ["RULES"]

A, B = var("A"), var("B")
REAL = var("A", has_kind(FLOAT))


def _is_imaginary_unit(instruction: Instruction) -> bool:
    value = scalar_value(instruction)
    return value is not None and complex(value) == 1j


I = splat(name="I").where(_is_imaginary_unit)  # noqa: E741 - the number


def _from_parts(match: Match) -> Instruction:
    """Numbers put together as JAX does: 0 * B is 0, but for infinities and NaN."""
    shape = match.root.array
    part = DTYPES["f32" if shape.dtype.name == "c64" else "f64"]
    parts = tuple(
        entry
        if entry.array.dtype is part
        else match.make("convert", entry, shape=shape.with_dtype(part))
        for entry in (match.A, match.B)
    )
    return match.make("complex", *parts, shape=shape)


RULES = (
    Rule(
        "real(complex(A, B)) => A",
        op("real", op("complex", A, B)),
        A,
        example="x = f32[6] parameter(0)\n y = f32[6] parameter(1)\n z = c64[6] complex(x, y)\n"
        "ROOT r = f32[6] real(z)",
        counterexample="x = c64[] parameter(0)\n ROOT r = f32[] real(x)",
    ),
    Rule(
        "imag(complex(A, B)) => B",
        op("imag", op("complex", A, B)),
        B,
        example="x = f32[6] parameter(0)\n y = f32[6] parameter(1)\n z = c64[6] complex(x, y)\n"
        "ROOT r = f32[6] imag(z)",
        counterexample="x = c64[] parameter(0)\n ROOT r = f32[] imag(x)",
    ),
    Rule(
        "complex(real(A), imag(A)) => A",
        op("complex", op("real", var("A", has_kind(COMPLEX))), op("imag", A)),
        A,
        example="z = c64[6] parameter(0)\n x = f32[6] real(z)\n y = f32[6] imag(z)\n"
        "ROOT r = c64[6] complex(x, y)",
        counterexample="z = c64[] parameter(0)\n x = f32[] real(z)\n y = f32[] imag(z)\n"
        "ROOT r = c64[] complex(y, x)",
    ),
    Rule(
        "real(A) => A of a real number",
        op("real", var("A", has_kind(FLOAT))),
        A,
        example="x = $T[6] parameter(0)\n y = $T[6] negate(x)\n ROOT r = $T[6] real(y)",
        counterexample="x = c64[] parameter(0)\n ROOT r = f32[] real(x)",
        types=("f32", "bf16"),
    ),
    Rule(
        "imag(A) => 0 of a real number",
        op("imag", var("A", has_kind(FLOAT))),
        splat(0),
        example="x = $T[6] parameter(0)\n ROOT r = $T[6] imag(x)",
        counterexample="x = c64[] parameter(0)\n ROOT r = f32[] imag(x)",
        types=("f32", "bf16"),
    ),
    Rule(
        "convert(A) + convert(B) * i => complex(A, B)",
        op("convert", REAL).one_use + (op("convert", var("B", has_kind(FLOAT))) * I).one_use,
        _from_parts,
        floats_are_real=True,
        example="x = f32[6] parameter(0)\n y = f32[6] parameter(1)\n a = c64[6] convert(x)\n"
        "b = c64[6] convert(y)\n i = c64[] constant((0, 1))\n"
        "ii = c64[6] broadcast(i), dimensions={}\n c = c64[6] multiply(b, ii)\n"
        "ROOT r = c64[6] add(a, c)",
        counterexample="x = f32[6] parameter(0)\n y = f32[6] parameter(1)\n a = c64[6] convert(x)\n"
        "b = c64[6] convert(y)\n i = c64[] constant((1, 0))\n"
        "ii = c64[6] broadcast(i), dimensions={}\n c = c64[6] multiply(b, ii)\n"
        "ROOT r = c64[6] add(a, c)",
    ),
)
