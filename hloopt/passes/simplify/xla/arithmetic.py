"""Entries 1 to 50, add to power."""

from __future__ import annotations

from typing import Final

from hloopt.passes.simplify.xla.entry import Entry

__all__ = ["ENTRIES"]

_FAST: Final = (
    "floats only with fast_math: XLA rounds otherwise than the text says, or loses signs of zero"
)
_PROVEN: Final = "floats only where the values make it exact, or with fast_math"
_SIGNED: Final = (
    "a signed dividend that may be negative stays: five ops would stand for one, and the compilers of "
    "every target turn a division by a constant into shifts by themselves"
)

ENTRIES: tuple[Entry, ...] = (
    Entry(1, "x + 0 => x", ("A + 0 => A",), reason=_PROVEN),
    Entry(2, "C + x => x + C", ("C + A => A + C",)),
    Entry(3, "(x + C1) + C2 => x + (C1 + C2)", ("(A + C1) + C2 => A + (C1 + C2)",), reason=_FAST),
    Entry(4, "(C1 - x) + C2 => (C1 + C2) - x", ("(C1 - A) + C2 => (C1 + C2) - A",), reason=_FAST),
    Entry(5, "x + (y - x) => y", ("(A - B) + B => A",)),
    Entry(
        6,
        "x + dynamic-update-slice(0, u, i) => dynamic-update-slice(x, dynamic-slice(x, i) + u, i)",
        ("A + dynamic-update-slice(0, B, I) => dynamic-update-slice(A, dynamic-slice(A, I) + B, I)",),
        reason=_PROVEN,
    ),
    Entry(
        7,
        "a * c + b * c => (a + b) * c",
        ("P * A + Q * A => (P + Q) * A", "P * A - Q * A => (P - Q) * A"),
        reason="floats only with fast_math, also where c is a power of two: a * c may overflow or "
        "lose bits where (a + b) * c does not",
    ),
    Entry(
        8,
        "scatter(0, i, u) + scatter(0, j, v) => scatter(0, concatenate(i, j), concatenate(u, v))",
        ("scatter(0, I, U) + scatter(0, J, V) => scatter(0, concatenate(I, J), concatenate(U, V))",
         "A + scatter(0, I, U) => scatter(A, I, U)"),
        reason="for lists of index vectors, which is what the passes of gather and scatter make of "
        "others; " + _FAST,
    ),
    Entry(9, "x - x => 0", ("A - A => 0",), reason=_PROVEN),
    Entry(10, "x - 0 => x", ("A - 0 => A",)),
    Entry(11, "x - C => x + (-C)", ("A - C => A + (-C)",)),
    Entry(12, "x - (x - y) => y", ("A - (A - B) => B",)),
    Entry(13, "x - (x + y) => -y", ("A - (A + B) => -B",)),
    Entry(14, "(x + y) - x => y", ("(A + B) - B => A",)),
    Entry(15, "x * 1 => x", ("A * 1 => A",)),
    Entry(16, "x * 0 => 0", ("A * 0 => 0",), reason=_PROVEN),
    Entry(17, "(-a) * (-b) => a * b", ("(-A) * (-B) => A * B",)),
    Entry(18, "abs(a) * abs(a) => a * a", ("abs(A) * abs(A) => A * A",)),
    Entry(
        19, "convert(pred) * x => select(pred, x, 0)", ("convert(P) * A => select(P, A, 0)",),
        reason=_PROVEN,
    ),
    Entry(
        20,
        "(x * C1) * (y * C2) => (x * y) * (C1 * C2)",
        ("(A * C1) * (B * C2) => (A * B) * (C1 * C2)",),
        reason=_FAST,
    ),
    Entry(21, "(x * C1) * C2 => x * (C1 * C2)", ("(A * C1) * C2 => A * (C1 * C2)",), reason=_FAST),
    Entry(
        22,
        "(a * C) * broadcast(b) => broadcast(b * C) * a",
        ("(A * C) * broadcast(B) => A * broadcast(B * C)",),
        reason=_FAST,
    ),
    Entry(23, "exp(a) * exp(b) => exp(a + b)", ("exp(A) * exp(B) => exp(A + B)",), reason=_FAST),
    Entry(24, "sqrt(x) * sqrt(x) => x", ("sqrt(A) * sqrt(A) => A",), reason=_FAST),
    Entry(25, "rsqrt(x) * rsqrt(x) => 1 / x", ("rsqrt(A) * rsqrt(A) => 1 / A",), reason=_FAST),
    Entry(26, "x / 1 => x", ("A / 1 => A",)),
    Entry(27, "x / 2^k => x >> k", ("A / 2^N => A >> N",), reason=_SIGNED),
    Entry(28, "exp(a) / exp(b) => exp(a - b)", ("exp(A) / exp(B) => exp(A - B)",), reason=_FAST),
    Entry(29, "a / exp(b) => a * exp(-b)", ("A / exp(B) => A * exp(-B)",), reason=_FAST),
    Entry(
        30, "a / power(b, c) => a * power(b, -c)", ("A / power(B, C) => A * power(B, -C)",),
        reason=_FAST,
    ),
    Entry(
        31,
        "a / sqrt(b) => a * rsqrt(b), a / rsqrt(b) => a * sqrt(b)",
        ("A / sqrt(B) => A * rsqrt(B)", "A / rsqrt(B) => A * sqrt(B)"),
        reason=_FAST,
    ),
    Entry(
        32,
        "a / C => a * (1 / C)",
        ("A / C => A * (1 / C)",),
        reason="powers of two always; others, whose reciprocals are rounded, with fast_math",
    ),
    Entry(
        33,
        "a / broadcast(b) => a * broadcast(1 / b)",
        ("A / broadcast(B) => A * broadcast(1 / B)",),
        reason=_FAST,
    ),
    Entry(
        34,
        "(a / b) / (c / d) => (a * d) / (b * c)",
        ("(A / B) / (C / D) => (A * D) / (B * C)", "(A / B) / C => A / (B * C)",
         "A / (B / C) => (A * C) / B"),
        reason=_FAST,
    ),
    Entry(
        35,
        "convert(pred) / broadcast(y) => broadcast(1 / y) * convert(pred)",
        ("A / broadcast(B) => A * broadcast(1 / B)",),
        reason=_FAST,
    ),
    Entry(36, "(a % b) % b => a % b", ("(A % B) % B => A % B",)),
    Entry(37, "x % 2^k => x & (2^k - 1)", ("A % 2^N => A & (2^N - 1)",), reason=_SIGNED),
    Entry(38, "iota % N => iota", ("A % B => A where 0 <= A < B",)),
    Entry(39, "(iota + N) % N => iota % N", ("(A + C) % N => A % N where N divides C",)),
    Entry(
        40,
        "power(x, 0) => 1; 1: x; 2: x * x; 3: x * x * x; -1: 1 / x",
        ("power(A, 0) => 1", "power(A, 1) => A", "power(A, 2) => A * A", "power(A, 3) => A * A * A",
         "power(A, -1) => 1 / A"),
        reason="exponents 2 and 3 for integers, -1 and floats with fast_math: power is rounded once",
    ),
    Entry(
        41, "power(exp(a), b) => exp(a * b)", ("power(exp(A), B) => exp(A * B)",), reason=_FAST
    ),
    Entry(
        42,
        "rsqrt(power(x, -2)) => abs(x), rsqrt(1 / x) => sqrt(x)",
        ("rsqrt(power(A, -2)) => abs(A)", "rsqrt(1 / A) => sqrt(A)"),
        reason=_FAST,
    ),
    Entry(
        43,
        "sqrt(a * a) => abs(a)",
        ("sqrt(A * A) => abs(A)",),
        reason="floats with fast_math; the root of a complex square has no negative real part, which is "
        "not its size",
    ),
    Entry(
        44,
        "log(exp(a)) => a, log(power(a, b)) => b * log(abs(a))",
        ("log(exp(A)) => A", "log(power(A, B)) => B * log(abs(A))"),
        reason=_FAST,
    ),
    Entry(
        45,
        "log(sqrt(x)) => log(x) * 0.5, log(rsqrt(x)) => log(x) * -0.5",
        ("log(sqrt(A)) => log(A) * 0.5", "log(rsqrt(A)) => log(A) * -0.5"),
        reason=_FAST,
    ),
    Entry(46, "exp(0) => 1", passes=("constant-folding",)),
    Entry(47, "-(-x) => x", ("-(-A) => A",)),
    Entry(48, "abs(x) => x where x >= 0", ("abs(A) => A without a sign",)),
    Entry(
        49,
        "(convolution(x, f) + bias) * C => convolution(x, f * C) + bias * C",
        ("(convolution(A, B) + D) * C => convolution(A, B * C) + D * C",),
        reason="for one constant factor; floats with fast_math",
    ),
    Entry(
        50,
        "a constant factor of a convolution or its operands => of the smallest of them",
        ("convolution(A, B) * C => convolution(A, B * C)",
         "convolution(A * C, B) => convolution(A, B * C)"),
        reason="floats with fast_math, as products are rounded in another order",
    ),
)  # fmt: skip
