"""Factorisations, solutions, transforms and custom calls that are planned give the interpreter's bits."""

from __future__ import annotations

import random

import numpy as np
import pytest

from hloopt.interpret import plugins
from tests.helpers.planned import assert_planned
from tests.semantics.elements import moderate, shape_of, values


def definite(kind: str, dims: tuple[int, ...], chooser: random.Random) -> np.ndarray:
    """Matrices, the last of them not positive definite where there are three."""
    real = "f64" if kind in ("f64", "c128") else "f32"
    x = moderate(real, dims, chooser).astype(
        kind.replace("f", "float").replace("c128", "complex128").replace("c64", "complex64")
    )
    if kind[0] == "c":
        x = x + 1j * moderate(real, dims, chooser)
    x = (x @ np.swapaxes(x, -1, -2).conj() + np.eye(dims[-1])).astype(x.dtype)
    if dims[0] == 3:
        x[2, 1, 1] = -1
    return x


@pytest.mark.parametrize("kind", ["f32", "f64", "c64", "c128"])
@pytest.mark.parametrize("dims", [(5, 5), (2, 4, 4), (3, 3, 3), (1, 1), (2, 0, 0), (0, 3, 3)])
@pytest.mark.parametrize("lower", [True, False])
def test_cholesky_agrees(kind, dims, lower):
    x = definite(kind, dims, random.Random(1))
    shape = shape_of(kind, dims)
    info = shape_of("s32", dims[:-2])
    letter = {"f32": "s", "f64": "d", "c64": "c", "c128": "z"}[kind]
    text = f"""HloModule m
ENTRY e {{
  x = {shape} parameter(0)
  a = {shape} cholesky(x), lower={str(lower).lower()}
  b = ({shape}, {info}) custom-call(x), custom_call_target="lapack_{letter}potrf_ffi", backend_config={{uplo = {76 if lower else 85} : ui8}}, api_version=API_VERSION_TYPED_FFI
  ROOT t = ({shape}, ({shape}, {info})) tuple(a, b)
}}
"""
    assert_planned(text, [x])


@pytest.mark.parametrize("transpose", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
@pytest.mark.parametrize(
    "flags", ["left_side=true, lower=true", "lower=false", "left_side=true, unit_diagonal=true"]
)
def test_triangular_solve_agrees(transpose, flags):
    chooser = random.Random(3)
    text = f"""HloModule m
ENTRY e {{
  a = f32[2,4,4] parameter(0)
  b = f32[2,4,4] parameter(1)
  ROOT r = f32[2,4,4] triangular-solve(a, b), {flags}, transpose_a={transpose}
}}
"""
    assert_planned(text, [moderate("f32", (2, 4, 4), chooser), values("f32", (2, 4, 4), chooser)])


@pytest.mark.parametrize(
    ("transform", "given", "result"),
    [
        ("FFT", "c64[3,8]", "c64[3,8]"),
        ("IFFT", "c64[3,8]", "c64[3,8]"),
        ("RFFT", "f32[3,8]", "c64[3,5]"),
        ("IRFFT", "c64[3,5]", "f32[3,8]"),
        ("FFT", "c64[0,8]", "c64[0,8]"),
    ],
)
def test_transforms_agree(transform, given, result):
    text = f"""HloModule m
ENTRY e {{
  x = {given} parameter(0)
  ROOT r = {result} fft(x), fft_type={transform}, fft_length={{8}}
}}
"""
    dims = (int(given[4]), int(given[6]))
    x = moderate("f32", (*dims, 2), random.Random(0))
    assert_planned(text, [x.view(np.complex64)[..., 0] if given[0] == "c" else x[..., 0].copy()])


MARKED = """HloModule m
ENTRY e {
  x = f32[4] parameter(0)
  y = f32[4] add(x, x)
  z = f32[4] custom-call(y), custom_call_target="Sharding", sharding={replicated}
  ROOT r = f32[4] multiply(z, z)
}
"""


def test_a_marker_is_its_operand_unless_the_user_says_what_it_does(monkeypatch):
    x = np.arange(4, dtype=np.float32)
    assert_planned(MARKED, [x])
    monkeypatch.setitem(plugins._GIVEN, "Sharding", lambda instruction, y: y + 1)
    (got,) = assert_planned(MARKED, [x], evaluated=["custom-call"])
    assert got.tolist() == [1.0, 9.0, 25.0, 49.0]
