"""Matrix products by matrix units: every type, shape and tile, what is computed before and behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pytest

import hloopt
from hloopt.analysis.region import region_of
from hloopt.codegen.program import kernel_steps
from hloopt.errors import UsageError
from hloopt.kernels.families.dot_tiling import contraction_of
from hloopt.kernels.families.matrix_tiling import TileLayout, factors_of, shapes_of
from hloopt.kernels.kernel import Site
from hloopt.kernels.limits import Limits
from hloopt.kernels.registry import find_kernel
from hloopt.runtime.inputs import generate
from hloopt.targets import Target, find_target
from tests.codegen.harness import (
    TARGET,
    check_kernel,
    compile_everywhere,
    compile_somewhere,
    planned,
)
from tests.codegen.products import matrix_dot, module_of, random_dot
from tests.helpers.rarely import one_in

SMALL = {"m": 32, "n": 32, "k": 32, "warp_m": 16, "warp_n": 16, "stages": 3, "vector": 8}
Dot: TypeAlias = tuple[str, Sequence[str]]
DEVICES = ("sm_80", "sm_90", "sm_120")
TURING = find_target("t4")

TYPES = [
    ("bf16", "bf16", "f32"),
    ("bf16", "bf16", "bf16"),
    ("f16", "f16", "f32"),
    ("f16", "f16", "f16"),
    ("bf16", "bf16", "f16"),
    ("f8e4m3fn", "f8e5m2", "f32"),
    ("f8e4m3fn", "bf16", "bf16"),
    ("s8", "s8", "s32"),
    ("s8", "s8", "s8"),
    ("s4", "s8", "s32"),
]


def check(text: str, tile: Mapping[str, int] | None = None, **options: object) -> str:
    """As ``check_kernel``, compiled for a device that has such units."""
    program = check_kernel(text, "dot-mma", tile, everywhere=False, **options)  # type: ignore[arg-type]
    compile_somewhere(program.text, DEVICES)
    return program.text


def test_every_element_type() -> None:
    """Products of every type that matrix units multiply exactly."""
    text = check(module_of([matrix_dot(kinds, 20, 48, 18) for kinds in TYPES]), SMALL)
    for name in ("m16n8k16_bf16", "m16n8k16_f16", "m16n8k32_s8"):
        assert f"multiply_{name}(" in text


ROUNDED_TO = ["dot_tf32_tf32_f32", "dot_bf16_bf16_f32_x3", "dot_bf16_bf16_f32"]
F32 = ("f32", "f32", "f32")


def of_algorithm(dots: Sequence[Dot], algorithm: str) -> str:
    """A module of dots that name an algorithm."""
    return module_of([(f"{text}, algorithm={algorithm}", operands) for text, operands in dots])


@pytest.mark.parametrize("algorithm", one_in(2, ROUNDED_TO))
def test_f32_by_the_algorithm_that_it_names(algorithm: str) -> None:
    """Rounded, or cut into terms, where that was allowed: ragged sizes, and k along any dimension."""
    ragged = [matrix_dot(F32, *size) for size in SIZES]
    drawn = [random_dot(number, F32, 24) for number in range(3)]
    text = check(of_algorithm([*ragged, *drawn], algorithm), SMALL)
    assert ("nearest_tf32(" in text) is (algorithm == "dot_tf32_tf32_f32")
    assert ("lower_pair(" in text) is (algorithm == "dot_bf16_bf16_f32_x3")


@pytest.mark.parametrize("algorithm", ["dot_tf32_tf32_f32", "dot_bf16_bf16_f32_x3"])
@pytest.mark.parametrize("turned", one_in(2, [True, False]))
def test_large_tiles_of_f32(algorithm: str, turned: bool) -> None:
    """Several matrices a warp, copied, with k along rows or columns of both operands."""
    dims = "lhs_contracting_dims={0}, rhs_contracting_dims={1}"
    dot = (f"f32[72,136] dot(%0, %1), {dims}", ["f32[104,72]", "f32[136,104]"])
    tile = {"m": 64, "n": 128, "k": 16, "warp_m": 32, "warp_n": 64, "stages": 3, "vector": 4}
    dots = [dot] if turned else [matrix_dot(F32, 72, 104, 136)]
    text = check_kernel(of_algorithm(dots, algorithm), "dot-mma", tile, everywhere=False).text
    assert text.count("copy_async<16>(&") >= 2


@pytest.mark.parametrize("algorithm", ["dot_tf32_tf32_f32", "dot_bf16_bf16_f32_x3"])
def test_special_values_of_f32(algorithm: str) -> None:
    """NaN, infinities, the largest number and denormals; nothing finite becomes infinite by being rounded."""
    text = of_algorithm([matrix_dot(F32, 12, 8, 16)], algorithm)
    largest = float(np.finfo(np.float32).max)
    values = [np.nan, np.inf, -np.inf, largest, -largest, 1e-40, 0.0, -0.0, 1.0, 3.4e38, 1 + 2**-9]
    lhs = np.zeros((12, 8), np.float32)
    lhs[np.arange(11), np.arange(11) % 8] = values
    rhs = np.zeros((8, 16), np.float32)
    rhs[:, :8] = 0.25
    rhs[:, 8:] = np.eye(8, dtype=np.float32) / 2
    check_kernel(text, "dot-mma", SMALL, inputs=[lhs, rhs], everywhere=False)


SIZES = [(1, 1, 1), (17, 64, 129), (64, 17, 1), (129, 40, 17), (31, 200, 64), (64, 64, 64)]


@pytest.mark.parametrize("kinds", [("bf16", "bf16", "f32"), ("s8", "s8", "s32")])
def test_sizes_around_tiles(kinds: tuple[str, str, str]) -> None:
    """Every result once and nothing outside, whether chunks of operands are whole or not."""
    check(module_of([matrix_dot(kinds, *size) for size in SIZES]), SMALL, twice=kinds[2] == "f32")


@pytest.mark.parametrize(
    ("kinds", "split"),
    one_in(
        3,
        [
            (("bf16", "bf16", "f32"), 7),
            (("bf16", "bf16", "f32"), 2),
            (("f16", "f16", "f16"), 2),
            (("s8", "s8", "s32"), 7),
        ],
    ),
)
def test_parts_of_the_contracted_axis(kinds: tuple[str, str, str], split: int) -> None:
    """Also such as have no elements, and the last one, which is shorter."""
    sizes = [(17, 640, 129), (1, 1000, 1), (64, 129, 17), (16, 64, 24)]
    text = module_of([matrix_dot(kinds, *size) for size in sizes])
    check_kernel(text, "dot-mma-split-k", {**SMALL, "split": split}, everywhere=False)


def test_parts_with_what_is_around_them() -> None:
    """Operands are computed for a part, what follows is computed of the sum of all."""
    check_kernel(FUSED, "dot-mma-split-k", {**SMALL, "split": 2}, everywhere=False)
    for algorithm in ROUNDED_TO[:2]:
        dots = [matrix_dot(F32, 17, 129, 40), random_dot(9, F32, 24), random_dot(11, F32, 24)]
        text = of_algorithm(dots, algorithm)
        check_kernel(text, "dot-mma-split-k", {**SMALL, "split": 3}, everywhere=False)


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(at, marks=pytest.mark.slow) for at in (4, 8, 12))]
)
def test_any_dimension_numbers(first: int) -> None:
    """Batch, contracted and free dimensions stand in any order on both sides."""
    kinds = ("bf16", "bf16", "f32")
    dots = [random_dot(number, kinds, 24) for number in range(first, first + 4)]
    check_kernel(module_of(dots), "dot-mma", SMALL, twice=False, everywhere=False)


def test_transposed_operands_of_bytes() -> None:
    """Bytes are contracted along rows in shared memory, however they lie in memory."""
    attributes = "lhs_contracting_dims={0}, rhs_contracting_dims={1}"
    dots = [
        (f"s32[40,33] dot(%0, %1), {attributes}", ["s8[64,40]", "s8[33,64]"]),
        (f"s32[16,16] dot(%0, %1), {attributes}", ["s8[7,16]", "s8[16,7]"]),
    ]
    check(module_of(dots), {**SMALL, "k": 64})


def shapes(
    kinds: tuple[str, str, str], algorithm: str = "dot_unset", target: Target = TARGET
) -> list[dict[str, int]]:
    module = hloopt.parse(of_algorithm([matrix_dot(kinds, 256, 256, 256)], algorithm))
    (dot,) = (one for one in module.entry if one.opcode == "dot")
    return tiles_of(Site(region_of(dot), target, Limits()))


def tiles_of(site: Site) -> list[dict[str, int]]:
    factors = factors_of(site.region, contraction_of(site))
    assert not isinstance(factors, str)
    return shapes_of(site, factors)


def largest_first(
    algorithms: Sequence[str], tiles: Callable[[str], Sequence[dict[str, int]]]
) -> list[pytest.ParameterSet]:
    """Of each algorithm the tile that needs most registers; the others where time does not matter."""
    return [
        pytest.param(
            algorithm,
            tile,
            marks=[pytest.mark.slow] * bool(number),
            id=f"{algorithm}{[*tile.values()]}",
        )
        for algorithm in algorithms
        for number, tile in enumerate(
            sorted(tiles(algorithm), key=lambda tile: -tile["warp_m"] * tile["warp_n"] * tile["k"])
        )
    ]


def tiles_of_narrow(kind: str) -> list[dict[str, int]]:
    return shapes((kind, kind, "f32"), target=TURING if kind == "f16" else TARGET)


LAYER = """HloModule layer

