"""Modules whose kernels are mutated: one or two for each kernel there is, with the tile that makes it loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["SUBJECTS", "Subject"]

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Subject:
    """A module whose instructions run by ``kernel`` where it fits; without one selection chooses."""

    name: str
    text: str
    kernel: str = ""
    tile: Mapping[str, int] = field(default_factory=dict)


_ADD = """add_{t} {{ a = {t}[] parameter(0)
 b = {t}[] parameter(1)
 ROOT r = {t}[] add(a, b) }}
"""
_MAX = """max_{t} {{ a = {t}[] parameter(0)
 b = {t}[] parameter(1)
 ROOT r = {t}[] maximum(a, b) }}
"""
_LESS = """less {{ a = {t}[] parameter(0)
 b = {t}[] parameter(1)
{more} ROOT r = pred[] compare(a, b), direction=LT }}
"""


def _add(kind: str) -> str:
    return _ADD.format(t=kind)


def _reduce(kind: str, dims: str, result: str, reduced: str, more: str = "") -> str:
    return (
        f"HloModule m\n{_add(kind)}{_MAX.format(t=kind)}ENTRY e {{\n x = {kind}[{dims}] parameter(0)\n"
        f" z = {kind}[] constant({more or 0})\n n = {kind}[] parameter(1)\n"
        f" s = {kind}[{result}] reduce(x, z), dimensions={{{reduced}}}, to_apply=add_{kind}\n"
        f" m = {kind}[{result}] reduce(x, n), dimensions={{{reduced}}}, to_apply=max_{kind}\n"
        f" ROOT t = ({kind}[{result}], {kind}[{result}]) tuple(s, m) }}\n"
    )


_ELEMENTWISE = """HloModule m
f { p = f32[37,5] parameter(0)
 q = f32[5] parameter(1)
 b = f32[37,5] broadcast(q), dimensions={1}
 d = f32[37,5] subtract(p, b)
 n = f32[37,5] divide(d, p)
 m = f32[37,5] maximum(n, b)
 t = f32[5,37] transpose(m), dimensions={1,0}
 s = f32[3,18] slice(t), slice={[1:4], [1:37:2]}
 z = f32[] constant(0.5)
 ROOT r = f32[6,20] pad(s, z), padding=1_2x1_1 }
g { p = s32[23] parameter(0)
 i = s32[23] iota(), iota_dimension=0
 a = s32[23] subtract(i, p)
 c = pred[23] compare(a, p), direction=LT
 v = s32[23] reverse(p), dimensions={0}
 w = s32[23] select(c, a, v)
 u = s32[46] concatenate(w, p), dimensions={0}
 ROOT r = s32[46] negate(u) }
ENTRY e { x = f32[37,5] parameter(0)
 y = f32[5] parameter(1)
 k = s32[23] parameter(2)
 a = f32[6,20] fusion(x, y), kind=kLoop, calls=f
 b = s32[46] fusion(k), kind=kLoop, calls=g
 ROOT t = (f32[6,20], s32[46]) tuple(a, b) }
"""

_INDEXED = """HloModule m
ENTRY e { x = f32[9,6] parameter(0)
 n = s32[7,2] parameter(1)
 i = s32[] parameter(2)
 u = f32[3,2] parameter(3)
 g = f32[7,2,3] gather(x, n), offset_dims={1,2}, collapsed_slice_dims={}, start_index_map={0,1}, index_vector_dim=1, slice_sizes={2,3}
 d = f32[4,6] dynamic-slice(x, i, i), dynamic_slice_sizes={4,6}
 w = f32[9,6] dynamic-update-slice(x, u, i, i)
 ROOT t = (f32[7,2,3], f32[4,6], f32[9,6]) tuple(g, d, w) }
"""

_WINDOWS = f"""HloModule m
{_add("f32")}{_MAX.format(t="f32")}ge {{ a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = pred[] compare(a, b), direction=GE }}
ENTRY e {{ x = f32[2,9,10] parameter(0)
 z = f32[] constant(0)
 l = f32[] constant(-inf)
 s = f32[2,5,4] parameter(1)
 a = f32[2,5,8] reduce-window(x, z), window={{size=1x3x3 stride=1x2x1 pad=0_0x1_1x0_0}}, to_apply=add_f32
 b = f32[2,8,6] reduce-window(x, l), window={{size=1x2x3 rhs_dilate=1x1x2}}, to_apply=max_f32
 c = f32[2,9,10] select-and-scatter(x, s, z), window={{size=1x2x3 stride=1x2x2 pad=0_0x1_0x0_0}}, select=ge, scatter=add_f32
 ROOT t = (f32[2,5,8], f32[2,8,6], f32[2,9,10]) tuple(a, b, c) }}
