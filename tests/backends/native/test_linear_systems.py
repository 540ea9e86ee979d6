"""Factors and triangular systems natively: all options, types and orders in memory, as the interpreter has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.backends.native.compile import CompiledNative, compile_native, plan_native
from hloopt.backends.native.kernels.linear_systems import Routine, apart, routine_of
from hloopt.errors import UsageError
from hloopt.interpret import linalg, plugins
from hloopt.kernels.plan import KernelStep, walk_steps
from hloopt.kernels.selection import KernelSelection
from hloopt.runtime.judge import Judge, Tolerance
from hloopt.runtime.program import NativeOptions
from tests.helpers.joined_modules import joined
from tests.helpers.rarely import one_in
from tests.helpers.support import Array

pytestmark = pytest.mark.usefixtures("quickly_compiled")

# What differs between types is little, and compiled once more for each.
COMPLEX = one_in(4, ["c128", "f32", "f64", "c64"])
REAL = one_in(4, ["f32", "f64", "c64", "c128"])
LETTERS = {"f32": "s", "f64": "d", "c64": "c", "c128": "z"}
KINDS = {"f32": np.float32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128}
Case = tuple[str, list[Array]]


def shape(kind: str, dims: Sequence[int], *, by_columns: bool = False) -> str:
    """The text of a shape; by columns as LAPACK wants it."""
    text = f"{kind}[{','.join(map(str, dims))}]"
    if not by_columns:
        return text
    rank = len(dims)
    return f"{text}{{{','.join(map(str, (rank - 2, rank - 1, *range(rank - 3, -1, -1))))}}}"


def normal(kind: str, dims: Sequence[int], seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    found = rng.normal(size=dims)
    if kind[0] == "c":
        found = found + 1j * rng.normal(size=dims)
    return found.astype(KINDS[kind])


def definite(kind: str, dims: Sequence[int], seed: int = 0) -> Array:
    """Positive definite matrices far from singular ones."""
    x = linalg.wide(normal(kind, dims, seed))
    size = dims[-1]
    return (x @ np.swapaxes(x, -1, -2).conj() / size + np.eye(size)).astype(KINDS[kind])


def module(body: str, results: Sequence[tuple[str, str]]) -> str:
    shapes = ", ".join(one for _, one in results)
    names = ", ".join(one for one, _ in results)
    return f"HloModule m\nENTRY e {{\n{body}  ROOT all = ({shapes}) tuple({names})\n}}\n"


def call(target: str, operands: str, options: str) -> str:
    return (
        f'custom-call({operands}), custom_call_target="lapack_{target}_ffi", '
        f"backend_config={{{options}}}, api_version=API_VERSION_TYPED_FFI"
    )


def choleskys(kind: str, dims: Sequence[int], *, lower: bool, bad: tuple[int, ...] = ()) -> Case:
    """The op and LAPACK's routine; ``bad`` is a place of a diagonal that is made negative."""
    x = definite(kind, dims, dims[-1])
    if bad:
        x[bad] = -1
    away = np.triu(np.ones(dims[-2:], bool), 1)
    x[..., away if lower else away.T] = np.nan
    plain, turned = shape(kind, dims), shape(kind, dims, by_columns=True)
    called = f"({turned}, {shape('s32', dims[:-2])})"
    code = ord("L" if lower else "U")
    body = f"""  x = {plain} parameter(0)
  y = {turned} copy(x)
  a = {plain} cholesky(x), lower={str(lower).lower()}
  b = {called} {call(LETTERS[kind] + "potrf", "y", f"uplo = {code} : ui8")}
"""
    return module(body, [("a", plain), ("b", called)]), [x]