f {
  x = bf16[%(m)d,%(k)d] parameter(0)
  w = bf16[%(n)d,%(k)d] parameter(1)
  b = f32[%(n)d] parameter(2)
  r = bf16[%(m)d,%(n)d] parameter(3)
  product = f32[%(m)d,%(n)d] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  bias = f32[%(m)d,%(n)d] broadcast(b), dimensions={1}
  sum = f32[%(m)d,%(n)d] add(product, bias)
  gate = f32[%(m)d,%(n)d] logistic(sum)
  active = f32[%(m)d,%(n)d] multiply(sum, gate)
  wide = f32[%(m)d,%(n)d] convert(r)
  total = f32[%(m)d,%(n)d] add(active, wide)
  ROOT narrow = bf16[%(m)d,%(n)d] convert(total)
}

ENTRY main {
  x = bf16[%(m)d,%(k)d] parameter(0)
  w = bf16[%(n)d,%(k)d] parameter(1)
  b = f32[%(n)d] parameter(2)
  r = bf16[%(m)d,%(n)d] parameter(3)
  ROOT y = bf16[%(m)d,%(n)d] fusion(x, w, b, r), kind=kCustom, calls=f
}
"""


@pytest.mark.parametrize(("kind", "tile"), largest_first(["bf16", "f16"], tiles_of_narrow))
def test_tiles_spill_no_registers(kind: str, tile: dict[str, int]) -> None:
    """Each that may be chosen, with a bias, an activation and a residual after the product; Turing's are of f16."""
    text = LAYER.replace("bf16", kind) % {"m": 1024, "n": 512, "k": 256}
    devices = ("sm_75",) if kind == "f16" else DEVICES
    compile_somewhere(planned(text, "dot-mma", {**tile, "vector": 8})[2].text, devices)


