"""Rules for reduce-window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hloopt.ir import Instruction
from hloopt.ops.traits import IDEMPOTENT
from hloopt.rewrite import Match, Rule, op, splat_literal, variables
from hloopt.rewrite.regions import is_liftable, lifted, named_combiner
from hloopt.simplify.predicates import COMPLEX, FLOAT, INTEGER, resized, scalar_value
from hloopt.simplify.rules.reduce import is_neutral, is_plain
from hloopt.types import ArrayShape, PaddingDim, SliceRange, Window, WindowDim, parts_of

__all__ = ["RULES", "padded_window"]

A, B, INIT = variables("A B INIT")

# Up to which number each integer is one of the type's.
_WHOLE = {"f16": 1 << 11, "bf16": 1 << 8, "f32": 1 << 24}


def padded_window(
    match: Match, window: Sequence[WindowDim], paddings: Sequence[PaddingDim]
) -> Window | None:
    """The window over what is padded, with the pad as its own padding and dilation."""
    dims: list[WindowDim] = []
    for entry, padding in zip(window, paddings, strict=True):
        if padding.low < 0 or padding.high < 0:
            return match.refuse("the pad also cuts off")
        if padding != PaddingDim(0, 0) and entry.base_dilation != 1:
            return match.refuse("the window has a base dilation already")
        low, high = entry.pad_low + padding.low, entry.pad_high + padding.high
        dilation = entry.base_dilation * (padding.interior + 1)
        dims.append(replace(entry, pad_low=low, pad_high=high, base_dilation=dilation))
    return Window(tuple(dims))


def _single_positions(match: Match) -> Instruction | None:
    """Windows of one element, none of it padding: what they start at, and the region once."""
    root = match.root
    values, inits = root.fold_inputs, root.fold_inits
    window = root.window.dims
    if any(replace(dim, stride=1) != WindowDim(1) for dim in window):
        return None
    region = root.to_apply
    if not is_liftable(region, (*inits, *values)):
        return None
    shapes = parts_of(root.shape)
    strided = tuple(
        SliceRange(0, size, dim.stride)
        for size, dim in zip(values[0].array.dims, window, strict=True)
    )
    starts, elements = [], []
    for value, init, shape in zip(values, inits, shapes, strict=True):
        assert isinstance(shape, ArrayShape)
        if shape.dims != value.array.dims:
            value = match.make("slice", value, shape=shape, slice=strided)
        elements.append(value)
        starts.append(match.fill(shape, init))
    like = shapes[0]
    assert isinstance(like, ArrayShape)
    results = lifted(region, (*starts, *elements), like, match)
    return match.results(results)


def _whole_dimensions(match: Match) -> Instruction | None:
    """One window over each of some dimensions, single elements of the others."""
    root, source = match.root, match.A.array
    window = root.window.dims
    if not is_plain(root) or not root.array.elements:
        return None
    whole = []
    for dim, (size, entry) in enumerate(zip(source.dims, window, strict=True)):
        if entry == WindowDim(1):
            continue
        if replace(entry, stride=1) != WindowDim(size):
            return None
        whole.append(dim)
    if not whole:
        return None
    opcode, kind = named_combiner(root.to_apply), source.dtype.kind
    if opcode == "add" and kind in (FLOAT, COMPLEX) and not match.fast_math:
        return match.refuse("an executor may add the floats of a reduce in another order")
    kept = tuple(size for dim, size in enumerate(source.dims) if dim not in whole)
    inner = match.make(
        "reduce",
        match.A,
        match.INIT,
        shape=resized(root.array, kept),
        dimensions=tuple(whole),
        to_apply=root.to_apply,
    )
    return match.result("reshape", inner)


def _of_pad(match: Match) -> Instruction | None:
    """Padding that is the initial value counts as much as none, where that may be taken twice."""
    root, pad = match.root, match.inner
    literal = splat_literal(match.INIT)
    same = match.B is match.INIT or (literal is not None and literal == splat_literal(match.B))
    if not is_plain(root) or not same:
        return None
    opcode = named_combiner(root.to_apply)
    value = scalar_value(match.INIT)
    kind = root.array.dtype.kind
    # A float sum that starts at +0 stays what it is when the same +0 is added, whatever else is.
    zero = opcode == "add" and kind == FLOAT and value is not None and not float(value)
    if opcode not in IDEMPOTENT and not zero and not is_neutral(match, opcode, match.INIT, match.A):
        return None
    window = padded_window(match, root.window.dims, pad.attributes["padding"])
    if window is None:
        return None
    attributes = {**root.attributes, "window": window}
    return match.result("reduce-window", match.A, match.INIT, **attributes)


def _one_element_each(match: Match) -> Instruction | None:
    """Every window meets the one element of each dimension that it moves along."""
    root, source = match.root, match.A.array
    window = root.window.dims
    if not is_plain(root) or root.array.dims == source.dims:
        return None
    for size, entry, out in zip(source.dims, window, root.array.dims, strict=True):
        if entry == WindowDim(1):
            continue
        meets = size == 1 and (out - 1) * entry.stride <= entry.pad_low < entry.size
        if not meets or entry.window_dilation != 1:
            return None
    region = root.to_apply
    if not is_liftable(region, (match.INIT, match.A)):
        return None
    start = match.INIT
    if source.dims:
        start = match.make("broadcast", start, shape=source, dimensions=())
    (value,) = lifted(region, (start, match.A), source, match)
    kept = tuple(dim for dim in range(source.rank) if source.dims[dim] == root.array.dims[dim])
    shape = resized(source, tuple(source.dims[dim] for dim in kept))
    small = match.make("reshape", value, shape=shape)
    return match.result("broadcast", small, dimensions=kept)


def _running_sum_of_splat(match: Match) -> Instruction | None:
    """c, 2 c, 3 c ...: in double precision the sums are exact, and so is the product's one rounding."""
    root, value = match.root, scalar_value(match.A)
    if not is_plain(root) or value is None or named_combiner(root.to_apply) != "add":
        return None
    start, shape = scalar_value(match.INIT), root.array
    moving = [dim for dim, entry in enumerate(root.window.dims) if entry != WindowDim(1)]
    if start is None or len(moving) != 1 or shape.dtype.kind not in (FLOAT, *INTEGER):
        return None
    (dim,) = moving
    size = match.A.array.dims[dim]
    if (
        root.window.dims[dim] != WindowDim(size, pad_low=size - 1)
        or float(start)
        or not float(value)
    ):
        return None
    limit = (
        _WHOLE.get(shape.dtype.name, 0)
        if shape.dtype.kind == FLOAT
        else 1 << (shape.dtype.bits - 1)
    )
    if size >= limit:
        return match.refuse(f"{size} is not a value of {shape.dtype.name}")
    counted = match.make("iota", shape=shape, iota_dimension=dim)
    one = match.splat(shape, 1)
    terms = match.make("add", counted, one, shape=shape)
    return match.make("multiply", terms, match.splat(shape, value), shape=shape)


RULES = (
    Rule(
        "reduce-window(A, INIT) of single positions => to_apply(INIT, slice(A))",
        op("reduce-window"),
        _single_positions,
    ),
    Rule(
        "reduce-window(A) over whole dimensions => reshape(reduce(A))",
        op("reduce-window", A, INIT),
        _whole_dimensions,
    ),
    Rule(
        "reduce-window(pad(A, INIT), INIT) => reduce-window(A, INIT)",
        op("reduce-window", op("pad", A, B), INIT),
        _of_pad,
    ),
    Rule(
        "reduce-window(A, INIT) of one element each => broadcast(to_apply(INIT, A))",
        op("reduce-window", A, INIT),
        _one_element_each,
    ),
    Rule(
        "reduce-window(broadcast(C), 0) of running sums => (iota + 1) * C",
        op("reduce-window", A, INIT),
        _running_sum_of_splat,
    ),
)
