"""Dots in the NumPy executor: exact sums agree bit for bit, however operands lie; large ones reach BLAS as they are."""

from __future__ import annotations

from itertools import count
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.backends.numpy import dot as planned
from hloopt.backends.numpy import integer_dot, product
from hloopt.runtime.program import Program
from hloopt.types import DTYPES
from tests.helpers.rarely import examples

Array = np.ndarray[Any, Any]

FLOATS = ("f32", "f64", "bf16", "f16", "c64", "f8e4m3fn")
INTEGERS = ("s8", "u8", "s16", "s32", "u32", "s64", "u64", "s4")


def whole_numbers(dtype: str, dims: tuple[int, ...], seed: int) -> Array:
    """Small integers, of which every float type here holds the sums of products; 0 is -0.0 at times."""
    rng = np.random.default_rng(seed)
    kind = DTYPES[dtype]
    low = 0 if kind.kind in ("unsigned", "pred") else -2
    values = rng.integers(low, 2, dims, endpoint=True).astype(np.float64)
    return values.astype(kind.numpy)


def extremes(dtype: str, dims: tuple[int, ...], seed: int) -> Array:
    """Integers of any size, the least and the greatest among them."""
    rng = np.random.default_rng(seed)
    bits = DTYPES[dtype].bits
    signed = DTYPES[dtype].kind == "signed"
    least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    flat = [
        [least, most, int(value)][int(choice)]
        for choice, value in zip(
            rng.integers(0, 3, prod(dims)), rng.integers(-128, 128, prod(dims)), strict=True
        )
    ]
    values = np.array([min(max(value, least), most) for value in flat], dtype=object)
    return (
        values.astype(np.int64 if signed else np.uint64).astype(DTYPES[dtype].numpy).reshape(dims)
    )


def text_of(
    left: tuple[str, tuple[int, ...]], right: tuple[str, tuple[int, ...]], dims: str, result: str
) -> str:
    shapes = [f"{kind}[{','.join(map(str, sizes))}]" for kind, sizes in (left, right)]
    return (
        f"HloModule m\nENTRY e {{\n x = {shapes[0]} parameter(0)\n y = {shapes[1]} parameter(1)\n"
        f" ROOT d = {result} dot(x, y), {dims}\n}}\n"
    )


@st.composite
def dots(draw: st.DrawFn, kinds: tuple[str, ...]) -> tuple[str, list[tuple[str, tuple[int, ...]]]]:
    """A dot with up to two batch, two contracting and two free dimensions, in any order."""
    sizes = st.sampled_from((0, 1, 2, 3, 5, 17))
    batch, contracted = (draw(st.lists(sizes, max_size=2)) for _ in range(2))
    frees = [draw(st.lists(sizes, max_size=2)) for _ in range(2)]
    operands, numbers = [], []
    for free in frees:
        names = [
            *(("b", at) for at in range(len(batch))),
            *(("c", at) for at in range(len(contracted))),
        ]
        names += [("f", at) for at in range(len(free))]
        order = draw(st.permutations(names))
        table = {"b": batch, "c": contracted, "f": free}
        operands.append(
            (draw(st.sampled_from(kinds)), tuple(table[which][at] for which, at in order))
        )
        numbers.append({name: order.index(name) for name in names})
    parts = []
    for which, word in (("b", "batch"), ("c", "contracting")):
        width = len(batch) if which == "b" else len(contracted)
        for side, number in zip(("lhs", "rhs"), numbers, strict=True):
            listed = ",".join(str(number[which, at]) for at in range(width))
            parts.append(f"{side}_{word}_dims={{{listed}}}")
    rest = []
    for free, number in zip(frees, numbers, strict=True):
        placed = [at for name, at in sorted(number, key=number.__getitem__) if name == "f"]
        rest += [free[at] for at in placed]
    result = draw(st.sampled_from(kinds))
    shape = f"{result}[{','.join(map(str, (*batch, *rest)))}]"
    return text_of(operands[0], operands[1], ", ".join(parts), shape), operands


def identical(text: str, inputs: list[Array], *, excess_precision: bool = False) -> Program:
    module = hloopt.parse(text)
    hloopt.verify(module)
    program = hloopt.compile(module, excess_precision=excess_precision)
    want = hloopt.evaluate(module, inputs, excess_precision=excess_precision)
    for _ in range(2):
        (got,) = program.run(inputs)
        assert got.dtype == want[0].dtype
        np.testing.assert_array_equal(got, want[0])
        if got.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(got), np.signbit(want[0]))
    return program


