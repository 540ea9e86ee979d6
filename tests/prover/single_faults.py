"""Single wrong rewrites, as a faulty pass would make them: each kind changes one instruction of a module.

A kind is a function of an instruction and a random generator that changes the module in place and says
whether it could, or what else it changed; the result is a valid module.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from hloopt.ir import Instruction, Module, build, edit
from hloopt.ops.traits import INVERSE
from hloopt.types import ArrayShape, Literal, PaddingDim, SliceRange, Window, array
from hloopt.verifier import verify_module

__all__ = ["KINDS", "Wrong", "make_wrong"]

Kind = Callable[[Instruction, random.Random], bool | str]

_UNSYMMETRIC: Final = frozenset(
    {"subtract", "divide", "power", "remainder", "atan2", "shift-left", "shift-right-logical"}
)
_OTHER_OPS: Final = {
    "add": "subtract", "multiply": "add", "maximum": "minimum", "minimum": "maximum", "sine": "cosine",
    "cosine": "sine", "exponential": "exponential-minus-one", "log": "log-plus-one", "sqrt": "rsqrt",
    "rsqrt": "sqrt", "floor": "ceil", "ceil": "floor", "and": "or", "or": "xor", "xor": "and", "tanh": "sine",
    "shift-left": "shift-right-logical", "shift-right-logical": "shift-left", "divide": "multiply",
}  # fmt: skip


@dataclass(frozen=True)
class Wrong:
    """A wrong rewrite: of which kind, of which instruction, in which computation."""

    kind: str
    instruction: str
    computation: str


def _dims(entry: Instruction) -> tuple[int, ...]:
    return entry.shape.dims if isinstance(entry.shape, ArrayShape) else ()


def _swap_operands(entry: Instruction, chance: random.Random) -> bool:
    left, *rest = entry.operands or (None,)
    wrong = entry.opcode in _UNSYMMETRIC
    if not wrong or left is rest[0] or left.shape != rest[0].shape:
        return False
    edit.set_operands(entry, (rest[0], left))
    return True


def _constant(entry: Instruction, chance: random.Random) -> bool:
    literal = entry.literal
    if literal is None or literal.array is None or literal.elided or not literal.array.size:
        return False
    values = np.array(literal.array)
    kind = literal.shape.dtype
    at = chance.randrange(values.size)
    old = values.reshape(-1)[at]
    if kind.is_pred:
        new = not old
    elif kind.is_integer:
        new = int(old) + 1 if int(old) < kind.limits[1] else int(old) - 1
    else:
        new = old * 1.5 if np.isfinite(complex(old)) and old != 0 else 1.0
    values.reshape(-1)[at] = new
    edit.set_attribute(entry, "literal", Literal(literal.shape, values))
    return True


def _slice(entry: Instruction, chance: random.Random) -> bool:
    if entry.opcode != "slice":
        return False
    ranges = list(entry.attributes["slice"])
    room = [
        (at, step)
        for at, (one, size) in enumerate(zip(ranges, _dims(entry.operands[0]), strict=True))
        for step in (-1, 1)
        if one.start + step >= 0 and one.limit + step <= size
    ]
    if not room:
        return False
    at, step = chance.choice(room)
    one = ranges[at]
    ranges[at] = SliceRange(one.start + step, one.limit + step, one.stride)
    edit.set_attribute(entry, "slice", tuple(ranges))
    return True


def _pad(entry: Instruction, chance: random.Random) -> bool:
    if entry.opcode != "pad":
        return False
    dims = list(entry.attributes["padding"])
    at = chance.randrange(len(dims)) if dims else -1
    if at < 0:
        return False
    step = 1 if dims[at].high > 0 else -1
    dims[at] = PaddingDim(dims[at].low + step, dims[at].high - step, dims[at].interior)
    edit.set_attribute(entry, "padding", tuple(dims))
    return True


def _direction(entry: Instruction, chance: random.Random) -> bool:
    if entry.opcode != "compare":
        return False
    old = str(entry.attributes["direction"])
    near = {"LT": "LE", "LE": "LT", "GT": "GE", "GE": "GT", "EQ": "NE", "NE": "EQ"}
    new = chance.choice((INVERSE[old], near[old]))
    edit.set_attribute(entry, "direction", type(entry.attributes["direction"])(new))
    return True


def _dropped(entry: Instruction, value: Instruction) -> bool:
    if value.shape != entry.shape:
        return False
    edit.replace_instruction(entry, value)
    return True


def _term(entry: Instruction, chance: random.Random) -> bool:
    if entry.opcode not in ("add", "subtract", "multiply", "maximum", "and", "or"):
        return False
    return _dropped(entry, entry.operands[0])


def _negation(entry: Instruction, chance: random.Random) -> bool:
    return entry.opcode in ("negate", "abs", "not") and _dropped(entry, entry.operands[0])


def _rounding(entry: Instruction, chance: random.Random) -> bool:
    if entry.opcode == "reduce-precision":
        return _dropped(entry, entry.operands[0])
    inner = entry.operands[0] if entry.opcode == "convert" else entry
    return (
        entry.opcode == inner.opcode == "convert"
        and inner is not entry
        and _dropped(entry, inner.operands[0])
    )


def _square(dims: tuple[int, ...]) -> tuple[int, int] | None:
    """Two dimensions of one size."""
    for one in range(len(dims)):
        for other in range(one + 1, len(dims)):
            if dims[one] == dims[other] > 1:
                return one, other
    return None


def _dimensions(opcode: str) -> Kind:
    def change(entry: Instruction, chance: random.Random) -> bool:
        """Another dimension of the same size takes the place of one."""
        if entry.opcode != opcode or not isinstance(entry.shape, ArrayShape):
            return False
        own = entry.attributes["dimensions"]
        pair = _square(_dims(entry.operands[0]) if opcode == "reduce" else entry.shape.dims)
        if pair is None:
            return False
        exchange = {pair[0]: pair[1], pair[1]: pair[0]}
        new = [exchange.get(one, one) for one in own]
        if opcode == "reduce":
            new.sort()
        if opcode == "transpose":  # which of the result's dimensions are equal
            new = list(own)
            new[pair[0]], new[pair[1]] = new[pair[1]], new[pair[0]]
        if tuple(new) == own or (opcode == "broadcast" and new != sorted(new)):
            return False
        edit.set_attribute(entry, "dimensions", tuple(new))
        return True

    return change


def _initial(entry: Instruction, chance: random.Random) -> bool:
    if entry.opcode not in ("reduce", "reduce-window") or len(entry.operands) != 2:
        return False
    shape = entry.operands[1].shape
    if not isinstance(shape, ArrayShape):
        return False
    other = build.constant(
        entry,
        Literal(
            array(shape.dtype), np.array(0 if shape.dtype.is_pred else 3).astype(shape.dtype.numpy)
        ),
    )
    edit.set_operand(entry, 1, other)
    return True


def _arms(entry: Instruction, chance: random.Random) -> bool:
    if entry.opcode != "select" or entry.operands[1] is entry.operands[2]:
        return False
    edit.set_operands(entry, (entry.operands[0], entry.operands[2], entry.operands[1]))
    return True


def _bounds(entry: Instruction, chance: random.Random) -> bool:
    if entry.opcode != "clamp" or entry.operands[0].shape != entry.operands[2].shape:
        return False
    least, value, most = entry.operands
    edit.set_operands(entry, chance.choice(((most, value, most), (least, value, least))))
    return True


def _iota(entry: Instruction, chance: random.Random) -> bool:
    dims = _dims(entry)
    others = [at for at in range(len(dims)) if at != entry.attributes.get("iota_dimension")]
    if entry.opcode != "iota" or not others:
        return False
    edit.set_attribute(entry, "iota_dimension", chance.choice(others))
    return True


def _one_more(entry: Instruction, at: int) -> bool:
    """An operand of integers becomes one more."""
    operand = entry.operands[at]
    if not isinstance(operand.shape, ArrayShape) or not operand.shape.dtype.is_integer:
        return False
    one = build.splat(entry, replace(operand.shape, layout=None), 1)
    edit.set_operand(entry, at, build.make(entry, "add", (operand, one), shape=operand.shape))
    return True


def _index(entry: Instruction, chance: random.Random) -> bool:
    first = {"dynamic-slice": 1, "dynamic-update-slice": 2}.get(entry.opcode)
    if first is None or len(entry.operands) <= first:
        return False
    return _one_more(entry, chance.randrange(first, len(entry.operands)))


def _gather(entry: Instruction, chance: random.Random) -> bool:
    return entry.opcode in ("gather", "scatter") and _one_more(entry, 1)


def _opcode(entry: Instruction, chance: random.Random) -> bool:
    other = _OTHER_OPS.get(entry.opcode)
    shape = entry.shape
    if other is None or not isinstance(shape, ArrayShape) or shape.dtype.is_pred:
        return False
    if shape.dtype.is_integer and entry.opcode == "divide":
        return False
    made = build.make(entry, other, entry.operands, shape=shape, metadata=entry.metadata)
    name = entry.name
    edit.replace_instruction(entry, made)
    edit.rename(made, name)
    return True


def _concatenate(entry: Instruction, chance: random.Random) -> bool:
    if entry.opcode != "concatenate" or len(set(entry.operands)) < 2:
        return False
    edit.set_operands(entry, tuple(reversed(entry.operands)))
    return True


def _element(entry: Instruction, chance: random.Random) -> bool:
    if entry.opcode != "get-tuple-element":
        return False
    own = entry.tuple_index
    others = [
        at
        for at, shape in enumerate(entry.operands[0].elements)
        if at != own and shape == entry.shape
    ]
    if not others:
        return False
    edit.set_attribute(entry, "index", chance.choice(others))
    return True


def _order(entry: Instruction, chance: random.Random) -> bool:
    if entry.opcode != "tuple":
        return False
    pairs = [
        (one, other)
        for one in range(len(entry.operands))
        for other in range(one)
        if entry.operands[one].shape == entry.operands[other].shape
        and entry.operands[one] is not entry.operands[other]
    ]
    if not pairs:
        return False
    one, other = chance.choice(pairs)
    values = list(entry.operands)
    values[one], values[other] = values[other], values[one]
    edit.set_operands(entry, tuple(values))
    return True


def _trips(entry: Instruction, chance: random.Random) -> bool | str:
    """The bound with which a loop's condition compares becomes one less."""
    if entry.opcode != "while":
        return False
    root = entry.condition.root
    bounds = [one for one in root.operands if one.opcode == "constant"]
    if root.opcode != "compare" or not bounds or not bounds[0].literal:
        return False
    literal = bounds[0].literal
    if literal.array is None or literal.shape.dims or int(literal.array) < 1:
        return False
    less = np.array(int(literal.array) - 1, literal.array.dtype)
    edit.set_attribute(bounds[0], "literal", Literal(literal.shape, less))
    return bounds[0].name