def solves(kind: str, size: int, columns: int, batch: Sequence[int], *, left: bool) -> Case:
    """Each option of the op and of LAPACK's routine."""
    a = linalg.wide(normal(kind, (*batch, size, size), size)) * 0.3 / np.sqrt(size)
    a = (a + np.eye(size)).astype(KINDS[kind])
    dims = (*batch, size, columns) if left else (*batch, columns, size)
    plain, turned = shape(kind, dims), shape(kind, dims, by_columns=True)
    body = f"""  a = {shape(kind, a.shape)} parameter(0)
  b = {plain} parameter(1)
  ac = {shape(kind, a.shape, by_columns=True)} copy(a)
  bc = {turned} copy(b)
"""
    results = []
    for number in range(12):
        lower, unit = bool(number & 1), bool(number & 2)
        way = number // 4
        op = ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")[way]
        flags = (
            f"left_side={str(left).lower()}, lower={str(lower).lower()}, "
            f"unit_diagonal={str(unit).lower()}, transpose_a={op}"
        )
        codes = {
            "diag": "NU"[unit],
            "side": "RL"[left],
            "trans_x": "NTC"[way],
            "uplo": "UL"[lower],
        }
        options = ", ".join(f"{name} = {ord(letter)} : ui8" for name, letter in codes.items())
        body += f"  x{number} = {plain} triangular-solve(a, b), {flags}\n"
        body += f"  y{number} = {turned} {call(LETTERS[kind] + 'trsm', 'ac, bc', options)}\n"
        results += [(f"x{number}", plain), (f"y{number}", turned)]
    return module(body, results), [a, normal(kind, dims, 1)]


def factors(kind: str, dims: Sequence[int]) -> Case:
    """getrf, geqrf and, where there are as many rows as columns, orgqr or ungqr."""
    *batch, rows, columns = dims
    steps = min(rows, columns)
    letter, turned = LETTERS[kind], shape(kind, dims, by_columns=True)
    taus = shape(kind, (*batch, steps))
    lu = f"({turned}, {shape('s32', (*batch, steps))}, {shape('s32', batch)})"
    qr = f"({turned}, {taus})"
    x = normal(kind, dims, rows + columns)
    given, results = [x], [("lu", lu), ("qr", qr)]
    body = f"""  x = {shape(kind, dims)} parameter(0)
  y = {turned} copy(x)
  lu = {lu} {call(letter + "getrf", "y", "")}
  qr = {qr} {call(letter + "geqrf", "y", "")}
"""
    if rows >= columns:
        made = linalg.qr_raw(x)
        given += [one.astype(KINDS[kind]) for one in made]
        name = "ungqr" if kind[0] == "c" else "orgqr"
        body += f"""  v = {shape(kind, dims)} parameter(1)
  taus = {taus} parameter(2)
  q = {shape(kind, dims)} {call(letter + name, "v, taus", "")}
"""
        results.append(("q", shape(kind, dims)))
    return module(body, results), given


def kernels(program: CompiledNative) -> Counter[str]:
    return Counter(
        step.spec.kernel for step in walk_steps(program.plan.steps) if isinstance(step, KernelStep)
    )


def check(cases: Sequence[Case], *, rtol: float | None = None) -> CompiledNative:
    """All in one program of two threads, and of one: the interpreter's results, and the same bits."""
    modules = [hloopt.parse(text) for text, _ in cases]
    whole = joined(modules)
    program = compile_native(whole, NativeOptions(threads=2))
    assert "native-call" not in kernels(program)
    given = [array for _, arrays in cases for array in arrays]
    found = program.run(given)
    alone = compile_native(whole, NativeOptions(threads=1)).run(given)
    assert [one.tobytes() for one in found] == [one.tobytes() for one in alone]
    left: Iterator[Array] = iter(found)
    for one, (_, arrays) in zip(modules, cases, strict=True):
        wanted = hloopt.evaluate(one, arrays)
        judge = Judge.of(one, [arrays], [wanted], tolerance=Tolerance(rtol))
        compared = judge.compare_all([[next(left) for _ in wanted]], [wanted])
        assert all(one.passed for one in compared), (one.to_text()[:400], list(map(str, compared)))
    return program


@pytest.mark.parametrize("kind", COMPLEX)
def test_cholesky(kind: str) -> None:
    """Blocks and what is smaller; one matrix of a stack that has no factor leaves the others theirs."""
    cases = [
        choleskys(kind, dims, lower=lower, bad=bad)
        for lower in (True, False)
        for dims, bad in [
            ((1, 1), ()),
            ((2, 3, 5, 5), (1, 1, 3, 3)),
            ((3, 37, 37), (1, 20, 20)),
            ((230, 230), ()),
        ]
    ]
    found = kernels(check(cases))
    assert found["native-cholesky"] == 2 * len(cases)


@pytest.mark.parametrize("kind", REAL)
def test_triangular_solve(kind: str) -> None:
    """From both sides, by each triangle, few right sides and many, the triangle read as it lies or by blocks."""
    cases = [
        solves(kind, size, columns, batch, left=left)
        for left in (True, False)
        for size, columns, batch in [(5, 2, (2, 2)), (33, 19, (3,))]
    ]
    found = kernels(check(cases, rtol=1e-10 if kind in ("f64", "c128") else None))
    assert found["native-triangular-solve"] == 24 * len(cases)


