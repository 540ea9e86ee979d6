"""Reductions of every element type and reducer on the emulator."""

from __future__ import annotations

import numpy as np
import pytest

from hloopt.types import dtype
from tests.codegen.harness import check_kernel, planned, ran
from tests.codegen.reducing import Case, fusions, reduces

SUMS = {
    **dict.fromkeys(("s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64"), "3"),
    **dict.fromkeys(("f32", "f64", "f16", "bf16", "f8e4m3fn", "f8e5m2"), "1.5"),
    **dict.fromkeys(("c64", "c128"), "(1, 2)"),
}
"""Init values that are no identities, of every type there is a sum of."""

OTHERS = [
    ("pred", "and", "true"),
    ("pred", "or", "false"),
    ("pred", "xor", "true"),
    ("c64", "multiply", "(1, 2)"),
    ("f32", "multiply", "2"),
    ("bf16", "multiply", "2"),
    ("u8", "multiply", "3"),
    ("f32", "maximum", "-9"),
    ("f16", "minimum", "9"),
    ("f8e4m3fn", "maximum", "-9"),
    ("f64", "minimum", "1"),
    ("s32", "minimum", "9"),
    ("s64", "maximum", "-9"),
    ("u32", "maximum", "1"),
    ("s16", "and", "7"),
    ("u64", "or", "1"),
    ("s8", "xor", "5"),
]


def _every(dims: tuple[int, ...], reduced: tuple[int, ...], step: int) -> list[Case]:
    """A share of all types and reducers."""
    cases = [Case(kind, dims, reduced, "add", init) for kind, init in SUMS.items()]
    cases += [Case(kind, dims, reduced, reducer, init) for kind, reducer, init in OTHERS]
    return cases[::step]


def _variadic(dims: tuple[int, ...], reduced: tuple[int, ...]) -> list[Case]:
    """Reducers without an identity: lanes without elements must not take part."""
    return [
        Case("f32", dims, reduced, "argmax", "-100"),
        Case("s8", dims, reduced, "argmax", "3"),
        Case("bf16", dims, reduced, "argmax", "-100"),
        Case("f16", dims, reduced, "wide-add", "1"),
        Case("f32", dims, reduced, "moments", "0.5"),
        Case("f64", dims, reduced, "moments", "-10"),
    ]


@pytest.mark.parametrize(
    ("kernel", "dims", "reduced", "step"),
    [("row-reduction", (5, 70), (1,), 1), ("column-reduction", (70, 36), (0,), 2)],
)
def test_every_type(
    kernel: str, dims: tuple[int, ...], reduced: tuple[int, ...], step: int
) -> None:
    """Elements of every type are folded and rounded as the interpreter does, the init value once."""
    check_kernel(reduces(_every(dims, reduced, step)), kernel, twice=False)


@pytest.mark.parametrize(
    ("kernel", "cases"),
    [
        ("row-reduction", [*_variadic((5, 70), (1,))[::2], *_variadic((2, 3, 2050), (2,))[1::2]]),
        ("multi-row-reduction", [*_variadic((37, 16), (1,))[::3], *_variadic((40, 5), (1,))[1::3]]),
        (
            "column-reduction",
            [*_variadic((40, 33), (0,))[::3], *_variadic((3, 20, 10), (1,))[1::3]],
        ),
        ("small-column-reduction", _variadic((90, 8), (0,))[1::3]),
        ("split-reduction", [*_variadic((3000,), (0,))[::3], *_variadic((900, 12), (0,))[1::3]]),
    ],
)
def test_reducers_without_identity(kernel: str, cases: list[Case]) -> None:
    """arg-max, several outputs and computations of any kind fold each element once, in any block."""
    check_kernel(reduces(cases), kernel, everywhere=kernel == "row-reduction", twice=False)


def test_packed_inputs() -> None:
    """Elements that share bytes are unpacked where they are reduced."""
    body = """
        x: {kind}[{dims}]
        wide = s32[{dims}] convert(x)
        zero = s32[] constant(7)
        ROOT sum = s32[{kept}] reduce(wide, zero), dimensions={{{at}}}, to_apply=add_s32
    """
    bodies = [
        body.format(kind=kind, dims=dims, kept=kept, at=at)
        for kind, dims, kept, at in [
            ("s4", "9,66", "9", 1),
            ("u4", "70,34", "34", 0),
            ("s2", "3,40", "3", 1),
        ]
    ]
    text = fusions(bodies, [Case("s32", (), ())])
    check_kernel(text, "row-reduction,column-reduction", everywhere=False, twice=False)


def test_special_values() -> None:
    """NaN wins a maximum, infinities cancel, and -0 is summed to -0 where the init value is -0, too."""
    cases = [
        Case(kind, dims, (at,), reducer, init)
        for dims, at in [((4, 70), 1), ((70, 4), 0)]
        for kind, reducer, init in [
            ("f32", "maximum", "-inf"),
            ("bf16", "minimum", "inf"),
            ("f32", "add", "-0"),
            ("f16", "add", "0"),
        ]
    ]
    inputs = []
    for case in cases:
        array = np.random.default_rng(1).standard_normal((4, 70))
        array[0, 33], array[1, 5], array[2, 69], array[2, 0] = np.nan, np.inf, np.inf, -np.inf
        array[3] = -0.0
        inputs.append((array if case.reduced == (1,) else array.T).astype(dtype(case.kind).numpy))
    kernels = "row-reduction,small-column-reduction"
    check_kernel(reduces(cases), kernels, inputs=inputs, everywhere=False, twice=False)
    module, plan, source = planned(reduces(cases), kernels)
    results = ran(module, plan, source, inputs, mode="check")
    sums = [result for case, result in zip(cases, results, strict=True) if case.init == "-0"]
    assert [str(result[3]) for result in sums] == ["-0.0", "-0.0"]
