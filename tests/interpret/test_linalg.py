"""The factorisations that LAPACK calls ask for: what their factors multiply to."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hloopt.interpret import linalg, reflectors

seeds = st.integers(0, 2**32 - 1)
batches = st.lists(st.integers(0, 3), max_size=2).map(tuple)


def normal(seed: int, dims: tuple[int, ...], is_complex: bool) -> np.ndarray:
    rng = np.random.default_rng(seed)
    array = rng.normal(size=dims)
    return array + 1j * rng.normal(size=dims) if is_complex else array


def adjoint(array: np.ndarray) -> np.ndarray:
    return np.swapaxes(array, -1, -2).conj()


def test_potrf_says_which_minor_failed_and_leaves_the_other_triangle() -> None:
    matrix = np.array([[4.0, 7.0, 7.0], [2.0, 1.0, 7.0], [1.0, 1.0, 1.0]])
    factor, info = linalg.cholesky_in_place(matrix, lower=True)
    assert info.tolist() == 2  # 1 - (2/2)**2 = 0 is not positive
    assert factor[0].tolist() == [2, 7, 7]
    factor, info = linalg.cholesky_in_place(np.eye(2) * 4 + np.tril([[0, 0], [9, 0]]), lower=False)
    assert info == 0
    assert factor.tolist() == [[2, 0], [9, 2]]


@given(seeds, st.integers(1, 5), st.data(), st.booleans(), st.booleans())
def test_potrf_of_one_matrix_does_not_depend_on_the_others(seed, size, data, lower, is_complex):
    """Columns from the failed minor on are as they were."""
    x = normal(seed, (4, size, size), is_complex)
    x = x @ adjoint(x) + np.eye(size)
    failed = [data.draw(st.integers(0, size)) for _ in x]
    for matrix, order in zip(x, failed, strict=True):
        if order:
            matrix[order - 1, order - 1] = -1
    factors, info = linalg.cholesky_in_place(x, lower=lower)
    assert info.tolist() == failed
    for matrix, factor, order in zip(x, factors, failed, strict=True):
        known = order - 1 if order else size
        alone = np.linalg.cholesky(matrix[:known, :known])
        left = np.tril(factor if lower else adjoint(factor))
        np.testing.assert_allclose(left[:known, :known], alone, atol=1e-9)
        given = np.tril(matrix if lower else adjoint(matrix))
        assert (left[:, known:] == given[:, known:]).all()


@given(seeds, batches, st.integers(0, 6), st.integers(0, 6), st.booleans())
def test_lu_factors_multiply_to_the_permuted_matrix(seed, batch, rows, columns, is_complex) -> None:
    matrix = normal(seed, (*batch, rows, columns), is_complex)
    factors, pivots, info = linalg.lu(matrix)
    steps = min(rows, columns)
    assert pivots.shape == (*batch, steps)
    assert pivots.dtype == info.dtype == np.int32
    assert not info.any()
    for index in np.ndindex(*batch):
        permuted = matrix[index].copy()
        for row, pivot in enumerate(pivots[index]):
            assert row < pivot <= rows
            permuted[[row, pivot - 1]] = permuted[[pivot - 1, row]]
        lower = np.tril(factors[index], -1)[:, :steps] + np.eye(rows, steps)
        upper = np.triu(factors[index])[:steps]
        np.testing.assert_allclose(lower @ upper, permuted, atol=1e-10)
        if not is_complex:
            assert (abs(lower) <= 1).all()


def test_lu_takes_the_first_largest_pivot_and_tells_of_a_zero_one() -> None:
    factors, pivots, info = linalg.lu(np.array([[0.0, 1.0], [0.0, 2.0]]))
    assert info == 1
    assert pivots.tolist() == [1, 2]
    _, pivots, info = linalg.lu(np.array([[1.0, 1.0], [-1.0, 3.0]]))
    assert pivots.tolist() == [1, 2]
    assert info == 0
    assert factors.tolist() == [[0, 1], [0, 2]]


@given(seeds, batches, st.integers(0, 6), st.integers(0, 6), st.booleans())
def test_qr_factors_multiply_to_the_matrix(seed, batch, rows, columns, is_complex) -> None:
    matrix = normal(seed, (*batch, rows, columns), is_complex)
    reflectors, taus = linalg.qr_raw(matrix)
    steps = min(rows, columns)
    assert reflectors.shape == matrix.shape
    assert taus.shape == (*batch, steps)
    q = linalg.householder_product(reflectors[..., :steps], taus)
    r = np.triu(reflectors)[..., :steps, :]
    np.testing.assert_allclose(q @ r, matrix, atol=1e-10)
    np.testing.assert_allclose(
        adjoint(q) @ q, np.broadcast_to(np.eye(steps), (*batch, steps, steps)), atol=1e-10
    )


def test_householder_product_is_the_product_of_its_reflections(rng) -> None:
    """Each H = 1 - tau v vᴴ multiplied out, with fewer taus than columns."""
    reflectors = rng.normal(size=(5, 4)) + 1j * rng.normal(size=(5, 4))
    taus = rng.normal(size=3) + 1j * rng.normal(size=3)
    product = np.eye(5, dtype=complex)
    for step in range(3):
        vector = np.concatenate([np.zeros(step), [1], reflectors[step + 1 :, step]])
        product = product @ (np.eye(5) - taus[step] * np.outer(vector, vector.conj()))
    found = linalg.householder_product(reflectors, taus)
    np.testing.assert_allclose(found, product[:, :4], atol=1e-10)


@given(seeds, batches, st.integers(0, 5), st.booleans(), st.booleans())
def test_eigenvectors_diagonalise(seed, batch, size, lower, is_complex) -> None:
    matrix = normal(seed, (*batch, size, size), is_complex)
    matrix = matrix + adjoint(matrix)
    garbage = np.tril(matrix) if lower else np.triu(matrix)
    vectors, values, info = linalg.eigh(garbage, lower=lower)
    assert not info.any()
    assert (np.diff(values, axis=-1) >= 0).all()
    np.testing.assert_allclose(matrix @ vectors, vectors * values[..., None, :], atol=1e-9)


@given(seeds, batches, st.integers(1, 5), st.integers(1, 5), st.booleans(), st.booleans())
def test_singular_vectors_multiply_to_the_matrix(
    seed, batch, rows, columns, full, is_complex
) -> None:
    matrix = normal(seed, (*batch, rows, columns), is_complex)
    values, left, right, info = linalg.svd(matrix, full_matrices=full)
    steps = min(rows, columns)
    assert not info.any()
    assert left.shape == (*batch, rows, rows if full else steps)
    assert right.shape == (*batch, columns if full else steps, columns)
    product = (left[..., :steps] * values[..., None, :]) @ right[..., :steps, :]
    np.testing.assert_allclose(product, matrix, atol=1e-9)


def test_nan_does_not_stop_the_iterations() -> None:
    """LAPACK's failure is an info that is not 0, and NaN; never an exception."""
    matrices = np.stack([np.eye(2), np.full((2, 2), np.nan)])
    vectors, values, _ = linalg.eigh(matrices, lower=True)
    assert values[0].tolist() == [1, 1]
    assert not np.isfinite(values[1]).any()
    assert vectors.shape == (2, 2, 2)
    singular, *_ = linalg.svd(matrices, full_matrices=True)
    assert singular[0].tolist() == [1, 1]
    assert not np.isfinite(singular[1]).any()