def _contracted(entry: Instruction, chance: random.Random) -> bool:
    if entry.opcode != "dot":
        return False
    for side in ("lhs", "rhs"):
        name = f"{side}_contracting_dims"
        operand = entry.operands[side == "rhs"]
        pair = _square(_dims(operand))
        own = entry.attributes.get(name, ())
        batch = entry.attributes.get(f"{side}_batch_dims", ())
        if pair is None or len(own) != 1 or own[0] not in pair or set(pair) & set(batch):
            continue
        edit.set_attribute(entry, name, (pair[1 - pair.index(own[0])],))
        return True
    return False


def _reversed(entry: Instruction, chance: random.Random) -> bool:
    return entry.opcode in ("reverse", "transpose") and _dropped(entry, entry.operands[0])


def _window(entry: Instruction, chance: random.Random) -> bool:
    window = entry.attributes.get("window")
    if not isinstance(window, Window):
        return False
    dims = list(window.dims)
    room = [at for at, one in enumerate(dims) if one.pad_high > 0 or one.pad_low > 0]
    if not room:
        return False
    at = chance.choice(room)
    step = 1 if dims[at].pad_high > 0 else -1
    dims[at] = replace(dims[at], pad_low=dims[at].pad_low + step, pad_high=dims[at].pad_high - step)
    edit.set_attribute(entry, "window", Window(tuple(dims)))
    return True


