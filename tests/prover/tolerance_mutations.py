"""Small wrong changes of a module, each of a kind that a wrong rewrite makes: shapes stay, values do not."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from hloopt.ir import Instruction, Module, edit
from hloopt.ir.build import clone_module, make, splat
from hloopt.ops.traits import INVERSE
from hloopt.types import (
    ArrayShape,
    DotDims,
    GatherDims,
    Literal,
    PaddingDim,
    SliceRange,
    array,
)

Mutation = Callable[[Instruction, random.Random], bool]
"""Changes an instruction of a module, or says that it cannot: nothing is changed then."""


def _operands_swapped(one: Instruction, chance: random.Random) -> bool:
    first = 1 if one.opcode == "select" else 0
    ordered = {"subtract", "divide", "power", "remainder", "atan2", "compare", "select"}
    pair = one.operands[first : first + 2]
    if one.opcode not in ordered or pair[0] is pair[1] or pair[0].shape != pair[1].shape:
        return False
    edit.set_operands(one, (*one.operands[:first], pair[1], pair[0], *one.operands[first + 2 :]))
    return True


def _constant_of(one: Instruction) -> np.ndarray | None:
    literal = one.literal if one.opcode == "constant" else None
    return (
        None
        if literal is None or literal.array is None or not literal.array.size
        else literal.array
    )


def _with_element(one: Instruction, changed: np.ndarray) -> bool:
    edit.set_attribute(one, "literal", Literal(one.shape, changed))  # type: ignore[arg-type]
    return True


def _float_constant_off(one: Instruction, chance: random.Random) -> bool:
    """An element by a unit in the last place of bf16: of 1 by 1/128."""
    value = _constant_of(one)
    if value is None or not one.array.dtype.is_float or one.array.dtype.bits < 16:
        return False
    places = np.flatnonzero(np.isfinite(value.astype(np.float64)) & (value != 0))
    if not places.size:
        return False
    at = chance.choice(list(places[:4096]))
    changed = value.copy().reshape(-1)
    number = float(changed[at])
    changed[at] = number + np.copysign(2.0 ** (np.floor(np.log2(abs(number))) - 7), number)
    return bool(changed[at] != number) and _with_element(one, changed.reshape(value.shape))


def _integer_constant_off(one: Instruction, chance: random.Random) -> bool:
    value = _constant_of(one)
    if value is None or not one.array.dtype.is_integer:
        return False
    changed = value.copy().reshape(-1)
    at = chance.randrange(changed.size)
    changed[at] = changed[at] + changed.dtype.type(1)
    return _with_element(one, changed.reshape(value.shape))


def _instead(one: Instruction, other: Instruction) -> bool:
    """Put a value of the same type in the place of an instruction."""
    computation = one.computation
    assert computation is not None
    if other.shape != one.shape or other is one:
        return False
    edit.replace_uses(one, other)
    if computation.root is one:
        edit.set_root(computation, other)
    return True


def _term_dropped(one: Instruction, chance: random.Random) -> bool:
    known = {"add", "subtract", "multiply", "divide", "and", "or", "maximum", "minimum"}
    return one.opcode in known and _instead(one, one.operands[0])


def _function_dropped(one: Instruction, chance: random.Random) -> bool:
    known = {
        "negate",
        "abs",
        "floor",
        "sign",
        "not",
        "exponential",
        "log",
        "tanh",
        "sqrt",
        "logistic",
    }
    return one.opcode in known and _instead(one, one.operands[0])


def _update_dropped(one: Instruction, chance: random.Random) -> bool:
    if one.opcode == "select":
        return _instead(one, one.operands[1])
    known = {"dynamic-update-slice", "scatter", "reverse"}
    return one.opcode in known and _instead(one, one.operands[0])


_OTHER = {
    "add": "subtract",
    "subtract": "add",
    "multiply": "add",
    "divide": "multiply",
    "maximum": "minimum",
    "minimum": "maximum",
    "sine": "cosine",
    "cosine": "sine",
    "exponential": "exponential-minus-one",
    "log": "log-plus-one",
    "floor": "ceil",
    "ceil": "floor",
    "and": "or",
    "or": "and",
    "rsqrt": "sqrt",
    "sqrt": "rsqrt",
    "tanh": "logistic",
}


def _another_op(one: Instruction, chance: random.Random) -> bool:
    opcode = _OTHER.get(one.opcode)
    if opcode is None or (one.opcode == "divide" and not one.array.dtype.is_float):
        return False
    return _instead(one, make(one, opcode, one.operands, shape=one.shape))


def _direction_flipped(one: Instruction, chance: random.Random) -> bool:
    if one.opcode != "compare":
        return False
    edit.set_attribute(one, "direction", INVERSE[str(one.attributes["direction"])])
    return True


def _bound_moved(one: Instruction, chance: random.Random) -> bool:
    other = {"LT": "LE", "LE": "LT", "GT": "GE", "GE": "GT"}
    if one.opcode != "compare" or one.attributes["direction"] not in other:
        return False
    edit.set_attribute(one, "direction", other[one.attributes["direction"]])
    return True


def _index_off(one: Instruction, chance: random.Random) -> bool:
    """A slice, an update or a gather that is off by one element."""
    if one.opcode == "slice":
        ranges = list(one.attributes["slice"])
        able = [
            at
            for at, (part, size) in enumerate(zip(ranges, one.operands[0].array.dims, strict=True))
            if part.limit < size or part.start > 0
        ]
        if not able:
            return False
        at = chance.choice(able)
        part = ranges[at]
        by = 1 if part.limit < one.operands[0].array.dims[at] else -1
        ranges[at] = SliceRange(part.start + by, part.limit + by, part.stride)
        edit.set_attribute(one, "slice", tuple(ranges))
        return True
    if one.opcode == "pad":
        parts = list(one.attributes["padding"])
        able = [at for at, part in enumerate(parts) if part.high > 0]
        if not able:
            return False
        at = chance.choice(able)
        parts[at] = PaddingDim(parts[at].low + 1, parts[at].high - 1, parts[at].interior)
        edit.set_attribute(one, "padding", tuple(parts))
        return True
    first = {"dynamic-slice": 1, "dynamic-update-slice": 2, "gather": 1}.get(one.opcode)
    if first is None or len(one.operands) <= first:
        return False
    if one.opcode == "gather" and not GatherDims.of(one.attributes).index_map:
        return False
    at = chance.randrange(first, len(one.operands))
    index = one.operands[at]
    moved = make(one, "add", (index, splat(one, index.array, 1)))
    edit.set_operand(one, at, moved)
    return True


def _last_is_nothing(one: Instruction, value: Instruction, axis: int) -> Instruction:
    """A value whose last elements along a dimension are zero."""
    shape = value.array
    ranges = tuple(SliceRange(0, size - (at == axis)) for at, size in enumerate(shape.dims))
    part = make(one, "slice", (value,), {"slice": ranges})
    padding = tuple(PaddingDim(0, int(at == axis)) for at in range(shape.rank))
    zero = splat(one, array(shape.dtype), 0)
    return make(one, "pad", (part, zero), {"padding": padding}, shape=value.shape)


def _sum_short(one: Instruction, chance: random.Random) -> bool:
    """A sum or a product that leaves out its last term."""
    if one.opcode == "dot":
        axes = DotDims.of(one.attributes).lhs_contracting
    elif one.opcode == "reduce" and len(one.operands) == 2 and one.to_apply.root.opcode == "add":
        axes = tuple(one.dimensions)
    else:
        return False
    operand = one.operands[0].array
    able = [axis for axis in axes if operand.dims[axis] > 1]
    if not able or operand.is_dynamic:
        return False
    edit.set_operand(one, 0, _last_is_nothing(one, one.operands[0], chance.choice(able)))
    return True


def _narrowed(one: Instruction, chance: random.Random) -> bool:
    """A value that is kept in a narrower type on its way: f32 in bf16, f64 in f32."""
    if not isinstance(one.shape, ArrayShape) or one.shape.is_dynamic:
        return False
    narrow = {"f32": "bf16", "f64": "f32"}.get(one.array.dtype.name)
    if narrow is None or one.opcode in ("parameter", "constant", "broadcast") or not one.users:
        return False
    user = next(iter(one.users))
    there = make(user, "convert", (one,), shape=array(narrow, one.array.dims))
    back = make(user, "convert", (there,), shape=one.shape)
    edit.replace_operand(user, one, back)
    return True


def _dimensions_confused(one: Instruction, chance: random.Random) -> bool:
    """A square that is not transposed, a vector along the other dimension of one."""
    if one.opcode == "transpose":
        return _instead(one, one.operands[0])
    if one.opcode != "broadcast" or one.operands[0].array.rank != 1:
        return False
    (own,) = one.attributes["dimensions"]
    size = one.array.dims[own]
    others = [at for at, other in enumerate(one.array.dims) if other == size and at != own]
    if not others or size == 1:
        return False
    edit.set_attribute(one, "dimensions", (chance.choice(others),))
    return True


def _wrong_operand(one: Instruction, chance: random.Random) -> bool:
    """Another value of the same type that is there already."""
    computation = one.computation
    assert computation is not None
    before: list[Instruction] = []
    for other in computation:
        if other is one:
            break
        before.append(other)
    at = chance.randrange(len(one.operands)) if one.operands else 0
    able = [
        other for other in before if one.operands and other.shape == one.operands[at].shape
        and other is not one.operands[at] and isinstance(other.shape, ArrayShape)
    ]  # fmt: skip
    if not able:
        return False
    edit.set_operand(one, at, chance.choice(able))
    return True


KINDS: dict[str, Mutation] = {
    "operands swapped": _operands_swapped,
    "float constant off by a bf16 ulp": _float_constant_off,
    "integer constant off by one": _integer_constant_off,
    "term or factor dropped": _term_dropped,
    "function dropped": _function_dropped,
    "update or choice dropped": _update_dropped,
    "another op": _another_op,
    "comparison flipped": _direction_flipped,
    "comparison's bound moved": _bound_moved,
    "index off by one": _index_off,
    "sum without its last term": _sum_short,
    "value kept in a narrower type": _narrowed,
    "dimensions confused": _dimensions_confused,
    "another value for an operand": _wrong_operand,
}


def wrong_rewrites(module: Module, seed: int, each: int) -> list[tuple[str, str, Module]]:
    """Changed copies of a module: up to ``each`` of every kind, with the name of what was changed."""
    chance = random.Random(f"wrong {seed}")
    found = []
    opcodes = [one.opcode for one in module.instructions()]
    copy = clone_module(module)
    instructions = list(copy.instructions())
    for kind, mutation in KINDS.items():
        of_constants = "constant" in kind
        places = [at for at, opcode in enumerate(opcodes) if (opcode == "constant") == of_constants]
        chance.shuffle(places)
        left = each
        for place in places:
            if not left:
                break
            one = instructions[place]
            if mutation(one, chance):
                found.append((kind, one.name, copy))
                left -= 1
                copy = clone_module(module)
                instructions = list(copy.instructions())
    return found
