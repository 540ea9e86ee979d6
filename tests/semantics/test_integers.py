"""Integers and pred against Python's unbounded ``int``: wrapping, truncating, total."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.semantics.formats import array_of, numbers, width, wrapped
from tests.semantics.several import check_several, module
from tests.semantics.statement import check

OPCODES = (
    "and",
    "count-leading-zeros",
    "mulhi",
    "not",
    "or",
    "popcnt",
    "shift-left",
    "shift-right-arithmetic",
    "shift-right-logical",
    "xor",
)

NARROW = ["s1", "u1", "s2", "u2", "s4", "u4", "s8", "u8"]
WIDE = ["s16", "u16", "s32", "u32", "s64", "u64"]


def truncated(x: int, y: int) -> int:
    size = abs(x) // abs(y)
    return size if (x < 0) == (y < 0) else -size


def divide(x: int, y: int, bits: int) -> int:
    """Toward zero; by zero all bits are set; the least number over -1 wraps to itself."""
    return -1 if y == 0 else truncated(x, y)


def remainder(x: int, y: int, bits: int) -> int:
    """Of the dividend's sign; by zero the dividend."""
    return x if y == 0 else x - truncated(x, y) * y


def power(x: int, y: int, bits: int) -> int:
    """Modulo 2^bits; to a negative power 1 and -1 have inverses, all else becomes 0."""
    return {1: 1, -1: -1 if y % 2 else 1}.get(x, 0) if y < 0 else pow(x, y, 1 << bits)


def own_bits(x: int, bits: int) -> int:
    return x & ((1 << bits) - 1)


def shift_left(x: int, y: int, bits: int) -> int:
    """By an unsigned amount, so that a negative one is as much too large as any."""
    return x << own_bits(y, bits) if own_bits(y, bits) < bits else 0


def shift_right_logical(x: int, y: int, bits: int) -> int:
    return own_bits(x, bits) >> own_bits(y, bits)


def shift_right_arithmetic(x: int, y: int, bits: int) -> int:
    """Copies of the uppermost bit come in, also into an unsigned number."""
    return wrapped(f"s{bits}", x) >> min(own_bits(y, bits), bits)


BINARY: dict[str, Callable[[int, int, int], int]] = {
    "add": lambda x, y, bits: x + y,
    "subtract": lambda x, y, bits: x - y,
    "multiply": lambda x, y, bits: x * y,
    "divide": divide,
    "remainder": remainder,
    "power": power,
    "maximum": lambda x, y, bits: max(x, y),
    "minimum": lambda x, y, bits: min(x, y),
    "and": lambda x, y, bits: x & y,
    "or": lambda x, y, bits: x | y,
    "xor": lambda x, y, bits: x ^ y,
    "shift-left": shift_left,
    "shift-right-logical": shift_right_logical,
    "shift-right-arithmetic": shift_right_arithmetic,
    "mulhi": lambda x, y, bits: (x * y) >> bits,
}
UNARY: dict[str, Callable[[int, int], int]] = {
    "abs": lambda x, bits: abs(x),
    "negate": lambda x, bits: -x,
    "sign": lambda x, bits: (x > 0) - (x < 0),
    "not": lambda x, bits: ~x,
    "popcnt": lambda x, bits: own_bits(x, bits).bit_count(),
    "count-leading-zeros": lambda x, bits: bits - own_bits(x, bits).bit_length(),
}
COMPARE: dict[str, Callable[[int, int], bool]] = {
    "EQ": lambda x, y: x == y,
    "NE": lambda x, y: x != y,
    "LT": lambda x, y: x < y,
    "LE": lambda x, y: x <= y,
    "GT": lambda x, y: x > y,
    "GE": lambda x, y: x >= y,
}
SHIFTS = ("shift-left", "shift-right-logical", "shift-right-arithmetic")


def corners(element: str) -> list[int]:
    """The ends of the range, zero, and what lies near them and near the width."""
    bits = width(element)
    least = -(1 << (bits - 1)) if element[0] == "s" else 0
    greatest = least + (1 << bits) - 1
    near = {
        least,
        least + 1,
        greatest,
        greatest - 1,
        greatest // 3,
        0,
        1,
        2,
        3,
        7,
        bits - 1,
        bits,
        bits + 1,
    }
    near |= {-1, -2, -3, -bits} if least else set()
    return sorted(x for x in near if least <= x <= greatest)


def hold(element: str, pairs: list[tuple[int, int]]) -> None:
    """Every op of two integers on these pairs, every op of one on their firsts."""
    bits = width(element)
    x, y = (array_of(element, side) for side in zip(*pairs, strict=True))
    calls = [
        (element, f"{opcode}(p0, p1)", array_of(element, [rule(a, b, bits) for a, b in pairs]))
        for opcode, rule in BINARY.items()
    ]
    calls += [
        (element, f"{opcode}(p0)", array_of(element, [rule(a, bits) for a, _ in pairs]))
        for opcode, rule in UNARY.items()
        if element[0] == "s" or opcode not in ("abs", "sign")
    ]
    calls += [
        ("pred", f"compare(p0, p1), direction={way}", np.array([rule(a, b) for a, b in pairs]))
        for way, rule in COMPARE.items()
    ]
    check_several([(element, x), (element, y)], calls)