@pytest.mark.parametrize(
    ("algorithm", "tile"), largest_first(ROUNDED_TO[:2], lambda one: shapes(F32, one))
)
def test_tiles_of_f32_spill_no_registers(algorithm: str, tile: dict[str, int]) -> None:
    """With the weights as they lie in most programs: rows of n."""
    text = LAYER.replace("w = bf16[%(n)d,%(k)d]", "w = bf16[%(k)d,%(n)d]")
    text = text.replace(
        "rhs_contracting_dims={1}", f"rhs_contracting_dims={{0}}, algorithm={algorithm}"
    )
    text = text.replace("convert(", "copy(").replace("bf16[", "f32[")
    planned_text = text % {"m": 1024, "n": 512, "k": 256}
    compile_somewhere(planned(planned_text, "dot-mma", {**tile, "vector": 4})[2].text, DEVICES)


def test_f16_of_devices_before_asynchronous_copies() -> None:
    """Turing's steps are half as deep, and it waits for what is read."""
    kinds = ("f16", "f16", "f32")
    dots = [matrix_dot(kinds, *size) for size in SIZES]
    program = check_kernel(module_of(dots), "dot-mma", {**SMALL, "halves": 1}, everywhere=False)
    assert "multiply_m16n8k8_f16(" in program.text
    compile_everywhere(program.text, ("sm_75",))
    module = hloopt.parse(module_of([matrix_dot(kinds, 512, 512, 512)]))
    (dot,) = (one for one in module.entry if one.opcode == "dot")
    site = Site(region_of(dot), TURING, Limits())
    assert find_kernel("dot-mma").fits(site)
    assert find_kernel("dot-mma").tile(site)["halves"] == 1


