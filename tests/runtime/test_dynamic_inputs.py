"""Inputs of parameters with bounded dynamic dimensions."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.errors import EvaluationError, UsageError
from hloopt.runtime.inputs import generate, load_expected, load_inputs

TEXT = """HloModule m
ENTRY e {
  a = f32[<=9,3] parameter(0)
  b = f32[<=9,3] parameter(1)
  c = s32[<=9,<=5] parameter(2)
  d = f32[4] parameter(3)
  ROOT r = f32[<=9,3] add(a, b)
}"""


def test_dimensions_of_one_bound_have_one_size():
    """Sizes are from 1 to the bound, the same wherever the bound is, and another seed has others."""
    module = hloopt.parse(TEXT, "m.hlo")
    seen = set()
    for seed in range(40):
        a, b, c, d = generate(module, seed)
        assert a.shape == b.shape
        assert a.shape[1:] == (3,)
        assert c.shape[0] == a.shape[0]
        assert d.shape == (4,)
        seen.add(c.shape)
    assert {size for size, _ in seen} == set(range(1, 10))
    assert {size for _, size in seen} == set(range(1, 6))
    assert [x.tolist() for x in generate(module, 3)] == [x.tolist() for x in generate(module, 3)]


def test_sizes_leave_the_other_parameters_as_they_were():
    """A static parameter's numbers do not depend on whether another one is dynamic."""
    static = hloopt.parse(TEXT.replace("<=", ""), "m.hlo")
    dynamic = hloopt.parse(TEXT, "m.hlo")
    assert (generate(static, 7)[3] == generate(dynamic, 7)[3]).all()


def test_a_size_that_is_set_is_that_of_its_bound():
    """A parameter that set-dimension-size reads is from 1 to the bound, as other dimensions of that bound."""
    module = hloopt.parse(
        "HloModule m\nENTRY e {\n  x = f32[6] parameter(0)\n  n = s32[] parameter(1)\n"
        "  y = f32[<=6] parameter(2)\n  i = s32[1] reshape(n)\n  m = s32[] reshape(i)\n"
        "  s = f32[<=6] set-dimension-size(x, m), dimensions={0}\n"
        "  ROOT r = f32[<=6] add(s, y)\n}"
    )
    seen = set()
    for seed in range(60):
        _, size, array = inputs = generate(module, seed)
        assert hloopt.evaluate(module, inputs)[0].shape == array.shape == (size,)
        seen.add(int(size))
    assert seen == set(range(1, 7))


def test_a_size_of_several_dimensions_is_within_the_smallest_bound():
    """Whichever of them the module sets first, and through however many steps."""
    module = hloopt.parse(
        "HloModule m\nENTRY e {\n  x = f32[6] parameter(0)\n  y = f32[3] parameter(1)\n"
        "  n = s32[] parameter(2)\n  m = s32[] copy(n)\n"
        "  s = f32[<=6] set-dimension-size(x, n), dimensions={0}\n"
        "  t = f32[<=3] set-dimension-size(y, m), dimensions={0}\n"
        "  u = f32[<=6] set-dimension-size(x, m), dimensions={0}\n"
        "  ROOT r = (f32[<=6], f32[<=3], f32[<=6]) tuple(s, t, u)\n}"
    )
    assert {int(generate(module, seed)[2]) for seed in range(40)} == {1, 2, 3}


def test_files_may_hold_less_than_the_bound(tmp_path):
    """Stored inputs and results have any size up to the bound."""
    module = hloopt.parse(TEXT, "m.hlo")
    arrays = {
        "in_0": np.ones((2, 3), np.float32),
        "in_1": np.ones((2, 3), np.float32),
        "in_2": np.ones((0, 5), np.int32),
        "in_3": np.ones(4, np.float32),
        "out_0": np.full((2, 3), 2, np.float32),
    }
    np.savez(tmp_path / "a.npz", **arrays)
    loaded = load_inputs(tmp_path / "a.npz", module)
    assert [array.shape for array in loaded] == [(2, 3), (2, 3), (0, 5), (4,)]
    (want,) = load_expected(tmp_path / "a.npz", module)
    assert (hloopt.evaluate(module, loaded)[0] == want).all()


def test_files_may_not_hold_more_than_the_bound(tmp_path):
    """An array that is larger than the bound is named, with what was wanted."""
    module = hloopt.parse(TEXT, "m.hlo")
    arrays = {f"in_{n}": np.ones((2, 3), np.float32) for n in range(4)}
    arrays["in_1"] = np.ones((10, 3), np.float32)
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(
        UsageError,
        match=r"in_1 \(parameter b\) has dimensions \[10, 3\], not \[at most 9, 3\]",
    ):
        load_inputs(tmp_path / "a.npz", module)


def test_an_input_may_not_be_larger_than_the_bound():
    """The evaluation says what the parameter takes; static dimensions take their size alone."""
    module = hloopt.parse("HloModule m\nENTRY e { ROOT a = f32[<=9,3] parameter(0) }")
    assert hloopt.evaluate(module, [np.zeros((0, 3), np.float32)])[0].shape == (0, 3)
    for shape in ((10, 3), (3, 2), (9,)):
        with pytest.raises(EvaluationError, match=r"has dimensions \[at most 9, 3\], but"):
            hloopt.evaluate(module, [np.zeros(shape, np.float32)])