@pytest.fixture(params=["small", "large"])
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every dot once as a small one, and once as a large one, in blocks of few elements."""
    if request.param == "large":
        monkeypatch.setattr(planned, "_LARGE_RESULT", 0)
        monkeypatch.setattr(integer_dot, "_FEW", -1)
        monkeypatch.setattr(product, "_FEW_ROWS", 2)
        monkeypatch.setattr(product, "BLOCK", 16)
        monkeypatch.setattr(product, "_LEAST", 2)


SETTINGS = settings(max_examples=examples(120), deadline=None)


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize("excess", [False, True])
@SETTINGS
@given(dots(FLOATS), st.integers(0, 99))
def test_floats_that_sum_exactly_agree(
    excess: bool, case: tuple[str, list[tuple[str, tuple[int, ...]]]], seed: int
) -> None:
    """Whole numbers have exact sums in any order: every arrangement of dimensions gives the same bits."""
    text, operands = case
    inputs = [whole_numbers(kind, dims, seed + at) for at, (kind, dims) in enumerate(operands)]
    identical(text, inputs, excess_precision=excess)


@pytest.mark.usefixtures("sizes")
@SETTINGS
@given(dots(INTEGERS), st.integers(0, 99))
def test_integers_agree_at_any_size(
    case: tuple[str, list[tuple[str, tuple[int, ...]]]], seed: int
) -> None:
    """Sums of products of the least and the greatest values wrap as the interpreter's do."""
    text, operands = case
    inputs = [extremes(kind, dims, seed + at) for at, (kind, dims) in enumerate(operands)]
    identical(text, inputs)


