"""Products of matrices with vectors, and products of small matrices."""

from __future__ import annotations

import pytest

from hloopt.errors import UsageError
from tests.codegen.harness import check_kernel, planned
from tests.codegen.products import matrix_dot, module_of, random_dot
from tests.helpers.kernel_code import KernelCode

TYPES = [
    (kind, kind, kind) for kind in ("f32", "f64", "bf16", "s8", "u64", "c64", "c128", "pred")
] + [("f8e5m2", "f16", "f32"), ("s4", "s4", "s32")]


@pytest.mark.parametrize(("kernel", "m"), [("dot-matrix-vector", 1), ("dot-small", 7)])
def test_every_element_type(kernel: str, m: int) -> None:
    """Products of every type, with rows and with columns of the matrix next to each other."""
    dots = [matrix_dot(kinds, m, 40, 24) for kinds in TYPES]
    dots += [matrix_dot(kinds, 24, 40, m) for kinds in TYPES[: 10 * (m == 1)]]
    check_kernel(module_of(dots), kernel)


def test_rows_and_columns_of_any_length() -> None:
    """Rows shared by a warp, by several, longer and shorter than a vector; columns with few and many rows."""
    sizes = [(1, 300, 70), (70, 301, 1), (1, 5000, 3), (40, 64, 1), (1, 33, 1), (2, 9000, 1)]
    text = module_of([matrix_dot(("f32", "f32", "f32"), *size) for size in sizes])
    check_kernel(text, "dot-matrix-vector", twice=False, everywhere=False)


@pytest.mark.parametrize("kernel", ["dot-matrix-vector", "dot-small"])
def test_any_dimension_numbers(kernel: str) -> None:
    """Batch, contracted and free dimensions stand in any order."""
    dots = [random_dot(50 + number, most=20) for number in range(16)]
    check_kernel(module_of(dots), kernel, twice=False, everywhere=False)


def test_several_products_a_block() -> None:
    """A block that computes several small products leaves out those past the last, and adds up slices."""
    attributes = (
        "lhs_batch_dims={0}, rhs_batch_dims={2}, lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    )
    many = (f"f32[31,5,7] dot(%0, %1), {attributes}", ["f32[31,11,5]", "f32[11,7,31]"])
    program = check_kernel(module_of([many]), "dot-small", {"batches": 3, "k": 4, "slices": 2})
    assert KernelCode.of(program).named("first_b")
    tile = {"batches": 1, "k": 11, "slices": 1}
    check_kernel(module_of([many]), "dot-small", tile, twice=False, everywhere=False)


SOFT = """HloModule fused

f {
  w = f32[48,64] parameter(0)
  x = f32[64] parameter(1)
  b = f32[48] parameter(2)
  e = f32[64] exponential(x)
  product = f32[48] dot(w, e), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  sum = f32[48] add(product, b)
  shaped = f32[6,8] reshape(sum)
  ROOT out = f16[6,8] convert(shaped)
}

ENTRY main {
  w = f32[48,64] parameter(0)
  x = f32[64] parameter(1)
  b = f32[48] parameter(2)
  ROOT r = f16[6,8] fusion(w, x, b), kind=kInput, calls=f
}
"""


@pytest.mark.parametrize("kernel", ["dot-matrix-vector", "dot-small"])
def test_prologue_and_epilogue(kernel: str) -> None:
    """Ops around the product are computed with it."""
    assert not KernelCode.of(check_kernel(SOFT, kernel)).named("product_sum")


def test_tiles_that_cannot_be() -> None:
    """A tile that cannot be is a usage error that says what would do."""
    text = module_of([matrix_dot(("f32", "f32", "f32"), 1, 48, 24)])
    for kernel, tile, message in (
        ("dot-matrix-vector", {"rows": 32, "threads_k": 1, "vector": 3}, "8 divides m=24"),
        ("dot-matrix-vector", {"rows": 48, "threads_k": 1, "vector": 1}, r"32 \* vector = 32"),
        ("dot-matrix-vector", {"rows": 64, "threads_k": 64, "vector": 1}, "4096 threads"),
        ("dot-small", {"batches": 1, "k": 48, "slices": 64}, "1536 threads"),
        ("dot-small", {"batches": 1, "k": 500, "slices": 2}, "make k or batches smaller"),
    ):
        with pytest.raises(UsageError, match=message):
            planned(text, kernel, tile)
