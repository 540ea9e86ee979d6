"""Products by matrix units: which a device has, tiles of blocks and warps, how tiles lie in shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Final

from hloopt.analysis.contraction import AxisGroup, Contraction, Side, exact_dtype
from hloopt.analysis.matrix_factors import MatrixFactors, matrix_factors
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
    "factors_of",
    "matrix_tiling_of",
    "moved_bytes",
    "rights_of",
    "shapes_of",
    "tile_seconds",
]

CHUNK_BYTES: Final = 16
"""What one thread copies at once, and a row of a matrix that is loaded."""

_WHOLE_STEPS: Final = (8, 0)
_HALF_STEP: Final = "m16n8k8.f16"

_GROUP: Final = 8
"""Tiles along m that run one after the other, so that they find the same columns in the cache."""


@dataclass(frozen=True)
class TileLayout:
    """How a tile of an operand lies in shared memory: rows of chunks of 16 bytes, each row's in another order.

    along_k  whether k moves through neighbours, so that rows are those of m or n
    rows, chunks  of the tile
    each     elements of a chunk

    Chunk c of row r is at place ``c ^ turn(r)`` of it.  So the eight chunks at one c of eight rows that follow
    each other, which is what one matrix is, lie in eight different groups of four banks, and so do eight
    chunks of a row.  (The same as the 128-byte swizzle of TMA, where rows have 128 bytes.)  A matrix
    of elements of 4 bytes cannot be transposed as it is loaded: where k does not move through them, a warp
    reads words of two chunks of four rows, and these lie in eight groups.
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
    def by_words(self) -> bool:
        """Whether a warp reads it by words, not as matrices."""
        return not self.along_k and self.each * 4 == CHUNK_BYTES

    @property
    def turns(self) -> tuple[int, int, int]:
        """``turn(r)`` is ``r % first // second * third``; rows with the same follow each other."""
        span = max(1, 8 // self.chunks)
        return (4, span, 2) if self.by_words else (8, span, 1)

    def place(self, row: int, chunk: int) -> int:
        """The number of a chunk in the tile, as it lies in memory."""
        period, span, by = self.turns
        return row * self.chunks + (chunk ^ (row % period // span * by))


@dataclass(frozen=True)
class MatrixTiling:
    """A tile as counts.

    factors         what is multiplied, by ``step``
    m, n, k         results of a block, and how much of the contracted axis is in shared memory at once
    warp_m, warp_n  results of a warp
    stages          tiles of each operand in shared memory
    split, steps    parts of the contracted axis, and tiles along one
    rights          right operands, each with sums of its own
    halves          whether what is read for a step is multiplied in two, each half as deep
    """

    factors: MatrixFactors
    m: int
    n: int
    k: int
    warp_m: int
    warp_n: int
    stages: int
    steps: int
    blocks_m: int
    blocks_n: int
    split: int = 1
    rights: int = 1
    halves: bool = False

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
        return self.factors.bytes

    @property
    def step(self) -> MatrixStep:
        """One step of the matrix units."""
        return MATRIX_STEPS[_HALF_STEP if self.halves else self.factors.step]

    @property
    def group(self) -> int:
        """Tiles along m that follow each other."""
        return gcd(self.blocks_m, _GROUP)

    @property
    def shared_bytes(self) -> int:
        """Of all stages."""
        return self.stages * (self.m + self.rights * self.n) * self.k * self.element_bytes

    def layout(self, contraction: Contraction, side: Side, group: AxisGroup) -> TileLayout:
        """How a tile of a side lies in shared memory: as it does in memory, bytes along k always."""
        free = self.m if group == "m" else self.n
        along_k = self.element_bytes == 1 or contraction.quickest(side) not in ("m", "n")
        rows, span = (free, self.k) if along_k else (self.k, free)
        return TileLayout(along_k, rows, span // self.each, self.each)


def factors_of(region: Region, contraction: Contraction) -> MatrixFactors | str:
    """How matrix units multiply a product as exactly as it is asked for, or why none does."""
    sides = (contraction.lhs, contraction.rhs)
    if any(side.scale is not None for side in sides):
        return f"{contraction.hero.name} has scales of blocks"
    inside = frozenset(region.body).__contains__
    return matrix_factors(contraction.hero, contraction.kind, inside)


def rights_of(region: Region) -> int:
    """How many right operands a product has."""
    return 1 if product_of(region).second is None else 2


def shapes_of(site: Site, factors: MatrixFactors) -> list[dict[str, int]]:
    """The tiles that a block of a device has room for; ``halves`` in those of devices with the smaller step."""
    halves = {"halves": 1} if site.target.capability < _WHOLE_STEPS else {}
    return [
        {
            **halves,
            "m": tile.rows,
            "n": tile.columns,
            "k": tile.depth_bytes // factors.bytes,
            "warp_m": tile.warp_rows,
            "warp_n": tile.warp_columns,
            "stages": tile.stages,
        }
        for tile in tiles_of(site.target, factors, rights_of(site.region))
    ]


def moved_bytes(site: Site) -> int:
    """Bytes of the operands and the results of a region."""
    every = [*site.region.operands, *(result.shape for result in site.region.results)]
    return sum(shape.byte_size for shape in every)


def tile_seconds(site: Site, contraction: Contraction, factors: MatrixFactors, tile: Tile) -> float:
    """How long a product takes by a tile, without the launch."""
    b, m, n, k = (contraction.size(group) for group in ("b", "m", "n", "k"))
    split = tile.get("split", 1)
    steps = -(-k // (tile["k"] * split))
    rights = rights_of(site.region)
    sizes = (b, m, n * rights, steps * tile["k"] * split)
    shape = TileSizes(
        tile["m"],
        tile["n"],
        tile["k"] * factors.bytes,
        tile["warp_m"],
        tile["warp_n"],
        tile["stages"],
    ).times(rights)
    inside = frozenset(site.region.body).__contains__
    sides = (contraction.lhs, contraction.rhs)
    found = [exact_dtype(side.instruction, inside).bits for side in sides]
    copied = found == [8 * factors.bytes] * 2
    return matrix_unit_time(
        sizes, shape, factors, moved_bytes(site), site.target, copied=copied, split=split
    )


def default_matrix_tile(site: Site, splits: Sequence[int] = ()) -> dict[str, int]:
    """The tile that takes least time, with one of ``splits`` where there are any; of several the largest."""
    contraction = oriented(product_of(site.region), site.region)
    factors = factors_of(site.region, contraction)
    assert isinstance(factors, MatrixFactors), factors
    shapes = shapes_of(site, factors)
    if splits:
        shapes = [{**shape, "split": split} for shape in shapes for split in splits]
    best = min(shapes, key=lambda tile: tile_seconds(site, contraction, factors, tile))
    bits = [shape.dtype.bits for shape in site.region.operands]
    return {**best, "vector": max(1, min(16, CHUNK_BYTES * 8 // max(8, min(bits, default=8))))}


def matrix_tiling_of(
    region: Region, contraction: Contraction, tile: Tile, kernel: str
) -> MatrixTiling:
    """The counts of a tile.  Raises ``UsageError`` for one that cannot be."""
    factors = factors_of(region, contraction)
    assert isinstance(factors, MatrixFactors), factors
    size = factors.bytes
    chunks = tile["k"] * size // CHUNK_BYTES
    rules = (
        ("warp_m", tile["warp_m"] % 16 == 0 < tile["warp_m"], "a multiple of 16"),
        ("warp_n", tile["warp_n"] % 16 == 0 < tile["warp_n"], "a multiple of 16"),
        ("m", tile["m"] > 0 and tile["m"] & (tile["m"] - 1) == 0, "a power of two"),
        ("n", tile["n"] > 0 and tile["n"] & (tile["n"] - 1) == 0, "a power of two"),
        (
            "k",
            tile["k"] % factors.depth == 0 and chunks & (chunks - 1) == 0 < chunks,
            f"a power of two, at least {factors.depth}",
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
        factors,
        tile["m"],
        tile["n"],
        tile["k"],
        tile["warp_m"],
        tile["warp_n"],
        tile["stages"],
        -(-contraction.size("k") // (tile["k"] * tile.get("split", 1))),
        -(-contraction.size("m") // tile["m"]),
        -(-contraction.size("n") // tile["n"]),
        tile.get("split", 1),
        rights_of(region),
        bool(tile.get("halves", 0)),
    )
    if tiling.threads > 1024:
        raise UsageError(
            f"{kernel}: {tiling.threads} threads; a block has at most 1024: make warp_m or warp_n larger"
        )
    return tiling