@pytest.mark.parametrize("element", NARROW)
def test_every_pair_of_a_narrow_type(element: str) -> None:
    """All pairs of the types below a byte; of the bytes, every number with every corner."""
    every = [wrapped(element, code) for code in range(1 << width(element))]
    others = every if len(every) <= 16 else corners(element)
    hold(element, [(x, y) for x in every for y in others] + [(y, x) for x in every for y in others])


@pytest.mark.parametrize("element", WIDE)
def test_all_pairs_of_corners_of_a_wide_type(element: str) -> None:
    hold(element, [(x, y) for x in corners(element) for y in corners(element)])


@pytest.mark.parametrize("element", ["s8", "u8", *WIDE])
def test_any_pairs(element: str) -> None:
    number = st.integers(0, (1 << width(element)) - 1).map(lambda code: wrapped(element, code))
    number |= st.sampled_from(corners(element))

    @settings(max_examples=8)
    @given(st.lists(st.tuples(number, number), min_size=1, max_size=40))
    def examples(pairs: list[tuple[int, int]]) -> None:
        hold(element, pairs)

    examples()


@pytest.mark.parametrize("element", ["s2", "u4", "s8", "u16", "s32", "u32", "s64", "u64"])
def test_shifts_by_amounts_that_are_known(element: str) -> None:
    """A constant amount within the width may take a shorter way, which gives the same."""
    bits, values = width(element), corners(element)
    amounts = [
        amount for amount in corners(element) if amount in (-1, 0, 1, 2, bits - 1, bits, bits + 1)
    ]
    x = array_of(element, values)
    calls, wants = [], []
    for amount in amounts:
        for opcode in SHIFTS:
            at, dims = len(calls), f"{element}[{len(values)}]"
            calls += [
                (f"{element}[]", f"constant({amount})"),
                (dims, f"broadcast(r{at}), dimensions={{}}"),
            ]
            calls.append((dims, f"{opcode}(p0, r{at + 1})"))
            same = [amount] * len(values)
            shifted = [BINARY[opcode](value, amount, bits) for value in values]
            wants += [
                array_of(element, [amount], ()),
                array_of(element, same),
                array_of(element, shifted),
            ]
    check(module([f"{element}[{len(values)}]"], calls), [x], wants)


@pytest.mark.parametrize("element", ["s4", "u8", "s32", "u64"])
def test_clamp_gives_the_upper_bound_when_the_bounds_cross(element: str) -> None:
    """max(least, x), then min with the greatest; the bounds are scalars or as large as the operand."""
    some = corners(element)[::3]
    triples = [(low, x, high) for low in some for x in corners(element) for high in some]
    low, x, high = (array_of(element, side) for side in zip(*triples, strict=True))
    want = array_of(element, [min(max(low, x), high) for low, x, high in triples])
    check_several(
        [(element, side) for side in (low, x, high)], [(element, "clamp(p0, p1, p2)", want)]
    )
    values = numbers(element, x)
    for least, greatest in ((some[0], some[-1]), (some[-1], some[0]), (some[1], some[2])):
        bounds = [array_of(element, [bound], ()) for bound in (least, greatest)]
        moved = array_of(element, [min(max(least, value), greatest) for value in values])
        check_several(
            [(element, bounds[0]), (element, x), (element, bounds[1])],
            [(element, "clamp(p0, p1, p2)", moved)],
        )


def test_arithmetic_of_preds_is_logic() -> None:
    """Sums are or, products are and; false is less than true."""
    rules: dict[str, Callable[[bool, bool], bool]] = {
        "add": lambda x, y: x or y,
        "and": lambda x, y: x and y,
        "maximum": lambda x, y: x or y,
        "minimum": lambda x, y: x and y,
        "multiply": lambda x, y: x and y,
        "or": lambda x, y: x or y,
        "xor": lambda x, y: x != y,
    }
    x, y = [False, False, True, True], [False, True, False, True]
    pairs = list(zip(x, y, strict=True))
    calls = [
        ("pred", f"{opcode}(p0, p1)", np.array([rule(a, b) for a, b in pairs]))
        for opcode, rule in rules.items()
    ]
    calls += [
        ("pred", f"compare(p0, p1), direction={way}", np.array([rule(a, b) for a, b in pairs]))
        for way, rule in COMPARE.items()
    ]
    calls.append(("pred", "not(p0)", np.array([not a for a in x])))
    calls.append(("pred", "clamp(p0, p1, p1)", np.array([min(max(a, b), b) for a, b in pairs])))
    check_several([("pred", np.array(x)), ("pred", np.array(y))], calls)
