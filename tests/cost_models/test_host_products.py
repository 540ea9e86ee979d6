"""Products and short rows on a core of the host: what loops of few elements cost there."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.cost_models.host import measured
from hloopt.cost_models.predictor import Prediction, Predictor
from hloopt.cost_models.registry import DEFAULT, find_model, model_for
from hloopt.targets import find_target

COSTS = measured("products")


def predicted(
    m: int, k: int, n: int, *, batch: str = "", dtype: str = "f32", model: str = DEFAULT
) -> Prediction:
    """Of a product of m x k and k x n, on the host."""
    at = 1 if batch else 0
    dims = "lhs_batch_dims={0}, rhs_batch_dims={0}, " if batch else ""
    return priced(
        f"""HloModule product
ENTRY main {{
  a = {dtype}[{batch}{m},{k}] parameter(0)
  b = {dtype}[{batch}{k},{n}] parameter(1)
  ROOT r = {dtype}[{batch}{m},{n}] dot(a, b), {dims}lhs_contracting_dims={{{at + 1}}}, rhs_contracting_dims={{{at}}}
}}""",
        model,
    )


def priced(text: str, model: str = DEFAULT) -> Prediction:
    """Of a module's last instruction, on the host."""
    target = find_target("host")
    found = model_for(DEFAULT, target) if model == DEFAULT else find_model(model)(target)
    return Predictor(found).predict(hloopt.parse(text).entry.root)


def test_a_thin_product_costs_a_little_for_each_result_and_row() -> None:
    """16 MB are read and 4 MB written at 20 GB/s, which takes longer than the arithmetic of 8 Mflop."""
    found = predicted(1_000_000, 4, 1)
    moved = (20e6 + 16) / 20
    assert found.by == "host-products"
    expected = moved + 1e6 * COSTS["result_ns"] + 1e6 * COSTS["row_ns"]
    assert found.seconds * 1e9 == pytest.approx(expected, rel=1e-3)


def test_a_short_side_gets_a_part_of_the_peak() -> None:
    """The same flops take five times as long with two columns as with 256."""
    thin, wide = predicted(65536, 512, 2), predicted(512, 512, 256)
    share = COSTS["of_peak"]["256"] / COSTS["of_peak"]["2"]
    assert thin.compute_seconds / wide.compute_seconds == pytest.approx(share, rel=1e-3)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_narrow_floats_are_converted(dtype: str) -> None:
    """Of many results and few factors, nearly all of it is the rounding of results."""
    found = predicted(2048, 2, 512, dtype=dtype)
    added = found.seconds - predicted(2048, 2, 512).seconds
    converted = 2048 * 512e-9 * COSTS["narrowed_ns"][dtype]
    assert converted * 0.8 < added < converted * 1.1


def test_a_factor_with_rows_apart_is_copied() -> None:
    """``einsum('ij,bjk->bik')`` contracts the dimension between the two that stay."""
    text = """HloModule product
ENTRY main {{
  p = f32[65536,{sizes}] parameter(0)
  f = f32[4,4] parameter(1)
  ROOT r = f32[65536,8,4] dot(p, f), lhs_contracting_dims={{{at}}}, rhs_contracting_dims={{1}}
}}"""
    apart = priced(text.format(sizes="4,8", at=1)).seconds
    beside = priced(text.format(sizes="8,4", at=2)).seconds
    copied = 65536 * 32e-9 * COSTS["reordered_ns"]
    assert apart - beside == pytest.approx(copied, rel=1e-3)


def test_others_take_the_roofline() -> None:
    """Integers have no BLAS, and the roofline stays what it is."""
    assert predicted(100_000, 64, 4, dtype="s32").by == "roofline"
    assert predicted(100_000, 64, 4, model="roofline").by == "roofline"


def rows(size: int, *, op: str = "tanh", broadcast: bool = True) -> float:
    """Seconds of an op on 786,432 elements in rows of so many, with a row added before or without."""
    shape = f"f32[{786432 // size},{size}]"
    inner = f"  b = {shape} broadcast(v), dimensions={{1}}\n  a = {shape} add(x, b)\n"
    return priced(
        f"""HloModule rows
f {{
  x = {shape} parameter(0)
  v = f32[{size}] parameter(1)
{inner if broadcast else f"  a = {shape} add(x, x)"}
  ROOT t = {shape} {op}(a)
}}
ENTRY main {{
  x = {shape} parameter(0)
  v = f32[{size}] parameter(1)
  ROOT r = {shape} fusion(x, v), kind=kLoop, calls=f
}}"""
    ).compute_seconds


def test_short_rows_leave_vectors_idle() -> None:
    """In functions, where a row is added; the elements of one array are one loop, however long its rows are."""
    assert rows(3) / rows(256) == pytest.approx(measured("short_rows")["3"], rel=0.05)
    assert rows(3, op="negate") == pytest.approx(rows(256, op="negate"), rel=0.01)
    assert rows(3, broadcast=False) == pytest.approx(rows(256, broadcast=False), rel=0.01)


def columns(count: int) -> float:
    """Seconds of the arithmetic of a product with so many columns, as multiply and sum."""
    shape = f"f32[4096,512,{count}]"
    return priced(
        f"""HloModule columns
add {{
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT s = f32[] add(p, q)
}}
f {{
  a = f32[4096,512] parameter(0)
  w = f32[512,{count}] parameter(1)
  b = {shape} broadcast(a), dimensions={{0,1}}
  c = {shape} broadcast(w), dimensions={{1,2}}
  m = {shape} multiply(b, c)
  z = f32[] constant(0)
  ROOT r = f32[4096,{count}] reduce(m, z), dimensions={{1}}, to_apply=add
}}
ENTRY main {{
  a = f32[4096,512] parameter(0)
  w = f32[512,{count}] parameter(1)
  ROOT r = f32[4096,{count}] fusion(a, w), kind=kInput, calls=f
}}"""
    ).compute_seconds


def test_narrow_columns_are_added_number_by_number() -> None:
    """32 of f32 fill the vectors that are added side by side."""
    expected = measured("kernels")["narrow_columns"] * 16 / 64
    assert columns(16) / columns(64) == pytest.approx(expected, rel=0.05)
