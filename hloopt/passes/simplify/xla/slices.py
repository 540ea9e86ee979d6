"""Entries 102 to 122, slices, pads, concatenates, constants."""

from __future__ import annotations

from hloopt.passes.simplify.xla.entry import Entry

__all__ = ["ENTRIES"]

_NESTED = (
    "dynamic-update-slice(A, dynamic-update-slice(dynamic-slice(A, I), B, J), I) => "
    "dynamic-update-slice(A, B, I + J)"
)

ENTRIES: tuple[Entry, ...] = (
    Entry(
        102,
        "slice(A) => A; slice(slice(A)) => slice(A); strides of one element",
        (
            "slice(A) => A",
            "slice(slice(A)) => slice(A)",
            "slice(A) of one element => slice(A) without stride",
        ),
    ),
    Entry(
        103,
        "slice(pad(A, B)) => slice(A) or broadcast(B)",
        (
            "slice(pad(A, B)) => slice(A)",
            "slice(pad(A, B)) => broadcast(B)",
            "slice(pad(A, B)) => pad(slice(A), B)",
        ),
    ),
    Entry(
        104,
        "slice(concatenate(A, B)) => slice(A), or a smaller concatenate",
        (
            "slice(concatenate(A, B)) => slice(B)",
            "slice(concatenate(A, B)) => concatenate(slice(A), slice(B))",
        ),
    ),
    Entry(
        105,
        "slice(reverse(A)) => reverse(slice(A))",
        ("slice(reverse(A)) => reverse(slice(A))",),
    ),
    Entry(
        106,
        "slice(reshape(A)) => reshape(slice(A))",
        (
            "slice(reshape(A)) => reshape(slice(A))",
            "slice(reshape(A)) of the first rows => reshape(slice(A))",
        ),
    ),
    Entry(
        107,
        "slice(broadcast(A)) => broadcast(A); one of concatenated scalars",
        (
            "slice(broadcast(A)) => broadcast(slice(A))",
            "slice(concatenate(A, B)) => slice(B)",
            "reshape(reshape(A)) => reshape(A)",
        ),
    ),
    Entry(
        108,
        "slice(dot(A, B)) => dot(slice(A), slice(B))",
        ("slice(dot(A, B)) => dot(slice(A), slice(B))",),
        reason="for floats with fast_math only: the library that multiplies may add up in another "
        "order",
    ),
    Entry(
        109,
        "slice(reduce-window(A)) of the last prefix => reshape(reduce(A))",
        ("slice(reduce-window(A)) => reshape(reduce(A))",),
        reason="for sums and products of floats with fast_math only: a reduction may add up in "
        "another order",
    ),
    Entry(
        110,
        "dynamic-slice(A, I) => A; starts of whole dimensions => 0",
        (
            "dynamic-slice(A, ...) => A",
            "dynamic-slice(A, I) of a whole dimension => dynamic-slice(A, 0)",
        ),
    ),
    Entry(
        111,
        "dynamic-slice(move(A), I) => move(dynamic-slice(A, I))",
        (
            "dynamic-slice(broadcast(A), I) => broadcast(dynamic-slice(A, I))",
            "dynamic-slice(reshape(A), I) => reshape(dynamic-slice(A, I))",
            "dynamic-slice(transpose(A), I) => transpose(dynamic-slice(A, I))",
        ),
    ),
    Entry(112, "dynamic-slice(A, C) => slice(A)", ("dynamic-slice(A, C) => slice(A)",)),
    Entry(
        113,
        "dynamic-slice(C * iota, I) => C * clamp(I)",
        (
            "dynamic-slice(iota, I) => iota + I",
            "dynamic-slice(f(A, B), I) => f(dynamic-slice(A, I), dynamic-slice(B, I))",
        ),
    ),
    Entry(
        114,
        "dynamic-slice(dynamic-slice(A, I), J) => dynamic-slice(A, I + J)",
        ("dynamic-slice(dynamic-slice(A, I), J) => dynamic-slice(A, I + J)",),
    ),
    Entry(
        115,
        "dynamic-update-slice(A, B, I) => B or A; starts of whole dimensions => 0",
        (
            "dynamic-update-slice(A, B, ...) => B",
            "dynamic-update-slice(A, empty, I) => A",
            "dynamic-slice(A, I) of a whole dimension => dynamic-slice(A, 0)",
        ),
    ),
    Entry(
        116,
        "dynamic-update-slice(broadcast(C), B, I) => pad(B, C)",
        ("dynamic-update-slice(broadcast(C), B, I) => pad(B, C)",),
    ),
    Entry(
        117,
        _NESTED,
        (_NESTED,),
    ),
    Entry(
        118,
        "pad(A, B) => A, broadcast(B), or a slice; pad(broadcast(A), B) => broadcast(pad(A, B))",
        (
            "pad(A, B) => A",
            "pad(broadcast(C), C) => broadcast(C)",
            "pad(empty, B) => broadcast(B)",
            "pad(A, B) between no elements => pad(A, B)",
            "pad(A, B) of less than nothing => pad(slice(A), B)",
            "pad(broadcast(A), B) => broadcast(pad(broadcast(A), B))",
        ),
    ),
    Entry(
        119,
        "concatenate of one operand, of none, of concatenates, adjacent slices, broadcasts",
        (
            "concatenate(A) => A",
            "concatenate(A, empty) => concatenate(A)",
            "concatenate(concatenate(A, B), C) => concatenate(A, B, C)",
            "concatenate(slice(A), slice(A)) => slice(A)",
            "concatenate(A, broadcast(C)) => pad(A, C)",
            "concatenate(broadcast(C), broadcast(C)) => broadcast(C)",
        ),
    ),
    Entry(
        120,
        "f(A) without elements => broadcast(0)",
        ("f(A) without elements => broadcast(0)",),
        ("zero-sized",),
    ),
    Entry(
        121,
        "constant => broadcast(C), C + D * iota, or a tuple",
        (
            "constant(C, C, ...) => broadcast(C)",
            "constant(C, C + D, C + 2 * D, ...) => C + D * iota",
            "constant((C, D)) => tuple(constant(C), constant(D))",
        ),
        reason="up to 64 elements only 0, 1, 2, ...: what depends on few numbers is folded instead",
    ),
    Entry(122, "iota of one => 0", ("iota of one => 0",)),
)