"""

_SCATTER = f"""HloModule m
{_add("f32")}{_MAX.format(t="s32")}ENTRY e {{ x = f32[11,5] parameter(0)
 y = s32[11] parameter(1)
 n = s32[40,1] parameter(2)
 u = f32[40,5] parameter(3)
 v = s32[40] parameter(4)
 a = f32[11,5] scatter(x, n, u), update_window_dims={{1}}, inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=add_f32
 b = s32[11] scatter(y, n, v), update_window_dims={{}}, inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=max_s32
 ROOT t = (f32[11,5], s32[11]) tuple(a, b) }}
"""
_UNIQUE = """HloModule m
set { a = f32[] parameter(0)
 ROOT b = f32[] parameter(1) }
ENTRY e { x = f32[11,5] parameter(0)
 i = s32[7,1] iota(), iota_dimension=0
 u = f32[7,5] parameter(1)
 ROOT a = f32[11,5] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, unique_indices=true, to_apply=set }
"""

_UPDATE = """HloModule m
f { p = f32[9,6] parameter(0)
 u = f32[3,4] parameter(1)
 i = s32[] parameter(2)
 n = f32[3,4] negate(u)
 ROOT r = f32[9,6] dynamic-update-slice(p, n, i, i) }
ENTRY e { x = f32[9,6] parameter(0)
 u = f32[3,4] parameter(1)
 i = s32[] parameter(2)
 c = f32[9,6] negate(x)
 ROOT a = f32[9,6] fusion(c, u, i), kind=kLoop, calls=f }
"""

_SCAN = """HloModule m
f { a = f32[6] parameter(0)
 c = f32[6] parameter(1)
 s = f32[6] subtract(a, c)
 ROOT r = (f32[6], f32[6]) tuple(s, s) }
ENTRY e { x = f32[9,6] parameter(0)
 z = f32[6] parameter(1)
 ROOT r = (f32[9,6], f32[6]) scan(x, z), dimensions={0}, num_carries=1, to_apply=f }
"""


def _sort(rows: int, columns: int) -> str:
    more = " c = s32[] parameter(2)\n d = s32[] parameter(3)\n"
    shape = f"[{rows},{columns}]"
    return (
        f"HloModule m\n{_LESS.format(t='f32', more=more)}ENTRY e {{ x = f32{shape} parameter(0)\n"
        f" i = s32{shape} iota(), iota_dimension=1\n"
        f" ROOT r = (f32{shape}, s32{shape}) sort(x, i), dimensions={{1}}, is_stable=true, to_apply=less }}\n"
    )


_ROWS = f"""HloModule m
{_add("f32")}{_MAX.format(t="f32")}f {{ x = f32[5,70] parameter(0)
 l = f32[] constant(-inf)
 z = f32[] constant(0)
 m = f32[5] reduce(x, l), dimensions={{1}}, to_apply=max_f32
 mb = f32[5,70] broadcast(m), dimensions={{0}}
 d = f32[5,70] subtract(x, mb)
 e = f32[5,70] exponential(d)
 s = f32[5] reduce(e, z), dimensions={{1}}, to_apply=add_f32
 sb = f32[5,70] broadcast(s), dimensions={{0}}
 ROOT r = f32[5,70] divide(e, sb) }}
ENTRY e {{ x = f32[5,70] parameter(0)
 ROOT r = f32[5,70] fusion(x), kind=kInput, calls=f }}
"""

_TRANSPOSE = """HloModule m
ENTRY e { x = f32[3,45,39] parameter(0)
 ROOT r = f32[3,39,45] transpose(x), dimensions={0,2,1} }
"""
_NARROW_TRANSPOSE = _TRANSPOSE.replace("f32", "s8").replace("45", "64").replace("39", "68")


def _dot(
    m: int, k: int, n: int, kind: str = "f32", batch: int = 0, rhs: str = "", lhs: str = ""
) -> str:
    b, dims = (f"{batch},", "lhs_batch_dims={0}, rhs_batch_dims={0}, ") if batch else ("", "")
    at = 1 if batch else 0
    left, right = lhs or f"{kind}[{b}{m},{k}]", rhs or f"{kind}[{b}{k},{n}]"
    return (
        f"HloModule m\nENTRY e {{ x = {left} parameter(0)\n y = {right} parameter(1)\n"
        f" ROOT r = {kind}[{b}{m},{n}] dot(x, y), {dims}lhs_contracting_dims={{{1 + at}}}, "
        f"rhs_contracting_dims={{{at}}} }}\n"
    )


_CONVOLUTION = """HloModule m
ENTRY e { x = f32[2,7,6,3] parameter(0)
 w = f32[3,2,3,9] parameter(1)
 ROOT r = f32[2,4,7,9] convolution(x, w), window={size=3x2 stride=2x1 pad=1_1x1_1}, dim_labels=b01f_01io->b01f }
