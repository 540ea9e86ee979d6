"""What is claimed of matrices holds of every value: on random programs, of special and of ordinary numbers."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pytest

import hloopt
from hloopt.analysis.matrix_properties import Matrices
from hloopt.analysis.matrix_properties.arithmetic import _ZEROS
from hloopt.ops import OPS
from hloopt.ops.opdef import ScalarArgs
from hloopt.ops.traits import BITWISE
from hloopt.types import DTYPES
from tests.analysis.matrix_claims import check
from tests.analysis.matrix_programs import Program

Array: TypeAlias = np.ndarray[Any, Any]
PRODUCT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
SUM = "add { p = f32[] parameter(0)\nq = f32[] parameter(1)\nROOT s = f32[] add(p, q) }\n"


@pytest.mark.parametrize("first", range(0, 120, 10))
def test_claims_about_random_programs_hold(first: int) -> None:
    for seed in range(first, first + 10):
        check(Program(seed).text, range(4))


def named(text: str, name: str = "r") -> list[str]:
    """The words for a value of a program, which hold of it."""
    found = check(text)[name]
    shape = next(one for one in hloopt.parse(text).entry if one.name == name).array
    return list(found.named(shape.dims))


POSITIONS = """i = s32[6,6] iota(), iota_dimension=0
j = s32[6,6] iota(), iota_dimension=1
zero = f32[] constant(0)
zeros = f32[6,6] broadcast(zero), dimensions={}
below = pred[6,6] compare(i, j), direction=GE
same = pred[6,6] compare(i, j), direction=EQ
lower = f32[6,6] select(below, a, zeros)
eye = f32[6,6] convert(same)
"""


SOLVE = "left_side=true, lower=true, unit_diagonal=false, transpose_a=NO_TRANSPOSE"


@pytest.mark.parametrize(
    "case",
    [
        ("ROOT r = f32[6,6] select(below, a, zeros)", ["lower triangular"]),
        ("ROOT r = f32[6,6] select(below, zeros, a)", ["zero below diagonal 1"]),
        ("ROOT r = f32[6,6] convert(same)", ["identity"]),
        ("ROOT r = f32[6,6] transpose(lower), dimensions={1,0}", ["upper triangular"]),
        ("ROOT r = f32[6,6] add(lower, eye)", ["lower triangular"]),
        (f"ROOT r = f32[6,6] dot(lower, lower), {PRODUCT}", ["lower triangular (for finite values)"]),
        ("ROOT r = f32[6,6] multiply(lower, a)", ["lower triangular (for finite values)"]),
        ("t = f32[6,6] transpose(a), dimensions={1,0}\nROOT r = f32[6,6] add(a, t)", ["symmetric"]),
        (
            "ROOT r = f32[6,6] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
            ["positive semidefinite, symmetric but for rounding"],
        ),
        (
            "p = f32[6,6] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
            "ROOT r = f32[6,6] add(p, eye)",
            ["positive definite, symmetric but for rounding"],
        ),
        (
            "d = f32[6,6] broadcast(x), dimensions={0}\nROOT r = f32[6,6] select(same, d, zeros)",
            ["diagonal"],
        ),
        (
            "k = s32[6,6] broadcast(n), dimensions={0}\nhot = pred[6,6] compare(k, j), direction=EQ",
            "ROOT r = f32[6,6] convert(hot)",
            ["one-hot along dimension 1"],
        ),
        (
            "u = f32[6,6] broadcast(x), dimensions={0}\nv = f32[6,6] broadcast(x), dimensions={1}",
            "ROOT r = f32[6,6] multiply(u, v)",
            ["symmetric, of rank 1 at most"],
        ),
        (
            "u = f32[6,6,6,6] broadcast(a), dimensions={0,2}",
            "v = f32[6,6,6,6] broadcast(lower), dimensions={1,3}\nm = f32[6,6,6,6] multiply(u, v)",
            "ROOT r = f32[36,36] reshape(m)",
            ["a Kronecker product with a right side of 6 x 6"],
        ),
        (
            "p = f32[6,12] pad(a, zero), padding=0_0x0_6\nq = f32[6,12] pad(a, zero), padding=0_0x6_0",
            "ROOT r = f32[12,12] concatenate(p, q), dimensions={0}",
            ["banded, diagonals -5 to 5", "zero outside of 2 blocks, 50% of the elements"],
        ),
        ("ROOT r = f32[6,6] cholesky(a), lower=true", ["lower triangular (for finite values)"]),
        (
            f"ROOT r = f32[6,6] triangular-solve(a, lower), {SOLVE}",
            ["lower triangular (for finite values)"],
        ),
        ("ROOT r = f32[3,3] slice(lower), slice={[1:4], [0:3]}", ["zero above diagonal 1"]),
        ("ROOT r = f32[6,6] exponential(lower)", []),
        ("ROOT r = f32[6,6] divide(a, lower)", []),
        (
            "s = f32[6,6] dot(a, eye), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
            "ROOT r = f32[6,6] dot(s, a), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
            ["positive semidefinite, symmetric but for rounding"],
        ),
    ],
)  # fmt: skip
def test_what_shows_in_a_program_is_named(case: tuple[Any, ...]) -> None:
    body, words = "\n".join(case[:-1]), case[-1]
    parameters = "a = f32[6,6] parameter(0)\nx = f32[6] parameter(1)\nn = s32[6] parameter(2)\n"
    assert named(f"HloModule m\nENTRY e {{\n{parameters}{POSITIONS}{body}\n}}\n") == words


@pytest.mark.parametrize("opcode", sorted(_ZEROS))
def test_ops_that_keep_zeros_do(opcode: str) -> None:
    row, how = OPS[opcode], _ZEROS[opcode]
    assert row.numpy is not None
    dtype = DTYPES["s32" if opcode in BITWISE or opcode == "popcnt" else "f32"]
    result = DTYPES["c64"] if opcode == "complex" else dtype
    zeros, some = np.zeros(3, dtype.compute), np.array([2, 1, 3]).astype(dtype.compute)
    sides = {"one": [zeros], "all": [zeros, zeros], "any": [some, zeros], "first": [zeros, some]}
    options = {"exponent_bits": 5, "mantissa_bits": 10}
    assert not np.any(row.numpy(ScalarArgs(dtype, result, options), *sides[how]))


@pytest.mark.parametrize("kind", ["s32", "u8", "s64"])
def test_counts_that_wrap_around_are_not_positions(kind: str) -> None:
    text = f"""HloModule m
