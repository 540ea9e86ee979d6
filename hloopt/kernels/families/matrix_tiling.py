"""Products by matrix units: which a device has, tiles of blocks and warps, how tiles lie in shared memory."""

from __future__ import annotations

from math import gcd
from typing import Final

from hloopt.analysis.contraction import (
    EXACT,
    AxisGroup,
    Contraction,
    Side,
    exact_dtype,
    keeps_values,
)
from hloopt.analysis.region import Region
from hloopt.cost_models.matrix_units import TileSizes, matrix_unit_time, tiles_of
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.kernel_ir.matrix_steps import MATRIX_STEPS, MatrixStep
from hloopt.kernels.families.dot_region import product_of
from hloopt.kernels.families.dot_tiling import oriented
from hloopt.kernels.kernel import Site
from hloopt.kernels.spec import Tile

__all__ = [
    "CHUNK_BYTES",
    "MatrixTiling",
    "TileLayout",
    "default_matrix_tile",
    "matrix_step_of",
    "matrix_tiling_of",
    "moved_bytes",
    "shapes_of",
    "tile_seconds",
]

CHUNK_BYTES: Final = 16
"""What one thread copies at once, and a row of a matrix that is loaded."""

_GROUP: Final = 8
"""Tiles along m that run one after the other, so that they find the same columns in the cache."""

_DEPTHS: Final = {"f16": 16, "bf16": 16, "s8": 32}


