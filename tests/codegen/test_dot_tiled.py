"""Matrix products by tiles, and by tiles of a contracted axis cut into parts."""

from __future__ import annotations

import pytest

from hloopt.analysis.region import region_of
from hloopt.backends.nvrtc import compile_ptx
from hloopt.codegen.program import kernel_steps
from hloopt.errors import DeviceError, UsageError
from hloopt.kernels.kernel import Site
from hloopt.kernels.limits import Limits
from hloopt.kernels.registry import find_kernel
from hloopt.targets import find_target
from tests.codegen.harness import check_kernel, planned
from tests.codegen.products import matrix_dot, module_of, random_dot
from tests.helpers.kernel_code import KernelCode

TYPES = [
    ("f32", "f32", "f32"),
    ("f64", "f64", "f64"),
    ("f16", "f16", "f16"),
    ("bf16", "bf16", "f32"),
    ("f32", "f32", "bf16"),
    ("f8e4m3fn", "f8e5m2", "bf16"),
    ("s8", "s8", "s32"),
    ("s4", "u8", "s32"),
    ("s8", "s8", "s8"),
    ("s64", "s64", "s64"),
    ("u16", "u16", "u32"),
    ("c64", "c64", "c64"),
    ("f64", "c128", "c128"),
    ("pred", "pred", "pred"),
]


@pytest.mark.parametrize("kernel", ["dot-tiled", "dot-split-k"])
def test_every_element_type(kernel: str) -> None:
    """Products of every type are rounded as the interpreter rounds them, whatever the operands' types."""
    text = module_of([matrix_dot(kinds, 20, 27, 18) for kinds in TYPES])
    first = kernel == "dot-tiled"
    check_kernel(text, kernel, twice=first, everywhere=first)


@pytest.mark.parametrize("first", [0, pytest.param(8, marks=pytest.mark.slow)])
def test_any_dimension_numbers(first: int) -> None:
    """Batch, contracted and free dimensions stand in any order on both sides."""
    dots = [random_dot(number, most=19) for number in range(first, first + 8)]
    check_kernel(module_of(dots), "dot-tiled", twice=False, everywhere=False)


def test_sizes_around_tiles() -> None:
    """Sizes at, below and above multiples of the tile give every result once and read nothing outside."""
    sizes = [(31, 16, 33), (32, 15, 32), (33, 17, 31), (1, 40, 64), (64, 1, 1), (65, 33, 130)]
    text = module_of([matrix_dot(("f32", "f32", "f32"), *size) for size in sizes])
    tile = {"m": 32, "n": 64, "k": 8, "thread_m": 4, "thread_n": 4, "vector": 4}
    check_kernel(text, "dot-tiled", {**tile, "prefetch": 0}, everywhere=False)
    cut = {**tile, "prefetch": 1, "split": 3}
    check_kernel(text, "dot-split-k", cut, twice=False, everywhere=False)


def test_large_tiles() -> None:
    """The largest default tiles need no more registers than a thread has."""
    shapes = [(200, 24, 256)]
    text = module_of([matrix_dot(("f32", "f32", "f32"), *size) for size in shapes])
    tile = {"m": 128, "n": 128, "k": 16, "thread_m": 8, "thread_n": 8, "vector": 4, "prefetch": 1}
    check_kernel(text, "dot-tiled", tile)


def test_large_tiles_move_by_vectors() -> None:
    """Factors come out of shared memory four at once, and partial sums go to memory so."""
    text = module_of([matrix_dot(("f32", "f32", "f32"), 128, 96, 128)])
    tile = {"m": 128, "n": 128, "k": 16, "thread_m": 8, "thread_n": 8, "vector": 4, "prefetch": 1}
    program = planned(text, "dot-split-k", {**tile, "split": 2})[2]
    assert "scratch_0" in KernelCode.of(program).addresses("store_vector")
    source = program.text
    try:
        ptx = compile_ptx(source, "sm_90")
    except DeviceError as error:
        pytest.skip(str(error))
    partial = ptx[ptx.index("_partial(") : ptx.index("_sum(")]
    assert "ld.shared.v4.f32" in partial
    assert "ld.shared.f32" not in partial


FUSED = """HloModule fused

gelu {
  x = bf16[24,40] parameter(0)
  w = bf16[36,40] parameter(1)
  b = f32[36] parameter(2)
  shifted = f32[24,40] convert(x)
  scale = f32[] constant(0.5)
  scales = f32[24,40] broadcast(scale), dimensions={}
  scaled = f32[24,40] multiply(shifted, scales)
  turned = bf16[40,36] transpose(w), dimensions={1,0}
  wide = f32[40,36] convert(turned)
  product = f32[24,36] dot(scaled, wide), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  bias = f32[24,36] broadcast(b), dimensions={1}
  sum = f32[24,36] add(product, bias)
  gate = f32[24,36] logistic(sum)
  active = f32[24,36] multiply(sum, gate)
  narrow = bf16[24,36] convert(active)
  split = bf16[4,6,36] reshape(narrow)
  across = bf16[36,4,6] transpose(split), dimensions={2,0,1}
  ROOT both = (bf16[36,4,6], f32[24,36]) tuple(across, sum)
}

ENTRY main {
  x = bf16[24,40] parameter(0)
  w = bf16[36,40] parameter(1)
  b = f32[36] parameter(2)
  ROOT f = (bf16[36,4,6], f32[24,36]) fusion(x, w, b), kind=kCustom, calls=gelu
}
"""


@pytest.mark.parametrize("kernel", ["dot-tiled", "dot-split-k"])
def test_prologue_and_epilogue(kernel: str) -> None:
    """What stands before a dot is computed as its operands are read, what stands behind it as it is stored."""
    code = KernelCode.of(check_kernel(FUSED, kernel))
    assert not code.named("product_sum"), "the dot is not computed a second time"


