"""Convolutions in the NumPy executor: exact sums agree bit for bit, whatever the attributes; no loop over channels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.backends.numpy import convolution as planned
from hloopt.backends.numpy import window_products
from hloopt.errors import HlooptError
from hloopt.types import DTYPES
from tests.helpers.rarely import examples

Array = np.ndarray[Any, Any]
Case = tuple[str, list[tuple[str, tuple[int, ...]]]]

KINDS = ("f32", "f64", "bf16", "f16", "c64", "s8", "u8", "s16", "s32", "s64")


def whole_numbers(kind: str, dims: tuple[int, ...], seed: int) -> Array:
    """Small integers, of which every type here holds the sums of products."""
    low = 0 if DTYPES[kind].kind == "unsigned" else -2
    values = np.random.default_rng(seed).integers(low, 2, dims, endpoint=True)
    return values.astype(DTYPES[kind].numpy)


@st.composite
def convolutions(draw: st.DrawFn, kinds: tuple[str, ...] = KINDS) -> Case:
    """One with up to three spatial dimensions, and any labels, window, groups and types."""
    rank = draw(st.integers(0, 3))
    window, space, sizes = [], [], []
    for _ in range(rank):
        size = draw(st.integers(1, 3))
        words = {
            "size": str(size),
            "stride": str(draw(st.integers(1, 3))),
            "pad": f"{draw(st.integers(-1, 3))}_{draw(st.integers(-1, 3))}",
            "lhs_dilate": str(draw(st.sampled_from((1, 1, 2, 3)))),
            "rhs_dilate": str(draw(st.sampled_from((1, 1, 2, 3)))),
            "rhs_reversal": str(draw(st.integers(0, 1))),
        }
        window.append(words)
        sizes.append(size)
        space.append(draw(st.integers(1, 7)))
    feature_groups, batch_groups = draw(st.sampled_from(((1, 1), (1, 1), (2, 1), (3, 1), (1, 2))))
    batch = draw(st.integers(1, 3)) * batch_groups
    inner, made = draw(st.integers(1, 5)), draw(st.integers(1, 5)) * feature_groups * batch_groups
    digits = "0123456789"[:rank]
    outputs = []
    for words, size in zip(window, space, strict=True):
        low, high = map(int, words["pad"].split("_"))
        base = (size - 1) * int(words["lhs_dilate"]) + 1 + low + high
        reach = (int(words["size"]) - 1) * int(words["rhs_dilate"]) + 1
        assume(base > 0)
        outputs.append((base - reach) // int(words["stride"]) + 1 if base >= reach else 0)
    labels: list[str] = []
    shapes: list[tuple[int, ...]] = []
    for letters, named in (
        ("bf", {"b": batch, "f": inner * feature_groups}),
        ("io", {"i": inner, "o": made}),
        ("bf", {"b": batch // batch_groups, "f": made}),
    ):
        table = {**named, **dict(zip(digits, (space, sizes, outputs)[len(labels)], strict=True))}
        order = "".join(draw(st.permutations([*letters, *digits])))
        labels.append(order)
        shapes.append(tuple(table[letter] for letter in order))
    types = [draw(st.sampled_from(kinds)) for _ in range(2)]
    if DTYPES[types[0]].is_complex or DTYPES[types[1]].is_complex:
        types = [max(types, key=lambda kind: DTYPES[kind].is_complex)] * 2
    result = draw(st.sampled_from((*types, "f32"))) if types[0][0] != "c" else types[0]
    listed = [
        f"{kind}[{','.join(map(str, dims))}]"
        for kind, dims in zip((*types, result), shapes, strict=True)
    ]
    written = " ".join(
        f"{key}={'x'.join(one[key] for one in window)}" for key in (window[0] if window else ())
    )
    text = (
        f"HloModule m\nENTRY e {{\n x = {listed[0]} parameter(0)\n y = {listed[1]} parameter(1)\n"
        f" ROOT d = {listed[2]} convolution(x, y), window={{{written}}}, "
        f"dim_labels={labels[0]}_{labels[1]}->{labels[2]}, feature_group_count={feature_groups}, "
        f"batch_group_count={batch_groups}\n}}\n"
    )
    return text, list(zip(types, shapes, strict=False))


def wide(array: Array) -> Array:
    """NumPy knows no NaNs of bf16."""
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def identical(text: str, inputs: list[Array]) -> Any:
    module = hloopt.parse(text)
    try:
        hloopt.verify(module)
    except HlooptError:
        assume(False)
    program = hloopt.compile(module)
    (want,) = hloopt.evaluate(module, inputs)
    for _ in range(2):
        (got,) = program.run(inputs)
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(wide(got), wide(want))
    return program


@pytest.fixture(params=["blocks", "whole"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once in blocks of few elements, once as they come."""
    if request.param == "blocks":
        monkeypatch.setattr(window_products, "_BLOCK", 24)
        monkeypatch.setattr(window_products, "_FEW_ROWS", 4)
        monkeypatch.setattr(window_products, "_PADDED", 64)
        monkeypatch.setattr(window_products, "_SHORT_RUN", 4)
        monkeypatch.setattr(window_products, "_TERMS", 4)


@pytest.mark.usefixtures("blocks")
@settings(max_examples=examples(200), deadline=None)
@given(convolutions(), st.integers(0, 99))
def test_sums_that_are_exact_agree(case: Case, seed: int) -> None:
    """Whole numbers have exact sums in any order."""
    text, operands = case
    identical(
        text, [whole_numbers(kind, dims, seed + at) for at, (kind, dims) in enumerate(operands)]
    )