@pytest.mark.parametrize("number", one_in(3, [5, 0, 11]))
def test_large_tiles(number: int) -> None:
    """Tiles of several warps, of which each has several matrices, with edges."""
    tile = {**shapes(("bf16", "bf16", "f32"))[number], "vector": 8}
    sizes = {"m": tile["m"] + 1, "n": tile["n"] + 24, "k": 2 * tile["k"] + 8}
    check_kernel(LAYER % sizes, "dot-mma", tile, twice=False, everywhere=False)


FUSED = """HloModule fused

f {
  x = bf16[24,40] parameter(0)
  q = s8[36,40] parameter(1)
  s = bf16[36] parameter(2)
  b = f32[36] parameter(3)
  m = pred[24,40] parameter(4)
  zero = bf16[] constant(0)
  zeros = bf16[24,40] broadcast(zero), dimensions={}
  masked = bf16[24,40] select(m, x, zeros)
  weight = bf16[36,40] convert(q)
  scales = bf16[36,40] broadcast(s), dimensions={0}
  scaled = bf16[36,40] multiply(weight, scales)
  turned = bf16[40,36] transpose(scaled), dimensions={1,0}
  product = f32[24,36] dot(masked, turned), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  bias = f32[24,36] broadcast(b), dimensions={1}
  sum = f32[24,36] add(product, bias)
  gate = f32[24,36] tanh(sum)
  narrow = bf16[24,36] convert(gate)
  split = bf16[4,6,36] reshape(narrow)
  across = bf16[36,4,6] transpose(split), dimensions={2,0,1}
  ROOT both = (bf16[36,4,6], f32[24,36]) tuple(across, sum)
}

ENTRY main {
  x = bf16[24,40] parameter(0)
  q = s8[36,40] parameter(1)
  s = bf16[36] parameter(2)
  b = f32[36] parameter(3)
  m = pred[24,40] parameter(4)
  ROOT y = (bf16[36,4,6], f32[24,36]) fusion(x, q, s, b, m), kind=kCustom, calls=f
}
"""


def test_prologue_and_epilogue() -> None:
    """A mask and weights of bytes with scales in front, a bias and two results of other shapes behind."""
    text = check(FUSED, SMALL)
    assert text.count("multiply_m16n8k16_bf16(") == 2  # its definition, and one call
    assert "copy_async<16>(" not in text


