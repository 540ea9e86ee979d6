"""Matrix products on a core of the host's processor, by themselves: what ``native`` and its BLAS take.

    time = max(flops / (share peak), bytes / bandwidth) + results + rows + copies + conversions

``share`` is the part of the peak that a product of that shorter side gets: a BLAS copies blocks of both
matrices into panels in the order in which its innermost loop reads them, which pays where each element is used
often (K. Goto and R. van de Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34(3), 2008),
and its tiles are mostly empty where a side is short.  Each result is stored once more, and each row of the
longer side begins a loop.  A factor whose rows or columns are not equally far apart is copied first; factors of
two bytes are converted to f32, and results from it.  Small products, and several side by side, are loops of
native's: each costs a call besides.  All figures are those of ``host.toml``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any, Final

from hloopt.cost_models.gemm import GemmSizes, product_shape
from hloopt.cost_models.host import measured
from hloopt.cost_models.model import RunTime
from hloopt.ir import Instruction
from hloopt.targets import Target
from hloopt.types import DotDims

__all__ = ["LEAST_SIDE", "MOST_PRODUCTS", "NAME", "host_product_time"]

NAME: Final = "host-products"
"""The name of this model in reports."""

LEAST_SIDE: Final = 8
"""Rows and columns from which native's tiles are full enough."""
MOST_PRODUCTS: Final = 48**3
"""Up to here a loop beats a call of BLAS, which takes 2 us to get there (measured with f32 and AVX-512)."""

_LANES: Final = 4
"""Columns from which on a loop of native's stores vectors."""


def host_product_time(kernel: Instruction, least: RunTime, target: Target) -> RunTime | None:
    """Of a dot of floats, from the least that it takes; None for all else, fused dots too."""
    if target.kind != "cpu" or kernel.opcode != "dot" or not kernel.array.dtype.is_float:
        return None
    shape = product_shape(kernel)
    peak = target.peak_flops("f64" if shape is not None and shape.dtype == "f64" else "f32")
    if shape is None or not peak:
        return None
    flops = 2 * shape.batch * shape.rows * shape.columns * shape.depth
    computing = flops / (_share(shape) * peak) * 1e9
    spent = max(computing, least.read_ns + least.write_ns)
    return replace(least, compute_ns=computing, exec_ns=spent + _besides(kernel, shape))


def _share(shape: GemmSizes) -> float:
    """The part of the peak that a product gets by its shorter side."""
    short, long = sorted((shape.rows, shape.columns))
    sides, shares = _shares()
    if long < LEAST_SIDE:
        short = long
    return float(shares[max(0, bisect_right(sides, short) - 1)])


@cache
def _shares() -> tuple[Sequence[int], Sequence[float]]:
    rows: Mapping[str, float] = measured("products")["of_peak"]
    return tuple(map(int, rows)), tuple(rows.values())


def _besides(dot: Instruction, shape: GemmSizes) -> float:
    """Nanoseconds of all but arithmetic and memory."""
    costs = measured("products")
    results = dot.array.elements
    is_loop = shape.rows * shape.columns * shape.depth <= MOST_PRODUCTS
    is_narrow = is_loop and min(shape.rows, shape.columns) < _LANES
    spent: float = results * costs["narrow_result_ns" if is_narrow else "result_ns"]
    if is_loop:
        spent += shape.batch * costs["product_ns"]
    else:
        spent += shape.batch * max(shape.rows, shape.columns) * costs["row_ns"]
    dims = DotDims.of(dot.attributes)
    for operand, contracted in zip(
        dot.operands, (dims.lhs_contracting, dims.rhs_contracting), strict=True
    ):
        count = operand.array.elements
        spent += count * _converting(operand, costs["widened_ns"])
        if not is_loop and _is_between(operand, contracted):
            spent += count * costs["reordered_ns"]
    return spent + results * _converting(dot, costs["narrowed_ns"])


def _converting(value: Instruction, table: Mapping[str, Any]) -> float:
    return float(table.get(value.array.dtype.name, 0.0))


def _is_between(operand: Instruction, contracted: Sequence[int]) -> bool:
    """Whether free dimensions of a factor are on both sides of those that are contracted."""
    layout = operand.array.layout
    order = layout.minor_to_major[::-1] if layout else range(operand.array.rank)
    kinds = [dim in contracted for dim in order if operand.array.dims[dim] > 1]
    return sum(one != other for one, other in pairwise(kinds)) > 1
