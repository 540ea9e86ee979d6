"""Entries 51 to 73, booleans, comparisons, select, minimum and maximum."""

from __future__ import annotations

from typing import Final

from hloopt.passes.simplify.xla.entry import Entry

__all__ = ["ENTRIES"]

_RANGES: Final = "compare(A, B) => constant where ranges do not meet"
_ITSELF: Final = "compare(A, A) => constant"

ENTRIES: tuple[Entry, ...] = (
    Entry(51, "x & ones => x, x & 0 => 0", ("A & ones => A", "A & 0 => 0")),
    Entry(52, "x < C1 & x < C2 => x < min(C1, C2)", ("A < C1 & A < C2 => A < min(C1, C2)",)),
    Entry(53, "x | ones => ones, x | 0 => x", ("A | ones => ones", "A | 0 => A")),
    Entry(54, "x ^ x => 0, x ^ 0 => x", ("A ^ A => 0", "A ^ 0 => A")),
    Entry(55, "not(not(x)) => x", ("not(not(A)) => A",)),
    Entry(56, "unsigned x < 0 => false, x >= 0 => true", (_RANGES,)),
    Entry(57, "x < 0 => false where x >= 0", (_RANGES,)),
    Entry(58, "pred x != false => x, x == true => x", ("P == true => P",)),
    Entry(59, "select(c, ones, zeros) != zeros => c", ("compare(select(P, C1, C2), C) => P",)),
    Entry(60, "max(a, b) > a => b > a", ("max(A, B) > A => B > A", "A < max(A, B) => A < B")),
    Entry(
        61,
        "compare(x, x) => constant",
        (_ITSELF,),
        reason="of floats that may be NaN only that nothing is less than itself",
    ),
    Entry(62, "max(x, x) => x, min(x, x) => x", ("max(A, A) => A", "min(A, A) => A")),
    Entry(
        63,
        "max(x, lowest) => x, min(x, highest) => x",
        ("max(A, lowest) => A", "min(A, highest) => A"),
    ),
    Entry(
        64,
        "max(max(x, y), y) => max(x, y), max(lo, clamp(lo, x, hi)) => clamp(lo, x, hi)",
        ("max(max(A, B), B) => max(A, B)", "min(clamp(A, B, C), C) => clamp(A, B, C)",
         "max(A, B) => A where A >= B"),
        reason="the lower bound of a clamp only where it is proven not to be above the upper one",
    ),
    Entry(
        65,
        "max(C1, min(x, C2)) => clamp(C1, x, C2)",
        ("max(min(A, C1), C2) => clamp(C2, A, C1)",),
    ),
    Entry(
        66,
        "max(f(x), f(y)) => f(max(x, y)) of an f that never falls",
        ("max(f(A), f(B)) => f(max(A, B))", "min(f(A), f(B)) => f(min(A, B))"),
        reason="roundings to whole numbers always, other functions with fast_math: to the last bit "
        "their implementations may fall",
    ),
    Entry(
        67,
        "clamp(a, clamp(a, x, b), b) => clamp(a, x, b)",
        ("clamp(A, clamp(A, B, C), C) => clamp(A, B, C)",),
    ),
    Entry(68, "clamp(a, partition-id, b) => partition-id",
          ("clamp(P, A, C) => A where P <= A <= C",)),
    Entry(
        69,
        "select(p, x, x) => x, select(true, x, y) => x, select(false, x, y) => y",
        ("select(P, A, A) => A", "select(true, A, B) => A", "select(false, A, B) => B",
         "select(P, A, B) => A where P is known"),
    ),
    Entry(70, "select(not(p), a, b) => select(p, b, a)", ("select(not(P), A, B) => select(P, B, A)",)),
    Entry(
        71,
        "select(p, true, false) => p, select(p, false, true) => not(p)",
        ("select(P, true, false) => P", "select(P, false, true) => not(P)"),
    ),
    Entry(
        72,
        "pred select(a > b, a, b) => a | b, select(a < b, a, b) => a & b, select(a == b, a, b) => b",
        ("select(A > B, A, B) => max(A, B)", "select(A > B, B, A) => min(A, B)",
         "select(A == B, A, B) => B", "select(A == B, B, A) => A", "pred max(A, B) => A | B"),
    ),
    Entry(
        73,
        "select(p, x, dynamic-update-slice(x, u, i)) => dynamic-update-slice(x, select(p, ...), i)",
        ("select(P, A, dynamic-update-slice(A, B, I)) => dynamic-update-slice(A, select(P, ...), I)",
         "select(P, dynamic-update-slice(A, B, I), A) => dynamic-update-slice(A, select(P, ...), I)"),
    ),
)  # fmt: skip
