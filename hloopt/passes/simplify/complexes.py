"""Rules for complex numbers and their parts."""

from __future__ import annotations

from hloopt.passes.simplify.conditions import COMPLEX, FLOAT, has_kind
from hloopt.rewrite import Rule, op, splat, var

__all__ = ["RULES"]

A, B = var("A"), var("B")

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
)
