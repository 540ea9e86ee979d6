"""Forms of expressions that lose digits or overflow, and what to put there instead."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import numpy as np

from hloopt.ir import Instruction
from hloopt.ops.traits import CONSTRAINTS, MOVING, PASSING_ON, VIEWS, op_table
from hloopt.rewrite.pattern import splat_literal
from hloopt.rewrite.regions import combiner_computation, named_combiner
from hloopt.rewrite.site import Site, row_major

__all__ = [
    "exponential_less_one",
    "exponential_minus_one",
    "is_shifted",
    "less_most",
    "log_near_one",
    "log_of_one_more",
    "log_of_sigmoid",
    "log_plus_one",
    "log_sigmoid",
    "made_of",
    "masked_after",
    "masked_product",
    "on",
    "one_where_zero",
    "plain_softmax",
    "self_quotient",
    "shifted_softmax",
    "softplus",
    "square_minus_square",
    "squared_distance",
]

_Parts = tuple[Instruction, ...] | None
_SAME: Final = MOVING | CONSTRAINTS
"""Ops whose elements are those of the operand: JAX keeps gradients and infinities away from a maximum."""
_INFINITE: Final = op_table(
    {
        "divide": "by 0",
        "exponential": "of large numbers",
        "log": "of 0",
        "power": "of 0, or large",
        "rsqrt": "of 0",
        "tan": "near odd quarters of a turn",
    },
    otherwise="finite for finite operands, but for sums and products of huge ones",
)
_THROUGH: Final = VIEWS | PASSING_ON | {"multiply", "negate", "abs"}
_DEPTH: Final = 6


def _is_number(one: Instruction, value: float) -> bool:
    literal = splat_literal(one)
    return literal is not None and literal.array is not None and complex(literal.array) == value


# ---- x / x


def self_quotient(last: Instruction) -> _Parts:
    """``x / x``."""
    if last.opcode != "divide" or last.operands[0] is not last.operands[1]:
        return None
    return None if splat_literal(last.operands[0]) is not None else (last, last.operands[0])


def one_where_zero(last: Instruction) -> None:
    """``x == 0 ? 1 : x / x``."""
    site, value = Site(last), last.operands[0]
    zero = site.make("compare", value, site.splat(value.array, 0), direction="EQ")
    again = site.make("divide", value, value, shape=last.shape)
    site.replace(site.make("select", zero, site.splat(last.array, 1), again, shape=last.shape))


# ---- mask * f(x)


def _mask(value: Instruction) -> tuple[Instruction, bool] | None:
    """What says where a factor is 0, and whether it is 0 where that is true."""
    if value.opcode == "convert" and value.operands[0].array.dtype.name == "pred":
        return value.operands[0], False
    if value.opcode == "select" and value.operands[0].array.dims == value.array.dims:
        for number in (1, 2):
            if _is_number(value.operands[number], 0):
                return value.operands[0], number == 1
    return None


def _may_be_infinite(value: Instruction, depth: int = _DEPTH) -> bool:
    if value.opcode in _INFINITE:
        return value.opcode != "divide" or splat_literal(value.operands[1]) is None
    if value.opcode not in _THROUGH or not depth:
        return False
    return any(_may_be_infinite(one, depth - 1) for one in value.operands)


def _masked(value: Instruction, depth: int = _DEPTH) -> Instruction | None:
    """The factor of a product that is 0 under a mask."""
    if _mask(value) is not None:
        return value
    if value.opcode not in ("multiply", "negate") or not depth:
        return None
    found = (_masked(one, depth - 1) for one in value.operands)
    return next((one for one in found if one is not None), None)


def masked_product(last: Instruction) -> _Parts:
    """A product of what is 0 under a mask and what may be infinite there, or a quotient of it."""
    if last.opcode == "divide" and splat_literal(last.operands[1]) is None:
        masked = _masked(last.operands[0])
        return None if masked is None else (last, masked)
    if last.opcode != "multiply":
        return None
    for one, other in (last.operands, last.operands[::-1]):
        masked = _masked(one)
        if masked is not None and _may_be_infinite(other):
            return last, masked
    return None


def masked_after(last: Instruction) -> None:
    """The product where the mask lets it through, else 0."""
    found = masked_product(last)
    assert found is not None, "it has the form"
    mask = _mask(found[1])
    assert mask is not None, "it has the form"
    site, (where, is_zero_there) = Site(last), mask
    product = site.make(last.opcode, *last.operands, shape=last.shape)
    zero = site.splat(last.array, 0)
    branches = (zero, product) if is_zero_there else (product, zero)
    site.replace(site.make("select", where, *branches, shape=last.shape))


# ---- exp(x) / sum(exp(x)), log(1 + exp(x))


def is_shifted(given: Instruction) -> bool:
    """Whether something that was reduced is taken off already."""
    if given.opcode != "subtract":
        return False
    taken = given.operands[1]
    while taken.operands and (taken.opcode == "select" or taken.opcode in _SAME):
        taken = taken.operands[taken.opcode == "select"]
    return taken.opcode == "reduce"


def plain_softmax(last: Instruction) -> _Parts:
    """Exponentials, which nothing was taken off, by their sum."""
    if last.opcode != "divide":
        return None
    power, total = made_of(last.operands[0], {"convert"}), last.operands[1]
    total = made_of(total, {"broadcast", "reshape", "convert"})
    if power.opcode != "exponential" or total.opcode != "reduce" or len(total.operands) != 2:
        return None
    if made_of(total.operands[0], {"convert"}) is not power:
        return None
    if named_combiner(total.to_apply) != "add" or is_shifted(power.operands[0]):
        return None
    return last, total, power


def made_of(value: Instruction, opcodes: Collection[str]) -> Instruction:
    """What a value is made of by these ops of one operand alone."""
    while value.opcode in opcodes:
        value = value.operands[0]
    return value


def less_most(
    total: Instruction, power: Instruction, site: Site
) -> tuple[Instruction, Instruction]:
    """The exponentials with the largest argument of a sum taken off, and that."""
    given, dims = power.operands[0], total.dimensions
    dtype = given.array.dtype.name
    kept = tuple(dim for dim in range(given.array.rank) if dim not in dims)
    region = combiner_computation(site.root.module, "maximum", dtype)
    lowest = site.scalar(dtype, -np.inf)
    shape = row_major(given.array, tuple(given.array.dims[dim] for dim in kept))
    most = site.make("reduce", given, lowest, shape=shape, dimensions=dims, to_apply=region)
    taken = site.make("broadcast", most, shape=given.shape, dimensions=kept)
    return site.make("exponential", site.make("subtract", given, taken)), most


def on(site: Site, value: Instruction, old: Instruction, new: Instruction) -> Instruction:
    """A value again, of one that its first operands lead to, with another in place of that."""
    if value is old:
        return new
    first = on(site, value.operands[0], old, new)
    return site.again(value, first, *value.operands[1:], shape=value.shape)


def shifted_softmax(last: Instruction) -> None:
    """The same with the maximum taken off."""
    parts = plain_softmax(last)
    assert parts is not None, "it has the form"
    site, (_, total, power) = Site(last), parts
    again, _ = less_most(total, power, site)
    both = (on(site, one, power, again) for one in last.operands)
    site.replace(site.make("divide", *both, shape=last.shape))


def log_of_one_more(last: Instruction) -> _Parts:
    """``log(1 + exp(x))``."""
    power = None
    if last.opcode == "log-plus-one":
        power = last.operands[0]
    elif last.opcode == "log":
        power = _one_more(last.operands[0])
    if power is None or power.opcode != "exponential" or _is_not_above_zero(power):
        return None
    return last, power


def _is_not_above_zero(power: Instruction) -> bool:
    """Whether an exponential is 1 at most: of what is -abs(x)."""
    given = power.operands[0]
    return given.opcode == "negate" and given.operands[0].opcode == "abs"


def _one_more(total: Instruction) -> Instruction | None:
    """What 1 is added to."""
    if total.opcode != "add":
        return None
    for one, other in (total.operands, total.operands[::-1]):
        if _is_number(other, 1):
            return one
    return None


def softplus(last: Instruction) -> None:
    """``max(x, 0) + log1p(exp(-abs(x)))``."""
    parts = log_of_one_more(last)
    assert parts is not None, "it has the form"
    site, value = Site(last), parts[1].operands[0]
    above = site.make("maximum", value, site.splat(value.array, 0))
    small = site.make("exponential", site.make("negate", site.make("abs", value)))
    site.replace(site.make("add", above, site.make("log-plus-one", small), shape=last.shape))


# ---- log(sigmoid(x)), log(1 - sigmoid(x))


def log_of_sigmoid(last: Instruction) -> _Parts:
    """``log(sigmoid(x))`` or ``log(1 - sigmoid(x))``, also as ``log1p(-sigmoid(x))``."""
    if last.opcode not in ("log", "log-plus-one"):
        return None
    given = last.operands[0]
    if last.opcode == "log-plus-one":
        given = given.operands[0] if given.opcode == "negate" else last
    elif given.opcode == "subtract" and _is_number(given.operands[0], 1):
        given = given.operands[1]
    value = _of_sigmoid(given)
    return None if value is None else (last, value[0])


def _of_sigmoid(value: Instruction) -> tuple[Instruction, bool] | None:
    """The argument of a sigmoid, and whether it is its negative: of ``logistic``, or ``1 / (1 + exp(x))``."""
    if value.opcode == "logistic":
        return value.operands[0], False
    if value.opcode != "divide" or not _is_number(value.operands[0], 1):
        return None
    power = _one_more(value.operands[1])
    if power is None or power.opcode != "exponential":
        return None
    given = power.operands[0]
    return (given.operands[0], False) if given.opcode == "negate" else (given, True)


def log_sigmoid(last: Instruction) -> None:
    """``min(x, 0) - log1p(exp(-abs(x)))``, of ``-x`` where the sigmoid was taken from 1."""
    given = last.operands[0]
    is_rest = given.opcode in ("negate", "subtract")
    found = _of_sigmoid(given.operands[-1] if is_rest else given)
    assert found is not None, "it has the form"
    site, (value, is_negative) = Site(last), found
    if is_rest != is_negative:
        value = site.make("negate", value)
    below = site.make("minimum", value, site.splat(value.array, 0))
    small = site.make("exponential", site.make("negate", site.make("abs", value)))
    site.replace(site.make("subtract", below, site.make("log-plus-one", small), shape=last.shape))


# ---- mean(x * x) - mean(x) ** 2, log(1 + x), exp(x) - 1


def _mean(value: Instruction) -> tuple[Instruction, Instruction] | None:
    """The sum, and what is added up, of a mean: a sum divided by, or multiplied with, a number."""
    if value.opcode not in ("divide", "multiply") or splat_literal(value.operands[1]) is None:
        return None
    total = value.operands[0]
    if total.opcode != "reduce" or len(total.operands) != 2:
        return None
    if named_combiner(total.to_apply) != "add" or not _is_number(total.operands[1], 0):
        return None
    return total, total.operands[0]


def _square(value: Instruction) -> Instruction | None:
    is_square = value.opcode == "multiply" and value.operands[0] is value.operands[1]
    return value.operands[0] if is_square else None


def square_minus_square(last: Instruction) -> _Parts:
    """``mean(x * x) - mean(x) ** 2``, both over the same dimensions."""
    if last.opcode != "subtract":
        return None
    squares, mean = _mean(last.operands[0]), _square(last.operands[1])
    average = None if mean is None else _mean(mean)
    if squares is None or mean is None or average is None:
        return None
    if _square(squares[1]) is not average[1] or squares[0].dimensions != average[0].dimensions:
        return None
    return last, mean, average[1]


def squared_distance(last: Instruction) -> None:
    """``mean((x - mean(x)) ** 2)``."""
    parts = square_minus_square(last)
    assert parts is not None, "it has the form"
    site, (_, mean, value) = Site(last), parts
    total = last.operands[0].operands[0]
    kept = tuple(dim for dim in range(value.array.rank) if dim not in total.dimensions)
    spread = site.make("broadcast", mean, shape=value.shape, dimensions=kept)
    away = site.make("subtract", value, spread, shape=value.shape)
    square = site.make("multiply", away, away, shape=value.shape)
    summed = site.again(total, square, total.operands[1], shape=total.shape)
    site.replace(site.again(last.operands[0], summed, last.operands[0].operands[1]))


def log_near_one(last: Instruction) -> _Parts:
    """``log(1 + x)`` of anything but an exponential."""
    if last.opcode != "log":
        return None
    value = _one_more(last.operands[0])
    return None if value is None or value.opcode == "exponential" else (last, last.operands[0])


def log_plus_one(last: Instruction) -> None:
    """``log1p(x)``."""
    value = _one_more(last.operands[0])
    assert value is not None, "it has the form"
    site = Site(last)
    site.replace(site.make("log-plus-one", value, shape=last.shape))


def exponential_less_one(last: Instruction) -> _Parts:
    """``exp(x) - 1``, or ``-1 + exp(x)``."""
    power = next(_less_one(last), None)
    return None if power is None or power.opcode != "exponential" else (last, power)


def _less_one(last: Instruction) -> Iterator[Instruction]:
    if last.opcode == "subtract" and _is_number(last.operands[1], 1):
        yield last.operands[0]
    if last.opcode == "add":
        for one, other in (last.operands, last.operands[::-1]):
            if _is_number(other, -1):
                yield one


def exponential_minus_one(last: Instruction) -> None:
    """``expm1(x)``."""
    power = next(_less_one(last))
    site = Site(last)
    site.replace(site.make("exponential-minus-one", power.operands[0], shape=last.shape))
