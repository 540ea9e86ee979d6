"""Rules for complex numbers and their parts."""

from __future__ import annotations

from hloopt.ir import Instruction
from hloopt.rewrite import Match, Rule, op, splat, var, variables
from hloopt.simplify.conditions import COMPLEX, FLOAT, has_kind, scalar_value
from hloopt.types import DTYPES

__all__ = ["RULES"]

A, B = variables("A B")
REAL = var("A", has_kind(FLOAT))


def _is_imaginary_unit(instruction: Instruction) -> bool:
    value = scalar_value(instruction)
    return value is not None and complex(value) == 1j


I = splat(name="I").where(_is_imaginary_unit)  # noqa: E741 - the number


def _from_parts(match: Match) -> Instruction:
    """Numbers put together as JAX does: 0 * B is 0, but for infinities and NaN."""
    shape = match.array
    part = DTYPES["f32" if shape.dtype.name == "c64" else "f64"]
    parts = tuple(
        entry
        if entry.array.dtype is part
        else match.make("convert", entry, shape=shape.with_dtype(part))
        for entry in (match.A, match.B)
    )
    return match.make("complex", *parts, shape=shape)


RULES = (
    Rule("real(complex(A, B)) => A", op("real", op("complex", A, B)), A),
    Rule("imag(complex(A, B)) => B", op("imag", op("complex", A, B)), B),
    Rule(
        "complex(real(A), imag(A)) => A",
        op("complex", op("real", var("A", has_kind(COMPLEX))), op("imag", A)),
        A,
    ),
    Rule("real(A) => A of a real number", op("real", var("A", has_kind(FLOAT))), A),
    Rule("imag(A) => 0 of a real number", op("imag", var("A", has_kind(FLOAT))), splat(0)),
    Rule(
        "convert(A) + convert(B) * i => complex(A, B)",
        op("convert", REAL).one_use + (op("convert", var("B", has_kind(FLOAT))) * I).one_use,
        _from_parts,
        floats_are_real=True,
    ),
)
