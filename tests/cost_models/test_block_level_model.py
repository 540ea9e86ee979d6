"""Triton kernels beside the tilings and times of XLA itself (jaxlib 0.10.2, an H200)."""

from __future__ import annotations

from dataclasses import replace
from math import inf, isinf

import numpy as np
import pytest

import hloopt
from hloopt.analysis.backend_config import BlockParameters, is_triton, written_parameters
from hloopt.cost_models.block_level import PricedTiling, Untiled
from hloopt.cost_models.xla_2026 import Xla2026
from hloopt.ir import Module, build, edit
from hloopt.targets import target

H200 = target("h200")
KIND = '{"fusion_backend_config":{"kind":"__triton"}}'


def _normalized(dims: tuple[int, ...], dtype: str, reducer: str, op: str) -> Module:
    """``q op reducer(q)`` along the last dimension as a Triton fusion without tiles; ``q`` is a sum."""
    whole, kept = ",".join(map(str, dims)), ",".join(map(str, dims[:-1]))
    axes = ",".join(map(str, range(len(dims) - 1)))
    return hloopt.parse(f"""HloModule m
region {{
  a = {dtype}[] parameter(0)
  b = {dtype}[] parameter(1)
  ROOT c = {dtype}[] {reducer}(a, b)
}}
body {{
  p = {dtype}[{whole}] parameter(0)
  z = {dtype}[] constant({"0" if reducer == "add" else "-inf"})
  r = {dtype}[{kept}] reduce(p, z), dimensions={{{len(dims) - 1}}}, to_apply=region
  w = {dtype}[{whole}] broadcast(r), dimensions={{{axes}}}
  ROOT d = {dtype}[{whole}] {op}(p, w)
}}
ENTRY e {{
  x = {dtype}[{whole}] parameter(0)
  y = {dtype}[{whole}] parameter(1)
  q = {dtype}[{whole}] add(x, y)
  ROOT f = {dtype}[{whole}] fusion(q), kind=kCustom, calls=body, backend_config={KIND}
}}
""")


# What XLA wrote: tile and warps of the normalisation alone, and its estimate with the sum fused into it.
XLA = [
    ((48, 100), "f32", "add", "divide", (1, 32), 1, 1.02875),
    ((512, 512), "f32", "add", "divide", (4, 512), 4, 1.66225),
    ((4096, 1000), "f32", "add", "divide", (2, 1000), 4, 11.34275),
    ((3, 7), "f32", "add", "divide", (1, 1), 1, 1.0015),
    ((8, 16, 128), "f16", "add", "divide", (1, 4, 32), 2, 1.05625),
    ((2, 3, 5, 64), "f32", "add", "divide", (1, 1, 1, 16), 1, 1.013),
    ((1, 1024), "f32", "add", "divide", (1, 16), 2, 1.13525),
    ((32, 1, 50), "f32", "add", "divide", (1, 1, 16), 1, 1.01225),
    ((100000, 4), "f32", "add", "divide", (512, 4), 4, 2.01),
    ((128, 4096), "f64", "add", "divide", (1, 4096), 4, 5.624),
    ((6, 2048), "f32", "add", "divide", (1, 2048), 4, 1.2755),
    ((48, 100), "f32", "maximum", "subtract", (1, 100), 1, 1.01775),
    ((512, 512), "f32", "maximum", "subtract", (4, 512), 4, 1.659),
    ((4096, 1000), "f32", "maximum", "subtract", (2, 1000), 4, 11.29275),
    ((3, 7), "f32", "maximum", "subtract", (1, 7), 1, 1.001),
    ((8, 16, 128), "f16", "maximum", "subtract", (1, 1, 128), 1, 1.021),
    ((1, 1024), "f32", "maximum", "subtract", (1, 16), 2, 1.13375),
    ((32, 1, 50), "f32", "maximum", "subtract", (1, 1, 50), 1, 1.00875),
    ((100000, 4), "f32", "maximum", "subtract", (512, 4), 4, 2.0055),
    ((128, 4096), "f64", "maximum", "subtract", (1, 4096), 4, 3.6345),
    ((1000, 33), "f16", "maximum", "subtract", (8, 33), 2, 1.0465),
]


@pytest.mark.parametrize(
    ("dims", "dtype", "reducer", "op", "tile", "warps", "fused_us"),
    XLA,
    ids=lambda value: "x".join(map(str, value)) if isinstance(value, tuple) else str(value),
)
def test_tilings_and_times_are_those_of_xla(
    dims: tuple[int, ...],
    dtype: str,
    reducer: str,
    op: str,
    tile: tuple[int, ...],
    warps: int,
    fused_us: float,
) -> None:
    """To a quarter of a nanosecond; the tiling is the first of the cheapest ones."""
    module = _normalized(dims, dtype, reducer, op)
    named = module.entry.by_name
    model = Xla2026(H200)
    found = model.block_level.best(named["f"])
    assert isinstance(found, PricedTiling)
    assert found.parameters == BlockParameters((tile,), warps)
    compared = model.compare(named["q"], [named["f"]])
    assert compared.fused_us == pytest.approx(fused_us, abs=1e-6)


