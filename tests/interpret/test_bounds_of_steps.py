"""Running error bounds of what takes many steps: factors, normalisations, exchanges, what the host is sent."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.interpret import Host, evaluate_bounds, evaluate_participants
from hloopt.runtime.judge import Judge
from hloopt.types import dtype
from tests.interpret.test_bounds import F32, U, bounds_of, drawn, entry


def solved_by_rows(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """L x = b in f32, each sum from its first term on."""
    found = np.zeros_like(right)
    for row in range(len(matrix)):
        total = right[row].copy()
        for column in range(row):
            total -= matrix[row, column] * found[column]
        found[row] = total / matrix[row, row]
    return found


def factor_by_columns(matrix: np.ndarray) -> np.ndarray:
    """Cholesky's factor in f32."""
    found = np.tril(matrix).astype(F32)
    for column in range(len(matrix)):
        for before in range(column):
            found[column:, column] -= found[column:, before] * found[column, before]
        found[column:, column] /= np.sqrt(found[column, column])
    return found


@pytest.mark.parametrize("size", [1, 3, 24])
@pytest.mark.parametrize("rounded", [False, True])
def test_factors_and_solutions_are_off_by_their_backward_errors(size: int, rounded: bool) -> None:
    """As far as f32 is, and the same operands rounded to bf16; of what is near singular nothing is known."""
    given = "convert(h)" if rounded else "copy(x)"
    text = entry(
        f"x = f32[{size},{size}] parameter(0)",
        f"b = f32[{size},2] parameter(1)",
        f"h = bf16[{size},{size}] convert(x)",
        f"a = f32[{size},{size}] {given}",
        f"l = f32[{size},{size}] cholesky(a), lower=true",
        f"u = f32[{size},{size}] cholesky(a), lower=false",
        f"y = f32[{size},2] triangular-solve(a, b), left_side=true, lower=true, unit_diagonal=false, "
        "transpose_a=NO_TRANSPOSE",
        f"c = f32[2,{size}] transpose(b), dimensions={{1,0}}",
        f"z = f32[2,{size}] triangular-solve(a, c), left_side=false, lower=true, unit_diagonal=false, "
        "transpose_a=TRANSPOSE",
        f"ROOT t = (f32[{size},{size}], f32[{size},{size}], f32[{size},2], f32[2,{size}]) tuple(l, u, y, z)",
    )
    base = drawn(size, size)
    x = (base @ base.T / F32(size) + np.eye(size, dtype=F32)).astype(F32)
    b = drawn(size, 2, seed=1)
    want = hloopt.evaluate(hloopt.parse(text), [x, b])
    factor, solution = factor_by_columns(x), solved_by_rows(x, b)
    for got, own, bound in zip(
        (factor, factor.T, solution, solution.T), want, bounds_of(text, x, b), strict=True
    ):
        assert bound is not None
        assert (np.abs(got - own.astype(np.float64)) <= bound).all()
        unit = 2.0**-9 if rounded else U
        assert (bound <= 300 * size * unit * np.abs(own).max()).all()
    if size > 1:
        near = x.copy()
        near[1] = near[0] * F32(1 + 1e-6)
        near[:, 1] = near[:, 0] * F32(1 + 1e-6)
        near[1, 1] = near[0, 0] * F32(1 + 3e-6)
        unknown = bounds_of(text, near, b)[0]
        assert unknown is not None
        assert np.isinf(unknown[np.tril_indices(size)]).all()


NORMS = {
    "batch-norm-inference": ("f32[6,5,3]", "x, s, o, m, v"),
    "batch-norm-training": ("(f32[6,5,3], f32[3], f32[3])", "x, s, o"),
    "batch-norm-grad": ("(f32[6,5,3], f32[3], f32[3])", "x, s, m, v, g"),
}


@pytest.mark.parametrize("opcode", NORMS)
@pytest.mark.parametrize("rounded", [False, True])
def test_batch_norms_are_bounded_in_any_form(opcode: str, rounded: bool) -> None:
    """As far as the form of least accuracy is in f32, and with operands rounded to bf16."""
    shape, operands = NORMS[opcode]
    vectors = [f"{name} = f32[3] parameter({at})" for at, name in enumerate("somv", 2)]
    given = ["h = bf16[6,5,3] convert(y)", "x = f32[6,5,3] convert(h)"]
    text = entry(
        "y = f32[6,5,3] parameter(0)",
        *(given if rounded else ["x = f32[6,5,3] copy(y)"]),
        "g = f32[6,5,3] parameter(1)",
        *vectors,
        f"ROOT n = {shape} {opcode}({operands}), epsilon=0.001, feature_index=2",
    )
    x, g = drawn(6, 5, 3) + F32(2), drawn(6, 5, 3, seed=1)
    scale, offset = drawn(3, seed=2), drawn(3, seed=3)
    mean, variance = x.mean((0, 1)), x.var((0, 1))
    arrays = (x, g, scale, offset, mean, variance)
    want = hloopt.evaluate(hloopt.parse(text), arrays)
    if opcode == "batch-norm-training":
        mean, variance = x.mean((0, 1)), (x * x).mean((0, 1)) - x.mean((0, 1)) ** 2
    factor = scale / np.sqrt(variance + F32(0.001))
    got = [x * factor + (offset - mean * factor), mean, variance]
    if opcode == "batch-norm-grad":
        sums = (g * x).sum((0, 1)) - mean * g.sum((0, 1))
        inner = g - g.sum((0, 1)) / F32(30)
        inner -= (x - mean) / (variance + F32(0.001)) * (sums / F32(30))
        got = [factor * inner, sums / np.sqrt(variance + F32(0.001)), g.sum((0, 1))]
    for other, own, bound in zip(got, want, bounds_of(text, *arrays), strict=False):
        assert bound is not None
        assert (np.abs(other - own.astype(np.float64)) <= bound).all()
        assert (bound <= 2000 * (2.0**-9 if rounded else U) * (1 + np.abs(own).max())).all()