GATED = """HloModule gated

f {
  x = bf16[%(m)d,%(k)d] parameter(0)
  g = bf16[%(k)d,%(n)d] parameter(1)
  u = s8[%(n)d,%(k)d] parameter(2)
  b = f32[%(n)d] parameter(3)
  turned = s8[%(k)d,%(n)d] transpose(u), dimensions={1,0}
  up = bf16[%(k)d,%(n)d] convert(turned)
  gate = f32[%(m)d,%(n)d] dot(x, g), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  value = f32[%(m)d,%(n)d] dot(x, up), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  bias = f32[%(m)d,%(n)d] broadcast(b), dimensions={1}
  total = f32[%(m)d,%(n)d] add(gate, bias)
  share = f32[%(m)d,%(n)d] logistic(total)
  active = f32[%(m)d,%(n)d] multiply(total, share)
  both = f32[%(m)d,%(n)d] multiply(active, value)
  narrow = bf16[%(m)d,%(n)d] convert(both)
  ROOT results = (bf16[%(m)d,%(n)d], f32[%(m)d,%(n)d]) tuple(narrow, value)
}

ENTRY main {
  x = bf16[%(m)d,%(k)d] parameter(0)
  g = bf16[%(k)d,%(n)d] parameter(1)
  u = s8[%(n)d,%(k)d] parameter(2)
  b = f32[%(n)d] parameter(3)
  ROOT y = (bf16[%(m)d,%(n)d], f32[%(m)d,%(n)d]) fusion(x, g, u, b), kind=kCustom, calls=f
}
"""


def gated(m: int, k: int, n: int, algorithm: str = "") -> str:
    """Two products of one left side; of an algorithm all are f32."""
    text = GATED % {"m": m, "k": k, "n": n}
    if algorithm:
        text = text.replace("bf16[", "f32[").replace("s8[", "f32[").replace("convert(", "copy(")
        text = text.replace("dims={0}\n", f"dims={{0}}, algorithm={algorithm}\n")
    return text


LOPSIDED = [(1, 17, 1), (17, 64, 129), (64, 129, 17), (40, 200, 72)]


@pytest.mark.parametrize(
    ("algorithm", "size"),
    one_in(3, [*(("", size) for size in LOPSIDED), *zip(ROUNDED_TO, LOPSIDED[1:], strict=True)]),
)
def test_two_products_of_one_left_side(algorithm: str, size: tuple[int, int, int]) -> None:
    """Their right sides in other orders and types, a result of both and one of the second alone."""
    text = check_kernel(
        gated(*size, algorithm), "dot-mma", SMALL, twice=False, everywhere=False
    ).text
    assert text.count("lhs_tile)[") == 1
    assert text.count("second_tile)[") == 1


def tiles_of_two_products(algorithm: str) -> list[dict[str, int]]:
    module = hloopt.parse(gated(1024, 256, 512, algorithm))
    return tiles_of(Site(region_of(module.entry.root), TARGET, Limits()))


@pytest.mark.parametrize(
    ("algorithm", "tile"), largest_first(["", *ROUNDED_TO[:2]], tiles_of_two_products)
)
def test_tiles_of_two_products_spill_no_registers(algorithm: str, tile: dict[str, int]) -> None:
    """Each that may be chosen."""
    text = gated(1024, 256, 512, algorithm)
    compile_somewhere(planned(text, "dot-mma", {**tile, "vector": 4})[2].text, DEVICES)


def test_two_products_of_other_left_sides_are_none() -> None:
    """The reason names what would be."""
    turned = gated(32, 32, 32).replace("dot(x, up)", "dot(up, x)")
    module = hloopt.parse(turned)
    verdict = find_kernel("dot-mma").fits(Site(region_of(module.entry.root), TARGET, Limits()))
    assert "or two of one left side" in verdict.reason