@given(seeds, batches, st.integers(1, 6), st.booleans())
def test_a_hessenberg_form_is_similar_to_its_matrix(seed, batch, size, is_complex) -> None:
    matrix = normal(seed, (*batch, size, size), is_complex)
    packed, taus = reflectors.hessenberg(matrix)
    assert taus.shape == (*batch, size - 1)
    q = np.broadcast_to(np.eye(size, dtype=matrix.dtype), matrix.shape).copy()
    q[..., 1:, 1:] = linalg.householder_product(packed[..., 1:, :-1], taus)
    form = np.triu(packed, -1)
    np.testing.assert_allclose(q @ form @ adjoint(q), matrix, atol=1e-10)
    np.testing.assert_allclose(q @ adjoint(q), np.broadcast_to(np.eye(size), q.shape), atol=1e-10)


@given(seeds, batches, st.integers(1, 6), st.booleans(), st.booleans())
def test_a_tridiagonal_form_is_similar_to_its_matrix(seed, batch, size, lower, is_complex) -> None:
    """Only one triangle is read, and the other stays what it was."""
    matrix = normal(seed, (*batch, size, size), is_complex)
    matrix = matrix + adjoint(matrix)
    garbage = (np.tril if lower else np.triu)(matrix) + (np.triu if lower else np.tril)(
        np.full_like(matrix, 7), 1 if lower else -1
    )
    packed, diagonal, beside, taus = reflectors.tridiagonal_form(garbage, lower=lower)
    other = (np.triu if lower else np.tril)(packed, 1 if lower else -1)
    assert (other == (np.triu if lower else np.tril)(garbage, 1 if lower else -1)).all()
    q = np.broadcast_to(np.eye(size, dtype=matrix.dtype), matrix.shape).copy()
    if lower:
        q[..., 1:, 1:] = linalg.householder_product(packed[..., 1:, :-1], taus)
    else:
        turned = packed[..., ::-1, ::-1][..., 1:, :-1]
        q[..., 1:, 1:] = linalg.householder_product(turned, taus[..., ::-1])
        q = q[..., ::-1, ::-1]
    place, form = np.arange(size), np.zeros_like(matrix)
    form[..., place, place] = diagonal
    form[..., place[1:], place[:-1]] = form[..., place[:-1], place[1:]] = beside
    np.testing.assert_allclose(q @ form @ adjoint(q), matrix, atol=1e-9)
    stored = packed[..., place[1:], place[:-1]] if lower else packed[..., place[:-1], place[1:]]
    np.testing.assert_array_equal(stored, beside)


