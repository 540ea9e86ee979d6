"""Linear algebra by the names that JAX gives it on GPUs, and by LAPACK's that NumPy has no entry for."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.errors import UnsupportedError

RNG = np.random.default_rng(7)
MATRIX = RNG.normal(size=(2, 4, 4)).astype(np.float32)
GRAM = MATRIX @ MATRIX.swapaxes(-1, -2) + np.eye(4, dtype=np.float32)
EYE = np.broadcast_to(np.eye(4, dtype=np.float32), (2, 4, 4))


def evaluate(target: str, result: str, config: str, *arrays: np.ndarray) -> list[np.ndarray]:
    names = {"float32": "f32", "int32": "s32", "complex64": "c64"}
    lines = [
        f"  p{n} = {names[str(array.dtype)]}[{','.join(map(str, array.shape))}] parameter({n})"
        for n, array in enumerate(arrays)
    ]
    operands = ", ".join(f"p{n}" for n in range(len(arrays)))
    text = "HloModule m\n\nENTRY e {\n" + "\n".join(lines) + "\n"
    text += f"  ROOT r = {result} custom-call({operands}), custom_call_target={target!r}, backend_config={config}\n}}\n"
    module = hloopt.parse(text.replace("'", '"'))
    hloopt.verify(module)
    found = hloopt.evaluate(module, list(arrays))
    for ours, theirs in zip(found, hloopt.compile(module).run(list(arrays)), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    return found


def adjoint(array: np.ndarray) -> np.ndarray:
    return array.swapaxes(-1, -2).conj()


@pytest.mark.parametrize("prefix", ["cu", "hip"])
@pytest.mark.parametrize("lower", ["true", "false"])
def test_cholesky_factors(prefix: str, lower: str) -> None:
    factor, info = evaluate(
        f"{prefix}solver_potrf_ffi", "(f32[2,4,4], s32[2])", f"{{lower = {lower}}}", GRAM
    )
    factor = np.tril(factor) if lower == "true" else adjoint(np.triu(factor))
    np.testing.assert_allclose(factor @ adjoint(factor), GRAM, rtol=1e-5, atol=1e-5)
    assert info.tolist() == [0, 0]


def test_an_older_call_for_cholesky_factors_has_scratch_space() -> None:
    """XLA's own: options are JSON, info is the last of three results."""
    factor, scratch, info = evaluate(
        "__cusolver$cholesky", "(f32[2,4,4], u8[16], s32[2])", '{"lower":true}', GRAM
    )
    np.testing.assert_allclose(
        np.tril(factor) @ adjoint(np.tril(factor)), GRAM, rtol=1e-5, atol=1e-5
    )
    assert not scratch.any()
    assert info.tolist() == [0, 0]


def test_lu_factors_and_their_permutation() -> None:
    """1-based pivots, and 0-based ones made an order of rows."""
    factors, pivots, _ = evaluate(
        "cusolver_getrf_ffi", "(f32[2,4,4], s32[2,4], s32[2])", "{}", MATRIX
    )
    (order,) = evaluate("cu_lu_pivots_to_permutation", "s32[2,4]", "{}", pivots - 1)
    lower, upper = np.tril(factors, -1) + EYE, np.triu(factors)
    permuted = np.take_along_axis(MATRIX, order[..., None], axis=-2)
    np.testing.assert_allclose(lower @ upper, permuted, atol=1e-5)


def test_qr_factors_their_product_and_its_application() -> None:
    packed, taus = evaluate("cusolver_geqrf_ffi", "(f32[2,4,4], f32[2,4])", "{}", MATRIX)
    (q,) = evaluate("cusolver_orgqr_ffi", "f32[2,4,4]", "{}", packed, taus)
    np.testing.assert_allclose(q @ np.triu(packed), MATRIX, atol=1e-5)
    (applied,) = evaluate(
        "cusolver_ormqr_ffi", "f32[2,4,4]", "{left = true, transpose = true}", packed, taus, GRAM
    )
    np.testing.assert_allclose(applied, adjoint(q) @ GRAM, atol=1e-4)


def test_eigenvectors_and_tridiagonal_forms() -> None:
    """Lower triangles are read."""
    config = "{algorithm = 0 : ui8, lower = true}"
    shape = "(f32[2,4,4], f32[2,4], s32[2])"
    vectors, values, _ = evaluate("cusolver_syevd_ffi", shape, config, np.tril(GRAM))
    np.testing.assert_allclose(GRAM @ vectors, vectors * values[:, None, :], atol=1e-4)
    shape = "(f32[2,4,4], f32[2,4], f32[2,3], f32[2,3], s32[2])"
    _, diagonal, beside, _, _ = evaluate("cusolver_sytrd_ffi", shape, "{lower = true}", GRAM)
    form = np.stack(
        [np.diag(d) + np.diag(e, 1) + np.diag(e, -1) for d, e in zip(diagonal, beside, strict=True)]
    )
    np.testing.assert_allclose(np.linalg.eigvalsh(form), values, rtol=1e-4)