@settings(max_examples=examples(60), deadline=None)
@given(convolutions(("f32", "bf16")), st.integers(0, 99))
def test_padding_takes_no_part_in_a_sum(case: Case, seed: int) -> None:
    """An infinite weight, or one that is no number, meets no zero around the operand."""
    text, operands = case
    inputs = [whole_numbers(kind, dims, seed + at) for at, (kind, dims) in enumerate(operands)]
    kernel = inputs[1].reshape(-1)
    kernel[seed % kernel.size] = [np.inf, -np.inf, np.nan][seed % 3]
    identical(text, inputs)


def counted(text: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often a run calls what multiplies."""
    module = hloopt.parse(text)
    shapes = [parameter.array for parameter in module.entry.parameters]
    inputs = [whole_numbers(shape.dtype.name, shape.dims, at) for at, shape in enumerate(shapes)]
    program = identical(text, inputs)
    calls = {"matmul": 0, "einsum": 0}

    def spy(name: str) -> Any:
        real = getattr(np, name)

        def called(*arguments: Any, **named: Any) -> Any:
            calls[name] += 1
            return real(*arguments, **named)

        return called

    def refused(*_: Any) -> Any:
        raise AssertionError("the interpreter was asked")

    monkeypatch.setattr(planned, "convolution", refused)
    for name in calls:
        monkeypatch.setattr(np, name, spy(name))
    program.run(inputs)
    return calls


def text_of(x: str, y: str, result: str, rest: str) -> str:
    return (
        f"HloModule m\nENTRY e {{\n x = {x} parameter(0)\n y = {y} parameter(1)\n"
        f" ROOT d = {result} convolution(x, y), {rest}\n}}\n"
    )


GROUPED = [
    (
        "f32[2,9,9,64]",
        "f32[3,3,4,64]",
        "f32[2,9,9,64]",
        "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, feature_group_count=16",
        {"matmul": 1, "einsum": 0},
    ),
    (
        "f32[2,9,9,64]",
        "f32[3,3,1,64]",
        "f32[2,9,9,64]",
        "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, feature_group_count=64",
        {"matmul": 0, "einsum": 1},
    ),
    (
        "f32[2,64,9,9]",
        "f32[128,1,3,3]",
        "f32[2,128,7,7]",
        "window={size=3x3}, dim_labels=bf01_oi01->bf01, feature_group_count=64",
        {"matmul": 0, "einsum": 2},  # once for each output feature of a group
    ),
    (
        "f32[64,9,9,2]",
        "f32[7,7,2,64]",
        "f32[3,3,1,64]",
        "window={size=7x7}, dim_labels=b01f_01io->01bf, batch_group_count=64",
        {"matmul": 0, "einsum": 9},  # once for each place in the kernel whose gradient it is
    ),
    (
        "bf16[2,9,9,64]",
        "bf16[3,3,8,16]",
        "bf16[2,4,4,16]",
        "window={size=3x3 stride=2x2}, dim_labels=b01f_01io->b01f, feature_group_count=8",
        {"matmul": 1, "einsum": 0},
    ),
]


@pytest.mark.parametrize(("x", "y", "result", "rest", "calls"), GROUPED)
def test_groups_are_multiplied_at_once(
    x: str, y: str, result: str, rest: str, calls: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither channels nor groups are gone through one by one."""
    assert counted(text_of(x, y, result, rest), monkeypatch) == calls


@pytest.mark.parametrize(
    ("x", "y", "result", "rest"),
    [
        (
            "f32[4,14,14,32]",
            "f32[1,1,32,48]",
            "f32[4,14,14,48]",
            "window={size=1x1}, dim_labels=b01f_01io->b01f",
        ),
        (
            "f32[1,32,14,14]",
            "f32[48,32,1,1]",
            "f32[1,48,14,14]",
            "window={size=1x1}, dim_labels=bf01_oi01->bf01",
        ),
    ],
)
def test_a_window_of_one_place_is_one_product_of_the_operands(
    x: str, y: str, result: str, rest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is copied: BLAS reads the operand and writes the result."""
    taken: list[tuple[Array, Array, Array]] = []
    real = np.matmul

    def spy(left: Array, right: Array, out: Array) -> Any:
        taken.append((left, right, out))
        return real(left, right, out=out)

    text = text_of(x, y, result, rest)
    module = hloopt.parse(text)
    shapes = [parameter.array for parameter in module.entry.parameters]
    inputs = [whole_numbers(shape.dtype.name, shape.dims, at) for at, shape in enumerate(shapes)]
    program = identical(text, inputs)
    monkeypatch.setattr(np, "matmul", spy)
    (got,) = program.run(inputs)
    ((left, right, out),) = taken
    assert np.shares_memory(out, got)
    assert np.shares_memory(left, inputs[0]) or np.shares_memory(right, inputs[0])


def test_a_window_is_copied_in_blocks_that_fit_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """No matrix of windows is larger than a block; each row is multiplied once."""
    monkeypatch.setattr(window_products, "_BLOCK", 1 << 14)
    monkeypatch.setattr(window_products, "_FEW_ROWS", 16)
    sizes: list[tuple[int, ...]] = []
    real = np.matmul

    def spy(left: Array, right: Array, out: Array) -> Any:
        sizes.append(left.shape)
        return real(left, right, out=out)

    text = text_of(
        "f32[2,30,30,16]",
        "f32[3,3,16,8]",
        "f32[2,30,30,8]",
        "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f",
    )
    inputs = [whole_numbers("f32", (2, 30, 30, 16), 0), whole_numbers("f32", (3, 3, 16, 8), 1)]
    program = identical(text, inputs)
    monkeypatch.setattr(np, "matmul", spy)
    program.run(inputs)
    assert sum(rows for _, rows, _ in sizes) == 2 * 30 * 30
    assert {depth for _, _, depth in sizes} == {9 * 16}
    assert max(rows * depth for _, rows, depth in sizes) <= 1 << 14