@pytest.mark.parametrize("rows", [5, 80])
@pytest.mark.parametrize(
    ("kind", "terms", "compute"),
    [
        ("s8", 64, np.float32),
        ("s8", 1024, np.float32),
        ("s8", 1025, np.float32),  # in two parts
        ("s8", 8192, np.float32),
        ("s8", 8193, np.float64),
        ("u8", 258, np.float32),
        ("s16", 64, np.float64),
        ("s32", 64, np.int64),  # the values decide
    ],
)
def test_integers_are_floats_that_hold_every_partial_sum(
    kind: str, terms: int, compute: type, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The type is proven from the element types and the number of terms; the largest products stay exact."""
    used: list[Any] = []
    real = integer_dot.integer_form

    def spy(*arguments: Any) -> Any:
        used.append(real(*arguments))
        return used[-1]

    monkeypatch.setattr(planned, "integer_form", spy)
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    text = text_of((kind, (rows, terms)), (kind, (terms, 16)), dims, f"s32[{rows},16]")
    least = -(1 << (DTYPES[kind].bits - 1)) if kind[0] == "s" else (1 << DTYPES[kind].bits) - 1
    inputs = [np.full(shape, least, DTYPES[kind].numpy) for shape in ((rows, terms), (terms, 16))]
    inputs[0][0, 0] = least + 1 if least < 0 else least - 1  # an odd factor
    identical(text, inputs)
    assert used[0].compute == compute


MOVED = [
    # attention's output: [batch, heads, size, place] times [heads, size, features]
    (
        (4, 6, 8, 40),
        (6, 8, 96),
        "lhs_contracting_dims={1,2}, rhs_contracting_dims={0,1}",
        "f32[4,40,96]",
        ((4, 40, 48), (1, 48, 96)),
    ),
    # a weight with its contracting dimensions in another order
    (
        (64, 12, 8),
        (8, 12, 96),
        "lhs_contracting_dims={1,2}, rhs_contracting_dims={1,0}",
        "f32[64,96]",
        None,
    ),
    (
        (3, 40, 4, 16),
        (3, 40, 4, 16),
        "lhs_batch_dims={0,2}, rhs_batch_dims={0,2}, lhs_contracting_dims={3}, rhs_contracting_dims={3}",
        "f32[3,4,40,40]",
        ((3, 4, 40, 16), (3, 4, 16, 40)),
    ),
    (
        (64, 48),
        (96, 48),
        "lhs_contracting_dims={1}, rhs_contracting_dims={1}",
        "f32[64,96]",
        ((64, 48), (48, 96)),
    ),
]


@pytest.mark.parametrize(("left", "right", "dims", "result", "taken"), MOVED)
def test_large_operands_are_not_copied(
    left: tuple[int, ...],
    right: tuple[int, ...],
    dims: str,
    result: str,
    taken: tuple[tuple[int, ...], tuple[int, ...]] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """BLAS gets views of the operands where an order of dimensions is one it reads."""
    monkeypatch.setattr(planned, "_LARGE_RESULT", 0)
    calls: list[tuple[Array, Array]] = []
    real = np.matmul

    def spy(x: Array, y: Array, **named: Any) -> Any:
        calls.append((x, y))
        return real(x, y, **named)

    inputs = [whole_numbers("f32", shape, at) for at, shape in enumerate((left, right))]
    identical(text_of(("f32", left), ("f32", right), dims, result), inputs)
    program = hloopt.compile(hloopt.parse(text_of(("f32", left), ("f32", right), dims, result)))
    monkeypatch.setattr(np, "matmul", spy)
    program.run(inputs)
    ((x, y),) = calls
    if taken is None:
        assert np.shares_memory(x, inputs[0]) or np.shares_memory(y, inputs[1])
    else:
        assert (x.shape, y.shape) == taken
        assert np.shares_memory(x, inputs[0])
        assert np.shares_memory(y, inputs[1])


@pytest.mark.parametrize("side", [0, 1])
def test_a_large_narrow_operand_is_widened_in_blocks(
    side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole operand is never there in f32."""
    monkeypatch.setattr(planned, "_LARGE_RESULT", 0)
    monkeypatch.setattr(product, "BLOCK", 1 << 12)
    sizes = [(64, 256), (256, 64)]
    sizes[side] = [(512, 256), (256, 512)][side]
    text = text_of(
        ("bf16", sizes[0]),
        ("bf16", sizes[1]),
        "lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        f"bf16[{sizes[0][0]},{sizes[1][1]}]",
    )
    inputs = [whole_numbers("bf16", dims, at) for at, dims in enumerate(sizes)]
    program = identical(text, inputs)
    widest: list[int] = []
    real = np.matmul

    def spy(x: Array, y: Array, **named: Any) -> Any:
        widest.append((x, y)[side].size)
        return real(x, y, **named)

    monkeypatch.setattr(np, "matmul", spy)
    program.run(inputs)
    assert len(widest) == 8
    assert max(widest) == 64 * 256


def test_outer_products_have_the_zeros_of_sums() -> None:
    """A sum begins with +0: a product that is -0.0 gives +0.0."""
    text = text_of(
        ("f32", (256, 1)),
        ("f32", (1, 256)),
        "lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "f32[256,256]",
    )
    special = np.array([0.0, -0.0, np.nan, np.inf, 1.5, -2.0, 1e-42, 3e38], np.float32)
    left, right = np.tile(special, 32)[:, None], np.repeat(special, 32)[None]
    with np.errstate(invalid="ignore", over="ignore"):
        identical(text, [left, right])


def test_a_large_product_is_written_where_nobody_reads_any_more() -> None:
    """Of a chain of products, each after the second has the memory of the last but one."""
    numbers = count(2)
    lines = ["x = f32[256,256] parameter(0)", "v1 = f32[256,256] negate(x)"]
    for number in numbers:
        lines.append(
            f"v{number} = f32[256,256] dot(v{number - 1}, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        )
        if number == 6:
            break
    lines.append("ROOT r = f32[256] reduce(v6, z), dimensions={1}, to_apply=sum")
    lines.insert(0, "z = f32[] constant(0)")
    text = (
        "HloModule m\nsum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n"
        "ENTRY e {\n " + "\n ".join(lines) + "\n}\n"
    )
    module = hloopt.parse(text)
    program = hloopt.compile(module)
    outs: list[int] = []
    real = np.matmul

    def spy(x: Array, y: Array, out: Array) -> Any:
        outs.append(out.__array_interface__["data"][0])
        return real(x, y, out=out)

    eye = [np.eye(256, dtype=np.float32)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "matmul", spy)
        (got,) = program.run(eye)
    np.testing.assert_array_equal(got, np.full(256, -1, np.float32))
    assert len(outs) == 5
    assert len(set(outs)) == 2
