"""The executor's short ways through elementwise ops give the bits of the op table's rows."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.interpret.elementwise import evaluate_op
from hloopt.ops import OPS, ScalarArgs
from hloopt.runtime.numpy.elementwise import _UFUNCS, lower
from hloopt.runtime.numpy.program import NumpyProgram
from hloopt.types import DTYPES, DType

CASES = [(opcode, name) for opcode, (_, names) in sorted(_UFUNCS.items()) for name in sorted(names)]


def edges(kind: DType) -> np.ndarray[Any, Any]:
    """Values of a type at which functions tend to differ."""
    if kind.is_pred:
        return np.array([False, True])
    if kind.is_integer:
        info = np.iinfo(kind.numpy)
        numbers = {info.min, info.min + 1, 0, 1, 2, 3, 7, info.max - 1, info.max}
        return np.array(sorted(numbers | ({-1, -2} if info.min else set())), kind.numpy)
    limit = np.finfo(kind.numpy)
    parts = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, np.inf, -np.inf, np.nan, 100.0, -745.0]
    parts += [float(limit.max), float(limit.tiny), float(limit.smallest_subnormal), np.pi]
    if not kind.is_complex:
        return np.array(parts, kind.numpy)
    return np.array([complex(*pair) for pair in product(parts, parts)], kind.numpy)


def same_bits(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> bool:
    """Equal bytes, but for what a NaN carries."""
    parts = [(left.real, right.real), (left.imag, right.imag)] if left.dtype.kind == "c" else []
    for x, y in parts or [(left, right)]:
        if x.dtype.kind == "f":
            nan = np.isnan(x)
            if (nan != np.isnan(y)).any():
                return False
            x, y = np.where(nan, 0, x), np.where(nan, 0, y)
        if x.tobytes() != y.tobytes():
            return False
    return True


@pytest.mark.parametrize(("opcode", "name"), CASES, ids=[f"{a}-{b}" for a, b in CASES])
def test_a_ufunc_stands_for_its_row(opcode: str, name: str) -> None:
    """All pairs of edge values, contiguous and strided."""
    kind, row = DTYPES[name], OPS[opcode]
    values = edges(kind)[:64]
    operands = [values] if row.arity[1] == 1 else list(np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        wanted = evaluate_op(opcode, ScalarArgs(kind, kind, {}), operands)
        got = np.asarray(_UFUNCS[opcode][0](*operands))
    assert got.dtype == wanted.dtype
    assert same_bits(got, wanted)


NAMES = (
    "pred",
    "s8",
    "u8",
    "s32",
    "u32",
    "s64",
    "u64",
    "f16",
    "bf16",
    "f32",
    "f64",
    "f8e5m2",
    "s4",
)


def values_of(kind: DType) -> np.ndarray[Any, Any]:
    """Edge values of a type, of a narrow one those of f32 or all it has."""
    if kind.name == "s4":
        return np.arange(-8, 8).astype(kind.numpy)
    if not kind.is_float:
        return edges(kind)
    with np.errstate(all="ignore"):
        return edges(DTYPES["f64" if kind.name == "f64" else "f32"]).astype(kind.numpy)


@pytest.mark.parametrize("excess", [False, True])
@pytest.mark.parametrize("source", NAMES)
def test_conversions_agree(source: str, excess: bool) -> None:
    """To every type, from values that fit and values that do not."""
    values = values_of(DTYPES[source])
    size = values.size
    lines = [f" r{at} = {name}[{size}] convert(x)" for at, name in enumerate(NAMES)]
    shapes = ", ".join(f"{name}[{size}]" for name in NAMES)
    results = ", ".join(f"r{at}" for at in range(len(NAMES)))
    check(
        f"HloModule m\nENTRY e {{\n x = {source}[{size}] parameter(0)\n"
        + "\n".join(lines)
        + f"\n ROOT t = ({shapes}) tuple({results})\n}}\n",
        [values],
        excess,
    )


@pytest.mark.parametrize("name", [name for name in NAMES if name != "s4"])
def test_comparisons_agree(name: str) -> None:
    """All pairs in every direction, in partial and in total order."""
    kind = DTYPES[name]
    values = values_of(kind)
    size = values.size
    orders = ("", ", type=TOTALORDER") if kind.is_float else ("",)
    ways = list(product(("EQ", "NE", "LT", "LE", "GT", "GE"), orders))
    lines = [
        f" r{at} = pred[{size},{size}] compare(a, b), direction={direction}{order}"
        for at, (direction, order) in enumerate(ways)
    ]
    shapes = ", ".join([f"pred[{size},{size}]"] * len(ways))
    results = ", ".join(f"r{at}" for at in range(len(ways)))
    check(
        f"HloModule m\nENTRY e {{\n x = {name}[{size}] parameter(0)\n"
        f" a = {name}[{size},{size}] broadcast(x), dimensions={{0}}\n"
        f" b = {name}[{size},{size}] broadcast(x), dimensions={{1}}\n"
        + "\n".join(lines)
        + f"\n ROOT t = ({shapes}) tuple({results})\n}}\n",
        [values],
    )


def check(text: str, inputs: list[np.ndarray[Any, Any]], excess: bool = False) -> None:
    """Both ways of running a module give the same bits."""
    module = hloopt.parse(text)
    hloopt.verify(module)
    found = hloopt.compile(module, excess_precision=excess).run(inputs)
    expected = hloopt.evaluate(module, inputs, excess_precision=excess)
    for got, wanted in zip(found, expected, strict=True):
        assert got.dtype == wanted.dtype
        plain = wanted.dtype.kind in "biufc"
        pair = (got, wanted) if plain else (got.astype(np.float32), wanted.astype(np.float32))
        assert same_bits(*pair)


TYPES = ("pred", "s4", "s32", "u8", "u32", "f8e4m3fn", "bf16", "f16", "f32", "f64", "c64")
RESULTS = {"compare": "pred", "is-finite": "pred", "real": "f32", "imag": "f32", "complex": "c64"}
WRITTEN = {
    "compare": ", direction=LT",
    "reduce-precision": ", exponent_bits=5, mantissa_bits=10",
}


def calls(opcode: str) -> list[str]:
    """Modules of one instruction, over the types it takes; conversions between all of them."""
    arity = OPS[opcode].arity[0]
    texts = []
    for given, result in product(TYPES, TYPES):
        if (opcode == "convert") == (result == RESULTS.get(opcode, given)):
            continue
        kinds = ["pred", given, given] if opcode == "select" else [given] * arity
        if opcode == "stochastic-convert":
            kinds, result = ["f32", "u32"], "s32"
        lines = [f"p{n} = {kind}[2,3] parameter({n})" for n, kind in enumerate(kinds)]
        names = ", ".join(f"p{n}" for n in range(len(kinds)))
        lines.append(f"ROOT r = {result}[2,3] {opcode}({names}){WRITTEN.get(opcode, '')}")
        texts.append("HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}\n")
    return texts


@pytest.mark.parametrize("excess", [False, True])
@pytest.mark.parametrize(
    "opcode", [name for name, row in OPS.items() if row.numpy is not None and row.arity[0]]
)
def test_only_views_share_memory_with_operands(opcode: str, excess: bool) -> None:
    """Any other result is an array of its own, which may be written over while the operands are needed."""
    checked = 0
    for text in calls(opcode):
        try:
            module = hloopt.parse(text)
            hloopt.verify(module)
        except hloopt.errors.HlooptError:
            continue
        root = module.entry.root
        program = NumpyProgram(module, excess_precision=excess)
        context = program._compiler
        arrays = [
            np.ones((2, 3), context.carrier(operand.array.dtype)) for operand in root.operands
        ]
        with np.errstate(all="ignore"):
            lowered = lower(root, context, [None] * len(arrays))
            result = lowered.function(*arrays)
        if not lowered.view:
            assert not any(np.shares_memory(result, array) for array in arrays), text
        checked += 1
    assert checked
