"""``linear-systems`` and LU factors of matrices that are known: what is left to factor, and that results stay."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest

import hloopt
from hloopt.ir import Module
from hloopt.linear_algebra.systems import LinearSystems
from hloopt.passes.dce import DeadCodeElimination
from hloopt.rewrite import PassLog, Pipeline
from tests.helpers.support import Array

N = 96
MASKS = f"""i = s32[{N},{N}] iota(), iota_dimension=0
j = s32[{N},{N}] iota(), iota_dimension=1
same = pred[{N},{N}] compare(i, j), direction=EQ
eye = ELEMENT[{N},{N}] convert(same)
zero = ELEMENT[] constant(0)
zeros = ELEMENT[{N},{N}] broadcast(zero), dimensions={{}}
low = pred[{N},{N}] compare(i, j), direction=GE
high = pred[{N},{N}] compare(i, j), direction=LE
"""
MATRICES = {
    "definite": """square = ELEMENT[96,96] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={1}
m = ELEMENT[96,96] add(square, eye)
""",
    "lower": "m = ELEMENT[96,96] select(low, a, zeros)\n",
    "upper": "m = ELEMENT[96,96] select(high, a, zeros)\n",
    "any": "m = ELEMENT[96,96] add(a, eye)\n",
}


ADD = (
    "add { p = ELEMENT[] parameter(0)\nq = ELEMENT[] parameter(1)\nROOT s = ELEMENT[] add(p, q) }\n"
)


def module(
    kind: str, target: str = "lapack_sgetrf_ffi", element: str = "f32", uses: str = ""
) -> Module:
    """The factors, pivots and info of a matrix of that kind, or what is made of them."""
    results = f"({element}[{N},{N}]{{0,1}}, s32[{N}]{{0}}, s32[])"
    text = f"""HloModule m
{ADD}ENTRY e {{
a = ELEMENT[{N},{N}] parameter(0)
{MASKS}{MATRICES[kind]}{"" if uses else "ROOT "}lu = {results} custom-call(m), custom_call_target="{target}",
  operand_layout_constraints={{ELEMENT[{N},{N}]{{0,1}}}}, api_version=API_VERSION_TYPED_FFI,
  output_to_operand_aliasing={{{{0}}: (0, {{}})}}, backend_config={{}}
{uses}
}}
"""
    return hloopt.parse(text.replace("ELEMENT", element), kind)


@pytest.fixture
def _whoever_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the factors themselves can be looked at."""
    file = import_module("hloopt.linear_algebra.systems.known_factors")
    monkeypatch.setattr(file, "hides_factors", lambda call: True)


@pytest.fixture(autouse=True)
def _written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that matrices of few rows gain: a Cholesky factor is read along its columns for nothing."""
    monkeypatch.setattr(import_module("hloopt.linear_algebra.prices"), "_TURNED", 0.0)


def taken(given: Module, *, leave: bool = True) -> tuple[bool, PassLog]:
    """Whether the pass changed a module, and its log."""
    log = PassLog(kinds=frozenset({"missed", "passed"}))
    changed = LinearSystems(reassociate=leave, target="host").run(given, log)
    hloopt.verify(given)
    return changed, log


def product(results: list[Array]) -> tuple[Array, Array]:
    """P A as the factors have it, and the order of its rows."""
    factors, pivots, _ = (np.asarray(one) for one in results)
    order = np.arange(N)
    for row, pivot in enumerate(pivots):
        order[[row, pivot - 1]] = order[[pivot - 1, row]]
    wide = factors.astype(np.float64)
    return (np.tril(wide, -1) + np.eye(N)) @ np.triu(wide), order


def matrix(kind: str, a: Array) -> Array:
    wide = a.astype(np.float64)
    found = {
        "definite": lambda: wide @ wide.T + np.eye(N),
        "lower": lambda: np.tril(wide),
        "upper": lambda: np.triu(wide),
    }
    return found[kind]()


@pytest.mark.usefixtures("_whoever_reads_them")
@pytest.mark.parametrize("kind", ["definite", "lower", "upper"])
@pytest.mark.parametrize(
    ("target", "element"),
    [("lapack_sgetrf_ffi", "f32"), ("lapack_dgetrf_ffi", "f64"), ("cusolver_getrf_ffi", "f32")],
)
def test_known_matrices_are_factored_for_less(kind: str, target: str, element: str) -> None:
    given = module(kind, target, element)
    changed, _ = taken(given)
    assert changed
    calls = [one.custom_call_target for one in given.entry if one.opcode == "custom-call"]
    assert calls == ([target.replace("getrf", "potrf")] if kind == "definite" else [])
    a = np.random.default_rng(0).standard_normal((N, N)).astype(element.replace("f", "float"))
    a += 4 * np.eye(N, dtype=a.dtype)
    results = hloopt.evaluate(given, [a])
    found, order = product(results)
    wanted = matrix(kind, a)
    assert int(np.asarray(results[2])) == 0
    assert np.array_equal(order, np.arange(N)), "no rows are exchanged"
    scale = 50 * N * np.finfo(a.dtype).eps
    np.testing.assert_allclose(found, wanted[order], atol=scale * abs(wanted).max())
    assert not Pipeline((LinearSystems(reassociate=True, target="host"),)).run(given).changed


@pytest.mark.parametrize(("rows", "gains"), [(64, False), (256, False), (768, True)])
def test_what_it_costs_to_write_the_factors_counts(
    rows: int, gains: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of few hundred rows LU itself takes less than a Cholesky factor and its transpose."""
    monkeypatch.setattr(import_module("hloopt.linear_algebra.prices"), "_TURNED", 3e-9)
    text = module("definite").to_text().replace(f"{N},{N}", f"{rows},{rows}")
    assert taken(hloopt.parse(text.replace(f"[{N}]", f"[{rows}]")))[0] is False
    file = import_module("hloopt.linear_algebra.systems.known_factors")
    monkeypatch.setattr(file, "hides_factors", lambda call: True)
    assert taken(hloopt.parse(text.replace(f"[{N}]", f"[{rows}]")))[0] is gains


