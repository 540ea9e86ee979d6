"""The whole description of a kernel: numbers of the parts put together, groups of results, registers."""

from __future__ import annotations

import pytest

from hloopt.analysis.emitters.describe import describe
from hloopt.analysis.emitters.kind import emission
from hloopt.analysis.emitters.launch import register_estimate
from hloopt.analysis.emitters.reductions import ReductionTiling, reduction_groups
from hloopt.analysis.emitters.scatter import ScatterTiling
from hloopt.analysis.emitters.transposes import TransposeTiling
from hloopt.analysis.emitters.unroll import concatenate_tiling
from hloopt.targets import Target, target
from tests.analysis.emitters.regions import fusion, lone

ROWS = "z = f32[] constant(0)\nr = f32[1000] reduce(p0, z), dimensions={1}, to_apply=sum\n"


def test_a_loop(h200: Target) -> None:
    """Elements of the first result over threads of 128 a block."""
    region = fusion("f32[1024,1024]", "ROOT n = f32[1024,1024] negate(p0)", "f32[1024,1024]")
    found = describe(region, h200)
    assert (found.kind, found.elements, found.unroll.factor) == ("loop", 1 << 20, 4)
    assert found.launch is not None
    assert (found.launch.grid, found.launch.block) == ((2048, 1, 1), (128, 1, 1))
    assert (found.index_bits, found.shared_bytes, found.tiling) == (32, 0, None)
    assert found.groups == ((0,),)


def test_a_row_reduction(h200: Target) -> None:
    """Its tiling's launch; two warps a row meet in shared memory."""
    body = f"{ROWS}ROOT n = f32[1000] negate(r)"
    found = describe(fusion("f32[1000,1000]", body, "f32[1000]", "kInput"), h200)
    assert (found.kind, found.elements) == ("reduction", 1_000_000)
    assert isinstance(found.tiling, ReductionTiling)
    assert found.tiling.form == "row"
    assert found.launch is not None
    assert (found.launch.grid, found.launch.block) == ((250, 1, 1), (256, 1, 1))
    assert found.shared_bytes == 4 * 2 * 4


def test_reductions_side_by_side_have_blocks_of_their_own(h200: Target) -> None:
    """Of unrelated operands: one z each, and shared memory for both."""
    body = (
        f"{ROWS}s = f32[1000] reduce(p1, z), dimensions={{1}}, to_apply=sum\n"
        "ROOT t = (f32[1000], f32[1000]) tuple(r, s)"
    )
    region = fusion("f32[1000,1000] f32[1000,1000]", body, "(f32[1000], f32[1000])", "kInput")
    found = describe(region, h200)
    assert found.groups == ((0,), (1,))
    assert found.launch is not None
    assert found.launch.grid == (250, 1, 2)
    assert found.shared_bytes == 2 * 4 * 2 * 4


def _groups(parameters: str, body: str, result: str) -> tuple[tuple[int, ...], ...]:
    region = fusion(parameters, body, result, "kInput")
    found = emission(region)
    return reduction_groups(region, found.roots, found.heroes)


@pytest.mark.parametrize(
    ("inner", "second", "expected"),
    [
        ("", "p0", ((0, 1),)),  # one operand
        ("m = f32[1000,1000] add(p0, p1)\n", "m", ((0, 1),)),  # one of two
        ("m = f32[1000,1000] negate(p1)\n", "m", ((0,), (1,))),
        ("b = f32[1000,1000] broadcast(z), dimensions={}\nm = f32[1000,1000] add(p1, b)\n", "m", ((0,), (1,))),
        ("b = f32[1000,1000] broadcast(p2), dimensions={}\nm = f32[1000,1000] add(p1, b)\n", "m", ((0,), (1,))),
    ],
)  # fmt: skip
def test_what_joins_reductions(
    inner: str, second: str, expected: tuple[tuple[int, ...], ...]
) -> None:
    """A common value does, a scalar or its broadcast does not."""
    first = "p0"
    if "broadcast" in inner:
        inner += "q = f32[1000,1000] multiply(p0, b)\n"
        first = "q"
    body = (
        f"z = f32[] constant(0)\n{inner}r = f32[1000] reduce({first}, z), dimensions={{1}}, to_apply=sum\n"
        f"s = f32[1000] reduce({second}, z), dimensions={{1}}, to_apply=sum\n"
        "ROOT t = (f32[1000], f32[1000]) tuple(r, s)"
    )
    shapes = "f32[1000,1000] f32[1000,1000] f32[]"
    assert _groups(shapes, body, "(f32[1000], f32[1000])") == expected


