"""One wrong rewrite at a random place of a module, of one of many kinds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hloopt.ir import Instruction, Module, build, edit, walk
from hloopt.ops.traits import BODIES, CONTROL_FLOW
from hloopt.types import ArrayShape, Literal

__all__ = ["KINDS", "break_once"]

_OTHER = {
    "add": "subtract",
    "subtract": "add",
    "multiply": "add",
    "divide": "multiply",
    "maximum": "minimum",
    "minimum": "maximum",
    "and": "or",
    "or": "and",
    "xor": "or",
    "sine": "cosine",
    "cosine": "sine",
    "exponential": "exponential-minus-one",
    "log": "log-plus-one",
    "floor": "ceil",
    "ceil": "floor",
    "tanh": "logistic",
    "logistic": "tanh",
    "negate": "abs",
    "abs": "negate",
    "sqrt": "rsqrt",
    "rsqrt": "sqrt",
    "shift-left": "shift-right-logical",
    "shift-right-logical": "shift-right-arithmetic",
}
_ORDERED = {
    "subtract",
    "divide",
    "power",
    "remainder",
    "atan2",
    "shift-left",
    "shift-right-logical",
}


def _copy(one: Instruction, operands: Any = None, **changed: Any) -> Instruction:
    return build.make(
        one,
        changed.pop("opcode", one.opcode),
        tuple(operands or one.operands),
        {**one.attributes, **changed},
        shape=one.shape,
        name=one.name,
        metadata=one.metadata,
    )


def _operand(one: Instruction, chooser: random.Random) -> Instruction | None:
    same = [o for o in one.operands if o.shape == one.shape and o.opcode != "constant"]
    return chooser.choice(same) if same and one.opcode != "copy" else None


def _opcode(one: Instruction, chooser: random.Random) -> Instruction | None:
    other = _OTHER.get(one.opcode)
    wrong_kind = one.is_array and one.array.dtype.is_pred and one.opcode not in ("and", "or", "xor")
    return None if other is None or wrong_kind else _copy(one, opcode=other)


def _swapped(one: Instruction, chooser: random.Random) -> Instruction | None:
    return _copy(one, one.operands[::-1]) if one.opcode in _ORDERED else None


def _arms(one: Instruction, chooser: random.Random) -> Instruction | None:
    if one.opcode != "select":
        return None
    mask, left, right = one.operands
    return _copy(one, (mask, right, left))


def _direction(one: Instruction, chooser: random.Random) -> Instruction | None:
    if one.opcode != "compare":
        return None
    return _copy(
        one,
        direction={"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "EQ": "NE", "NE": "EQ"}[
            one.direction
        ],
    )


def _constant(one: Instruction, chooser: random.Random) -> Instruction | None:
    array = one.constant_array
    if array is None or not array.size or one.array.dtype.is_pred:
        return None
    changed = array.copy()
    changed.flat[chooser.randrange(array.size)] += array.dtype.type(1)
    return build.constant(one, Literal(one.array, changed), one.name)


def _transposed(one: Instruction, chooser: random.Random) -> Instruction | None:
    dims = one.array.dims if one.is_array else ()
    if one.opcode not in ("transpose", "broadcast") or len(one.dimensions) < 2:
        return None
    order = list(one.dimensions)
    source = one.operands[0].array.dims
    pairs = [(a, b) for a in range(len(order)) for b in range(a) if source[a] == source[b] and dims]
    if not pairs:
        return None
    a, b = chooser.choice(pairs)
    order[a], order[b] = order[b], order[a]
    return _copy(one, dimensions=tuple(order))


def _window(one: Instruction, chooser: random.Random) -> Instruction | None:
    if one.opcode != "slice":
        return None
    dims = one.operands[0].array.dims
    slices = list(one.attributes["slice"])
    for axis, entry in enumerate(slices):
        start, limit, stride = entry.start, entry.limit, entry.stride
        step = 1 if limit < dims[axis] else -1 if start else 0
        if step:
            slices[axis] = type(entry)(start + step, limit + step, stride)
            return _copy(one, slice=tuple(slices))
    return None


def _joined(one: Instruction, chooser: random.Random) -> Instruction | None:
    if one.opcode != "concatenate" or len(one.operands) < 2:
        return None
    return _copy(one, (*one.operands[1:], one.operands[0]))


def _reversed(one: Instruction, chooser: random.Random) -> Instruction | None:
    return one.operands[0] if one.opcode == "reverse" else None


def _rounded(one: Instruction, chooser: random.Random) -> Instruction | None:
    if not one.is_array or one.array.dtype.name not in ("f32", "f64") or one.opcode == "constant":
        return None
    copy = _copy(one)
    attributes = {"exponent_bits": 8, "mantissa_bits": 4}
    return build.make(one, "reduce-precision", (copy,), attributes, shape=one.shape)


def _zeroed(one: Instruction, chooser: random.Random) -> Instruction | None:
    if not isinstance(one.shape, ArrayShape) or one.opcode in ("constant", "broadcast"):
        return None
    return build.splat(one, one.array, 0)


def _negated(one: Instruction, chooser: random.Random) -> Instruction | None:
    if not one.is_array or not one.array.dtype.is_float or one.opcode == "constant":
        return None
    return build.make(one, "negate", (_copy(one),), shape=one.shape)


def _started(one: Instruction, chooser: random.Random) -> Instruction | None:
    """Another initial value of a reduction."""
    if one.opcode != "reduce" or not one.is_array or one.array.dtype.is_pred:
        return None
    first = build.constant(
        one, Literal(one.operands[1].array, np.array(3).astype(one.array.dtype.numpy))
    )
    return _copy(one, (one.operands[0], first))


def _folded(one: Instruction, chooser: random.Random) -> Instruction | None:
    """A reduction that leaves out part of its operand."""
    if one.opcode != "reduce" or not one.is_array:
        return None
    axis, source = one.dimensions[0], one.operands[0]
    if source.array.dims[axis] < 2 or source.array.dtype.is_pred:
        return None
    zero = build.splat(one, source.array, 0)
    counts = build.make(one, "iota", (), {"iota_dimension": axis}, shape=_as(source.array, "s32"))
    last = build.splat(one, _as(source.array, "s32"), source.array.dims[axis] - 1)
    mask = build.make(one, "compare", (counts, last), {"direction": "LT"})
    return _copy(one, (build.make(one, "select", (mask, source, zero)), *one.operands[1:]))


def _as(shape: ArrayShape, kind: str) -> ArrayShape:
    from hloopt.types import array

    return array(kind, shape.dims)


def _shifted(one: Instruction, chooser: random.Random) -> Instruction | None:
    """A dynamic index one further."""
    if one.opcode not in ("dynamic-slice", "dynamic-update-slice"):
        return None
    first = 1 if one.opcode == "dynamic-slice" else 2
    whole, part = (
        one.operands[0].array.dims,
        (one.operands[1].array.dims if first == 2 else one.array.dims),
    )
    axes = [axis for axis, size in enumerate(whole) if part[axis] < size]
    if not axes:
        return None
    at = first + chooser.choice(axes)
    index = one.operands[at]
    more = build.make(one, "add", (index, build.splat(one, index.array, 1)))
    return _copy(one, (*one.operands[:at], more, *one.operands[at + 1 :]))


def _element(one: Instruction, chooser: random.Random) -> Instruction | None:
    if one.opcode != "get-tuple-element":
        return None
    whole = one.operands[0]
    others = [
        n for n, shape in enumerate(whole.elements) if shape == one.shape and n != one.tuple_index
    ]
    return _copy(one, index=chooser.choice(others)) if others else None


def _iota(one: Instruction, chooser: random.Random) -> Instruction | None:
    if one.opcode != "iota":
        return None
    dims = one.array.dims
    others = [n for n in range(len(dims)) if n != one.iota_dimension and dims[n] > 1]
    return _copy(one, iota_dimension=chooser.choice(others)) if others else None


def _product(one: Instruction, chooser: random.Random) -> Instruction | None:
    """A dot with an operand that is transposed though it is square."""
    if one.opcode != "dot":
        return None
    for number, operand in enumerate(one.operands[:2]):
        dims = operand.array.dims
        if len(dims) == 2 and dims[0] == dims[1]:
            moved = build.make(
                one, "transpose", (operand,), {"dimensions": (1, 0)}, shape=operand.shape
            )
            return _copy(one, [moved if n == number else o for n, o in enumerate(one.operands)])
    return None


KINDS: dict[str, Callable[[Instruction, random.Random], Instruction | None]] = {
    "operand": _operand,
    "opcode": _opcode,
    "swapped": _swapped,
    "arms": _arms,
    "direction": _direction,
    "constant": _constant,
    "transposed": _transposed,
    "window": _window,
    "joined": _joined,
    "reversed": _reversed,
    "rounded": _rounded,
    "zeroed": _zeroed,
    "negated": _negated,
    "started": _started,
    "folded": _folded,
    "shifted": _shifted,
    "element": _element,
    "iota": _iota,
    "product": _product,
}


def _sites(module: Module) -> Iterator[Instruction]:
    """Instructions that run one after the other."""
    seen, pending = {module.entry}, [module.entry]
    while pending:
        for one in pending.pop():
            yield one
            if one.opcode in CONTROL_FLOW | BODIES:
                new = [body for body in walk.called_computations(one) if body not in seen]
                seen.update(new)
                pending += new


def break_once(
    module: Module, chooser: random.Random, kind: str
) -> tuple[Instruction, list[Instruction]] | None:
    """Make one rewrite of a kind: what was replaced, and what by: first the value itself, then what it needs."""
    sites = [
        one
        for one in _sites(module)
        if one.is_used and one.opcode != "parameter" and not one.has_control_edges
    ]
    chooser.shuffle(sites)
    for one in sites:
        known = set(one.home)
        made = KINDS[kind](one, chooser)
        if made is not None and made is not one:
            new = [made, *(entry for entry in one.home if entry not in known and entry is not made)]
            edit.replace_instruction(one, made)
            return one, new
    return None
