"""cholesky and triangular-solve: row by row, in numbers of 60 digits and in fractions."""

from __future__ import annotations

from itertools import product

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.errors import UnsupportedError
from tests.helpers.rarely import examples
from tests.semantics.elements import entry, seeds, shape_of
from tests.semantics.statement import check

OPCODES = ("cholesky", "triangular-solve")

TYPES = {"f32": np.float32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128}
LOOSE = {"f32": 2e-6, "c64": 2e-6, "f64": 1e-12, "c128": 1e-12}

names = st.sampled_from(sorted(TYPES))
batches = st.lists(st.integers(0, 2), max_size=2).map(tuple)


def quarter(chooser, name):
    """A number with few digits."""
    part = chooser.randint(-8, 8) / 4
    return complex(part, chooser.randint(-8, 8) / 4) if name[0] == "c" else part


def matrix(chooser, name, size):
    return {at: quarter(chooser, name) for at in product(range(size), repeat=2)}


def array_of(table, name, dims):
    array = np.zeros(dims, TYPES[name])
    for index, value in table.items():
        array[index] = complex(value) if name[0] == "c" else float(mpmath.re(value))
    return array


def factor(a, size):
    """L of L Lᴴ = A, of what is on and below the diagonal; None where A is not positive definite."""
    found = {}
    for i, j in product(range(size), repeat=2):
        if j > i:
            found[i, j] = mpmath.mpf(0)
            continue
        rest = mpmath.mpmathify(a[i, j])
        for k in range(j):
            rest -= found[i, k] * mpmath.conj(found[j, k])
        if i == j:
            if not mpmath.re(rest) > 0:
                return None
            found[i, j] = mpmath.sqrt(mpmath.re(rest))
        else:
            found[i, j] = rest / found[j, j]
    return found


@given(names, batches, st.integers(0, 5), st.booleans(), seeds)
@settings(max_examples=examples(50))
def test_cholesky(name, batch, size, lower, chooser):
    """One triangle is read, the other of the result is 0; a matrix that is not positive definite gives NaN."""
    given_, want = {}, {}
    for at in product(*map(range, batch)):
        root = matrix(chooser, name, size)
        shift = -100 if size and chooser.random() < 0.25 else 1
        a = {}
        for i, j in product(range(size), repeat=2):
            a[i, j] = sum((root[i, k] * complex(root[j, k]).conjugate() for k in range(size)), 0j)
        if size:
            a[size - 1, size - 1] += shift
        with mpmath.workdps(60):
            found = factor(a, size)
        for (i, j), element in a.items():
            # L is below the diagonal; U is its adjoint.
            read = i >= j if lower else i <= j
            given_[(*at, i, j)] = element if read else np.nan
            value = (
                mpmath.nan if found is None else found[i, j] if lower else mpmath.conj(found[j, i])
            )
            want[(*at, i, j)] = value
    dims = (*batch, size, size)
    given_array = array_of(given_, name, dims)
    want_array = array_of(want, name, dims)
    want_array[np.isnan(want_array)] = np.nan
    shape = shape_of(name, dims)
    text = entry(f"{shape} cholesky(p0), lower={str(lower).lower()}", [shape])
    check(text, [given_array], want_array, rtol=LOOSE[name], atol=LOOSE[name] * 10)


def solved(triangle, right, size, columns, lower):
    """X of T X = B by substitution."""
    found = {}
    rows = range(size) if lower else reversed(range(size))
    for i in rows:
        known = range(i) if lower else range(i + 1, size)
        for column in range(columns):
            rest = mpmath.mpmathify(right[i, column])
            for k in known:
                rest -= triangle[i, k] * found[k, column]
            found[i, column] = rest / triangle[i, i]
    return found