KINDS: Final[Mapping[str, Kind]] = {
    "swap-operands": _swap_operands,
    "constant": _constant,
    "slice": _slice,
    "pad": _pad,
    "direction": _direction,
    "dropped-term": _term,
    "dropped-negation": _negation,
    "dropped-rounding": _rounding,
    "reduce-dimension": _dimensions("reduce"),
    "broadcast-dimension": _dimensions("broadcast"),
    "transpose-dimension": _dimensions("transpose"),
    "initial-value": _initial,
    "select-arms": _arms,
    "clamp-bounds": _bounds,
    "iota-dimension": _iota,
    "slice-index": _index,
    "gather-index": _gather,
    "opcode": _opcode,
    "concatenate-order": _concatenate,
    "tuple-element": _element,
    "tuple-order": _order,
    "trip-count": _trips,
    "contracting-dimension": _contracted,
    "dropped-movement": _reversed,
    "window": _window,
}


def make_wrong(module: Module, kind: str, chance: random.Random) -> Wrong | None:
    """Change one instruction in place; None where the module has none of which this kind can be.

    Raises ``VerifyError`` where the module is not valid any more.
    """
    entries = [entry for entry in module.instructions() if entry.opcode != "parameter"]
    chance.shuffle(entries)
    for entry in entries:
        home = entry.computation
        wrong = Wrong(kind, entry.name, home.name if home is not None else "")
        done = KINDS[kind](entry, chance)
        if done:
            verify_module(module)
            return replace(wrong, instruction=done) if isinstance(done, str) else wrong
    return None