def test_a_time_is_that_of_the_tiles_that_are_written() -> None:
    """Rows of 32 read each row four times; the written warps count, not the best ones."""
    module = _normalized((48, 100), "f32", "add", "divide")
    fusion = module.entry.by_name["f"]
    edit.set_attribute(
        fusion, "backend_config", written_parameters(fusion, BlockParameters(((1, 32),), 2))
    )
    time = Xla2026(H200).run_time(fusion)
    assert (time.blocks, time.threads) == (48 * 4, 64)
    assert time.bytes_read == 4 * (48 * 4 * 32 + 48 * 4 * 100)
    assert time.bytes_written == 48 * 100 * 4
    # A reduce of 99 additions of 7 cycles, and a division of 19.
    assert time.flops == 48 * 4 * (99 * 7 + 32 * 19)
    # Rows of 400 bytes fill 400 of 448 bytes of transactions.
    assert not time.coalesced
    assert (time.read_ns, time.write_ns) == (11.25, 4.0)


def test_without_tiles_the_best_ones_count() -> None:
    """A fusion that says its kind only is priced as XLA would tile it."""
    module = _normalized((512, 512), "f32", "add", "divide")
    fusion = module.entry.by_name["f"]
    model = Xla2026(H200)
    found = model.block_level.best(fusion)
    assert isinstance(found, PricedTiling)
    assert model.run_time(fusion) == found.run_time


def test_tiles_too_large_for_registers_never_end() -> None:
    """0.4 of 65536 registers hold 16384 elements, not 32768; the search does not offer such tiles."""
    module = _normalized((64, 2048), "f32", "add", "divide")
    fusion = module.entry.by_name["f"]
    model = Xla2026(H200)
    for rows, ends in ((8, True), (16, False)):
        parameters = BlockParameters(((rows, 2048),), 8)
        edit.set_attribute(fusion, "backend_config", written_parameters(fusion, parameters))
        model.forget(fusion)
        assert isinf(model.run_time(fusion).exec_ns) is not ends
    wide = _normalized((8, 20000), "f32", "add", "divide").entry.by_name["f"]
    assert Xla2026(H200).block_level.best(wide) == Untiled("no tiling is left")


def test_without_known_registers_tiles_are_as_large_as_triton_takes() -> None:
    """Rows of 32768 numbers, padded, are tiles there; a million numbers and more are none anywhere."""
    unknown = replace(H200, registers_per_block=0)
    wide = _normalized((8, 20000), "f32", "add", "divide").entry.by_name["f"]
    assert isinstance(Xla2026(unknown).block_level.best(wide), PricedTiling)
    wider = _normalized((8, 1200000), "f32", "add", "divide").entry.by_name["f"]
    assert Xla2026(unknown).block_level.best(wider) == Untiled("no tiling is left")


def test_an_untiled_kernel_is_priced_as_any_other() -> None:
    """Tiles that do not fit the rank, or kernels without tiles, leave the emitters' model to answer."""
    module = _normalized((48, 100), "f32", "add", "divide")
    fusion = module.entry.by_name["f"]
    edit.set_attribute(
        fusion, "backend_config", written_parameters(fusion, BlockParameters(((1,),), 1))
    )
    model = Xla2026(H200)
    assert model.block_level.run_time(fusion) is None
    assert 0 < model.run_time(fusion).exec_ns < inf


def test_others_than_triton_fusions_have_no_tiles() -> None:
    """Neither plain ops nor fusions of other kinds, nor pairs of them."""
    module = _normalized((48, 100), "f32", "add", "divide")
    named = module.entry.by_name
    model = Xla2026(H200).block_level
    assert model.run_time(named["q"]) is None
    fusion = named["f"]
    for kind, config in (("kLoop", KIND), ("kCustom", KIND.replace("__triton", "__triton_gemm"))):
        edit.set_attribute(fusion, "kind", kind)
        edit.set_attribute(
            fusion, "backend_config", type(fusion.attributes["backend_config"])(config)
        )
        assert not is_triton(fusion)
        assert model.run_time(fusion) is None
        assert model.fused_run_time(named["q"], fusion, multi_output=False) is None


def test_a_pair_that_cannot_be_tiled_takes_for_ever() -> None:
    """So that nobody fuses it; keeping the producer's results is not a Triton kernel at all."""
    module = hloopt.parse(f"""HloModule m
region {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }}
body {{
  p = f32[24,3] parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[3] reduce(p, z), dimensions={{0}}, to_apply=region
}}
ENTRY e {{
  x = f32[4,6,3] parameter(0)
  b = f32[24,3] reshape(x)
  ROOT f = f32[3] fusion(b), kind=kCustom, calls=body, backend_config={KIND}
}}
""")
    named = module.entry.by_name
    model = Xla2026(H200)
    assert isinf(model.compare(named["b"], [named["f"]]).fused_us)
    assert model.block_level.fused_run_time(named["b"], named["f"], multi_output=True) is None