WIDENED = """HloModule widened

f {
  x = bf16[3,64,32] parameter(0)
  w = bf16[32,24] parameter(1)
  c = f32[3,64,32] convert(x)
  t = f32[3,32,64] transpose(c), dimensions={0,2,1}
  v = f32[3,32,24] broadcast(u), dimensions={1,2}
  ROOT p = f32[3,64,24] dot(t, v), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_contracting_dims={1}
}

ENTRY main {
  x = bf16[3,64,32] parameter(0)
  w = bf16[32,24] parameter(1)
  ROOT y = f32[3,64,24] fusion(x, w), kind=kCustom, calls=f
}
""".replace("  v = ", "  u = f32[32,24] convert(w)\n  v = ")


def test_wide_operands_with_narrow_values_are_copied() -> None:
    """An f32 that was bf16 is one; transposes and broadcasts are ways through memory."""
    text = check(WIDENED, SMALL)
    assert text.count("copy_async<16>(&") == 2
    assert "pack_bf16(" not in text


ROUNDED = """HloModule rounded

f {
  x = f32[64,32] parameter(0)
  w = f16[32,24] parameter(1)
  c = bf16[64,32] convert(x)
  v = bf16[32,24] convert(w)
  b = f32[64,32] convert(c)
  u = f32[32,24] convert(v)
  ROOT p = f32[64,24] dot(b, u), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

ENTRY main {
  x = f32[64,32] parameter(0)
  w = f16[32,24] parameter(1)
  ROOT y = f32[64,24] fusion(x, w), kind=kCustom, calls=f
}
"""


def test_what_is_rounded_before_is_not_copied() -> None:
    """An f32 or f16 in memory becomes a bf16 on its way, also where that is widened again."""
    text = check(ROUNDED, SMALL)
    assert "copy_async<16>(&" not in text
    lines = [line for line in ROUNDED.split("\n") if not line.startswith(("  b = ", "  u = "))]
    direct = "\n".join(lines).replace("dot(b, u)", "dot(c, v)")
    assert "copy_async<16>(&" not in check(direct, SMALL)


def test_special_values() -> None:
    """NaN and infinities go where they belong, also from the edge of a tile."""
    text = module_of([matrix_dot(("bf16", "bf16", "f32"), 33, 40, 17)])
    lhs, rhs = (np.array(one) for one in generate(hloopt.parse(text), 3))
    lhs[32, 39], lhs[0, 0], rhs[5, 16], rhs[6, 3] = np.nan, np.inf, -np.inf, 3e38
    check_kernel(text, "dot-mma", SMALL, inputs=[lhs, rhs], everywhere=False)


# ---- tiles in shared memory ---------------------------------------------------------------------------------------


def conflicts(places: list[int]) -> int:
    """How often the busiest of 32 banks of 4 bytes is met by 8 threads that access 16 bytes each, at once."""
    banks = [0] * 32
    for place in places:
        for word in range(4):
            banks[(4 * place + word) % 32] += 1
    return max(banks)


@pytest.mark.parametrize("chunks", [1, 2, 4, 8, 16, 32])
def test_no_two_threads_meet_in_a_bank(chunks: int) -> None:
    """Eight rows of a matrix at any chunk, and eight chunks that follow each other, are in eight groups of banks."""
    layout = TileLayout(along_k=True, rows=64, chunks=chunks, each=8)
    every = [layout.place(row, chunk) for row in range(64) for chunk in range(chunks)]
    assert sorted(every) == list(range(64 * chunks))
    for row in range(0, 64, 8):
        for chunk in range(chunks):
            assert conflicts([layout.place(row + at, chunk) for at in range(8)]) == 1
    for first in range(0, 64 * chunks, 8):
        assert conflicts(every[first : first + 8]) == 1