ENTRY e {{
i = {kind}[200,2] iota(), iota_dimension=0
big = {kind}[] constant(100)
bigs = {kind}[200,2] broadcast(big), dimensions={{}}
p = {kind}[200,2] multiply(i, bigs)
q = {kind}[200,2] add(p, bigs)
j = {kind}[200,2] iota(), iota_dimension=1
ROOT r = pred[200,2] compare(q, j), direction=GE
}}
"""
    assert (check(text, range(1))["q"].affine is None) == (kind == "u8")


def test_orthonormal_vectors_come_of_reflections_alone() -> None:
    options = 'custom_call_target="lapack_sgeqrf_ffi", api_version=API_VERSION_TYPED_FFI, backend_config={}'
    text = f"""HloModule m
ENTRY e {{
a = f32[5,4] parameter(0)
taus = f32[4] parameter(1)
f = (f32[5,4], f32[4]) custom-call(a), {options}
v = f32[5,4] get-tuple-element(f), index=0
t = f32[4] get-tuple-element(f), index=1
q = f32[5,4] custom-call(v, t), {options.replace("geqrf", "orgqr")}
ROOT r = f32[5,4] custom-call(a, taus), {options.replace("geqrf", "orgqr")}
}}
"""
    found = check(text, range(0, 6, 2))
    assert found["q"].orthonormal == {(0, 1)}
    assert not found["r"].orthonormal


def test_a_deep_chain_takes_time_proportional_to_it() -> None:
    lines = ["v0 = f32[8,8] parameter(0)"]
    lines += [f"v{at} = f32[8,8] add(v{at - 1}, v{at - 1})" for at in range(1, 5000)]
    module = hloopt.parse("HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}")
    matrices = Matrices()
    assert not matrices.of(module.entry.root).says_something
    assert len(matrices.known) == 5000


@pytest.mark.parametrize(
    "shape", ["f32[0,4]", "f32[4,0]", "f32[]", "f32[1,1]", "pred[2,2]", "f8e8m0fnu[2,2]"]
)
def test_small_and_rare_arrays(shape: str) -> None:
    check(
        f"HloModule m\nENTRY e {{\na = {shape} parameter(0)\nROOT r = {shape} multiply(a, a)\n}}\n"
    )