@pytest.mark.parametrize(
    ("target", "results", "known"),
    [
        ("lapack_spotrf_ffi", "(f32[4,4], s32[])", [True, True]),
        ("lapack_ssyevd_ffi", "(f32[4,4], f32[4], s32[])", [False, True, False]),
        ("lapack_sgesdd_ffi", "(f32[4,4], f32[4], f32[4,4], f32[4,4], s32[])", [False, True, *[False] * 3]),
        ("lapack_sgeqrf_ffi", "(f32[4,4], f32[4])", [False, False]),
    ],
)  # fmt: skip
def test_library_routines_are_bounded_where_their_results_are_determined(
    target: str, results: str, known: list[bool]
) -> None:
    """Factors and eigenvalues are; of vectors, which have signs of their own, nothing is known."""
    text = entry(
        "x = f32[4,4] parameter(0)",
        f'ROOT c = {results} custom-call(x), custom_call_target="{target}", '
        f"backend_config={{mode = {86 if 'ev' in target else 65} : ui8, uplo = 76 : ui8}}",
    )
    x = drawn(4, 4) @ drawn(4, 4).T + np.eye(4, dtype=F32)
    x = (x + x.T) / F32(2)
    found = bounds_of(text, x)
    assert [bound is None or bool(np.isfinite(bound).all()) for bound in found] == known
    wide = hloopt.parse(text.replace("f32", "f64").replace("lapack_s", "lapack_d"))
    for bound, own, other, is_known in zip(
        found,
        hloopt.evaluate(hloopt.parse(text), [x]),
        hloopt.evaluate(wide, [x.astype(np.float64)]),
        known,
        strict=True,
    ):
        if is_known and own.dtype == F32:
            assert bound is not None
            assert (np.abs(own.astype(np.float64) - other) <= bound).all()


def test_rows_that_participants_exchange_are_off_by_what_they_were() -> None:
    """Those that are sent as they are where they come from, others as before; exact ones by nothing."""
    text = entry(
        "x = f32[2] parameter(0)",
        "o = f32[3] parameter(1)",
        "p = f32[2] multiply(x, x)",
        "i = s32[2] constant({0, 1})",
        "n = s32[2] constant({1, 1})",
        "k = u32[] partition-id()",
        "c = s32[] convert(k)",
        "t = s32[2] broadcast(c), dimensions={}",
        "r = f32[3] ragged-all-to-all(p, o, i, n, t, n), replica_groups={{0,1}}, channel_id=1",
        "e = f32[3] ragged-all-to-all(x, o, i, n, t, n), replica_groups={{0,1}}, channel_id=2",
        "ROOT s = (f32[3], f32[3]) tuple(r, e)",
    ).replace("HloModule m", "HloModule m, num_partitions=2")
    x, o = np.array([1.1, 1.7], F32), np.zeros(3, F32)
    for number, bounds in enumerate(
        evaluate_bounds(hloopt.parse(text), [[x, o], [2 * x, o]], 1, 2)
    ):
        sent = np.array([x[number], 2 * x[number], 0], np.float64) ** 2
        assert bounds[0] is not None
        assert (bounds[0][:2] >= U * sent[:2]).all()
        assert (bounds[0] <= 2.01 * U * sent).all()
        assert bounds[1] is None


def test_what_the_host_is_sent_is_bounded() -> None:
    """A copy by nothing, a product by its rounding: the judge finds the last place of one, not of the other."""
    text = entry(
        "x = f32[4] parameter(0)",
        "p = f32[4] multiply(x, x)",
        "t = token[] after-all()",
        "b = (f32[4], f32[4]) tuple(x, p)",
        "ROOT o = token[] outfeed(b, t)",
    )
    module, x, host = hloopt.parse(text), np.abs(drawn(4)) + F32(1), Host()
    results = evaluate_participants(module, [[x]], host=host)
    judge = Judge.of(module, [[x]], results, host=host, written=host.written)
    other = {name: np.nextafter(array, F32(9)) for name, array in host.written.items()}
    found = dict(judge.compare_named(other, host.written))
    assert [one.passed for one in found.values()] == [False, True]
    assert "nothing here is rounded" in found["outfeed_0"].reason


def test_a_chain_that_keeps_f32_is_off_by_both_ways_to_round() -> None:
    """What is only moved is exact; a chain of bf16 may round each op, or none, and no more."""
    text = entry(
        "x = bf16[64] parameter(0)",
        "y = bf16[64] multiply(x, x)",
        "z = bf16[64] add(y, x)",
        "r = bf16[64] reverse(x), dimensions={0}",
        "ROOT t = (bf16[64], bf16[64]) tuple(z, r)",
    )
    module, x = hloopt.parse(text), np.abs(drawn(64)).astype(dtype("bf16").numpy)
    wide, strict = (hloopt.evaluate(module, [x], excess_precision=kept) for kept in (True, False))
    judge = Judge.of(module, [[x]], [wide], excess_precision=True)
    assert any(one.tobytes() != other.tobytes() for one, other in zip(wide, strict, strict=True))
    assert [one.passed for one in judge.compare_all([strict], [wide])] == [True, True]
    off = [
        (array.astype(F32) * F32(1 + 2**-7 * by)).astype(array.dtype)
        for array, by in zip(wide, (8, 1), strict=True)
    ]
    assert [one.passed for one in judge.compare_all([off], [wide])] == [False, False]
    assert "nothing here is rounded" in judge.compare((0, 1), off[1], wide[1]).reason
