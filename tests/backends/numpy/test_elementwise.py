"""The executor's short ways through elementwise ops give the bits of the op table's rows."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.backends.numpy.elementwise import _UFUNCS, lower
from hloopt.backends.numpy.program import NumpyProgram
from hloopt.interpret.elementwise import evaluate_op
from hloopt.ops import OPS, ScalarArgs
from hloopt.runtime.program import NumpyOptions
from hloopt.types import DTYPES, DType
from tests.helpers.edge_values import edges

CASES = [(opcode, name) for opcode, (_, names) in sorted(_UFUNCS.items()) for name in sorted(names)]


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


@pytest.mark.every_value
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
        program = NumpyProgram(module, NumpyOptions(excess_precision=excess))
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


def written(text: str, constants: dict[int, np.ndarray[Any, Any]]) -> tuple[Any, Any]:
    """The last instruction's lowering with some operands known, and the instruction."""
    module = hloopt.parse(text)
    hloopt.verify(module)
    program = hloopt.compile(module, exact=True)
    assert isinstance(program, NumpyProgram)
    root = module.entry.root
    known = [constants.get(at) for at in range(len(root.operands))]
    return lower(root, program._compiler, known), root


def row(root: Any, operands: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """What the op's row says."""
    args = ScalarArgs(root.operands[-1].array.dtype, root.array.dtype, root.attributes)
    with np.errstate(all="ignore"):
        return evaluate_op(root.opcode, args, list(np.broadcast_arrays(*operands)))


@pytest.mark.parametrize("name", ["s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64"])
@pytest.mark.parametrize("opcode", ["shift-left", "shift-right-logical", "shift-right-arithmetic"])
def test_shifts_by_any_amount_are_numpys(opcode: str, name: str) -> None:
    kind = DTYPES[name]
    amounts = np.array([0, 1, kind.bits - 1, kind.bits, kind.bits + 1, 100, -1]).astype(kind.numpy)
    values = edges(kind)[:, None]
    shape = f"{name}[{len(values)},{len(amounts)}]"
    text = (
        f"HloModule m\nENTRY e {{\n x = {shape} parameter(0)\n y = {shape} parameter(1)\n"
        f" ROOT r = {shape} {opcode}(x, y)\n}}\n"
    )
    lowered, root = written(text, {})
    assert lowered.ufunc or lowered.code is not None
    x, y = (np.ascontiguousarray(array) for array in np.broadcast_arrays(values, amounts))
    assert same_bits(lowered.function(x, y), row(root, [x, y]))


@pytest.mark.parametrize("name", ["s8", "s32", "s64", "u8", "u32", "u64"])
@pytest.mark.parametrize("opcode", ["divide", "remainder"])
@pytest.mark.parametrize("divisor", [1, 2, 3, 7, -2, -7])
def test_constants_divide_integers(opcode: str, name: str, divisor: int) -> None:
    kind = DTYPES[name]
    if divisor < 0 and kind.kind != "signed":
        return
    values = edges(kind)
    shape = f"{name}[{len(values)}]"
    text = (
        f"HloModule m\nENTRY e {{\n x = {shape} parameter(0)\n c = {name}[] constant({divisor})\n"
        f" y = {shape} broadcast(c), dimensions={{}}\n ROOT r = {shape} {opcode}(x, y)\n}}\n"
    )
    by = np.array(divisor, kind.numpy)
    lowered, root = written(text, {1: by})
    assert lowered.ufunc or lowered.code is not None
    assert same_bits(lowered.function(values, by), row(root, [values, by]))


@pytest.mark.parametrize("divisor", [0, -1])
def test_constants_that_divide_with_exceptions_go_through_the_row(divisor: int) -> None:
    text = (
        "HloModule m\nENTRY e {\n x = s32[3] parameter(0)\n y = s32[3] parameter(1)\n"
        " ROOT r = s32[3] divide(x, y)\n}\n"
    )
    by = np.full(3, divisor, np.int32)
    lowered, root = written(text, {1: by})
    assert not lowered.ufunc
    assert lowered.code is None
    values = np.array([-(2**31), -7, 7], np.int32)
    assert same_bits(lowered.function(values, by), row(root, [values, by]))


@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("opcode", ["maximum", "minimum"])
@pytest.mark.parametrize("constant", [None, 0.0, -0.0, 1.5, np.nan, np.inf])
def test_extrema_tell_zeros_apart(opcode: str, name: str, constant: float | None) -> None:
    """All pairs of edge values; either operand may be the constant."""
    kind = DTYPES[name]
    x, y = (grid.reshape(-1) for grid in np.meshgrid(edges(kind), edges(kind)))
    known = {} if constant is None else {1: np.array(constant, kind.numpy)}
    shape = f"{name}[{x.size}]"
    text = (
        f"HloModule m\nENTRY e {{\n x = {shape} parameter(0)\n y = {shape} parameter(1)\n"
        f" ROOT r = {shape} {opcode}(x, y)\n}}\n"
    )
    lowered, root = written(text, known)
    assert lowered.ufunc or lowered.code is not None
    other = known.get(1, y)
    assert same_bits(lowered.function(x, other), row(root, [x, other]))
    if known:
        turned, _ = written(text, {0: other})
        assert same_bits(turned.function(other, x), row(root, [other, x]))


@pytest.mark.parametrize("name", ["s32", "u8", "f32"])
def test_clamps_between_constants(name: str) -> None:
    kind = DTYPES[name]
    values = edges(kind)
    shape = f"{name}[{len(values)}]"
    text = (
        f"HloModule m\nENTRY e {{\n a = {shape} parameter(0)\n x = {shape} parameter(1)\n"
        f" b = {shape} parameter(2)\n ROOT r = {shape} clamp(a, x, b)\n}}\n"
    )
    for least, most in ((1, 5), (5, 1), (2, 2)):
        bounds = {0: np.array(least, kind.numpy), 2: np.array(most, kind.numpy)}
        lowered, root = written(text, bounds)
        assert lowered.code is not None
        operands = [bounds[0], values, bounds[2]]
        assert same_bits(lowered.function(*operands), row(root, operands))
    zero, _ = written(text, {0: np.array(0, kind.numpy), 2: np.array(5, kind.numpy)})
    assert (zero.code is not None) == kind.is_integer  # the sign of a zero is left open


BLENDED = ("pred", "s8", "s32", "s64", "u16", "bf16", "f16", "f32", "f64", "c64", "f8e4m3fn", "s4")


@pytest.mark.parametrize("name", BLENDED)
@pytest.mark.parametrize("constant", [(), (1,), (1, 2)])
def test_large_selects_are_blended(name: str, constant: tuple[int, ...]) -> None:
    """Of any bits; a predicate or constants may be stretched."""
    kind = DTYPES[name]
    source = np.random.default_rng(1)
    if name == "s4":
        x, y = (source.integers(-8, 8, (4, 256)).astype(kind.numpy) for _ in range(2))
    elif name == "pred":
        x, y = (source.random((4, 256)) < 0.5 for _ in range(2))
    else:
        x, y = (
            source.integers(0, 256, (4, 256 * kind.numpy.itemsize), np.uint8).view(kind.numpy)
            for _ in range(2)
        )
    operands = [source.random(256) < 0.5, x, y]
    for at in constant:
        operands[at] = operands[at][1, 3]
    text = (
        "HloModule m\nENTRY e {\n p = pred[4,256] parameter(0)\n"
        f" x = {name}[4,256] parameter(1)\n y = {name}[4,256] parameter(2)\n"
        f" ROOT r = {name}[4,256] select(p, x, y)\n}}\n"
    )
    arrays = [np.asarray(array) for array in operands]
    lowered, _ = written(text, {at: arrays[at] for at in constant})
    assert lowered.code is not None
    found, wanted = lowered.function(*arrays), np.where(*arrays)
    assert found.shape == wanted.shape
    assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize(("name", "size"), [("f32", 511), ("c128", 4096)])
def test_other_selects_are_not(name: str, size: int) -> None:
    shape = f"{name}[{size}]"
    text = (
        f"HloModule m\nENTRY e {{\n p = pred[{size}] parameter(0)\n x = {shape} parameter(1)\n"
        f" y = {shape} parameter(2)\n ROOT r = {shape} select(p, x, y)\n}}\n"
    )
    assert written(text, {})[0].code is None