def test_right_sides_are_shared() -> None:
    """Large systems are cut along their right sides, the last part shorter than the others."""
    program = check([solves("f64", 96, 250, (), left=True)], rtol=1e-9)
    steps = [step for step in walk_steps(program.plan.steps) if isinstance(step, KernelStep)]
    tiles = [dict(step.spec.tile) for step in steps if "columns" in step.spec.tile]
    assert tiles
    assert all(tile == {"matrices": 1, "columns": 84} for tile in tiles)


@pytest.mark.parametrize("kind", COMPLEX)
def test_lu_and_qr(kind: str) -> None:
    """Tall and wide ones, one block and several, ones whose rows would lie a power of two apart."""
    dims = [(1, 1), (1, 4), (4, 1), (2, 3, 5, 5), (2, 20, 5), (40, 70), (130, 64)]
    found = kernels(
        check([factors(kind, one) for one in dims], rtol=1e-8 if kind == "f64" else None)
    )
    assert found["native-lu"] == found["native-qr"] == len(dims)
    assert found["native-householder-product"] == 5


def _single(text: str) -> CompiledNative:
    return compile_native(hloopt.parse(text))


@pytest.fixture(scope="module")
def small() -> dict[str, CompiledNative]:
    """Programs that the properties below run on many inputs."""
    found = {}
    for kind in ("f64", "c128"):
        text, _ = factors(kind, (6, 6))
        found[f"factors {kind}"] = _single(text)
        text, _ = choleskys(kind, (6, 6), lower=True)
        found[f"cholesky {kind}"] = _single(text)
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["f64", "c128"]), st.integers(0, 2**32 - 1), st.integers(0, 3))
def test_factors_multiply_to_the_matrix(
    small: dict[str, CompiledNative], kind: str, seed: int, zeros: int
) -> None:
    """Of matrices with whole columns of zeros, too: LAPACK's info says which pivot is the first that is 0."""
    x = normal(kind, (6, 6), seed)
    x[:, :zeros] = 0
    raw = [one.astype(KINDS[kind]) for one in linalg.qr_raw(x)]
    lu, pivots, info, r, taus, q = small[f"factors {kind}"].run([x, *raw])
    swapped = x.copy()
    for row, pivot in enumerate(pivots):
        swapped[[row, pivot - 1]] = swapped[[pivot - 1, row]]
    product = (np.tril(lu, -1) + np.eye(6)) @ np.triu(lu)
    np.testing.assert_allclose(product, swapped, atol=1e-12)
    assert info == (1 if zeros else 0)
    np.testing.assert_allclose(linalg.householder_product(r, taus) @ np.triu(r), x, atol=1e-12)
    np.testing.assert_allclose(q.conj().T @ q, np.eye(6), atol=1e-12)
    assert (taus[:zeros] == 0).all()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["f64", "c128"]), st.integers(0, 2**32 - 1), st.integers(0, 6))
def test_what_is_not_positive_definite(
    small: dict[str, CompiledNative], kind: str, seed: int, at: int
) -> None:
    """The op gives NaN, the routine the factor so far, what is left of the matrix, and the number of the minor."""
    x = definite(kind, (6, 6), seed)
    if at < 6:
        x[at, at] = np.nan if seed % 2 else -1
    factor, left, info = small[f"cholesky {kind}"].run([x])
    wanted, number = linalg.cholesky_in_place(x, lower=True)
    assert info == number == (at + 1) % 7
    np.testing.assert_allclose(left, wanted, rtol=1e-12, atol=1e-13)
    if at < 6:
        assert np.isnan(factor).all()
    else:
        np.testing.assert_allclose(factor @ factor.conj().T, x, atol=1e-12)


