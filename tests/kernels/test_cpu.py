"""The NumPy executor's own candidates: chosen by the same pass, each right, each really used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.errors import UsageError
from hloopt.kernels.registry import kernels
from hloopt.kernels.selection import Choice, KernelSelection, read_choice
from hloopt.rewrite import Pipeline
from hloopt.runtime.inputs import generate
from hloopt.runtime.judge import judged
from hloopt.runtime.numpy import ways
from hloopt.runtime.numpy.program import NumpyProgram

DOT = """HloModule dot
ENTRY main {
  x = $T[3,5,4] parameter(0)
  y = $T[3,4,6] parameter(1)
  ROOT r = $T[3,5,6] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}
}
"""
REDUCE = """HloModule reduce
f { a = $T[] parameter(0)
  b = $T[] parameter(1)
  ROOT c = $T[] maximum(a, b) }
ENTRY main {
  x = $T[7,9,2] parameter(0)
  z = $T[] parameter(1)
  ROOT r = $T[9] reduce(x, z), dimensions={0,2}, to_apply=f
}
"""
SORT = """HloModule sort
less { a = $T[] parameter(0)
  b = $T[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ROOT l = pred[] compare(a, b), direction=LT }
ENTRY main {
  x = $T[4,33] parameter(0)
  y = s32[4,33] parameter(1)
  ROOT r = ($T[4,33], s32[4,33]) sort(x, y), dimensions={1}, is_stable=true, to_apply=less
}
"""
CONVOLUTION = """HloModule convolution
ENTRY main {
  x = $T[2,3,6,5] parameter(0)
  y = $T[4,3,1,1] parameter(1)
  ROOT r = $T[2,4,6,5] convolution(x, y), window={size=1x1}, dim_labels=bf01_oi01->bf01
}
"""
CASES = [
    (DOT, "f32", "dot-blas", ("dot-einsum", "numpy")),
    (DOT, "bf16", "dot-blas", ("dot-einsum", "numpy")),
    (DOT, "s32", "dot-blas", ("dot-einsum", "numpy")),
    (DOT, "pred", "numpy", ("dot-einsum",)),
    (DOT, "c64", "dot-blas", ("dot-einsum",)),
    (REDUCE, "f32", "reduce-ufunc", ("reduce-fold", "numpy")),
    (REDUCE, "bf16", "reduce-ufunc", ("reduce-fold", "numpy")),
    (REDUCE, "s8", "reduce-ufunc", ("reduce-fold",)),
    (REDUCE.replace("maximum", "multiply"), "f16", "numpy", ("reduce-fold",)),
    (SORT, "f32", "sort-keys", ("sort-merge", "numpy")),
    (SORT, "u8", "sort-keys", ("sort-merge",)),
    (CONVOLUTION, "f32", "convolution-matmul", ("convolution-windows", "numpy")),
    (CONVOLUTION, "s16", "convolution-matmul", ("convolution-windows",)),
]
EVERY = [
    (text.replace("$T", dtype), name)
    for text, dtype, first, others in CASES
    for name in (first, *others)
]


def chosen(text: str, **options: Any) -> tuple[hloopt.Module, Choice]:
    module = hloopt.parse(text)
    report = Pipeline((KernelSelection(device="cpu", **options),)).run(module)
    (choice,) = report.runs[0].records
    assert isinstance(choice, Choice)
    return module, choice


@pytest.mark.parametrize(("text", "dtype", "first", "others"), CASES)
def test_the_first_that_fits_is_chosen(
    text: str, dtype: str, first: str, others: tuple[str, ...]
) -> None:
    """Every case has at least two ways; the record has all of them with an estimate."""
    _, choice = chosen(text.replace("$T", dtype))
    assert choice.kernel == first
    fits = {row.name for row in choice.candidates if row.fits}
    assert {first, *others} <= fits
    assert all(row.estimate is not None for row in choice.candidates if row.fits)


@pytest.mark.parametrize(("text", "name"), EVERY)
def test_each_way_computes_what_the_interpreter_does(text: str, name: str) -> None:
    """Forced by --kernel; the text with the choice in it reads back."""
    module, choice = chosen(text, kernel=(f"r={name}",))
    assert choice.kernel == name
    again = hloopt.parse(module.to_text())
    assert read_choice(again.entry.root) == (name, {})
    inputs = generate(again, 3)
    given = hloopt.parse(text)
    want = hloopt.evaluate(given, inputs)
    assert all(row.passed for row in judged(given, inputs, NumpyProgram(again).run(inputs), want))


@pytest.mark.parametrize(
    ("text", "name"), [(text, name) for text, name in EVERY if name in ways.WAYS]
)
def test_a_choice_is_honoured(text: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The function of that name runs, and only where it is written."""
    ran: list[str] = []

    def spy(*arguments: Any) -> Any:
        ran.append(name)
        return real(*arguments)

    real = ways.WAYS[name]
    monkeypatch.setattr(ways, "WAYS", {**ways.WAYS, name: spy})
    module, _ = chosen(text, kernel=(f"r={name}",))
    NumpyProgram(module).run(generate(module, 0))
    assert ran == [name]
    plain = hloopt.parse(text)
    NumpyProgram(plain).run(generate(plain, 0))
    assert ran == [name]


@pytest.mark.parametrize(
    ("text", "name", "reason"),
    [
        (DOT.replace("$T", "pred"), "dot-blas", "pred has no sums of products"),
        (REDUCE.replace("$T", "f32"), "dot-blas", "it is for dot"),
        (
            REDUCE.replace("$T", "f16").replace("maximum", "multiply"),
            "reduce-ufunc",
            "NumPy has no multiply of f16 that rounds at every step",
        ),
        (
            REDUCE.replace("$T", "f32").replace("maximum", "subtract"),
            "reduce-ufunc",
            "the region is no single op",
        ),
        (
            CONVOLUTION.replace("$T", "f32")
            .replace("size=1x1", "size=1x1 stride=2x1")
            .replace("[2,4,6,5] conv", "[2,4,3,5] conv"),
            "convolution-matmul",
            "window dimension 0 is",
        ),
        (
            SORT.replace("$T", "f32")
            .replace("compare(a, b)", "compare(a, m)")
            .replace("  ROOT l", "  m = f32[] multiply(b, a)\n  ROOT l"),
            "sort-keys",
            "the comparator compares no keys",
        ),
    ],
)
def test_what_does_not_fit_says_why(text: str, name: str, reason: str) -> None:
    """The reason stands in the usage error."""
    with pytest.raises(UsageError) as caught:
        chosen(text, kernel=(f"r={name}",))
    assert f"{name} does not fit: {reason}" in str(caught.value)


def test_choices_for_a_gpu_mean_nothing_here() -> None:
    """A module whose kernels were chosen for a device runs as it is; no name means two things."""
    names = [kernel.name for kernel in kernels("cpu")]
    assert not set(names) & {kernel.name for kernel in kernels("gpu")}
    module = hloopt.parse(DOT.replace("$T", "f32"))
    Pipeline((KernelSelection(),)).run(module)
    written = read_choice(module.entry.root)
    assert written is not None
    assert written[0] not in names
    inputs = generate(module, 1)
    got = NumpyProgram(module).run(inputs)
    np.testing.assert_allclose(got[0], hloopt.evaluate(module, inputs)[0], rtol=1e-5, atol=1e-6)


def test_sizes_the_program_decides_are_left_to_the_executor() -> None:
    """No other way takes a bounded dynamic dimension."""
    text = DOT.replace("$T", "f32").replace("[3,5,", "[3,<=5,")
    _, choice = chosen(text)
    assert choice.kernel == "numpy"
    assert [row.name for row in choice.candidates if row.fits] == ["numpy"]