def test_a_model_forgets_what_has_changed() -> None:
    """Of pairs, too, whichever of the two has changed."""
    module = _normalized((48, 100), "f32", "add", "divide")
    named = module.entry.by_name
    model = Xla2026(H200)
    best = model.block_level.best

    def tiled() -> PricedTiling:
        found = best(named["f"], named["q"])
        assert isinstance(found, PricedTiling)
        return found

    first = tiled()
    root = named["f"].calls.root
    more = build.make(root, "exponential", (root.operands[0],), {})
    edit.replace_operand(root, root.operands[0], more)
    assert tiled() is first
    model.forget(named["f"])
    second = tiled()
    assert second.run_time.flops > first.run_time.flops
    edit.set_operands(named["q"], (named["x"], named["x"]))
    assert tiled() is second
    model.forget(named["q"])
    assert tiled() != second


def test_equal_kernels_are_tiled_once() -> None:
    """Whatever their instructions are called; others are not."""
    model = Xla2026(H200)
    found = []
    for dims in ((48, 100), (48, 100), (48, 200)):
        named = _normalized(dims, "f32", "add", "divide").entry.by_name
        found.append(model.block_level.best(named["f"], named["q"]))
    assert found[0] is found[1]
    assert found[0] != found[2]


SEVERAL = """HloModule m
region {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }}
body {{
  p = f32[64,128] parameter(0)
  h = f32[64,128] exponential(p)
  z = f32[] constant(0)
  r = f32[64] reduce(h, z), dimensions={{1}}, to_apply=region
  w = f32[64,128] broadcast(r), dimensions={{0}}
  d = f32[64,128] divide(h, w)
  ROOT t = ({shapes}) tuple({results})
}}
ENTRY e {{
  x = f32[64,128] parameter(0)
  ROOT f = ({shapes}) fusion(x), kind=kCustom, calls=body, backend_config={kind}
}}
"""


def _several(*results: str) -> Module:
    shapes = ", ".join("f32[64]" if name == "r" else "f32[64,128]" for name in results)
    return hloopt.parse(SEVERAL.format(shapes=shapes, results=", ".join(results), kind=KIND))


def test_a_result_on_the_way_is_written_tile_by_tile() -> None:
    """Its tiles are there where blocks write each once: sums of rows only with whole rows."""
    model = Xla2026(H200)
    found = model.block_level.best(_several("r", "d").entry.root)
    assert isinstance(found, PricedTiling)
    sums, whole = found.parameters.output_tiles
    assert whole[1] == 128
    assert sums == whole[:1]
    assert found.run_time.bytes_written == 4 * (64 + 64 * 128)
    alone = model.block_level.best(_several("d").entry.root)
    assert isinstance(alone, PricedTiling)
    assert alone.run_time.write_ns < found.run_time.write_ns


def test_several_last_results_are_not_tiled() -> None:
    """XLA tiles kernels whose results are all computed on the way to one of them."""
    module = hloopt.parse(f"""HloModule m
body {{
  p = f32[8] parameter(0)
  a = f32[8] negate(p)
  b = f32[8] tanh(p)
  ROOT t = (f32[8], f32[8]) tuple(a, b)
}}
ENTRY e {{
  x = f32[8] parameter(0)
  ROOT f = (f32[8], f32[8]) fusion(x), kind=kCustom, calls=body, backend_config={KIND}
}}
""")
    found = Xla2026(H200).block_level.best(module.entry.root)
    assert found == Untiled("2 results are computed from nothing but operands")


def test_a_grid_has_a_limit() -> None:
    """Tilings into more blocks than a launch may have drop out."""
    module = _normalized((64, 128), "f32", "maximum", "subtract")
    fusion = module.entry.by_name["f"]
    free = Xla2026(H200).block_level.best(fusion)
    small = replace(H200, grid_limit=(8, 1, 1))
    bound = Xla2026(small).block_level.best(fusion)
    assert isinstance(free, PricedTiling)
    assert isinstance(bound, PricedTiling)
    assert free.run_time.blocks >= 8 > bound.run_time.blocks


def test_iotas_and_constants_cost_no_reads() -> None:
    """They are made in registers; a scalar read from memory uses 4 bytes of a transaction."""
    module = hloopt.parse(f"""HloModule m
body {{
  s = f32[] parameter(0)
  w = f32[64] broadcast(s), dimensions={{}}
  i = f32[64] iota(), iota_dimension=0
  c = f32[] constant(2)
  k = f32[64] broadcast(c), dimensions={{}}
  m = f32[64] multiply(i, k)
  ROOT a = f32[64] add(m, w)
}}
ENTRY e {{
  s = f32[] parameter(0)
  ROOT f = f32[64] fusion(s), kind=kCustom, calls=body, backend_config={KIND}
}}
""")
    fusion = module.entry.root
    edit.set_attribute(
        fusion, "backend_config", written_parameters(fusion, BlockParameters(((16,),), 1))
    )
    time = Xla2026(H200).run_time(fusion)
    assert time.bytes_read == 4 * 4
    assert not time.coalesced
    assert time.flops == 64 * (3 + 7)
    assert np.isfinite(time.exec_ns)