def test_numbers_of_extreme_size(small: dict[str, CompiledNative]) -> None:
    """Lengths of columns do not overflow, zeros divide to infinities, a NaN is no pivot."""
    for size in (1e200, 1e-200):
        x = normal("f64", (6, 6)) * size
        raw = list(linalg.qr_raw(x))
        found = small["factors f64"].run([x, *raw])
        np.testing.assert_allclose(found[3], raw[0], rtol=1e-9, atol=1e-12 * size)
    x = normal("f64", (6, 6))
    x[0, 0] = np.nan
    pivots = small["factors f64"].run([x, *linalg.qr_raw(np.eye(6))])[1]
    assert pivots.tolist() == linalg.lu(x)[1].tolist()
    text, (_, b) = solves("c128", 5, 2, (), left=True)
    module_ = hloopt.parse(text)
    a = np.triu(normal("c128", (5, 5)), 1)
    got, want = compile_native(module_).run([a, b]), hloopt.evaluate(module_, [a, b])
    for one, other in zip(got, want, strict=True):
        assert (np.isfinite(one) == np.isfinite(other)).all()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("bf16[4,4] cholesky(x), lower=true", "is of bf16"),
        ('f32[4,4] custom-call(x), custom_call_target="Sharding"', "calls Sharding"),
        ("f32[4,4] add(x, x)", "is a add"),
        (
            f"(f32[4,5], s32[]) {call('spotrf', 'x', 'uplo = 76 : ui8')}",
            "does not fit its operands",
        ),
        (f"(f32[4,4], s32[]) {call('spotrf', 'x', 'uplo = 77 : ui8')}", "with uplo=77"),
        (f"(f32[4,4], f32[4], s32[]) {call('sgeqrf', 'x', '')}", "does not fit its operands"),
    ],
)
def test_what_is_left_to_others(text: str, reason: str) -> None:
    """Every refusal says why."""
    kind = text.partition("[")[0] if text[0] != "(" else "f32"
    found = hloopt.parse(
        f"HloModule m\nENTRY e {{\n  x = {kind}[4,4] parameter(0)\n  ROOT r = {text}\n}}\n"
    )
    said = routine_of(found.entry.root)
    assert isinstance(said, str)
    assert reason in said


def test_the_users_own_routine_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that the user supplies is called, whatever its name."""
    text, (x,) = choleskys("f32", (3, 3), lower=True)
    own = {"lapack_spotrf_ffi": lambda _, a: (a + 1, np.int32(7))}
    monkeypatch.setattr(plugins, "_GIVEN", own)
    assert _single(text).run([x])[2] == 7


def test_tiles() -> None:
    """However matrices and right sides are shared, the bits are the same; what cannot be is refused."""
    text = """HloModule m
ENTRY e {
  a = f32[5,20,20] parameter(0)
  b = f32[5,20,30] parameter(1)
  ROOT r = f32[5,20,30] triangular-solve(a, b), left_side=true, lower=true, transpose_a=NO_TRANSPOSE
}
"""
    found = hloopt.parse(text)
    given = [definite("f32", (5, 20, 20)), normal("f32", (5, 20, 30))]
    wanted = compile_native(found).run(given)[0]
    for tile in ("matrices=2", "matrices=1,columns=7"):
        wish = KernelSelection(
            device="native", kernel=(f"op:triangular-solve=native-triangular-solve{{{tile}}}",)
        )
        assert (compile_native(found, NativeOptions(selection=wish)).run(given)[0] == wanted).all()
    for tile, problem in [
        ("matrices=6", "matrices=6; there are 5"),
        ("columns=31", "columns=31; there are 30"),
        ("matrices=2,columns=7", "columns=7 shares what matrices=2 joins"),
    ]:
        wish = KernelSelection(
            device="native", kernel=(f"op:triangular-solve=native-triangular-solve{{{tile}}}",)
        )
        with pytest.raises(UsageError, match=problem):
            compile_native(found, NativeOptions(selection=wish))


def test_rows_lie_apart() -> None:
    """Not by powers of two, once there are many; a routine counts its work."""
    assert [apart(size) for size in (4, 32, 64, 100, 1024)] == [4, 32, 72, 100, 1032]
    assert Routine("qr", 1, 20, 5).steps == 5
    assert Routine("qr", 1, 20, 5).work == 500


def test_headers_only_where_they_are_used() -> None:
    """A program without matrices compiles none of this."""
    text, _ = factors("f32", (4, 4))
    program = _single(text)
    included = [line for line in program.source.splitlines() if line.startswith("#include")]
    assert '#include "factors.h"' in included
    assert '#include "reflections.h"' in included
    assert not any("triangular.h" in line for line in included)
    _, plan = plan_native(
        hloopt.parse("HloModule m\nENTRY e {\n  ROOT x = f32[4] parameter(0)\n}\n")
    )
    from hloopt.backends.native.codegen import render

    assert "factors.h" not in render(plan)
