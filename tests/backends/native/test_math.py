"""The functions of vector_math.h against exact ones: bounds in units in the last place, edges, vectors."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest

from hloopt.backends import host_compiler
from hloopt.backends.native import toolchain

INCLUDE = toolchain.INCLUDE

# Units in the last place that the header states.
BOUND_32, BOUND_64 = 2.5, 2.5

ONE_32: dict[str, Callable[[Any], Any]] = {
    "acosf": np.arccos,
    "acoshf": np.arccosh,
    "asinf": np.arcsin,
    "asinhf": np.arcsinh,
    "atanhf": np.arctanh,
    "cbrtf": np.cbrt,
    "cosf": np.cos,
    "coshf": np.cosh,
    "erff": np.vectorize(lambda x: float(mpmath.erf(x)), otypes=[float]),
    "expf": np.exp,
    "expm1f": np.expm1,
    "log1pf": np.log1p,
    "logf": np.log,
    "roundf": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
    "rsqrtf": lambda x: 1 / np.sqrt(x),
    "sinf": np.sin,
    "sinhf": np.sinh,
    "tanf": np.tan,
    "tanhf": np.tanh,
}
TWO_32: dict[str, Callable[[Any, Any], Any]] = {"atan2f": np.arctan2, "powf": np.power}
ONE_64: dict[str, Callable[[Any], Any]] = {
    "exp": mpmath.exp,
    "expm1": mpmath.expm1,
    "log": mpmath.log,
    "log1p": mpmath.log1p,
    "tanh": mpmath.tanh,
}

EDGES = (
    0.0,
    1.0,
    0.5,
    2.0,
    3.0,
    1.5,
    4.0,
    0.99999994,
    1.0000001,
    16777216.0,
    16777217.0,
    8388609.0,
)
EDGES += (
    np.pi,
    np.pi / 2,
    88.72284,
    103.9,
    89.5,
    1e-45,
    1e-38,
    1.2e-38,
    3.4e38,
    1e22,
    1e-5,
    np.inf,
)


def _source() -> str:
    lines = [f'#include "{name}.h"' for name in ("words", "integers", "floats", "vector_math")]
    loop = "for (long long i = 0; i < n; ++i)"
    for kind, names in (("float", ONE_32), ("double", (*ONE_64, "round"))):
        lines += [
            f'extern "C" void loop_{name}(long long n, const {kind}* __restrict__ x, '
            f"{kind}* __restrict__ y) {{ {loop} y[i] = {name}(x[i]); }}"
            for name in names
        ]
    lines += [
        f'extern "C" void loop_{name}(long long n, const float* __restrict__ x, '
        "const float* __restrict__ z, float* __restrict__ y) "
        f"{{ {loop} y[i] = {name}(x[i], z[i]); }}"
        for name in TWO_32
    ]
    return "\n".join(lines) + "\n"


@cache
def _functions() -> ctypes.CDLL:
    return ctypes.CDLL(str(toolchain.build_library(_source())))


def _run(name: str, *operands: np.ndarray) -> np.ndarray:
    result = np.empty_like(operands[0])
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*operands, result)]
    getattr(_functions(), f"loop_{name}")(ctypes.c_longlong(result.size), *pointers)
    return result


def _floats() -> np.ndarray:
    """Every exponent with both signs, the edges, and the middle closely."""
    spread = np.arange(0, 2**32, 150_001, dtype=np.uint64).astype(np.uint32).view(np.float32)
    edges = np.array([*EDGES, *(-edge for edge in EDGES), np.nan], np.float32)
    return np.concatenate([spread, edges, np.linspace(-20, 20, 20_001, dtype=np.float32)])


def _units_32(found: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """How far each result is from an exact one in units in its last place; infinite where kinds differ."""
    rounded = exact.astype(np.float32)
    finite = np.isfinite(rounded) & np.isfinite(found)
    unit = np.abs(np.spacing(np.where(finite, rounded, np.float32(1)))).astype(np.float64)
    away = np.where(finite, np.abs(found.astype(np.float64) - exact) / unit, np.inf)
    same = (np.isnan(found) & np.isnan(exact)) | ((found == rounded) & ~finite)
    # At the greatest number a unit less is finite.
    last = (np.abs(exact) > 3.4028233e38) & (np.abs(found) > 3.4028233e38)
    away[same | (last & (np.sign(found) == np.sign(exact)))] = 0.0
    zeros = (rounded == 0) & (found == 0)
    away[zeros & (np.signbit(rounded) != np.signbit(found))] = np.inf
    return away


@pytest.mark.parametrize("name", ONE_32)
def test_one_operand(name: str) -> None:
    """Within the bound for f32 of every exponent, infinite where the exact one is, zeros of its sign."""
    x = _floats()
    if name == "erff":  # the exact one is slow
        x = np.concatenate([x[::10], x[-25:]])
    with np.errstate(all="ignore"):
        away = _units_32(_run(name, x), ONE_32[name](x.astype(np.float64)))
    worst = int(np.argmax(away))
    assert away[worst] <= BOUND_32, f"{name}({x[worst]!r}): {away[worst]} units away"


@pytest.mark.parametrize("name", TWO_32)
def test_two_operands(name: str) -> None:
    """Within the bound; every pair of edges gives what the C standard says."""
    edges = np.array([*EDGES, *(-edge for edge in EDGES), np.nan], np.float32)
    generator = np.random.default_rng(7)
    bits = generator.integers(0, 2**32, (2, 40_000), dtype=np.uint64).astype(np.uint32)
    wide = bits.view(np.float32)
    middle = np.exp(generator.normal(size=(2, 40_000)) * 3).astype(np.float32)
    x = np.concatenate([np.repeat(edges, edges.size), wide[0], middle[0]])
    y = np.concatenate([np.tile(edges, edges.size), wide[1], middle[1] - 10])
    with np.errstate(all="ignore"):
        away = _units_32(_run(name, x, y), TWO_32[name](x.astype(np.float64), y.astype(np.float64)))
    worst = int(np.argmax(away))
    assert away[worst] <= BOUND_32, f"{name}({x[worst]!r}, {y[worst]!r}): {away[worst]} units away"


def _doubles() -> np.ndarray:
    generator = np.random.default_rng(11)
    bits = generator.integers(0, 2**64, 600, dtype=np.uint64).view(np.float64)
    near = np.concatenate([generator.normal(size=600) * size for size in (1e-9, 1.0, 100.0)])
    bounds = [709.78, 709.79, 745.13, 745.14, 5e-324, 1e-310, 2.3e-308, 1.7e308]
    edges = [*EDGES, *bounds]
    return np.concatenate([bits, near, edges, [-edge for edge in edges], [np.nan]])


def _exact(function: Callable[[Any], Any], x: float) -> Any:
    """An exact value, NaN where there is none in the reals; of poles and infinities what NumPy has."""
    if not np.isfinite(x) or (x in (0.0, -1.0) and function in (mpmath.log, mpmath.log1p)):
        return mpmath.mpf(float(getattr(np, function.__name__)(x)))
    if abs(x) > 1e5 and function in (mpmath.exp, mpmath.expm1):
        return mpmath.mpf("inf") if x > 0 else mpmath.mpf(0 if function is mpmath.exp else -1)
    value = function(mpmath.mpf(x))
    return value if isinstance(value, mpmath.mpf) else mpmath.mpf("nan")


@pytest.mark.parametrize("name", ONE_64)
def test_doubles(name: str) -> None:
    """Within the bound for f64; what overflows, underflows or is no number is what rounding makes of it."""
    x = _doubles()
    with mpmath.workprec(140), np.errstate(all="ignore"):
        for at, found in zip(x.tolist(), _run(name, x).tolist(), strict=True):
            exact = _exact(ONE_64[name], at)
            rounded = float(exact)
            if np.isfinite(rounded) and np.isfinite(found):
                unit = mpmath.mpf(float(abs(np.spacing(rounded))))
                assert abs(mpmath.mpf(found) - exact) <= BOUND_64 * unit, f"{name}({at!r})"
                if rounded == 0:
                    assert np.signbit(found) == np.signbit(at if at == 0 else 0.0), at
            else:
                np.testing.assert_equal(found, rounded, f"{name}({at!r})")


def test_round_of_doubles() -> None:
    """Halves go away from zero, and whole numbers stay."""
    x = np.array([0.5, -0.5, 1.5, 2.5, -2.5, 0.49999999999999994, 4503599627370497.0, 1e300, -0.0])
    expected = np.array([1.0, -1.0, 2.0, 3.0, -3.0, 0.0, 4503599627370497.0, 1e300, -0.0])
    found = _run("round", x)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


def test_parts_of_turns() -> None:
    """The parts of 2 / pi by which large f32 are reduced to quarter turns are what mpmath computes."""
    text = (INCLUDE / "vector_math_f32.h").read_text("utf-8")
    numbers = {float.fromhex(found) for found in re.findall(r"-?0x[0-9a-f.]+p[-+]?\d+", text)}
    with mpmath.workprec(400):
        for first in (20, 47, 74, 101):
            # The least bit of what has this exponent is 2^(first - 23) of a radian.
            unit = mpmath.mpf(2) ** (2 - (first - 23))
            turns = 2 / mpmath.pi
            turns -= unit * mpmath.floor(turns / unit)
            high = float(turns)
            assert high in numbers, first
            assert float(turns - high) in numbers, first


def test_turns() -> None:
    """Within the bound close to quarter turns, and at the ends of the ranges that are reduced alike."""
    near = (np.arange(1, 700_000) * (np.pi / 2)).astype(np.float32)
    ends = [np.float32(2.0**power) for power in (20, 47, 74, 101)]
    around = [np.arange(-2000, 2000) + end.view(np.int32) for end in ends]
    # The f32 that is nearest to a quarter turn of all.
    nearest = np.float32(16367173.0) * np.float32(2.0**72)
    x = np.concatenate(
        [near, *(one.astype(np.int32).view(np.float32) for one in around), [nearest]]
    )
    for name in ("sinf", "cosf", "tanf"):
        away = _units_32(_run(name, x), ONE_32[name](x.astype(np.float64)))
        worst = int(np.argmax(away))
        assert away[worst] <= BOUND_32, f"{name}({x[worst]!r}): {away[worst]} units away"


def test_loops_are_vectors(tmp_path: Path) -> None:
    """GCC makes a vector loop of every function: no branch and no call is left in any."""
    compiler = host_compiler.find_compiler("the device 'native'")
    if not compiler.is_gnu:
        pytest.skip("tells of vectors in other words")
    unit = tmp_path / "unit.cpp"
    unit.write_text(_source())
    flags = [*toolchain._FLAGS, *host_compiler.machine_flags(), *toolchain.INCLUDED]
    made = ["-shared", str(unit), "-o", str(tmp_path / "a.so")]
    command = [*compiler.command, *flags, "-fopt-info-vec", *made]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    vectors = {int(line) for line in re.findall(r"unit\.cpp:(\d+):.*loop vectorized", told)}
    loops = {n for n, line in enumerate(_source().splitlines(), 1) if "for (" in line}
    assert loops <= vectors