@given(
    seeds, batches, st.integers(0, 5), st.integers(1, 5), st.lists(st.integers(0, 1)), st.booleans()
)
def test_pivoted_qr_takes_the_largest_column_next(
    seed, batch, rows, columns, fixed, is_complex
) -> None:
    """But columns that are to come first do, in the order they had."""
    matrix = normal(seed, (*batch, rows, columns), is_complex)
    wanted = np.resize(np.array([*fixed, 0], np.int32), columns)
    packed, order, taus = reflectors.qr_pivoted(matrix, np.broadcast_to(wanted, (*batch, columns)))
    steps, held = min(rows, columns), int((wanted != 0).sum())
    q = linalg.householder_product(packed[..., :steps], taus)
    r = np.triu(packed)[..., :steps, :]
    chosen = np.take_along_axis(matrix, order[..., None, :] - 1, axis=-1)
    np.testing.assert_allclose(q @ r, chosen, atol=1e-10)
    first = np.flatnonzero(wanted) + 1
    assert (order[..., :held] == first).all()
    for step in range(held, steps):
        rests = (np.abs(r[..., step:, step:]) ** 2).sum(axis=-2)
        assert (rests[..., :1] >= rests - 1e-9).all()


@given(seeds, batches, st.tuples(st.booleans(), st.booleans(), st.booleans()))
def test_reflections_are_applied_from_either_side(seed, batch, flags) -> None:
    left, adjoint_, is_complex = flags
    packed, taus = linalg.qr_raw(normal(seed, (*batch, 5, 3), is_complex))
    whole = np.concatenate([packed, np.zeros_like(packed[..., :2])], axis=-1)
    q = linalg.householder_product(whole, taus)
    q = adjoint(q) if adjoint_ else q
    matrix = normal(seed + 1, (*batch, 5, 4) if left else (*batch, 4, 5), is_complex)
    found = reflectors.apply_reflections(packed, taus, matrix, left=left, adjoint=adjoint_)
    np.testing.assert_allclose(found, q @ matrix if left else matrix @ q, atol=1e-10)


