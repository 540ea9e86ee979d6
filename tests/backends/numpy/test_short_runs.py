"""Folds and stretched operands whose last dimensions are short: the same numbers, whatever is grouped how."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.backends.numpy import block_limits, block_plan, short_runs
from hloopt.backends.numpy.block_limits import BlockLimits
from hloopt.backends.numpy.program import NumpyProgram
from hloopt.backends.numpy.short_runs import fold, stretched_from
from hloopt.runtime.inputs import generate
from hloopt.runtime.program import NumpyOptions
from tests.helpers.rarely import examples


@st.composite
def _folds(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    dims = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 6, 17, 70]), min_size=1, max_size=5)))
    axes = draw(st.sets(st.integers(0, len(dims) - 1)))
    return dims, tuple(sorted(axes))


@given(_folds(), st.sampled_from(["add", "maximum", "bitwise_xor"]), st.booleans())
@settings(deadline=None, max_examples=examples(300))
def test_a_fold_is_the_ufuncs(
    given: tuple[tuple[int, ...], tuple[int, ...]], name: str, turned: bool
) -> None:
    """Integers, whose order is of no account, of any form, in any layout."""
    dims, axes = given
    if not 2 <= prod(dims) <= 1 << 18:
        return
    array = np.random.default_rng(0).integers(-99, 99, dims).astype(np.int32)
    if turned:
        array = np.asfortranarray(array)
    ufunc = getattr(np, name)
    wanted = np.asarray(ufunc.reduce(array, axes, np.int64))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(short_runs, "_LEAST", 2)
        got = np.asarray(fold(ufunc, array, axes, np.dtype(np.int64)))
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    ("dims", "axes"),
    [
        ((3, 50, 32, 2), (1, 3)),  # leading ones first
        ((5000, 3), (1,)),  # columns
        ((5000, 3), (0,)),  # rows of several
        ((3, 700, 2, 3), (1,)),
        ((40, 1, 50, 1, 4), (0, 2)),
        ((4, 1030), (1,)),
    ],
)
def test_sums_of_floats_are_made_in_the_type_asked_for(
    dims: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    array = np.random.default_rng(1).standard_normal(dims).astype(np.float32)
    got = fold(np.add, array, axes, np.dtype(np.float64))
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, np.add.reduce(array, axes, np.float64), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("operand", "result", "first"),
    [
        ((32, 1), (56, 56, 32, 2), 1),
        ((1, 1, 1, 32, 1), (1, 56, 56, 32, 2), 2),
        ((3,), (224, 224, 3), 1),  # short rows that are not stretched themselves
        ((64,), (56, 56, 64), None),  # long enough
        ((56, 1), (56, 64), None),
        ((), (56, 56, 2), None),  # one element
        ((56, 56, 2), (56, 56, 2), None),  # nothing to stretch
        ((9, 1), (9, 2), None),  # the copy would be as large as the result
        ((1,), (1,), None),
    ],
)
def test_where_operands_are_copied(
    operand: tuple[int, ...], result: tuple[int, ...], first: int | None
) -> None:
    assert stretched_from(operand, result) == first


@given(st.data())
@settings(deadline=None, max_examples=examples(200))
def test_a_copy_is_long_and_small(data: st.DataObject) -> None:
    """It has fewer elements than the result by far, and stands for the same ones."""
    result = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 16, 50]), min_size=1, max_size=4)))
    kept = data.draw(st.integers(0, len(result)))
    operand = tuple(
        1 if data.draw(st.booleans()) else size for size in result[len(result) - kept :]
    )
    first = stretched_from(operand, result)
    if first is None:
        return
    whole = (1,) * (len(result) - len(operand)) + operand
    assert 8 * prod(whole[:first]) * prod(result[first:]) <= prod(result)
    assert whole[first:] != result[first:]


_ADD = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }"


@pytest.mark.parametrize("rows", [1, 3, 50])
def test_a_region_of_groups_is_the_interpreters(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Normalised groups of two channels, blocks of samples or of all of them; a last block may be shorter."""
    monkeypatch.setattr(block_limits, "DEFAULT", BlockLimits(least=1 << 8))
    monkeypatch.setattr(block_plan, "_FEWEST", rows * 40 * 16)
    monkeypatch.setattr(block_plan, "_FEW_BLOCKS", 1)
    monkeypatch.setattr(short_runs, "_LEAST", 16)
    dims = "7,40,8,2"
    module = hloopt.parse(
        f"HloModule m\n{_ADD.replace(') ', ')' + chr(10))}\nENTRY e {{\n"
        f" x = f32[{dims}] parameter(0)\n y = f32[8] parameter(1)\n z = f32[] constant(0)\n"
        " s = f32[7,8] reduce(x, z), dimensions={1,3}, to_apply=add\n"
        f" sb = f32[{dims}] broadcast(s), dimensions={{0,2}}\n"
        f" yb = f32[{dims}] broadcast(y), dimensions={{2}}\n"
        f" d = f32[{dims}] subtract(x, sb)\n m = f32[{dims}] multiply(d, yb)\n"
        f" q = f32[{dims}] multiply(m, d)\n"
        " v = f32[8,2] reduce(q, z), dimensions={0,1}, to_apply=add\n"
        f" ROOT r = (f32[{dims}], f32[8,2]) tuple(q, v)\n}}\n"
    )
    hloopt.verify(module)
    inputs = generate(module, 5)
    program = NumpyProgram(module, NumpyOptions(exact=True, threads=2))
    assert program._compiler.regions == 1
    for got, wanted in zip(program.run(inputs), hloopt.evaluate(module, inputs), strict=True):
        assert got.tobytes() == wanted.tobytes()


def test_a_single_op_that_stretches_short_runs_goes_by_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that does not goes through memory as often."""
    monkeypatch.setattr(block_limits, "DEFAULT", BlockLimits(least=1 << 8))
    for size, regions in ((2, 1), (64, 0)):
        dims = f"60,8,{size}"
        module = hloopt.parse(
            f"HloModule m\nENTRY e {{\n x = f32[{dims}] parameter(0)\n y = f32[8] parameter(1)\n"
            f" b = f32[{dims}] broadcast(y), dimensions={{1}}\n"
            f" ROOT r = f32[{dims}] add(x, b)\n}}\n"
        )
        inputs = generate(module, 5)
        program = NumpyProgram(module)
        assert program._compiler.regions == regions
        (got,), (wanted,) = program.run(inputs), hloopt.evaluate(module, inputs)
        assert got.tobytes() == wanted.tobytes()