SCALED = [
    (
        "f32[12,20] scaled-dot(%0, %1, %2, %3), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        ["f8e4m3fn[12,64]", "f8e5m2[64,20]", "f8e8m0fnu[12,2]", "f8e8m0fnu[4,20]"],
    ),
    (
        'bf16[3,12,20] custom-call(%0, %1, %2, %3, %4), custom_call_target="__op$block_scaled_dot"',
        [
            "f8e4m3fn[3,12,64]",
            "f8e4m3fn[3,20,64]",
            "f8e8m0fnu[3,12,2]",
            "f8e8m0fnu[3,32,4]",
            "f32[]",
        ],
    ),
]


@pytest.mark.parametrize("kernel", ["dot-tiled", "dot-small"])
def test_scaled_blocks(kernel: str) -> None:
    """Each element is multiplied by the scale of its block, also where there are more scales than blocks."""
    check_kernel(module_of(SCALED), kernel, everywhere=False)


LAYOUTS = """HloModule layouts

f {
  a = f32[12,50]{0,1} parameter(0)
  b = f32[50,36]{1,0} parameter(1)
  product = f32[12,36]{0,1} dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  turned = f32[36,12]{1,0} bitcast(product)
  ROOT r = f32[36,3,4]{2,1,0} reshape(turned)
}

ENTRY main {
  a = f32[12,50]{0,1} parameter(0)
  b = f32[50,36]{1,0} parameter(1)
  ROOT r = f32[36,3,4]{2,1,0} fusion(a, b), kind=kCustom, calls=f
}
"""


def test_layouts() -> None:
    """Operands, the product and what stands behind it are where their layouts put them."""
    code = KernelCode.of(check_kernel(LAYOUTS, "dot-tiled", everywhere=False))
    assert not code.named("product_sum"), "the dot is not computed a second time"


IN_PLACE = """HloModule accumulated

f {
  x = f32[40,24] parameter(0)
  w = f32[24,33] parameter(1)
  c = f32[40,33] parameter(2)
  product = f32[40,33] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT sum = f32[40,33] add(product, c)
}

ENTRY main {
  x = f32[40,24] parameter(0)
  w = f32[24,33] parameter(1)
  p = f32[40,33] parameter(2)
  c = f32[40,33] exponential(p)
  ROOT f = f32[40,33] fusion(x, w, c), kind=kLoop, calls=f
}
"""


@pytest.mark.parametrize("kernel", ["dot-tiled", "dot-split-k", "dot-small"])
def test_what_is_added_may_be_overwritten(kernel: str) -> None:
    """What is added to a product at its own place may lie where the sum goes; its operands may not."""
    text = IN_PLACE if kernel != "dot-small" else IN_PLACE.replace("33", "7").replace("40", "9")
    tile = {"split": 3} if kernel == "dot-split-k" else None
    _, plan, _ = planned(text, kernel, tile)
    (step,) = [step for step in kernel_steps(plan.steps) if step.spec.kernel == kernel]
    assert step.spec.overwrites == ((2, 0),)
    check_kernel(text, kernel, tile, twice=False, everywhere=False)


def _verdict(text: str, kernel: str) -> str:
    module, _, _ = planned(text)
    root = module.entry.root
    site = Site(region_of(root), find_target("h200"), Limits())
    verdict = find_kernel(kernel).fits(site)
    return "" if verdict else verdict.reason


def test_refusals_name_the_op() -> None:
    """Two dots, results in several places and reductions of the product are refused by name."""
    head = "HloModule m\nf {\n  a = f32[8,8] parameter(0)\n"
    dot = "dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    tail = "}\nENTRY e {\n  a = f32[8,8] parameter(0)\n  ROOT r = %s fusion(a), kind=kLoop, calls=f\n}\n"
    square = tail % "f32[8,8]"
    two = (
        f"{head}  d = f32[8,8] {dot}\n  g = f32[8,8] {dot}\n  ROOT s = f32[8,8] add(d, g)\n{square}"
    )
    assert _verdict(two, "dot-tiled") == "there are 2 dots and convolutions instead of one"
    turned = (
        f"{head}  d = f32[8,8] {dot}\n  t = f32[8,8] transpose(d), dimensions={{1,0}}\n"
        f"  ROOT s = f32[8,8] add(d, t)\n{square}"
    )
    assert _verdict(turned, "dot-tiled") == "s takes elements of d from several places"
    part = f"{head}  d = f32[8,8] {dot}\n  ROOT s = f32[4,8] slice(d), slice={{[0:4],[0:8]}}\n"
    reason = _verdict(part + tail % "f32[4,8]", "dot-tiled")
    assert reason == "slice s behind d moves no element to one place"


def test_tiles_that_cannot_be() -> None:
    """A tile that cannot be is a usage error that says what would do."""
    text = module_of([matrix_dot(("f32", "f32", "f32"), 64, 64, 64)])
    tile = {"m": 64, "n": 64, "k": 16, "thread_m": 4, "thread_n": 4, "vector": 4, "prefetch": 0}
    for change, message in (
        ({"thread_m": 5}, "m=64 is not a multiple of thread_m=5"),
        ({"thread_m": 1, "thread_n": 1}, "4096 threads"),
        ({"k": 512}, "shared memory has 49152"),
        ({"vector": 3}, "it is 1, 2, 4, 8 or 16"),
        ({"k": 0}, "k=0; it must be at least 1"),
    ):
        with pytest.raises(UsageError, match=message):
            planned(text, "dot-tiled", {**tile, **change})