@pytest.mark.usefixtures("_whoever_reads_them")
def test_what_has_no_cholesky_factor_after_all_is_factored_as_before() -> None:
    """Rounded, a definite matrix may be none: the identity is lost beside 1e10."""
    given, other = module("definite"), module("definite")
    assert taken(other)[0]
    rows = np.full((N, N), 1e4, np.float32) * np.linspace(1, 2, N, dtype=np.float32)[:, None]
    for a in (rows, np.full((N, N), np.nan, np.float32), np.full((N, N), np.inf, np.float32)):
        for one, same in zip(hloopt.evaluate(given, [a]), hloopt.evaluate(other, [a]), strict=True):
            np.testing.assert_array_equal(one, same)


@pytest.mark.usefixtures("_whoever_reads_them")
@pytest.mark.parametrize("kind", ["lower", "upper"])
def test_info_names_the_first_zero_of_a_diagonal(kind: str) -> None:
    given = module(kind)
    assert taken(given)[0]
    a = np.eye(N, dtype=np.float32)
    a[7, 7] = a[20, 20] = 0
    assert int(np.asarray(hloopt.evaluate(given, [a])[2])) == 8


@pytest.mark.usefixtures("_whoever_reads_them")
def test_other_matrices_stay_and_floats_need_leave() -> None:
    assert not taken(module("any"))[0]
    changed, log = taken(module("definite"), leave=False)
    assert not changed
    assert "f32 would round otherwise" in log.remarks[0].reason
    changed, log = taken(module("definite"))
    assert "of |L| |L'|" in log.remarks[0].reason


def system(lower: str, unit: str, matrix: str, side: str) -> Module:
    return hloopt.parse(f"""HloModule m
ENTRY e {{
a = f32[{N},{N}] parameter(0)
b = f32[{N},{N}] parameter(1)
{MASKS.replace("ELEMENT", "f32")}m = f32[{N},{N}] select({matrix}, a, zeros)
ROOT x = f32[{N},{N}] triangular-solve(m, b), left_side={side}, lower={lower}, unit_diagonal={unit},
  transpose_a=NO_TRANSPOSE
}}
""")


@pytest.mark.parametrize("side", ["true", "false"])
@pytest.mark.parametrize(
    ("lower", "unit", "matrix", "is_diagonal"),
    [
        ("true", "false", "high", True),
        ("false", "false", "low", True),
        ("true", "true", "high", True),
        ("true", "false", "same", True),
        ("true", "false", "low", False),
        ("false", "true", "high", False),
    ],
)
def test_a_triangle_that_is_a_diagonal_divides(
    lower: str, unit: str, matrix: str, is_diagonal: bool, side: str
) -> None:
    given, other = (system(lower, unit, matrix, side) for _ in range(2))
    assert taken(other)[0] is is_diagonal
    assert any(one.opcode == "triangular-solve" for one in other.entry) is not is_diagonal
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((N, N)).astype(np.float32) for _ in range(2))
    a += 8 * np.eye(N, dtype=np.float32)
    (one,), (same,) = hloopt.evaluate(given, [a, b]), hloopt.evaluate(other, [a, b])
    np.testing.assert_allclose(one, same, rtol=1e-6)