def test_results_that_are_no_reductions_are_together() -> None:
    """One of them reads what the reduction reads, so that all three are one group."""
    body = (
        f"{ROWS}a = f32[1000,1000] negate(p0)\nb = f32[1000,1000] negate(p1)\n"
        "ROOT t = (f32[1000], f32[1000,1000], f32[1000,1000]) tuple(r, a, b)"
    )
    shape = "(f32[1000], f32[1000,1000], f32[1000,1000])"
    assert _groups("f32[1000,1000] f32[1000,1000]", body, shape) == ((0, 1, 2),)
    apart = body.replace("a = f32[1000,1000] negate(p0)", "a = f32[1000,1000] abs(p1)")
    assert _groups("f32[1000,1000] f32[1000,1000]", apart, shape) == ((0,), (1, 2))


def test_several_operands_of_a_reduce_share_memory(h200: Target) -> None:
    """A column reduction of pairs has a tile for each half."""
    body = (
        "z = f32[] constant(0)\ny = s32[] constant(0)\n"
        "ROOT r = (f32[1000], s32[1000]) reduce(p0, p1, z, y), dimensions={0}, to_apply=both"
    )
    both = (
        "both { a = f32[] parameter(0) b = s32[] parameter(1) c = f32[] parameter(2)\n"
        "d = s32[] parameter(3) e = f32[] add(a, c) f = s32[] add(b, d)\n"
        "ROOT t = (f32[], s32[]) tuple(e, f) }\n"
    )
    region = fusion(
        "f32[1000,1000] s32[1000,1000]", body, "(f32[1000], s32[1000])", "kInput", computations=both
    )
    found = describe(region, h200)
    assert isinstance(found.tiling, ReductionTiling)
    assert (found.tiling.form, found.tiling.vector) == ("column", 2)
    assert found.shared_bytes == 32 * 65 * 8


def test_a_transpose(h200: Target) -> None:
    """Tiles of the operand."""
    region = lone(
        "p = f32[100,200] parameter(0)\nROOT t = f32[200,100] transpose(p), dimensions={1,0}"
    )
    found = describe(region, h200)
    assert isinstance(found.tiling, TransposeTiling)
    assert found.launch is not None
    assert (found.launch.grid, found.launch.block) == ((28, 1, 1), (128, 1, 1))
    assert found.shared_bytes == 4224


def test_a_concatenate(h200: Target) -> None:
    """The grid is over the largest operand; the unroll factor divides all of them."""
    body = "ROOT c = f32[500,1000] concatenate(p0, p1), dimensions={1}"
    region = fusion("f32[500,600] f32[500,400]", body, "f32[500,1000]")
    found = describe(region, h200)
    assert found.launch is not None
    assert (found.kind, found.elements, found.unroll.factor) == ("concatenate", 300_000, 4)
    assert found.launch.grid == (586, 1, 1)
    tiling = concatenate_tiling(region.results[0].instruction, region, h200)
    assert (tiling.dimension, tiling.offsets) == (1, (0, 600))
    odd = body.replace("1000]", "1002]")
    region = fusion("f32[500,600] f32[500,402]", odd, "f32[500,1002]")
    assert describe(region, h200).unroll.factor == 2


def test_an_update(h200: Target) -> None:
    """The grid is over the update."""
    region = lone(
        "p = f32[4096] parameter(0)\nu = f32[256] parameter(1)\ni = s32[] parameter(2)\n"
        "ROOT d = f32[4096] dynamic-update-slice(p, u, i)"
    )
    found = describe(region, h200)
    assert found.launch is not None
    assert (found.kind, found.elements, found.launch.grid) == ("in-place", 256, (2, 1, 1))


SCATTER = (
    "p = f32[100,64] parameter(0)\ni = s32[10,1] parameter(1)\nu = f32[10,{}64] parameter(2)\n"
    "ROOT s = f32[100,64] scatter(p, i, u), update_window_dims={{{}}}, inserted_window_dims={{{}}}, "
    "scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=sum"
)


