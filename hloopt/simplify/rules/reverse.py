"""Rules for reverse: it moves towards the parameters, and cancels."""

from __future__ import annotations

from dataclasses import replace

from hloopt.ir import Instruction
from hloopt.rewrite import Match, Rule, op, own_attributes, splat_literal, used_once, var
from hloopt.simplify.data_movement import (
    PASSABLE,
    dimensions,
    is_scalar,
    matched_dims,
    only_ones_differ,
    with_dims,
)
from hloopt.types import Window

__all__ = ["RULES"]

A = var("A")


def _reverse_nothing(match: Match) -> bool:
    return all(match.A.array.dims[d] <= 1 for d in dimensions(match.root))


def _reverse(match: Match, operand: Instruction, dims: tuple[int, ...]) -> Instruction:
    shape = operand.array
    if shape.dims == match.array.dims:
        shape = match.array.with_dtype(shape.dtype)
    return match.make("reverse", operand, shape=shape, dimensions=dims)


def _reverse_once(match: Match) -> Instruction:
    inner, outer = set(dimensions(match.inner)), set(dimensions(match.root))
    return _reverse(match, match.A, tuple(sorted(inner ^ outer)))


def _without_ones(match: Match) -> Instruction | None:
    dims = dimensions(match.root)
    kept = tuple(d for d in dims if match.A.array.dims[d] > 1)
    return _reverse(match, match.A, kept) if 0 < len(kept) < len(dims) else None


def _of_broadcast(match: Match) -> Instruction:
    """Reverse what is repeated, in the dimensions it has."""
    dims = dimensions(match.inner)
    turned = tuple(place for place, d in enumerate(dims) if d in dimensions(match.root))
    source = _reverse(match, match.A, turned) if turned else match.A
    return match.result("broadcast", source, dimensions=dims)


def _past_elementwise(match: Match) -> Instruction | None:
    """Past an op with one operand that is not a splat; a narrowing convert is better done before."""
    computed = match.F
    moved = [
        operand
        for operand in computed.operands
        if not is_scalar(operand) and splat_literal(operand) is None
    ]
    if len(set(moved)) != 1 or moved[0].array.dtype.bits > computed.array.dtype.bits:
        return None
    turned = _reverse(match, moved[0], dimensions(match.root))
    operands = tuple(turned if operand is moved[0] else operand for operand in computed.operands)
    return match.again(computed, *operands)


def _past_reshape(match: Match) -> Instruction | None:
    """Past a reshape that only adds or drops ones."""
    before, after = match.A.array.dims, match.array.dims
    if 0 in before or not only_ones_differ(before, after):
        return None
    place = matched_dims(after, before)
    dims = tuple(place[d] for d in dimensions(match.root) if d in place)
    turned = _reverse(match, match.A, dims) if dims else match.A
    return match.result("reshape", turned)


def _of_concatenate(match: Match) -> Instruction | None:
    """Pieces of one element along the dimension need no turning, only another order."""
    inner = match.F
    (dimension,) = dimensions(inner)
    if dimensions(match.root) != (dimension,):
        return None
    if any(operand.array.dims[dimension] != 1 for operand in inner.operands):
        return None
    return match.result("concatenate", *inner.operands[::-1], dimensions=(dimension,))


def _of_iota(match: Match) -> Instruction | None:
    """The last number less the iota; where the iota runs along another dimension, itself."""
    iota = match.I
    dimension = iota.iota_dimension
    if dimension not in dimensions(match.root):
        return iota
    if not iota.array.dtype.is_integer:
        return None
    last = match.splat(
        with_dims(match.array, iota.array.dims), _wrapped(iota, iota.array.dims[dimension] - 1)
    )
    counted = match.result("iota", iota_dimension=dimension)
    return match.result("subtract", last, counted)


def _wrapped(iota: Instruction, number: int) -> int:
    """A number as an element of the iota's type, modulo its range."""
    dtype = iota.array.dtype
    number &= (1 << dtype.bits) - 1
    if dtype.kind == "signed" and number >> (dtype.bits - 1):
        number -= 1 << dtype.bits
    return number


def _in_window(match: Match) -> Instruction | None:
    """The window runs through the kernel the other way."""
    root, kernel = match.root, match.root.operands[1]
    labels = root.attributes["dim_labels"]
    places = {d: place for place, d in enumerate(labels.kernel_spatial)}
    turned = dimensions(kernel)
    if not used_once(kernel) or any(d not in places for d in turned):
        return None
    if root.attributes.get("window") is None:
        return None
    window = list(root.attributes["window"].dims)
    for d in turned:
        entry = window[places[d]]
        window[places[d]] = replace(entry, reversal=not entry.reversal)
    attributes = {**own_attributes(root), "window": Window(tuple(window))}
    return match.result("convolution", root.operands[0], kernel.operands[0], **attributes)


RULES = (
    Rule("reverse(A) => A", op("reverse", A), A, when=_reverse_nothing),
    Rule(
        "reverse(reverse(A)) => reverse(A)",
        op("reverse", op("reverse", A)),
        _reverse_once,
    ),
    Rule("reverse(A) along ones => reverse(A)", op("reverse", A), _without_ones),
    Rule(
        "reverse(broadcast(A)) => broadcast(reverse(A))",
        op("reverse", op("broadcast", A)),
        _of_broadcast,
    ),
    Rule(
        "reverse(f(A, C)) => f(reverse(A), C)",
        op("reverse", op(PASSABLE).bind("F").one_use),
        _past_elementwise,
    ),
    Rule(
        "reverse(reshape(A)) => reshape(reverse(A))",
        op("reverse", op("reshape", A).bind("R").one_use),
        _past_reshape,
    ),
    Rule(
        "reverse(concatenate(A, B)) => concatenate(B, A)",
        op("reverse", op("concatenate").bind("F").one_use),
        _of_concatenate,
    ),
    Rule("reverse(iota) => n - 1 - iota", op("reverse", op("iota").bind("I")), _of_iota),
    Rule(
        "convolution(A, reverse(B)) => convolution(A, B) with the window reversed",
        op("convolution", A, op("reverse")),
        _in_window,
    ),
)
