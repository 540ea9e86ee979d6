"""A result depends on the operands' elements, not on where these lie.

NumPy has several loops for a function, which it chooses by length and strides and which differ in the last bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.semantics.formats import array_of, rounded
from tests.semantics.several import module
from tests.semantics.statement import assert_same, evaluate

REAL = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atanh",
    "cbrt",
    "cosine",
    "cosh",
    "erf",
    "exponential",
    "exponential-minus-one",
    "log",
    "log-plus-one",
]
REAL += ["logistic", "rsqrt", "sine", "sinh", "sqrt", "tan", "tanh", "abs"]
PAIRS = ["atan2", "divide", "multiply", "power", "remainder"]
ONLY_REAL = ("cbrt", "erf", "remainder")
COUNT = 40
SOME = [slice(3, 40), slice(5, 6), slice(0, 40, 3), slice(1, 40, 7), slice(0, 2), slice(0, 17)]
EVERY = [*SOME, *(slice(0, n) for n in range(1, COUNT))]


class Calls:
    """Instructions under way, and which of them are which part of the whole result."""

    def __init__(self, opcode: str, name: str) -> None:
        parts = {"c64": "f32", "c128": "f64"}
        self.opcode = opcode
        self.name = name
        self.result = parts.get(name, name) if opcode == "abs" else name
        self.calls: list[tuple[str, str]] = []
        self.parts: list[tuple[int, Any]] = []

    def add(self, shape: str, call: str) -> str:
        self.calls.append((shape, call))
        return f"r{len(self.calls) - 1}"

    def apply(self, operands: list[str], dims: str, part: Any) -> None:
        """The op on views of the parameters, which gives this part of the whole."""
        self.add(f"{self.result}[{dims}]", f"{self.opcode}({', '.join(operands)})")
        self.parts.append((len(self.calls) - 1, part))

    def view(self, dims: int, call: str, operands: list[str]) -> list[str]:
        return [self.add(f"{self.name}[{dims}]", call.format(operand)) for operand in operands]


def drawn(name: str, seed: int) -> np.ndarray[Any, Any]:
    """Moderate numbers."""
    sides = np.random.default_rng(seed).uniform(-3, 3, (COUNT, 2))
    part = {"c64": "f32", "c128": "f64"}.get(name, name)
    pairs = [(rounded(part, a), rounded(part, b)) for a, b in sides]
    return array_of(name, [complex(a, b) if name[0] == "c" else a for a, b in pairs])


CASES = [
    (opcode, name)
    for opcode in (*REAL, *PAIRS)
    for name in ("bf16", "f32", "f64", "c64", "c128")
    if name[0] != "c" or opcode not in ONLY_REAL
]


@pytest.mark.parametrize(("opcode", "name"), CASES)
def test_any_length_and_stride_and_direction(opcode: str, name: str) -> None:
    """Slices of every length, strided and reversed, and one number beside many."""
    arity = 2 if opcode in PAIRS else 1
    operands = [f"p{number}" for number in range(arity)]
    calls = Calls(opcode, name)
    calls.apply(operands, str(COUNT), slice(None))
    for part in EVERY if name in ("f32", "f64") else SOME:
        size = len(range(COUNT)[part])
        cut = f"slice({{}}), slice={{{{[{part.start}:{part.stop}:{part.step or 1}]}}}}"
        calls.apply(calls.view(size, cut, operands), str(size), part)
    turned = calls.view(COUNT, "reverse({}), dimensions={{0}}", operands)
    calls.apply(turned, str(COUNT), slice(None, None, -1))
    if arity == 2:
        (one,) = calls.view(1, "slice({}), slice={{[4:5]}}", operands[1:])
        scalar = calls.add(f"{name}[]", f"reshape({one})")
        spread = calls.add(f"{name}[{COUNT}]", f"broadcast({scalar}), dimensions={{}}")
        calls.apply(["p0", spread], str(COUNT), None)
    text = module([f"{name}[{COUNT}]"] * arity, calls.calls)
    given = [drawn(name, seed) for seed in range(arity)]
    for who, results in zip(("interpreter", "executor"), evaluate(text, given), strict=True):
        whole = results[0]
        for at, part in calls.parts:
            what = f"{who}: {opcode} of {name} at {part}"
            if part is None:
                assert_same(results[at][4:5], whole[4:5], what)
            else:
                assert_same(results[at], whole[part], what)
