"""Arithmetic on NumPy scalars, written as Python's operators, gives the bits of the op table's rows."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.backends.numpy.scalars import scalar_code
from hloopt.backends.numpy.writer import code_function
from hloopt.interpret.elementwise import evaluate_op
from hloopt.ir import Instruction
from hloopt.ops import ScalarArgs
from hloopt.types import DTYPES
from tests.helpers.edge_values import edges
from tests.helpers.planned import same_bits

SIGNED, UNSIGNED = ("s8", "s16", "s32", "s64"), ("u8", "u16", "u32", "u64")
INTEGERS, FLOATS = (*SIGNED, *UNSIGNED), ("f32", "f64")
REALS, BITS = (*INTEGERS, *FLOATS), (*INTEGERS, "pred")
WRITTEN = {
    "abs": (*SIGNED, *FLOATS),
    "add": REALS,
    "and": BITS,
    "ceil": FLOATS,
    "clamp": INTEGERS,
    "divide": FLOATS,
    "floor": FLOATS,
    "maximum": REALS,
    "minimum": REALS,
    "multiply": REALS,
    "negate": REALS,
    "not": BITS,
    "or": BITS,
    "select": (*REALS, "pred"),
    "sqrt": FLOATS,
    "subtract": REALS,
    "xor": BITS,
}
ARITY = {"abs": 1, "ceil": 1, "floor": 1, "negate": 1, "not": 1, "sqrt": 1, "clamp": 3, "select": 3}


def instruction(opcode: str, kinds: list[str], result: str, more: str = "") -> Instruction:
    """One instruction of scalars."""
    lines = [f"p{at} = {kind}[] parameter({at})" for at, kind in enumerate(kinds)]
    names = ", ".join(f"p{at}" for at in range(len(kinds)))
    lines.append(f"ROOT r = {result}[] {opcode}({names}){more}")
    return hloopt.parse("HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}\n").entry.root


def agree(root: Instruction, known: list[Any] | None = None) -> None:
    """On all combinations of edge values, scalar by scalar, against the row on all of them at once."""
    kinds = [operand.array.dtype for operand in root.operands]
    given = known or [None] * len(kinds)
    code = scalar_code(root, given)
    assert code is not None
    assert code.scalar
    function = code_function(code)
    values = [
        edges(kind) if array is None else array.reshape(1)
        for kind, array in zip(kinds, given, strict=True)
    ]
    args = ScalarArgs(kinds[-1], root.array.dtype, root.attributes)
    with np.errstate(all="ignore"):
        wanted = evaluate_op(root.opcode, args, list(np.meshgrid(*values, indexing="ij")))
        found = [function(*scalars) for scalars in product(*values)]
    assert all(isinstance(scalar, root.array.dtype.numpy.type) for scalar in found)
    assert same_bits(np.array(found, root.array.dtype.numpy), wanted.reshape(-1))


@pytest.mark.parametrize(
    ("opcode", "kind"), [(opcode, kind) for opcode, kinds in WRITTEN.items() for kind in kinds]
)
def test_an_operator_stands_for_its_row(opcode: str, kind: str) -> None:
    kinds = [kind] * ARITY.get(opcode, 2)
    if opcode == "select":
        kinds[0] = "pred"
    agree(instruction(opcode, kinds, kind))


@pytest.mark.parametrize("direction", ["EQ", "NE", "LT", "LE", "GT", "GE"])
@pytest.mark.parametrize("kind", [*REALS, "pred"])
def test_scalars_are_compared(direction: str, kind: str) -> None:
    agree(instruction("compare", [kind, kind], "pred", f", direction={direction}"))


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("opcode", ["divide", "remainder"])
def test_integers_are_divided_by_positive_constants(kind: str, opcode: str) -> None:
    for divisor in (1, 2, 3, 7, 100, np.iinfo(DTYPES[kind].numpy).max):
        known = np.array(divisor, DTYPES[kind].numpy)
        agree(instruction(opcode, [kind, kind], kind), [None, known])


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("opcode", ["shift-left", "shift-right-logical", "shift-right-arithmetic"])
def test_integers_are_shifted_by_any_amount(kind: str, opcode: str) -> None:
    root = instruction(opcode, [kind, kind], kind)
    if (opcode == "shift-right-arithmetic") == (kind in UNSIGNED) and opcode != "shift-left":
        assert scalar_code(root, [None, None]) is None
        return
    agree(root)
    for amount in (0, 1, DTYPES[kind].bits - 1, DTYPES[kind].bits):
        agree(root, [None, np.array(amount, DTYPES[kind].numpy)])


@pytest.mark.parametrize("divisor", [0, -1, -7])
def test_other_divisors_are_left_to_arrays(divisor: int) -> None:
    root = instruction("divide", ["s32", "s32"], "s32")
    assert scalar_code(root, [None, np.array(divisor, np.int32)]) is None


@pytest.mark.parametrize(
    ("source", "target"),
    [
        *(("pred", kind) for kind in REALS),
        *((kind, "f32") for kind in ("s8", "s16", "s32", "u8", "u16", "u32", "f64")),
        *((kind, "f64") for kind in ("s8", "s32", "u32", "f32")),
        *((kind, other) for kind in INTEGERS for other in INTEGERS if kind != other),
    ],
)
def test_scalars_are_converted(source: str, target: str) -> None:
    agree(instruction("convert", [source], target))


@pytest.mark.parametrize(("source", "target"), [("s64", "f32"), ("f32", "s32"), ("f64", "u8")])
def test_conversions_that_round_twice_or_saturate_are_left_to_arrays(
    source: str, target: str
) -> None:
    assert scalar_code(instruction("convert", [source], target), [None]) is None


@pytest.mark.parametrize("kind", ["bf16", "f16", "c64", "s4", "u4", "f8e4m3fn"])
def test_types_without_scalars_are_left_to_arrays(kind: str) -> None:
    assert scalar_code(instruction("add", [kind, kind], kind), [None, None]) is None
