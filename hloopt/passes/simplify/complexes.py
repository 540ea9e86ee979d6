"""Rules for complex numbers and their parts."""

from __future__ import annotations

from hloopt.passes.simplify.conditions import COMPLEX, has_kind
from hloopt.rewrite import Rule, op, var

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
)