@dataclass(frozen=True)
class TileLayout:
    """How a tile of an operand lies in shared memory: rows of chunks of 16 bytes, each row's in another order.

    along_k  whether k moves through neighbours, so that rows are those of m or n
    rows, chunks  of the tile
    each     elements of a chunk

    Chunk c of row r is at place ``c ^ turn(r)`` of it.  So the eight chunks at one c of eight rows that follow
    each other, which is what one matrix is, lie in eight different groups of four banks, and so do eight
    chunks of a row.  (The same as the 128-byte swizzle of TMA, where rows have 128 bytes.)
    """

    along_k: bool
    rows: int
    chunks: int
    each: int

    @property
    def elements(self) -> int:
        """Of the tile."""
        return self.rows * self.chunks * self.each

    @property
    def span(self) -> int:
        """Neighbouring rows whose chunks are in the same order."""
        return max(1, 8 // self.chunks)

    def place(self, row: int, chunk: int) -> int:
        """The number of a chunk in the tile, as it lies in memory."""
        return row * self.chunks + (chunk ^ (row % 8 // self.span))


@dataclass(frozen=True)
class MatrixTiling:
    """A tile as counts.

    m, n, k         results of a block, and how much of the contracted axis is in shared memory at once
    warp_m, warp_n  results of a warp
    stages          tiles of each operand in shared memory
    """

    step: MatrixStep
    m: int
    n: int
    k: int
    warp_m: int
    warp_n: int
    stages: int
    steps: int
    blocks_m: int
    blocks_n: int

    @property
    def warps_n(self) -> int:
        """Warps along n."""
        return self.n // self.warp_n

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * (self.m // self.warp_m) * self.warps_n

    @property
    def each(self) -> int:
        """Elements of a chunk."""
        return CHUNK_BYTES // self.element_bytes

    @property
    def element_bytes(self) -> int:
        """Of an element in shared memory."""
        return 1 if self.step.dtype == "s8" else 2

    @property
    def group(self) -> int:
        """Tiles along m that follow each other."""
        return gcd(self.blocks_m, _GROUP)

    @property
    def shared_bytes(self) -> int:
        """Of all stages."""
        return self.stages * (self.m + self.n) * self.k * self.element_bytes

    def layout(self, contraction: Contraction, side: Side, group: AxisGroup) -> TileLayout:
        """How a tile of a side lies in shared memory: as it does in memory, bytes along k always."""
        free = self.m if group == "m" else self.n
        along_k = self.element_bytes == 1 or contraction.quickest(side) not in ("m", "n")
        rows, span = (free, self.k) if along_k else (self.k, free)
        return TileLayout(along_k, rows, span // self.each, self.each)


def matrix_step_of(region: Region, contraction: Contraction) -> MatrixStep | str:
    """The step of matrix units that computes a product as exactly as it is asked for, or why none does."""
    sides = (contraction.lhs, contraction.rhs)
    if any(side.scale is not None for side in sides):
        return f"{contraction.hero.name} has scales of blocks"
    inside = frozenset(region.body).__contains__
    found = [exact_dtype(side.instruction, inside) for side in sides]
    kind = contraction.kind
    names = " and ".join(dict.fromkeys(one.name for one in found))
    fitting = [name for name, exact in EXACT.items() if all(one.name in exact for one in found)]
    if not fitting:
        return f"no matrix unit multiplies {names} without rounding them"
    if not all(keeps_values(one, kind) for one in found) or kind.bits > 32:
        return f"{names} are multiplied as {kind.name}"
    return MATRIX_STEPS[f"m16n8k{_DEPTHS[fitting[0]]}.{fitting[0]}"]


def shapes_of(site: Site, step: MatrixStep) -> list[dict[str, int]]:
    """The tiles that a block of a device has room for."""
    size = 1 if step.dtype == "s8" else 2
    return [
        {
            "m": tile.rows,
            "n": tile.columns,
            "k": tile.depth_bytes // size,
            "warp_m": tile.warp_rows,
            "warp_n": tile.warp_columns,
            "stages": tile.stages,
        }
        for tile in tiles_of(site.target)
    ]


def moved_bytes(site: Site) -> int:
    """Bytes of the operands and the results of a region."""
    every = [*site.region.operands, *(result.shape for result in site.region.results)]
    return sum(shape.byte_size for shape in every)


def tile_seconds(site: Site, contraction: Contraction, step: MatrixStep, tile: Tile) -> float:
    """How long a product takes by a tile, without the launch."""
    b, m, n, k = (contraction.size(group) for group in ("b", "m", "n", "k"))
    sizes = (b, m, n, -(-k // tile["k"]) * tile["k"])
    element_bytes = 1 if step.dtype == "s8" else 2
    shape = TileSizes(
        tile["m"],
        tile["n"],
        tile["k"] * element_bytes,
        tile["warp_m"],
        tile["warp_n"],
        tile["stages"],
    )
    moved = moved_bytes(site)
    inside = frozenset(site.region.body).__contains__
    sides = (contraction.lhs, contraction.rhs)
    found = [exact_dtype(side.instruction, inside).name for side in sides]
    copied = found == [step.dtype] * 2
    return matrix_unit_time(
        sizes, shape, step.dtype, element_bytes, moved, site.target, copied=copied
    )


def default_matrix_tile(site: Site) -> dict[str, int]:
    """The tile that takes least time; of several the largest."""
    contraction = oriented(product_of(site.region), site.region)
    step = matrix_step_of(site.region, contraction)
    assert isinstance(step, MatrixStep), step
    best = min(shapes_of(site, step), key=lambda tile: tile_seconds(site, contraction, step, tile))
    bits = [shape.dtype.bits for shape in site.region.operands]
    return {**best, "vector": max(1, min(16, CHUNK_BYTES * 8 // max(8, min(bits, default=8))))}


def matrix_tiling_of(
    region: Region, contraction: Contraction, tile: Tile, kernel: str
) -> MatrixTiling:
    """The counts of a tile.  Raises ``UsageError`` for one that cannot be."""
    step = matrix_step_of(region, contraction)
    assert isinstance(step, MatrixStep), step
    size = 1 if step.dtype == "s8" else 2
    chunks = tile["k"] * size // CHUNK_BYTES
    rules = (
        ("warp_m", tile["warp_m"] % 16 == 0 < tile["warp_m"], "a multiple of 16"),
        ("warp_n", tile["warp_n"] % 16 == 0 < tile["warp_n"], "a multiple of 16"),
        ("m", tile["m"] > 0 and tile["m"] & (tile["m"] - 1) == 0, "a power of two"),
        ("n", tile["n"] > 0 and tile["n"] & (tile["n"] - 1) == 0, "a power of two"),
        (
            "k",
            tile["k"] * size % 32 == 0 and chunks & (chunks - 1) == 0 < chunks,
            f"a power of two, at least {32 // size}",
        ),
        ("stages", tile["stages"] >= 2, "at least 2"),
        ("vector", tile["vector"] in (1, 2, 4, 8, 16), "1, 2, 4, 8 or 16"),
    )
    for key, holds, wanted in rules:
        if not holds:
            raise UsageError(f"{kernel}: {key}={tile[key]}; it is {wanted}")
    for whole in ("m", "n"):
        if tile[whole] % tile[f"warp_{whole}"]:
            part = f"warp_{whole}={tile[f'warp_{whole}']}"
            raise UsageError(f"{kernel}: {whole}={tile[whole]} is not a multiple of {part}")
    tiling = MatrixTiling(
        step,
        tile["m"],
        tile["n"],
        tile["k"],
        tile["warp_m"],
        tile["warp_n"],
        tile["stages"],
        -(-contraction.size("k") // tile["k"]),
        -(-contraction.size("m") // tile["m"]),
        -(-contraction.size("n") // tile["n"]),
    )
    if tiling.threads > 1024:
        raise UsageError(
            f"{kernel}: {tiling.threads} threads; a block has at most 1024: make warp_m or warp_n larger"
        )
    return tiling
