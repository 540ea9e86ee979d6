"""Entries 74 to 101, reshape, transpose, broadcast, bitcast, copy, reverse, convert."""

from __future__ import annotations

from hloopt.passes.simplify.xla.entry import Entry

__all__ = ["ENTRIES"]

_LOGICAL = (
    "a reshape or transpose stays what it says, whatever the layouts: analysis and fusion ask "
    "whether it moves bytes (analysis/layout.py), and rules go on seeing through it, which they "
    "cannot do with a bitcast"
)

ENTRIES: tuple[Entry, ...] = (
    Entry(
        74,
        "reshape(A) => A; reshape(reshape(A)) => reshape(A)",
        ("reshape(A) => A", "reshape(reshape(A)) => reshape(A)"),
    ),
    Entry(
        75,
        "reshape(A) without elements => constant",
        ("f(A) without elements => broadcast(0)",),
        ("zero-sized",),
    ),
    Entry(
        76,
        "reshape(broadcast(A)) => broadcast(A)",
        ("reshape(broadcast(A)) => broadcast(A)", "reshape(scalar) => broadcast(scalar)"),
    ),
    Entry(
        77,
        "reshape(iota) => iota, or a sum of iotas times strides",
        ("reshape(iota) => iota",),
        reason="where the iota's dimension is split, a reshape of it stays: the sum costs two flops "
        "an element and the reshape none, and a loop kernel computes either in registers",
    ),
    Entry(
        78,
        "reshape(dynamic-update-slice(A, B, I)) => dynamic-update-slice(reshape(A), reshape(B), I)",
        (
            "reshape(dynamic-update-slice(reshape(A), B, I)) => dynamic-update-slice(A, reshape(B), I)",
        ),
        reason="only where one of the two new reshapes goes away: otherwise one becomes two",
    ),
    Entry(79, "reshape(A) => bitcast(A)", reason=_LOGICAL),
    Entry(
        80,
        "reshape(copy(A)) <=> copy(reshape(A))",
        ("reshape(copy(A)) => reshape(A)", "copy(f(A)) => f(A)"),
        reason="the two do not change places, they become one: a reshape may read and write any "
        "layout",
    ),
    Entry(
        81,
        "reshape(transpose(reshape(A))) => transpose(reshape(A))",
        (
            "reshape(transpose(reshape(A))) => transpose(reshape(A))",
            "transpose(reshape(transpose(A))) => transpose(reshape(A))",
        ),
    ),
    Entry(
        82,
        "transposes and reshapes of ones that undo each other => A",
        (
            "transpose(A) => reshape(A)",
            "reshape(reshape(A)) => reshape(A)",
            "reshape(transpose(reshape(A))) => transpose(reshape(A))",
            "transpose(reshape(transpose(A))) => transpose(reshape(A))",
        ),
    ),
    Entry(
        83,
        "transpose(A) => A; transpose(transpose(A)) => transpose(A)",
        ("transpose(A) => A", "transpose(transpose(A)) => transpose(A)"),
    ),
    Entry(
        84,
        "transpose(broadcast(A)) => broadcast(A)",
        (
            "transpose(broadcast(A)) => broadcast(A)",
            "transpose(broadcast(A)) => broadcast(transpose(A))",
        ),
    ),
    Entry(
        85,
        "transpose(dot(A, B)) => dot(B, A)",
        ("transpose(dot(A, B)) => dot(B, A)",),
        reason="for floats with fast_math only: the library that multiplies may add up in another "
        "order",
    ),
    Entry(86, "transpose(A) of ones => reshape(A)", ("transpose(A) => reshape(A)",)),
    Entry(87, "transpose(A) => bitcast(A)", reason=_LOGICAL),
    Entry(
        88,
        "reshape(transpose(reshape(A))) => concatenate(slice(A), ...)",
        reason="both forms read and write every element once; slices and a concatenate are faster "
        "only where the hardware transposes slowly, and they are many ops for one",
    ),
    Entry(
        89,
        "transpose(scatter(A, I, B)) => scatter(transpose(A), I, transpose(B))",
        reason="moves operand and updates in place of the result: more elements, not fewer",
    ),
    Entry(
        90,
        "broadcast(A) => reshape(A) or transpose(A); broadcast(reshape(A)) => broadcast(A)",
        (
            "broadcast(A) => A",
            "broadcast(A) => reshape(A)",
            "broadcast(A) => transpose(A)",
            "broadcast(reshape(A)) => broadcast(A)",
            "broadcast(transpose(A)) => broadcast(A)",
        ),
    ),
    Entry(
        91,
        "broadcast(broadcast(A)) => broadcast(A)",
        ("broadcast(broadcast(A)) => broadcast(A)",),
    ),
    Entry(92, "broadcast(iota) => iota", ("broadcast(iota) => iota",)),
    Entry(
        93,
        "move(broadcast(scalar)) => broadcast(scalar)",
        (
            "reshape(broadcast(A)) => broadcast(A)",
            "transpose(broadcast(A)) => broadcast(A)",
            "reverse(broadcast(A)) => broadcast(reverse(A))",
            "slice(broadcast(A)) => broadcast(slice(A))",
            "dynamic-slice(broadcast(A), I) => broadcast(dynamic-slice(A, I))",
            "sort(broadcast(A)) => broadcast(A)",
        ),
    ),
    Entry(
        94,
        "f(broadcast(A), broadcast(B)) => broadcast(f(A, B))",
        (
            "f(broadcast(A), broadcast(B)) => broadcast(f(A, B))",
            "f(broadcast(A), iota) => broadcast(f(broadcast(A), iota))",
        ),
        ("broadcast-sinking",),
    ),
    Entry(
        95,
        "bitcast(bitcast(A)) => bitcast(A); bitcast(A) => A; bitcast(f(bitcast(A))) => f(A); "
        "bitcast(broadcast(A)) => broadcast(A); copy(bitcast(copy(A))) => bitcast(A)",
        (
            "bitcast(A) => A",
            "bitcast(bitcast(A)) => bitcast(A)",
            "bitcast(broadcast(A)) => broadcast(A)",
            "bitcast(f(bitcast(A))) => f(A)",
            "copy(bitcast(copy(A))) => reshape(A)",
        ),
        reason="between copies only bitcasts that add or drop ones: another one changes which element "
        "is which, and stays",
    ),
    Entry(
        96,
        "bitcast-convert(bitcast-convert(A)) => bitcast-convert(A); bitcast-convert(A) => A",
        (
            "bitcast-convert(A) => A",
            "bitcast-convert(bitcast-convert(A)) => bitcast-convert(A)",
        ),
        reason="never to a bitcast: a bitcast-convert says the same of elements, in any layout",
    ),
    Entry(
        97,
        "copy(A) => A; copy(copy(A)) => copy(A); copy(reshape(A)) => reshape(A); "
        "copy(A) => bitcast(A)",
        ("copy(A) => A", "copy(f(A)) => f(A)", "reshape(copy(A)) => reshape(A)"),
        reason=f"no bitcasts of copies that only rename dimensions of one element: {_LOGICAL}",
    ),
    Entry(
        98,
        "reverse(A) of ones => A; reverse(reverse(A)) => reverse(A); reverse past f and reshape",
        (
            "reverse(A) => A",
            "reverse(A) along ones => reverse(A)",
            "reverse(reverse(A)) => reverse(A)",
            "reverse(f(A, C)) => f(reverse(A), C)",
            "reverse(reshape(A)) => reshape(reverse(A))",
        ),
    ),
    Entry(
        99,
        "broadcast(A) => broadcast(reshape(A)) without ones",
        ("broadcast(reshape(A)) => broadcast(A)",),
        reason="the other way round: a broadcast takes over ones that a reshape adds, so that one op "
        "is left where XLA leaves two",
    ),
    Entry(
        100,
        "convert(A) => A; convert(C) => C; convert(convert(A)) => A",
        ("convert(A) => A", "convert(convert(A)) => convert(A)"),
        ("constant-folding", "convert-pairs"),
    ),
    Entry(
        101,
        "convert(f(convert(A), convert(B))) => f(A, B)",
        ("convert(f(convert(A), convert(B))) => f(A, B)",),
        ("convert-pairs",),
    ),
)
