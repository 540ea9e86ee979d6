"""Custom calls: markers, TopK, LAPACK; every other target is refused with its name and line."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.errors import UnsupportedError
from hloopt.interpret.custom_calls import CUSTOM_CALLS, CUSTOM_CHECKS

TYPES = {"s": "f32", "d": "f64", "c": "c64", "z": "c128"}
NUMPY = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}
LOOSE = {"s": 3e-5, "d": 1e-12, "c": 3e-5, "z": 1e-12}


def run(
    shape: str, operands: dict[str, np.ndarray], target: str, options: str = ""
) -> list[np.ndarray]:
    lines = [f"  p{number} = {kind} parameter({number})" for number, kind in enumerate(operands)]
    names = ", ".join(f"p{number}" for number in range(len(operands)))
    config = f", backend_config={{{options}}}" if options is not None else ""
    lines.append(f'  ROOT r = {shape} custom-call({names}), custom_call_target="{target}"{config}')
    text = "HloModule m\n\nENTRY e {\n" + "\n".join(lines) + "\n}\n"
    return hloopt.evaluate(hloopt.parse(text), list(operands.values()))


def refusal(shape: str, operands: dict[str, np.ndarray], target: str, options: str = "") -> str:
    with pytest.raises(UnsupportedError) as error:
        run(shape, operands, target, options)
    assert error.value.line == 4 + len(operands)
    return error.value.message


def matrix(letter: str, dims: tuple[int, ...], seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    array = rng.normal(size=dims)
    if letter in "cz":
        array = array + 1j * rng.normal(size=dims)
    return array.astype(NUMPY[letter])


def adjoint(array: np.ndarray) -> np.ndarray:
    return np.swapaxes(array, -1, -2).conj()


def test_every_target_has_its_check() -> None:
    assert CUSTOM_CALLS.keys() == CUSTOM_CHECKS.keys()


def test_a_marker_passes_a_tuple_on() -> None:
    """The tuple itself, and not a tuple that contains it."""
    x, y = np.arange(4, dtype=np.float32), np.arange(3, dtype=np.int32)
    module = hloopt.parse(
        "HloModule m\nENTRY e {\n  x = f32[4] parameter(0)\n  y = s32[3] parameter(1)\n"
        "  t = (f32[4], s32[3]) tuple(x, y)\n"
        '  ROOT r = (f32[4], s32[3]) custom-call(t), custom_call_target="MoveToHost"\n}\n'
    )
    for found in (hloopt.evaluate(module, [x, y]), hloopt.compile(module).run([x, y])):
        assert [part.tolist() for part in found] == [x.tolist(), y.tolist()]


def test_a_marker_that_changes_the_shape_needs_more_devices() -> None:
    message = refusal("f32[2]", {"f32[4]": np.zeros(4, np.float32)}, "SPMDFullToShardShape")
    assert message == "r: SPMDFullToShardShape of (f32[4]) to f32[2]; only one participant is run"


def test_topk_of_more_than_there_are_is_refused() -> None:
    message = refusal("(f32[5], s32[5])", {"f32[4]": np.zeros(4, np.float32)}, "TopK")
    assert (
        message
        == "r: TopK with the result (f32[5], s32[5]) is not (values, indices) of one operand"
    )


@pytest.mark.parametrize("letter", TYPES)
@pytest.mark.parametrize("uplo", "LU")
def test_potrf(letter: str, uplo: str) -> None:
    root = matrix(letter, (2, 4, 4))
    kind = f"{TYPES[letter]}[2,4,4]{{1,2,0}}"
    positive = root @ adjoint(root) + np.eye(4, dtype=root.dtype)
    factor, info = run(
        f"({kind}, s32[2])",
        {kind: positive},
        f"lapack_{letter}potrf_ffi",
        f"uplo = {ord(uplo)} : ui8",
    )
    assert factor.dtype == root.dtype
    assert info.tolist() == [0, 0]
    triangle = np.tril(factor) if uplo == "L" else adjoint(np.triu(factor))
    np.testing.assert_allclose(triangle @ adjoint(triangle), positive, atol=LOOSE[letter])
    kept = np.triu(factor, 1) if uplo == "L" else np.tril(factor, -1)
    assert (kept == (np.triu(positive, 1) if uplo == "L" else np.tril(positive, -1))).all()


@pytest.mark.parametrize("letter", TYPES)
@pytest.mark.parametrize(("rows", "columns"), [(5, 3), (70, 40), (40, 70), (33, 33)])
def test_getrf(letter: str, rows: int, columns: int) -> None:
    a = matrix(letter, (rows, columns))
    steps = min(rows, columns)
    kind = f"{TYPES[letter]}[{rows},{columns}]{{0,1}}"
    factors, pivots, info = run(
        f"({kind}, s32[{steps}], s32[])", {kind: a}, f"lapack_{letter}getrf_ffi"
    )
    assert (factors.dtype, pivots.dtype, int(info)) == (a.dtype, np.int32, 0)
    permuted = a.copy()
    for row, pivot in enumerate(pivots):
        permuted[[row, pivot - 1]] = permuted[[pivot - 1, row]]
    lower = np.tril(factors, -1)[:, :steps] + np.eye(rows, steps)
    np.testing.assert_allclose(
        lower @ np.triu(factors)[:steps], permuted, atol=LOOSE[letter] * steps
    )
    assert abs(lower).max() < 2, "each pivot is the largest of its column, of a complex one about"


@pytest.mark.parametrize("letter", TYPES)
@pytest.mark.parametrize("with_info", [False, True])
def test_geqrf_and_orgqr(letter: str, with_info: bool) -> None:
    a = matrix(letter, (2, 5, 3))
    kind, taus_kind = f"{TYPES[letter]}[2,5,3]{{1,2,0}}", f"{TYPES[letter]}[2,3]"
    info = ", s32[2]" if with_info else ""
    reflectors, taus, *rest = run(
        f"({kind}, {taus_kind}{info})", {kind: a}, f"lapack_{letter}geqrf_ffi"
    )
    name = "orgqr" if letter in "sd" else "ungqr"
    (q,) = run(kind, {kind: reflectors, taus_kind: taus}, f"lapack_{letter}{name}_ffi")
    np.testing.assert_allclose(q @ np.triu(reflectors)[:, :3], a, atol=LOOSE[letter])
    assert [part.tolist() for part in rest] == ([[0, 0]] if with_info else [])
    assert {q.dtype, taus.dtype, reflectors.dtype} == {a.dtype}


@pytest.mark.parametrize("letter", TYPES)
@pytest.mark.parametrize("diag", "NU")
@pytest.mark.parametrize("side", "LR")
@pytest.mark.parametrize("trans", "NTC")
@pytest.mark.parametrize("uplo", "LU")
def test_trsm(letter: str, diag: str, side: str, trans: str, uplo: str) -> None:
    a = matrix(letter, (3, 3)) / 3 + 2 * np.eye(3, dtype=NUMPY[letter])
    b = matrix(letter, (3, 2) if side == "L" else (2, 3), 1)
    kinds = [f"{TYPES[letter]}[{m.shape[0]},{m.shape[1]}]{{0,1}}" for m in (a, b)]
    options = {"diag": diag, "side": side, "trans_x": trans, "uplo": uplo}
    text = ", ".join(f"{name} = {ord(value)} : ui8" for name, value in options.items())
    (x,) = run(kinds[1], dict(zip(kinds, (a, b), strict=True)), f"lapack_{letter}trsm_ffi", text)
    triangle = np.tril(a) if uplo == "L" else np.triu(a)
    if diag == "U":
        np.fill_diagonal(triangle, 1)
    applied = {"N": triangle, "T": triangle.T, "C": adjoint(triangle)}[trans]
    product = applied @ x if side == "L" else x @ applied
    np.testing.assert_allclose(product, b, atol=LOOSE[letter])
    assert x.dtype == a.dtype


@pytest.mark.parametrize("letter", TYPES)
def test_eigenvalues(letter: str) -> None:
    a = matrix(letter, (2, 4, 4))
    a = a + adjoint(a)
    real = "f32" if letter in "sc" else "f64"
    kind = f"{TYPES[letter]}[2,4,4]{{1,2,0}}"
    name = "syevd" if letter in "sd" else "heevd"
    vectors, values, info = run(
        f"({kind}, {real}[2,4], s32[2])",
        {kind: a},
        f"lapack_{letter}{name}_ffi",
        "mode = 86 : ui8, uplo = 76 : ui8",
    )
    assert info.tolist() == [0, 0]
    assert (np.diff(values) >= 0).all()
    np.testing.assert_allclose(a @ vectors, vectors * values[:, None], atol=LOOSE[letter])


@pytest.mark.parametrize("letter", TYPES)
@pytest.mark.parametrize(("mode", "steps"), [("A", (4, 3)), ("S", (3, 3)), ("N", (3, 3))])
def test_singular_values(letter: str, mode: str, steps: tuple[int, int]) -> None:
    a = matrix(letter, (4, 3))
    name, real = TYPES[letter], "f32" if letter in "sc" else "f64"
    kind = f"{name}[4,3]{{0,1}}"
    shape = f"({kind}, {real}[3], {name}[4,{steps[0]}]{{0,1}}, {name}[{steps[1]},3]{{0,1}}, s32[])"
    _, values, left, right, info = run(
        shape, {kind: a}, f"lapack_{letter}gesdd_ffi", f"mode = {ord(mode)} : ui8"
    )
    assert int(info) == 0
    np.testing.assert_allclose((left[:, :3] * values) @ right, a, atol=LOOSE[letter])


F = {"f32[2,2]": np.eye(2, dtype=np.float32)}


@pytest.mark.parametrize(
    ("target", "shape", "options", "message"),
    [
        (
            "foo",
            "f32[2,2]",
            "",
            "custom call to foo has no evaluation; --custom-call foo=module:function gives it one",
        ),
        (
            "__cublas$lt$groupedMatmul",
            "f32[2,2]",
            "",
            (
                "custom call to __cublas$lt$groupedMatmul, a routine of cuBLAS, has no evaluation; "
                "--custom-call __cublas$lt$groupedMatmul=module:function gives it one"
            ),
        ),
        (
            "__cudnn$fmhaSoftmaxDropout",
            "f32[2,2]",
            "",
            (
                "custom call to __cudnn$fmhaSoftmaxDropout, a routine of cuDNN, has no evaluation; "
                "--custom-call __cudnn$fmhaSoftmaxDropout=module:function gives it one"
            ),
        ),
        (
            "lapack_spotrf_ffi",
            "(f32[2,2], s32[])",
            "",
            "lapack_spotrf_ffi without uplo in its backend_config",
        ),
        (
            "lapack_spotrf_ffi",
            "(f32[2,2], s32[])",
            "uplo = 70 : ui8",
            "lapack_spotrf_ffi with uplo=70, not one of 76 (L), 85 (U)",
        ),
        (
            "lapack_spotrf_ffi",
            "(f32[2,2], s32[])",
            "uplo = L",
            "lapack_spotrf_ffi: backend_config={uplo = L} is not a list of integers",
        ),
        (
            "lapack_spotrf_ffi",
            "f32[2,2]",
            "uplo = 76 : ui8",
            "lapack_spotrf_ffi with 1 operands and 1 results",
        ),
        (
            "lapack_sgetrf_ffi",
            "(f32[2,2], s32[3], s32[])",
            "",
            "lapack_sgetrf_ffi: result [2] where the instruction has s32[3]",
        ),
    ],
)
def test_what_cannot_be_called_is_refused(target, shape, options, message) -> None:
    assert refusal(shape, F, target, options) == f"r: {message}"