@pytest.mark.parametrize("chunks", [4, 8, 16, 32, 64])
def test_words_of_four_rows_meet_in_no_bank(chunks: int) -> None:
    """What a warp reads of f32 that lie along m or n: eight neighbours of four rows, a word a lane."""
    layout = TileLayout(along_k=False, rows=32, chunks=chunks, each=4)
    every = [layout.place(row, chunk) for row in range(32) for chunk in range(chunks)]
    assert sorted(every) == list(range(32 * chunks))
    for first in range(0, 32, 4):
        for chunk in range(0, chunks, 2):
            words = [
                4 * layout.place(first + t, chunk + g // 4) + g % 4
                for t in range(4)
                for g in range(8)
            ]
            assert sorted(word % 32 for word in words) == list(range(32))
    for first in range(0, 32 * chunks, 8):
        assert conflicts(every[first : first + 8]) == 1


def test_plain_rows_would_meet() -> None:
    """The count finds what the turned rows avoid."""
    assert conflicts([row * 8 for row in range(8)]) == 8
    assert conflicts([row * 4 for row in range(8)]) == 4


# ---- where it fits, and what may be asked --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kinds", "target", "words"),
    [
        (("f32", "f32", "f32"), "h200", "no matrix unit multiplies f32 without rounding"),
        (("bf16", "f16", "f32"), "h200", "no matrix unit multiplies bf16 and f16"),
        (("u8", "s8", "s32"), "h200", "no matrix unit multiplies u8 and s8"),
        (("bf16", "bf16", "f64"), "h200", "bf16 are multiplied as f64"),
        (("s8", "s8", "s64"), "h200", "s8 are multiplied as s64"),
        (("bf16", "bf16", "f32"), "t4", "need compute capability 8.0; "),
    ],
)
def test_refusals(kinds: tuple[str, str, str], target: str, words: str) -> None:
    """A product that would be rounded otherwise than asked, or a device without such units."""
    module = hloopt.parse(module_of([matrix_dot(kinds, 64, 64, 64)]))
    (dot,) = (one for one in module.entry if one.opcode == "dot")
    verdict = find_kernel("dot-mma").fits(Site(region_of(dot), find_target(target), Limits()))
    assert not verdict
    assert words in verdict.reason


def test_a_device_without_room() -> None:
    """One whose blocks have less shared memory than the smallest tile takes."""
    module = hloopt.parse(module_of([matrix_dot(("bf16", "bf16", "f32"), 64, 64, 64)]))
    (dot,) = (one for one in module.entry if one.opcode == "dot")
    small = replace(TARGET, shared_per_block_optin=8192)
    verdict = find_kernel("dot-mma").fits(Site(region_of(dot), small, Limits()))
    assert verdict.reason == "no tile has room in the 8192 bytes of shared memory of a block"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"warp_m": 8}, "warp_m=8; it is a multiple of 16"),
        ({"warp_n": 24}, "warp_n=24; it is a multiple of 16"),
        ({"m": 48}, "m=48; it is a power of two"),
        ({"k": 8}, "k=8; it is a power of two, at least 16"),
        ({"stages": 1}, "stages=1; it is at least 2"),
        ({"m": 16, "warp_m": 32}, "m=16 is not a multiple of warp_m=32"),
        ({"m": 1024, "n": 512}, "threads; a block has at most 1024"),
        ({"m": 256, "n": 256, "k": 128, "warp_m": 64, "warp_n": 64}, "a block has 232448"),
        ({"vector": 3}, "vector=3; it is 1, 2, 4, 8 or 16"),
    ],
)
def test_tiles_that_cannot_be(change: dict[str, int], words: str) -> None:
    """Each has its reason."""
    text = module_of([matrix_dot(("bf16", "bf16", "f32"), 64, 64, 64)])
    with pytest.raises(UsageError, match=words):
        planned(text, "dot-mma", {**SMALL, **change})


def test_copies_take_whole_chunks_only() -> None:
    """An operand whose rows are no multiple of 16 bytes is read by elements."""
    for k, copies in ((64, True), (60, False)):
        text = module_of([matrix_dot(("bf16", "bf16", "f32"), 64, k, 60)])
        _, plan, program = planned(text, "dot-mma", SMALL)
        assert [step.spec.kernel for step in kernel_steps(plan.steps)] == ["dot-mma"]
        assert ("copy_async<16>(&lhs_tile" in program.text) is copies
        assert "copy_async<16>(&rhs_tile" not in program.text
