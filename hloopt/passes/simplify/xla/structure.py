"""Entries 123 to 144, reductions, scatter, gather, sort, dot, convolution, control flow."""

from __future__ import annotations

from hloopt.passes.simplify.xla.entry import Entry

__all__ = ["ENTRIES"]

_BATCHING = "with a batching dimension"

ENTRIES: tuple[Entry, ...] = (
    Entry(
        123,
        "reduce of one array as a tuple, of nothing, over single elements, over no dimensions",
        (
            "(reduce(A)) => reduce(A)",
            "reduce(empty, INIT) => broadcast(INIT)",
            "reduce(A) over single elements => reshape(A)",
            "reduce(A, INIT) over single elements => to_apply(INIT, reshape(A))",
        ),
    ),
    Entry(
        124,
        "reduce(transpose(A)) => reduce(A) with other dimensions",
        ("reduce(transpose(A)) => transpose(reduce(A))",),
    ),
    Entry(125, "reduce(reduce(A)) => reduce(A)", ("reduce(reduce(A)) => reduce(A)",)),
    Entry(
        126,
        "reduce(reshape(A)) => reshape(reduce(A))",
        ("reduce(reshape(A)) => reshape(reduce(A))",),
    ),
    Entry(
        127,
        "reduce(concatenate(A, B)) => to_apply(reduce(A), reduce(B))",
        (
            "reduce(concatenate(A, B)) along => to_apply(reduce(A), reduce(B))",
            "reduce(concatenate(A, B)) across => concatenate(reduce(A), reduce(B))",
        ),
    ),
    Entry(
        128,
        "reduce-add(dot(A, B)) => dot(A, B) that contracts more, or dot(reduce-add(A), B)",
        (
            "reduce-add(dot(A, B)) over batch dimensions => dot(A, B) that contracts them",
            "reduce-add(dot(A, B)) over other dimensions => dot(reduce-add(A), B)",
        ),
    ),
    Entry(
        129,
        "reduce-max(A) beside arg-max(A) => its first result; arg-max(broadcast(C)) => (C, 0)",
        (
            "reduce-max(A) beside arg-max(A) => get-tuple-element(arg-max(A))",
            "arg-max(broadcast(C)) => (C, 0)",
        ),
    ),
    Entry(
        130,
        "reduce(broadcast(A)) => A folded once, or A * n for a sum",
        (
            "reduce(broadcast(A)) => broadcast(reduce(A))",
            "reduce(broadcast(A), 0) => A * n",
        ),
    ),
    Entry(
        131,
        "reduce-precision(A) to the type's own digits, or twice to the same",
        ("reduce-precision(A) => A",),
    ),
    Entry(
        132,
        "reduce-window of a repeated constant, of single positions, over whole dimensions, of a pad, of "
        "one element each",
        (
            "reduce-window(broadcast(C), 0) of running sums => (iota + 1) * C",
            "reduce-window(A, INIT) of single positions => to_apply(INIT, slice(A))",
            "reduce-window(A) over whole dimensions => reshape(reduce(A))",
            "reduce-window(pad(A, INIT), INIT) => reduce-window(A, INIT)",
            "reduce-window(A, INIT) of one element each => broadcast(to_apply(INIT, A))",
        ),
    ),
    Entry(
        133,
        "scatter(A, I, empty) => A; scatter of one window as large as A => to_apply(A, B)",
        (
            "scatter(A, I, empty) => A",
            "scatter(A, concatenate(0, I), B) => scatter(A, I, B)",
            f"scatter(A, concatenate(iota, I), B) => scatter(A, I, B) {_BATCHING}",
        ),
        ("scatter-to-slice",),
    ),
    Entry(
        134,
        "gather from a scalar; gather(pad(A, B), I) => pad(gather(A, I), B)",
        (
            "gather(A, I) of all => broadcast(A)",
            "gather(pad(A, B), I) => pad(gather(A, I), B)",
            "gather(A, concatenate(0, I)) => gather(A, I)",
            f"gather(A, concatenate(iota, I)) => gather(A, I) {_BATCHING}",
        ),
        ("gather-to-slice",),
        "A gather from a small operand stays one: a chain of selects compares every index with every place "
        "and multiplies the flops by the size of the operand.  A reshape between gather and pad is first "
        "moved by the rules of reshapes.",
    ),
    Entry(
        135,
        "sort of at most one element a line",
        (
            "sort(A) of single elements => A",
            "sort(broadcast(A)) along a repeated dimension => broadcast(A)",
        ),
        ("sort-simplifier",),
    ),
    Entry(
        136,
        "dot of vectors => reduce(multiply); dot that contracts nothing => multiply; empty dot => 0",
        ("dot(A, B) over nothing => 0", "dot(A, B) over one element => A * B"),
        ("dot-strength-reduction",),
    ),
    Entry(
        137,
        "concatenates, slices of constants, transposes and products as operands of dot",
        (
            "dot(concatenate(A, B), C) => dot(A, slice(C)) + dot(B, slice(C))",
            "dot(dot(A, B), C) => dot(A, dot(B, C)) with fewer products",
            "dot(A, dot(B, C)) => dot(dot(A, B), C) with fewer products",
        ),
        ("transpose-folding",),
        "Slices go the other way here, towards what is sliced, also where that is a constant: two rules "
        "that undo each other would not come to rest.  "
        "Moving reverse, pad or broadcast out of an operand multiplies no fewer numbers unless it is "
        "contracted, and then adds floats in another order; dot(gather) reads rows that a dot of the "
        "whole table would compute for nothing.",
    ),
    Entry(
        138,
        "convolution over nothing, of pads, of single places",
        (
            "convolution(A, B) over nothing => 0",
            "convolution(pad(A, 0), B) => convolution(A, B)",
            "convolution(A, pad(B, 0)) => convolution(A, B) with a dilated window",
            "convolution(A, B) of single places => dot(A, B)",
        ),
        ("transpose-folding",),
        "Exchanging the operands serves one library's choice of algorithms and is off in XLA by default.",
    ),
    Entry(139, "map of scalar ops => the ops on whole arrays", (), ("map-inliner",)),
    Entry(
        140,
        "get-tuple-element(tuple(A, B)) => A; barriers of what is read alone",
        (
            "get-tuple-element(tuple(A, B)) => A",
            "tuple(get-tuple-element(A), ...) => A",
            "opt-barrier(tuple(A, B)) where B is not read => tuple(opt-barrier(A), B)",
        ),
        ("tuple-simplifier",),
    ),
    Entry(
        141,
        "real and imag of complex, complex of real and imag, real and imag of a real number",
        (
            "real(complex(A, B)) => A",
            "imag(complex(A, B)) => B",
            "complex(real(A), imag(A)) => A",
            "real(A) => A of a real number",
            "imag(A) => 0 of a real number",
        ),
    ),
    Entry(
        142,
        "conditional(convert(P), A, B) => conditional(P, B, A)",
        (
            "conditional(convert(P), A, B) => conditional(P, B, A)",
            "conditional(not(P), A, B) => conditional(P, B, A)",
            "conditional(I, A, B) of scalars => select(I, A, B)",
            "conditional(C, A, A) of one computation => call(A)",
        ),
        ("conditional-simplifier",),
    ),
    Entry(
        143,
        "collectives of single participants => A",
        (
            "all-reduce(A) of single participants => A",
            "collective-permute(A) of each to itself => A",
        ),
    ),
    Entry(
        144,
        "slice-to-dynamic(pad-to-static(A)) => A",
        (),
        (),
        "Both ends have dimensions whose sizes are known at run time only, and such values no rule "
        "replaces: what is after them may have been given the padded sizes.",
    ),
)