@given(seeds, batches, st.integers(1, 6), st.integers(0, 3), st.booleans())
def test_tridiagonal_systems_are_solved(seed, batch, size, columns, is_complex) -> None:
    """Pivoting keeps small diagonals harmless; what stands outside of the matrix does not count."""
    low, diagonal, up = (normal(seed + k, (*batch, size), is_complex) for k in range(3))
    diagonal[..., 0] *= 1e-14
    right = normal(seed + 3, (*batch, size, columns), is_complex)
    *_, found, info = linalg.tridiagonal_solve(low, diagonal, up, right)
    matrix = np.zeros((*batch, size, size), low.dtype)
    place = np.arange(size)
    matrix[..., place, place] = diagonal
    matrix[..., place[1:], place[:-1]] = low[..., 1:]
    matrix[..., place[:-1], place[1:]] = up[..., :-1]
    assert not info.any()
    exact = np.linalg.solve(matrix, right)
    np.testing.assert_allclose(found, exact, rtol=1e-6, atol=1e-8 * (1 + abs(exact).max(initial=0)))


def test_a_singular_tridiagonal_matrix_is_told() -> None:
    """By the number of the first zero on the diagonal."""
    zero, ones = np.zeros(3), np.ones(3)
    *_, info = linalg.tridiagonal_solve(zero, np.array([1.0, 0.0, 1.0]), zero, np.ones((3, 1)))
    assert info == 2
    *_, info = linalg.tridiagonal_solve(
        np.array([9.0, 1.0, 1.0]), ones * 0, ones * 0, np.ones((3, 1))
    )
    assert info == 3


@given(seeds, batches, st.integers(1, 5), st.booleans())
def test_eigenvectors_keep_their_direction(seed, batch, size, is_complex) -> None:
    """Length 1, whatever the matrix is; NaN is told by info."""
    matrix = normal(seed, (*batch, size, size), is_complex)
    values, vectors, info = linalg.eig(matrix)
    assert not info.any()
    np.testing.assert_allclose(matrix @ vectors, vectors * values[..., None, :], atol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=-2), 1, atol=1e-12)
    matrix[...] = np.nan
    values, vectors, info = linalg.eig(matrix)
    assert (info == 1).all()
    assert np.isnan(values).all()


def test_a_stack_is_one_call_of_numpy(monkeypatch) -> None:
    """Each matrix in its own call costs more than its factors do, where it is small."""
    matrices = normal(0, (4, 3, 3, 3), False)
    for name, factor in {
        "eigh": lambda: linalg.eigh(matrices, lower=True),
        "eig": lambda: linalg.eig(matrices),
        "svd": lambda: linalg.svd(matrices, full_matrices=True),
        "cholesky": lambda: linalg.cholesky(matrices @ adjoint(matrices) + np.eye(3), lower=True),
    }.items():
        calls, numpy_factor = [], getattr(np.linalg, name)

        def counted(*given, calls=calls, numpy_factor=numpy_factor):
            calls.append(given[0].shape)
            return numpy_factor(*given)

        monkeypatch.setattr(np.linalg, name, counted)
        factor()
        assert calls == [matrices.shape], name


def test_one_matrix_without_eigenvalues_leaves_those_of_the_others() -> None:
    """Real matrices, all of whose eigenvalues may be real or not, beside one that is not finite."""
    matrices = np.stack([np.diag([3.0, 1.0]), np.full((2, 2), np.inf), [[0.0, 1.0], [-1.0, 0.0]]])
    values, vectors, info = linalg.eig(matrices)
    assert info.tolist() == [0, 1, 0]
    assert values.dtype == vectors.dtype == np.complex128
    assert values[0].tolist() == [3, 1]
    assert np.isnan(values[1]).all()
    assert np.isnan(vectors[1]).all()
    assert sorted(values[2].imag) == [-1, 1]


@given(seeds, st.booleans(), st.booleans())
def test_potrf_keeps_the_bits_of_what_it_does_not_read(seed, lower, is_complex) -> None:
    """Zeros of either sign, infinities and NaN stand in the other triangle."""
    x = normal(seed, (3, 4, 4), is_complex)
    x = x @ adjoint(x) + np.eye(4)
    other = np.triu(np.ones((4, 4), bool), 1) if lower else np.tril(np.ones((4, 4), bool), -1)
    x[:, other] = np.array([-0.0, np.nan, np.inf, 0.0, -np.inf, 1.0])
    factors, info = linalg.cholesky_in_place(x, lower=lower)
    assert not info.any()
    assert factors[:, other].tobytes() == x[:, other].tobytes()
