"""Short rows sorted by a kernel: the interpreter's results to the bit, whatever the comparator says."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.backends.native.compile import compile_native
from hloopt.ir import Module
from hloopt.kernels.plan import KernelStep, walk_steps
from hloopt.runtime.inputs import generate
from tests.helpers.support import Array

PAIRS = """HloModule m
by {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  p = s32[] parameter(2)
  q = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction={direction}
}}
ENTRY e {{
  x = {kind}[{dims}] parameter(0)
  i = s32[{dims}] iota(), iota_dimension={axis}
  ROOT s = ({kind}[{dims}], s32[{dims}]) sort(x, i), dimensions={{{axis}}}, is_stable=true, to_apply=by
}}
"""

UNORDERED = """HloModule m
odd {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  three = s32[] constant(3)
  c = s32[] remainder(a, three)
  d = s32[] remainder(b, three)
  e = pred[] compare(c, d), direction=NE
  f = pred[] compare(a, b), direction=GT
  ROOT r = pred[] xor(e, f)
}
ENTRY e {
  x = s32[40,33] parameter(0)
  two = s32[] constant(2)
  twos = s32[40,33] broadcast(two), dimensions={}
  y = s32[40,33] multiply(x, twos)
  ROOT s = s32[40,33] sort(y), dimensions={1}, to_apply=odd
}
"""


def kernels(module: Module) -> list[str]:
    program = compile_native(module)
    return [
        step.spec.kernel for step in walk_steps(program.plan.steps) if isinstance(step, KernelStep)
    ]


def check(module: Module, given: list[Array]) -> None:
    """The same bits as the interpreter."""
    expected = hloopt.evaluate(module, given)
    for one, other in zip(compile_native(module).run(given), expected, strict=True):
        np.testing.assert_array_equal(one.view(np.uint8), other.view(np.uint8))


@pytest.mark.parametrize(
    ("kind", "dims", "axis", "direction"),
    [
        ("f32", (17,), 0, "LT"),
        ("f32", (5, 9), 1, "GT"),
        ("f16", (7, 3, 4), 1, "LE"),
        ("s8", (3, 31), 1, "GE"),
        ("u32", (64,), 0, "LT"),
        ("f64", (2, 1), 1, "LT"),
        ("bf16", (100,), 0, "GT"),
        ("pred", (33,), 0, "LT"),
    ],
)
def test_rows(kind: str, dims: tuple[int, ...], axis: int, direction: str) -> None:
    """Ties, zeros of both signs, infinities and NaNs among them, along any dimension."""
    text = PAIRS.format(kind=kind, dims=",".join(map(str, dims)), axis=axis, direction=direction)
    module = hloopt.parse(text)
    (x,) = generate(module)
    flat = x.reshape(-1)
    if kind[0] != "p":
        flat[::2] = flat[0]
    if kind in ("f32", "f16", "f64", "bf16"):
        special = np.array([0.0, -0.0, np.inf, np.nan, -np.inf]).astype(flat.dtype)
        flat[1::3] = np.resize(special, flat[1::3].size)
    assert "native-sort" in kernels(module)
    check(module, [x])


def test_a_comparator_without_an_order() -> None:
    """The merge is the definition of the op; the product is computed where the rows are read."""
    module = hloopt.parse(UNORDERED)
    assert "native-sort" in kernels(module)
    check(module, generate(module))


def test_what_takes_long_is_left_to_numpy() -> None:
    text = PAIRS.format(kind="f32", dims="16,256", axis=1, direction="LT")
    assert "native-call" in kernels(hloopt.parse(text))
    assert "native-sort" not in kernels(hloopt.parse(text))


def test_rows_without_elements() -> None:
    text = PAIRS.format(kind="f32", dims="3,0", axis=1, direction="LT")
    module = hloopt.parse(text)
    check(module, generate(module))


@pytest.mark.every_value
@pytest.mark.parametrize(("size", "kernel"), [(27, "native-sort"), (400, "native-call")])
@pytest.mark.parametrize("largest", ["true", "false"])
def test_the_largest(size: int, kernel: str, largest: str) -> None:
    """By a sort of rows that are short."""
    module = hloopt.parse(
        f"HloModule m\nENTRY e {{\n  x = f32[2,{size}] parameter(0)\n"
        f"  ROOT t = (f32[2,3], s32[2,3]) topk(x), k=3, largest={largest}\n}}\n"
    )
    (x,) = generate(module)
    x[:, ::5] = x[0, 0]
    assert kernel in kernels(module)
    check(module, [x])