@pytest.mark.parametrize(
    ("target", "more", "turn"),
    [
        ("cusolver_gesvd_ffi", ", transposed = false", lambda u, v: (u, v)),
        ("cusolver_gesvd_ffi", ", transposed = true", lambda v, u: (u, v)),
        ("hipsolver_gesdd_ffi", ", transposed = false", lambda u, v: (u, v)),
        ("cusolver_gesvdj_ffi", "", lambda u, v: (u, adjoint(v))),
        ("cusolver_gesvdp_ffi", "", lambda u, v: (u, adjoint(v))),
    ],
)
def test_singular_values(target: str, more: str, turn: object) -> None:
    """One routine gives Vᴴ, one V, and one U and Vᴴ in the other order."""
    wide = MATRIX[:, :3] + 1j * GRAM[:, :3]
    sides = ["c64[2,3,3]", "c64[2,4,4]"]
    if "= true" in more:
        sides.reverse()
    shape = f"(c64[2,3,4], f32[2,3], {', '.join(sides)}, s32[2])"
    config = f"{{compute_uv = true, full_matrices = true{more}}}"
    _, values, *both, _ = evaluate(target, shape, config, wide.astype(np.complex64))
    left, right = turn(*both)
    np.testing.assert_allclose((left * values[:, None, :]) @ right[:, :3], wide, atol=1e-4)


def test_singular_values_alone() -> None:
    """Vectors that nobody asked for may have any shape."""
    config = "{compute_uv = false, full_matrices = false, transposed = false}"
    shape = "(f32[2,4,4], f32[2,4], f32[], f32[], s32[2])"
    _, values, left, *_ = evaluate("cusolver_gesvd_ffi", shape, config, MATRIX)
    np.testing.assert_allclose(values, np.linalg.svd(MATRIX, compute_uv=False), rtol=1e-4)
    assert left == 0


def test_symmetric_products_and_tridiagonal_systems() -> None:
    two, three = np.float32(2), np.float32(3)
    (found,) = evaluate(
        "cusolver_syrk_ffi", "f32[4,4]", "{transpose = true}", MATRIX[0], GRAM[0], two, three
    )
    np.testing.assert_allclose(
        found, 2 * MATRIX[0].T @ MATRIX[0] + 3 * GRAM[0], rtol=1e-5, atol=1e-5
    )
    low, up, right = MATRIX[:, 0], MATRIX[:, 1], MATRIX[:, :, :2]
    diagonal = np.full((2, 4), 5, np.float32)
    arrays = low, diagonal, up, right
    (x,) = evaluate("cusparse_gtsv2_ffi", "f32[2,4,2]", "{}", *arrays)
    product = diagonal[..., None] * x
    product[:, 1:] += low[:, 1:, None] * x[:, :-1]
    product[:, :-1] += up[:, :-1, None] * x[:, 1:]
    np.testing.assert_allclose(product, right, atol=1e-5)


@pytest.mark.parametrize(
    ("target", "shape", "config", "message"),
    [
        ("cusolver_potrf_ffi", "(f32[2,4,4], s32[2])", "{}", "cusolver_potrf_ffi without lower"),
        ("cusolver_potrf_ffi", "(f32[2,4,4], s32[2])", "{lower = 2}", "lower=2, not one of 0, 1"),
        ("cusolver_potrf_ffi", "f32[2,4,4]", "{lower = true}", "with 1 operands and 1 results"),
        ("__cusolver$cholesky", "(f32[2,4,4], u8[4])", "{}", "does not give a factor"),
        ("__cusolver$cholesky", "(f32[2,4,4], u8[4], s32[2])", '"lower"', "without options"),
        ("cu_lu_pivots_to_permutation", "(s32[2])", "{}", "is not one array of pivots"),
        ("lapack_sgees_ffi", "(f32[2,4,4], s32[2])", "{}", "lapack_sgees_ffi has no evaluation"),
        ("lapack_sgeev_ffi", "(f32[2,4], f32[2,4], c64[2,4,4], c64[2,4,4], s32[2])",
         "{compute_left = 86 : ui8, compute_right = 86 : ui8}", "compute_left=86, not one of 78 (N)"),
        ("cuhybrid_eig_real", "(f32[2,4], s32[2])", "{}", "cuhybrid_eig_real has no evaluation"),
    ],
)  # fmt: skip
def test_calls_that_are_not_understood_are_refused(
    target: str, shape: str, config: str, message: str
) -> None:
    """Before anything runs, by name and line."""
    with pytest.raises(UnsupportedError) as error:
        evaluate(target, shape, config, MATRIX)
    assert message in error.value.message
    assert error.value.line == 5
