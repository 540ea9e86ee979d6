"""The executor's f32 functions: how far off they are, and that it does not matter where an element lies."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.backends.numpy.elementwise import lower
from hloopt.backends.numpy.program import NumpyProgram
from hloopt.backends.numpy.quick_math import MOST_ULP, QUICK
from hloopt.ops import OPS, ScalarArgs
from hloopt.runtime.program import NumpyOptions
from hloopt.types import DTYPES

Array = np.ndarray[Any, Any]

F64 = DTYPES["f64"]


@pytest.fixture(autouse=True)
def silence() -> Any:
    with np.errstate(all="ignore"):
        yield


def sample(count: int = 20000, seed: int = 0) -> Array:
    """Numbers of every size, many of them near 1, and those at which functions change their ways."""
    generator = np.random.default_rng(seed)
    edges = [
        0,
        1,
        0.5,
        np.inf,
        np.nan,
        1e-45,
        1.2e-38,
        3.4e38,
        88.73,
        104,
        1e5,
        4.25,
        30,
        np.pi,
        2e-3,
    ]
    return np.concatenate(
        [
            generator.integers(0, 2**32, count, dtype=np.uint32).view(np.float32),
            generator.normal(0, 3, count).astype(np.float32),
            generator.uniform(0.9, 1.1, count // 4).astype(np.float32),
            np.array([*edges, *(-edge for edge in edges)], np.float32),
        ]
    )


def operands(opcode: str) -> list[Array]:
    """As many samples as the op takes; the pairs of the second one with the first are any."""
    first = sample()
    return [first, sample(seed=1)][: OPS[opcode].arity[1]]


def same(left: Array, right: Array) -> bool:
    """Equal bits, but for what a NaN carries."""
    nan = np.isnan(left) & np.isnan(right)
    return bool((nan | (left.view(np.uint32) == right.view(np.uint32))).all())


@pytest.mark.parametrize("opcode", QUICK)
def test_results_are_near_the_true_ones(opcode: str) -> None:
    values = operands(opcode)
    function = OPS[opcode].numpy
    assert function is not None
    truth = function(ScalarArgs(F64, F64, {}), *(x.astype(np.float64) for x in values))
    found = QUICK[opcode](*values)
    nearest = truth.astype(np.float32)
    assert found.dtype == np.float32
    assert (np.isnan(found) == np.isnan(nearest)).all()
    finite = np.isfinite(nearest) & np.isfinite(found)
    assert (finite | np.isnan(found) | (found == nearest) | (np.abs(truth) > 3.4028e38)).all()
    off = np.abs(found - truth)[finite] / np.spacing(np.abs(nearest[finite]))
    assert off.max() <= MOST_ULP
    rest = ~np.isnan(found)
    assert (np.signbit(found) == np.signbit(nearest))[rest].all()


@pytest.mark.parametrize("opcode", QUICK)
def test_it_does_not_matter_where_an_element_lies(opcode: str) -> None:
    """Any start, length, stride and shape; into any array, its own operand's too."""
    function, values = QUICK[opcode], operands(opcode)
    wanted = function(*values)
    size = wanted.size

    def cut(pick: Any) -> list[Array]:
        return [x[pick] for x in values]

    for pick in [slice(start, None) for start in range(1, 17)]:
        assert same(function(*cut(pick)), wanted[pick])
    for length in range(1, 34):
        for start in (0, size // 2, size - length):
            pick = slice(start, start + length)
            assert same(function(*cut(pick)), wanted[pick])
    for stride in (2, 3, 64, -1, -2):
        pick = slice(None, None, stride)
        assert same(function(*cut(pick)), wanted[pick])
    for at in (*range(0, size, 997), *range(size - 30, size)):
        assert same(function(*(np.array(x[at]) for x in values)).reshape(1), wanted[at : at + 1])
    order = np.random.default_rng(2).permutation(size)
    assert same(function(*cut(order)), wanted[order])
    spread = np.zeros((size, 3), np.float32)
    function(*values, out=spread[:, 1])
    assert same(np.ascontiguousarray(spread[:, 1]), wanted)
    assert not spread[:, ::2].any()
    function(*values, out=values[0])
    assert same(values[0], wanted)


@pytest.mark.parametrize("opcode", [opcode for opcode in QUICK if OPS[opcode].arity[1] == 2])
def test_operands_broadcast(opcode: str) -> None:
    x, y = sample(10)[:12].reshape(3, 4), np.float32(2.5)
    whole = QUICK[opcode](x, np.full((3, 4), y))
    assert same(QUICK[opcode](x, np.array(y)), whole)
    assert same(
        QUICK[opcode](x[:, :1], np.full(4, y)),
        QUICK[opcode](*map(np.ascontiguousarray, np.broadcast_arrays(x[:, :1], y, whole)[:2])),
    )


def module(opcode: str, name: str, count: int) -> hloopt.ir.Module:
    arity = OPS[opcode].arity[1]
    lines = [f" p{n} = {name}[{count}] parameter({n})" for n in range(arity)]
    names = ", ".join(f"p{n}" for n in range(arity))
    return hloopt.parse(
        "HloModule m\nENTRY e {\n"
        + "\n".join(lines)
        + f"\n ROOT r = {name}[{count}] {opcode}({names})\n}}\n"
    )


@pytest.mark.parametrize("opcode", QUICK)
def test_the_executor_takes_them(opcode: str) -> None:
    """By default; ``exact`` has the interpreter's bits."""
    values = operands(opcode)
    one = module(opcode, "f32", values[0].size)
    quick, exact = NumpyProgram(one), NumpyProgram(one, NumpyOptions(exact=True))
    root = one.entry.root
    nothing = [None] * len(values)
    assert lower(root, quick._compiler, nothing).function is QUICK[opcode]
    assert lower(root, exact._compiler, nothing).function is not QUICK[opcode]
    assert same(quick.run(values)[0], QUICK[opcode](*values))
    assert same(exact.run(values)[0], hloopt.evaluate(one, values)[0])


@pytest.mark.parametrize("name", ["bf16", "f16"])
@pytest.mark.parametrize("opcode", ["exponential", "erf", "power"])
def test_narrow_floats_are_computed_in_single_precision(opcode: str, name: str) -> None:
    kind = DTYPES[name].numpy
    values = [x.astype(kind) for x in operands(opcode)]
    (found,) = NumpyProgram(module(opcode, name, values[0].size)).run(values)
    wanted = QUICK[opcode](*(x.astype(np.float32) for x in values)).astype(kind)
    assert found.dtype == kind
    assert same(found.astype(np.float32), wanted.astype(np.float32))


@pytest.mark.parametrize("opcode", QUICK)
def test_double_precision_is_the_tables(opcode: str) -> None:
    values = [x[::50].astype(np.float64) for x in operands(opcode)]
    function = OPS[opcode].numpy
    assert function is not None
    wanted = function(ScalarArgs(F64, F64, {}), *values)
    out = np.empty_like(wanted)
    for found in (QUICK[opcode](*values), QUICK[opcode](*values, out=out), out):
        nan = np.isnan(found) & np.isnan(wanted)
        assert (nan | (found.view(np.int64) == wanted.view(np.int64))).all()


def test_the_same_holds_without_wide_vectors() -> None:
    """NumPy's loops for the least processor it runs on."""
    config: Any = np.show_config(mode="dicts")
    found = config["SIMD Extensions"].get("found", [])
    if not found or "NPY_DISABLE_CPU_FEATURES" in os.environ:
        pytest.skip("NumPy has no other loops here")
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__]
    words += ["-k", "near_the_true or where_an_element"]
    environment = {**os.environ, "NPY_DISABLE_CPU_FEATURES": " ".join(found)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