def test_a_scatter(h200: Target) -> None:
    """Tiled where it is simplified, else a loop over the updates."""
    found = describe(lone(SCATTER.format("1,", "1,2", "")), h200)
    assert isinstance(found.tiling, ScatterTiling)
    assert found.elements == 640
    plain = describe(lone(SCATTER.format("", "1", "0")), h200)
    assert (plain.kind, plain.tiling, plain.elements) == ("scatter", None, 640)
    assert plain.launch == found.launch


def test_a_sort(h200: Target) -> None:
    """The first launch of its passes, for all lines; tiles of both operands are shared memory."""
    less = (
        "less { a = f32[] parameter(0) b = f32[] parameter(1) c = s32[] parameter(2)\n"
        "d = s32[] parameter(3) ROOT e = pred[] compare(a, b), direction=LT }\n"
    )
    region = lone(
        "p = f32[3,5000] parameter(0)\nq = s32[3,5000] parameter(1)\n"
        "ROOT s = (f32[3,5000], s32[3,5000]) sort(p, q), dimensions={1}, to_apply=less",
        less,
    )
    found = describe(region, h200)
    assert isinstance(found.tiling, tuple)
    assert found.launch is not None
    assert (found.launch.grid, found.launch.block) == ((6, 1, 1), (1024, 1, 1))
    assert found.shared_bytes == 4096 * 8
    single = lone(
        "p = f32[3,1] parameter(0)\nq = s32[3,1] parameter(1)\n"
        "ROOT s = (f32[3,1], s32[3,1]) sort(p, q), dimensions={1}, to_apply=less",
        less,
    )
    assert describe(single, h200).launch is None


def test_threads_beyond_the_last_element_count(h200: Target) -> None:
    """2^31 - 4 elements fit into an index of 32 bits, the 2^31 that whole blocks reach do not."""
    body = "p = s8[{0}] parameter(0)\nROOT n = s8[{0}] negate(p)"
    found = describe(lone(body.format(2**31 - 4)), h200)
    assert (found.unroll.factor, found.index_bits) == (4, 64)
    assert describe(lone(body.format(2**31 - 512)), h200).index_bits == 32


def test_no_launch(h200: Target) -> None:
    """Copies and calls are nobody's kernel here."""
    for body in (
        "p = f32[8] parameter(0)\nROOT c = f32[8] copy(p)",
        'p = f32[8] parameter(0)\nROOT c = f32[8] custom-call(p), custom_call_target="mine"',
    ):
        found = describe(lone(body), h200)
        assert (found.launch, found.registers, found.elements) == (None, 0, 0)


def test_a_device_without_blocks_is_refused() -> None:
    """TPUs run no such kernels."""
    region = lone("p = f32[8] parameter(0)\nROOT n = f32[8] negate(p)")
    with pytest.raises(ValueError, match="tpu-v4 runs no kernels"):
        describe(region, target("tpu-v4"))


def test_registers() -> None:
    """What is alive at once: operands from their first use, values to their last, copies of each."""
    chain = fusion(
        "f32[64]", "a = f32[64] negate(p0)\nb = f32[64] abs(a)\nROOT c = f32[64] sine(b)", "f32[64]"
    )
    # 10 and an index, two pointers of 2, an operand and a result at once
    assert register_estimate(chain) == 10 + 1 + 4 + 2
    assert register_estimate(chain, index_bits=64) == 10 + 2 + 4 + 2
    assert register_estimate(chain, copies=4) == 10 + 1 + 4 + 2 * 4
    wide = fusion(
        "f64[64]",
        "a = f64[64] negate(p0)\nb = f64[64] abs(p0)\nc = f64[64] sine(p0)\n"
        "d = f64[64] add(a, b)\nROOT e = f64[64] add(d, c)",
        "f64[64]",
    )
    # the operand, a, b and c, two words each
    assert register_estimate(wide) == 10 + 1 + 4 + 8
    scalar = fusion(
        "f32[64] f32[]",
        "k = f32[] constant(2)\nb = f32[64] broadcast(k), dimensions={}\n"
        "ROOT c = f32[64] multiply(p0, b)",
        "f32[64]",
    )
    assert register_estimate(scalar, copies=4) == 10 + 1 + 6 + 3 * 4
