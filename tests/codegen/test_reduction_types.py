"""Reductions of every element type and reducer on the emulator."""

from __future__ import annotations

import pytest

from tests.codegen.harness import check_kernel
from tests.codegen.reducing import Case, fusions, reduces

SIGNED = ("s8", "s16", "s32", "s64")
UNSIGNED = ("u8", "u16", "u32", "u64")
FLOATS = ("f32", "f64", "f16", "bf16", "f8e4m3fn", "f8e5m2")


def _every(dims: tuple[int, ...], reduced: tuple[int, ...]) -> list[Case]:
    """Every reducer of every class of types, with init values that are no identities."""
    cases = [
        Case(kind, dims, reduced, reducer, "3")
        for kind in SIGNED + UNSIGNED
        for reducer in ("add", "xor" if kind[0] == "s" else "multiply")
    ]
    cases += [
        Case(kind, dims, reduced, reducer, "1.5")
        for kind in FLOATS
        for reducer in (("add", "maximum") if "8" in kind else ("add", "minimum"))
    ]
    cases += [Case("pred", dims, reduced, reducer, "true") for reducer in ("and", "or", "xor")]
    cases += [
        Case("c64", dims, reduced, "add", "(1, 2)"),
        Case("c128", dims, reduced, "add", "(1, 2)"),
        Case("c64", dims, reduced, "multiply", "(1, 2)"),
        Case("s32", dims, reduced, "minimum", "-1"),
        Case("u32", dims, reduced, "maximum", "1"),
        Case("f32", dims, reduced, "multiply", "2"),
    ]
    return cases


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
    ("kernel", "dims", "reduced"),
    [
        ("row-reduction", (5, 70), (1,)),
        ("column-reduction", (70, 36), (0,)),
        ("small-column-reduction", (150, 4), (0,)),
    ],
)
def test_every_type(kernel: str, dims: tuple[int, ...], reduced: tuple[int, ...]) -> None:
    """Elements of every type are folded and rounded as the interpreter does, the init value once."""
    check_kernel(reduces(_every(dims, reduced)), kernel, everywhere=kernel == "column-reduction")


@pytest.mark.parametrize(
    ("kernel", "cases"),
    [
        ("row-reduction", [*_variadic((5, 70), (1,)), *_variadic((2, 3, 2050), (2,))]),
        ("multi-row-reduction", [*_variadic((37, 16), (1,)), *_variadic((40, 5), (1,))]),
        ("column-reduction", [*_variadic((40, 33), (0,)), *_variadic((3, 20, 10), (1,))]),
        ("small-column-reduction", _variadic((90, 8), (0,))),
        ("split-reduction", [*_variadic((3000,), (0,)), *_variadic((900, 12), (0,))]),
    ],
)
def test_reducers_without_identity(kernel: str, cases: list[Case]) -> None:
    """arg-max, several outputs and computations of any kind fold each element once, in any block."""
    check_kernel(reduces(cases), kernel)


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
        for kind in ("s4", "u4", "s2")
        for dims, kept, at in [("9,66", "9", 1), ("70,34", "34", 0)]
    ]
    text = fusions(bodies, [Case("s32", (), ())])
    check_kernel(text, "row-reduction", everywhere=False)
    check_kernel(text, "column-reduction", everywhere=False)