GIVEN = f"""factors = f32[{N},{N}]{{0,1}} get-tuple-element(lu), index=0
pivots = s32[{N}]{{0}} get-tuple-element(lu), index=1
places = s32[{N},1] reshape(pivots)
right = f32[{N},2] slice(a), slice={{[0:{N}], [0:2]}}
moved = f32[{N},2] gather(right, places), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}},
  index_vector_dim=1, slice_sizes={{1,2}}
half = f32[{N},2] triangular-solve(factors, moved), left_side=true, lower=true, unit_diagonal=true,
  transpose_a=NO_TRANSPOSE
whole = f32[{N},2] triangular-solve(factors, half), left_side=true, lower=false, unit_diagonal=false,
  transpose_a=NO_TRANSPOSE
alone = f32[{N},{N}] select(same, factors, zeros)
sized = f32[{N},{N}] abs(alone)
logs = f32[{N},{N}] log(sized)
"""
USES = {
    "a solution": (f"ROOT r = f32[{N},2] negate(whole)", True),
    "half a solution": (f"ROOT r = f32[{N},2] negate(half)", False),
    "the factors": (f"ROOT r = f32[{N},{N}]{{0,1}} copy(factors)", False),
    "a triangle": (f"ROOT r = f32[{N},{N}] select(low, factors, zeros)", False),
    "the pivots": (f"ROOT r = s32[{N}] add(pivots, pivots)", False),
    "the logarithm of a determinant": (
        "ROOT r = f32[] reduce(logs, zero), dimensions={0,1}, to_apply=add",
        True,
    ),
    "the trace of a factor": (
        "ROOT r = f32[] reduce(alone, zero), dimensions={0,1}, to_apply=add",
        False,
    ),
    "the logarithms of a row": (
        (
            f"row = f32[1,{N}] slice(factors), slice={{[0:1], [0:{N}]}}\nsizes = f32[1,{N}] abs(row)\n"
            f"some = f32[1,{N}] log(sizes)\nROOT r = f32[] reduce(some, zero), dimensions={{0,1}}, to_apply=add"
        ),
        False,
    ),
    "the logarithms of some of a diagonal": (
        (
            f"flat = f32[{N * N}] reshape(factors)\n"
            f"some = f32[{N - 1}] slice(flat), slice={{[0:{(N - 1) * (N + 1)}:{N + 1}]}}\n"
            f"sizes = f32[{N - 1}] abs(some)\nlogarithms = f32[{N - 1}] log(sizes)\n"
            "ROOT r = f32[] reduce(logarithms, zero), dimensions={0}, to_apply=add"
        ),
        False,
    ),
    "the logarithms of a strided diagonal": (
        (
            f"flat = f32[{N * N}] reshape(factors)\n"
            f"every = f32[{N}] slice(flat), slice={{[0:{N * N}:{N + 1}]}}\n"
            f"sizes = f32[{N}] abs(every)\nlogarithms = f32[{N}] log(sizes)\n"
            "ROOT r = f32[] reduce(logarithms, zero), dimensions={0}, to_apply=add"
        ),
        True,
    ),
    "logarithms without sizes": (
        (
            f"bare = f32[{N},{N}] log(alone)\n"
            "ROOT r = f32[] reduce(bare, zero), dimensions={0,1}, to_apply=add"
        ),
        False,
    ),
    "a count of exchanges": (
        (
            f"at = s32[{N}] iota(), iota_dimension=0\nmoves = pred[{N}] compare(pivots, at), direction=NE\n"
            f"ones = f32[{N}] convert(moves)\nROOT r = f32[] reduce(ones, zero), dimensions={{0}}, to_apply=add"
        ),
        False,
    ),
    "a solution and the factors": (
        f"ROOT r = (f32[{N},2], f32[{N},{N}]{{0,1}}) tuple(whole, factors)",
        False,
    ),
}


@pytest.mark.parametrize("use", USES)
def test_factors_that_are_shown_stay(use: str) -> None:
    """Of a definite matrix others would do as well, but they are others."""
    root, is_taken = USES[use]
    read = module("definite", uses=GIVEN + root)
    Pipeline((DeadCodeElimination(),)).run(read)
    assert taken(read)[0] is is_taken
