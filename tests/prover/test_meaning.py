"""What ops mean to z3 is what the interpreter computes, on special values of every type."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.errors import ParseError, VerifyError
from hloopt.types import DType, dtype
from tests.passes.proof import identical, special_values

z3 = pytest.importorskip("z3")

from hloopt.prover.equivalence.meaning import MEANINGS, constant  # noqa: E402
from hloopt.prover.equivalence.solving import python_value  # noqa: E402

TYPES = (
    "pred",
    "s4",
    "s8",
    "u8",
    "s32",
    "u64",
    "f16",
    "bf16",
    "f32",
    "f64",
    "f8e5m2",
    "f8e4m3",
    "f8e3m4",
)
UNARY = ("abs", "ceil", "count-leading-zeros", "floor", "is-finite", "negate", "not", "popcnt",
         "round-nearest-afz", "round-nearest-even", "sign", "sqrt")  # fmt: skip
BINARY = ("add", "and", "divide", "maximum", "minimum", "mulhi", "multiply", "or", "power", "remainder",
          "shift-left", "shift-right-arithmetic", "shift-right-logical", "subtract", "xor")  # fmt: skip
CASES = [
    *((op, kind, kind, "") for op in (*UNARY, *BINARY) for kind in TYPES if op != "is-finite"),
    *(("is-finite", kind, "pred", "") for kind in TYPES),
    *(("compare", kind, "pred", f"direction={way}") for way in ("EQ", "NE", "LT", "LE") for kind in TYPES),
    *(("convert", kind, other, "") for kind, other in product(TYPES, TYPES) if kind != other),
    *(("bitcast-convert", *pair, "") for pair in (("f32", "u32"), ("s32", "f32"), ("u16", "bf16"), ("s8", "u8"))),
]  # fmt: skip
MOST = 40
"""Pairs of values, so that all tests are quick."""


def text(op: str, kind: str, result: str, attribute: str, count: int) -> str:
    arity = 2 if op in ("compare", *BINARY) else 1
    names = [f"x{number}" for number in range(arity)]
    lines = [f"{name} = {kind}[{count}] parameter({at})" for at, name in enumerate(names)]
    comma = f", {attribute}" if attribute else ""
    lines.append(f"ROOT r = {result}[{count}] {op}({', '.join(names)}){comma}")
    return "HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}\n"


def values(kind: DType, arity: int) -> list[np.ndarray[Any, Any]]:
    special = special_values(kind)
    rows = list(product(range(len(special)), repeat=arity))
    step = max(1, len(rows) // MOST)
    kept = rows[:: step | 1]
    return [special[[row[at] for row in kept]] for at in range(arity)]


@pytest.mark.parametrize(("op", "kind", "result", "attribute"), CASES)
def test_z3_computes_what_the_interpreter_does(
    op: str, kind: str, result: str, attribute: str
) -> None:
    """Where the op is one of the type, and z3 has a meaning for it."""
    arity = 2 if op in ("compare", *BINARY) else 1
    arrays = values(dtype(kind), arity)
    if op == "bitcast-convert" and dtype(kind).is_float:  # which NaN it is plays no part
        arrays = [array[~np.isnan(array.astype(np.float64))] for array in arrays]
    try:
        module = hloopt.parse(text(op, kind, result, attribute, len(arrays[0])))
        hloopt.verify(module)
    except (ParseError, VerifyError):
        pytest.skip("HLO has no such op")
    (want,) = hloopt.evaluate(module, arrays)
    data = (attribute.removeprefix("direction="), False) if attribute else None
    meaning = MEANINGS["bits" if op == "bitcast-convert" else op]
    kinds = [dtype(kind)] * arity
    found = []
    for row in zip(*arrays, strict=True):
        made = meaning(dtype(result), kinds, data, [constant(value, dtype(kind)) for value in row])
        if made is None:
            if op == "power":
                found.append(want[len(found)])
                continue
            pytest.skip("an unknown function to z3")
        found.append(python_value(z3.simplify(made), dtype(result)))
    assert identical(np.array(found, want.dtype), want), list(
        zip(*arrays, found, want, strict=False)
    )