"""
_POINTWISE = """HloModule m
ENTRY e { x = f32[2,5,6,18] parameter(0)
 w = f32[1,1,18,20] parameter(1)
 ROOT r = f32[2,5,6,20] convolution(x, w), window={size=1x1}, dim_labels=b01f_01io->b01f }
"""
_FFT = """HloModule m
ENTRY e { x = c64[3,12] parameter(0)
 ROOT r = c64[3,12] fft(x), fft_type=FFT, fft_length={12} }
"""

_CONCATENATE = """HloModule m
ENTRY e { x = f32[5,30] parameter(0)
 y = f32[7,30] parameter(1)
 z = f32[2,30] parameter(2)
 ROOT r = f32[14,30] concatenate(x, y, z), dimensions={0} }
"""
_CHOLESKY = """HloModule m
ENTRY e { x = f32[3,11,11] parameter(0)
 ROOT r = f32[3,11,11] cholesky(x), lower=true }
"""
_SOLVE = """HloModule m
ENTRY e { x = f32[3,11,11] parameter(0)
 y = f32[3,11,4] parameter(1)
 ROOT r = f32[3,11,4] triangular-solve(x, y), left_side=true, lower=true, unit_diagonal=false, transpose_a=NO_TRANSPOSE }
"""


def _samples() -> list[Subject]:
    names = ("gather", "layernorm_gelu", "scatter", "sort", "softmax_cross_entropy")
    return [
        Subject(f"sample {name}", (ROOT / "samples" / f"{name}.hlo").read_text()) for name in names
    ]


SUBJECTS = (
    Subject("elementwise", _ELEMENTWISE, "loop"),
    Subject("elementwise vectors", _ELEMENTWISE, "loop", {"unroll": 4, "vector": 4}),
    Subject("indexed", _INDEXED, "loop"),
    Subject("windows", _WINDOWS, "loop"),
    Subject("in-place-update", _UPDATE, "in-place-update"),
    Subject("scatter-ordered", _SCATTER, "scatter-ordered"),
    Subject("scatter-atomic", _SCATTER, "scatter-atomic"),
    Subject("scatter", _UNIQUE, "scatter"),
    Subject("scan", _SCAN, "scan"),
    Subject("block-sort", _sort(3, 37), "block-sort"),
    Subject("bitonic-sort", _sort(2, 300), "bitonic-sort", {"tile": 64}),
    Subject("whole-row", _ROWS, "whole-row"),
    Subject("multi-row-reduction", _reduce("f32", "19,7", "19", "1"), "multi-row-reduction"),
    Subject("row-reduction", _reduce("f32", "5,300", "5", "1"), "row-reduction"),
    Subject("row-reduction s32", _reduce("s32", "3,2000", "3", "1"), "row-reduction"),
    Subject("small-column-reduction", _reduce("f32", "300,8", "8", "0"), "small-column-reduction"),
    Subject("column-reduction", _reduce("f32", "2,150,70", "2,70", "1"), "column-reduction"),
    Subject("split-reduction", _reduce("f32", "2,5000", "2", "1"), "split-reduction"),
    Subject("atomic-reduction", _reduce("s32", "2,5000", "2", "1"), "atomic-reduction"),
    Subject("transpose", _TRANSPOSE, "transpose"),
    Subject("packed-transpose", _NARROW_TRANSPOSE, "packed-transpose"),
    Subject("dot-matrix-vector", _dot(1, 70, 19, rhs="f32[70,19]"), "dot-matrix-vector"),
    Subject("dot-small", _dot(7, 9, 5, batch=6), "dot-small"),
    Subject("dot-tiled", _dot(35, 41, 37), "dot-tiled"),
    Subject("dot-split-k", _dot(20, 1000, 24), "dot-split-k"),
    Subject("convolution-direct", _CONVOLUTION, "convolution-direct"),
    Subject("convolution-implicit-matmul", _CONVOLUTION, "convolution-implicit-matmul"),
    Subject("convolution-1x1", _POINTWISE, "convolution-1x1"),
    Subject("fft-shared", _FFT, "fft-shared"),
    Subject("concatenate", _CONCATENATE, "concatenate"),
    Subject("cholesky", _CHOLESKY, "cholesky"),
    Subject("triangular-solve", _SOLVE, "triangular-solve"),
    *_samples(),
)
