"""Constants at the ends of their types: no rule stumbles over one, and no bit changes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import hloopt
from hloopt.errors import HlooptError
from hloopt.ops import OPS
from hloopt.text.numbers import literal_text
from hloopt.types import DTYPES, DType, Literal, array
from tests.passes.proof import draw, identical, special_values

INTEGERS = [one for one in DTYPES.values() if one.is_integer and one.bits >= 8]
NUMBERS = ("s8", "u8", "s32", "u32", "s64", "u64", "bf16", "f16", "f32", "f64", "c64", "f8e4m3fn")


def same(text: str, *arrays: np.ndarray) -> None:  # type: ignore[type-arg]
    module = hloopt.parse(text)
    hloopt.verify(module)
    better = hloopt.optimize(module, "O1")
    pairs = zip(hloopt.evaluate(module, arrays), hloopt.evaluate(better, arrays), strict=True)
    for number, (want, got) in enumerate(pairs):
        assert identical(want, got), f"result {number}: {want} became {got}\n{text}"


def progressions(dtype: DType) -> Iterator[list[int]]:
    bounds = np.iinfo(dtype.numpy)
    low, high = int(bounds.min), int(bounds.max)
    yield from ([low, high], [0, high], [high, 0], [high, low, high], [high, low, low + 1])
    for first, step in ((low, 1), (high, -1), (low, (high - low) // 69), (high - 69, 1), (3, 1)):
        yield [first + step * number for number in range(70)]
    # Goes on behind the end of the type.
    yield [low + (high - 30 + number - low) % (high - low + 1) for number in range(70)]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_a_progression_between_the_ends_of_its_type(dtype: DType) -> None:
    """Counted in integers without end, not in those of a machine."""
    for values in progressions(dtype):
        listed = ", ".join(map(str, values))
        same(
            f"HloModule m\nENTRY e {{ ROOT c = {dtype.name}[{len(values)}] constant({{{listed}}}) }}"
        )


def test_a_progression_is_still_found() -> None:
    """Down from the largest number, and up to it."""
    for values in progressions(DTYPES["s64"]):
        if len(values) < 70 or values[-1] - values[0] not in (69, -69):
            continue
        listed = ", ".join(map(str, values))
        module = hloopt.parse(f"HloModule m\nENTRY e {{ ROOT c = s64[70] constant({{{listed}}}) }}")
        assert "iota" in hloopt.optimize(module, "O1").to_text()


@pytest.mark.parametrize("wide", ["f16", "f32", "f64"])
@pytest.mark.parametrize("narrow", ["s8", "u8", "s16", "s32"])
def test_a_conversion_back_of_a_choice_with_an_extreme(narrow: str, wide: str) -> None:
    """NaN and the infinities are no integers."""
    lines, results = [], []
    for number, value in enumerate(special_values(DTYPES[wide])):
        text = literal_text(Literal(array(DTYPES[wide]), np.asarray(value)))
        lines += [
            f"c{number} = {wide}[] constant({text})",
            f"b{number} = {wide}[4] broadcast(c{number}), dimensions={{}}",
            f"m{number} = {wide}[4] select(p, w, b{number})",
            f"n{number} = {wide}[4] maximum(w, b{number})",
            f"r{number} = {narrow}[4] convert(m{number})",
            f"q{number} = {narrow}[4] convert(n{number})",
        ]
        results += [f"r{number}", f"q{number}"]
    same(
        f"HloModule m\nENTRY e {{ x = {narrow}[4] parameter(0)\np = pred[4] parameter(1)\n"
        f"w = {wide}[4] convert(x)\n"
        + "\n".join(lines)
        + f"\nROOT t = tuple({', '.join(results)}) }}",
        draw(DTYPES[narrow], (4,), 1, 0),
        np.array([True, False, True, False]),
    )


@pytest.mark.parametrize("kind", NUMBERS)
def test_an_extreme_as_an_operand_of_every_op(kind: str) -> None:
    """In each place of every op of two operands; the other operand is whatever it is."""
    dtype, lines, results = DTYPES[kind], [f"x = {kind}[16] parameter(0)"], []
    opcodes = [
        row.opcode for row in OPS.values() if row.is_elementwise and _takes(row.opcode, kind)
    ]
    for number, value in enumerate(special_values(dtype)[:16]):
        text = literal_text(Literal(array(dtype), np.asarray(value)))
        lines += [
            f"c{number} = {kind}[] constant({text})",
            f"b{number} = {kind}[16] broadcast(c{number}), dimensions={{}}",
        ]
        for opcode in opcodes:
            for operands in (f"x, b{number}", f"b{number}, x"):
                results.append(f"r{len(results)}")
                lines.append(f"{results[-1]} = {kind}[16] {opcode}({operands})")
    lines.append(f"ROOT t = tuple({', '.join(results)})")
    assert len(results) > 100
    same("HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}\n", draw(dtype, (16,), 3, 0))


def _takes(opcode: str, kind: str) -> bool:
    line = f"x = {kind}[4] parameter(0)\nROOT r = {kind}[4] {opcode}(x, x)"
    try:
        hloopt.verify(hloopt.parse(f"HloModule m\nENTRY e {{\n{line}\n}}\n"))
    except HlooptError:
        return False
    return True