@given(
    names,
    batches,
    st.integers(1, 5),
    st.integers(0, 3),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
    st.sampled_from(["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"]),
    seeds,
)
@settings(max_examples=examples(60))
def test_triangular_solve(name, batch, size, columns, flags, op, chooser):
    """op(a) x = b, or x op(a) = b; nothing is read but one triangle, without its diagonal where that is 1."""
    left, lower, unit = flags
    a, b, x = {}, {}, {}
    for at in product(*map(range, batch)):
        full = matrix(chooser, name, size)
        for i in range(size):
            full[i, i] = 1 if unit else full[i, i] + (4 if chooser.random() < 0.5 else -4)
        right = {ij: quarter(chooser, name) for ij in product(range(size), range(columns))}
        for i, j in full:
            read = (i > j if lower else i < j) or (i == j and not unit)
            a[(*at, i, j)] = full[i, j] if read else np.nan
        part = {
            (i, j): value if (i >= j) == lower or i == j else 0 for (i, j), value in full.items()
        }
        # x op(a) = b is op(a)ᵀ xᵀ = bᵀ.
        turned = (op != "NO_TRANSPOSE") == left
        system = {(j, i) if turned else (i, j): value for (i, j), value in part.items()}
        if op == "ADJOINT":
            system = {ij: complex(value).conjugate() for ij, value in system.items()}
        with mpmath.workdps(60):
            found = solved(system, right, size, columns, lower != turned)
        for (i, j), value in right.items():
            b[(*at, i, j) if left else (*at, j, i)] = value
            x[(*at, i, j) if left else (*at, j, i)] = found[i, j]
    b_dims = (*batch, size, columns) if left else (*batch, columns, size)
    shapes = [shape_of(name, (*batch, size, size)), shape_of(name, b_dims)]
    words = [str(flag).lower() for flag in (left, lower, unit)]
    text = entry(
        f"{shapes[1]} triangular-solve(p0, p1), left_side={words[0]}, lower={words[1]}, "
        f"unit_diagonal={words[2]}, transpose_a={op}",
        shapes,
    )
    arrays = [array_of(a, name, (*batch, size, size)), array_of(b, name, b_dims)]
    want = array_of(x, name, b_dims)
    biggest = float(abs(want).max()) if want.size else 1.0
    check(text, arrays, want, rtol=LOOSE[name] * 10, atol=LOOSE[name] * max(1.0, biggest))


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_a_zero_on_the_diagonal_divides(name):
    """Infinity, or NaN where 0 is divided, and then what arithmetic makes of them; never an error."""
    a = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 1]], TYPES[name])
    b = np.array([[1, 1], [3, 1], [5, 5]], TYPES[name])
    want = np.array([[1, 1], [np.inf, np.nan], [-np.inf, np.nan]], TYPES[name])
    text = entry(
        f"{name}[3,2] triangular-solve(p0, p1), left_side=true, lower=true, transpose_a=NO_TRANSPOSE",
        [f"{name}[3,3]", f"{name}[3,2]"],
    )
    check(text, [a, b], want)


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_only_the_matrices_that_have_no_factor_are_nan(name):
    """Indefinite, semidefinite and NaN; the others in the stack keep their factors."""
    good = [[4.0, 2.0], [2.0, 5.0]]
    indefinite, flat, nan = (
        [[1.0, 2.0], [2.0, 1.0]],
        [[1.0, 1.0], [1.0, 1.0]],
        [[np.nan, 0.0], [0.0, 1.0]],
    )
    stack = np.array([good, indefinite, flat, nan], TYPES[name])
    want = np.full((4, 2, 2), np.nan, TYPES[name])
    want[0] = [[2, 0], [1, 2]]
    text = entry(f"{name}[4,2,2] cholesky(p0), lower=true", [f"{name}[4,2,2]"])
    check(text, [stack], want)


def test_of_a_complex_diagonal_the_real_part_is_read():
    """As LAPACK does, and cuSOLVER: a Hermitian matrix has no other."""
    stack = np.array([[4 + 3j, 0], [2j, 5 - 1j]], np.complex64)
    want = np.array([[2, 0], [1j, 2]], np.complex64)
    text = entry("c64[2,2] cholesky(p0), lower=true", ["c64[2,2]"])
    check(text, [stack], want, signed_zeros=False)


def test_a_long_system_is_solved_in_halves(rng):
    """What is solved recursively is what substitution solves."""
    size = 40
    a = np.tril(rng.normal(size=(size, size)), -1) / size + np.diag(1 + rng.random(size))
    b = rng.normal(size=(size, 2))
    table = {(int(i), int(j)): float(a[i, j]) for i, j in np.ndindex(size, size)}
    right = {(int(i), int(j)): float(b[i, j]) for i, j in np.ndindex(size, 2)}
    want = array_of(solved(table, right, size, 2, lower=True), "f64", (size, 2))
    text = entry(
        f"f64[{size},2] triangular-solve(p0, p1), left_side=true, lower=true, transpose_a=NO_TRANSPOSE",
        [f"f64[{size},{size}]", f"f64[{size},2]"],
    )
    check(text, [a, b], want, rtol=1e-12)


def test_a_system_without_its_direction_is_refused():
    """The text may leave it out; what is to be solved is not known then."""
    text = entry("f32[2,2] triangular-solve(p0, p0), left_side=true, lower=true", ["f32[2,2]"])
    with pytest.raises(UnsupportedError) as error:
        hloopt.evaluate(hloopt.parse(text), [np.eye(2, dtype=np.float32)])
    assert (error.value.line, error.value.message) == (
        5,
        "r: transpose_a is not given, so that the system to solve is not known",
    )
