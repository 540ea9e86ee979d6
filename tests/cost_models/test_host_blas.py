"""Matrix products of the host's BLAS: what its copies cost where a product is too thin to compute much."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.cost_models.host import kernel_costs
from hloopt.cost_models.predictor import Prediction, Predictor
from hloopt.cost_models.registry import DEFAULT, find_model, model_for
from hloopt.targets import find_target

CACHE = kernel_costs()["l2_bytes_per_ns"]


def predicted(
    m: int, k: int, n: int, *, batch: str = "", dtype: str = "f32", model: str = DEFAULT
) -> Prediction:
    """Of a product of m x k and k x n, on the host."""
    at = 1 if batch else 0
    dims = "lhs_batch_dims={0}, rhs_batch_dims={0}, " if batch else ""
    text = f"""HloModule product
ENTRY main {{
  a = {dtype}[{batch}{m},{k}] parameter(0)
  b = {dtype}[{batch}{k},{n}] parameter(1)
  ROOT r = {dtype}[{batch}{m},{n}] dot(a, b), {dims}lhs_contracting_dims={{{at + 1}}}, rhs_contracting_dims={{{at}}}
}}"""
    target = find_target("host")
    found = model_for(DEFAULT, target) if model == DEFAULT else find_model(model)(target)
    return Predictor(found).predict(hloopt.parse(text).entry.root)


def test_a_thin_product_moves_its_bytes_three_times() -> None:
    """12 MB are read and 12 MB written at 20 GB/s; the first are copied in the cache, the result passed twice."""
    found = predicted(1_000_000, 3, 3)
    read, panels, written = 12e6 + 36, 2 * (12e6 + 36) / CACHE, 12e6
    assert found.by == "blas"
    assert found.seconds * 1e9 == pytest.approx((read + 3 * written) / 20 + panels, rel=1e-3)


def test_a_result_that_fits_in_the_cache_is_passed_over_there() -> None:
    """8 kB of it, beside a matrix of 4 MB that is read and copied."""
    found = predicted(1000, 1000, 2)
    given, made = 4 * (1_000_000 + 2000), 8000
    expected = (given + made) / 20 + 2 * (given + made) / CACHE
    assert found.seconds * 1e9 == pytest.approx(expected, rel=1e-3)


def test_others_take_the_roofline() -> None:
    """Vectors are not copied; full tiles, small products, several side by side and integers are not BLAS's."""
    found = (
        predicted(100_000, 64, 1),
        predicted(1, 64, 100_000),
        predicted(512, 512, 512),
        predicted(48, 576, 4),
        predicted(1000, 64, 4, batch="8,"),
        predicted(100_000, 64, 4, dtype="s32"),
    )
    assert [one.by for one in found] == ["roofline"] * 6
    assert predicted(48, 577, 4).by == "blas"
