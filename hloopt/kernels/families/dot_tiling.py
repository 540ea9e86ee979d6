"""Tiles of matrix products: how large, by how many threads, and how often the contracted axis is cut."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import Final

from hloopt.analysis.contraction import Contraction
from hloopt.analysis.layout import major_to_minor
from hloopt.analysis.region import Region
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.kernels.families.dot_region import ProductRegion, product_of
from hloopt.kernels.kernel import Efficiency, Site
from hloopt.kernels.spec import Tile

__all__ = [
    "SHARED_BYTES",
    "Tiling",
    "contraction_of",
    "default_tile",
    "efficiency_of",
    "oriented",
    "splits_wanted",
    "tiling_of",
]

SHARED_BYTES: Final = 48 * 1024
"""Static shared memory a block has on every device."""

_VECTOR_BYTES = 16

# m, n, and how many results of each a thread has, by the bytes of a sum; the larger ones first.
_SHAPES: Final[Mapping[int, tuple[tuple[int, int, int, int], ...]]] = {
    4: ((128, 128, 8, 8), (128, 64, 8, 4), (64, 128, 4, 8), (64, 64, 4, 4), (32, 128, 4, 4),
        (128, 32, 4, 4), (16, 128, 2, 4), (128, 16, 4, 2), (32, 32, 2, 2), (16, 32, 1, 2),
        (32, 16, 2, 1), (16, 16, 1, 1)),
    8: ((64, 64, 4, 4), (32, 64, 2, 4), (64, 32, 4, 2), (16, 64, 2, 2), (64, 16, 2, 2),
        (32, 32, 2, 2), (16, 32, 1, 2), (32, 16, 2, 1), (16, 16, 1, 1)),
    16: ((32, 32, 2, 2), (16, 32, 1, 2), (32, 16, 2, 1), (16, 16, 1, 1)),
}  # fmt: skip


@dataclass(frozen=True)
class Tiling:
    """A tile as counts.

    m, n, k           results of a block, and how much of the contracted axis is in shared memory at once
    thread_m, thread_n  results of a thread
    split             parts of the contracted axis, each of ``chunk`` elements, a multiple of k
    prefetch          whether a tile is read from memory while the one before is multiplied
    """

    m: int
    n: int
    k: int
    thread_m: int
    thread_n: int
    vector: int
    prefetch: bool
    split: int
    chunk: int
    blocks_m: int
    blocks_n: int
    element_bytes: int

    @property
    def threads_m(self) -> int:
        """Threads along m."""
        return self.m // self.thread_m

    @property
    def threads_n(self) -> int:
        """Threads along n."""
        return self.n // self.thread_n

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.threads_m * self.threads_n

    @property
    def run_m(self) -> int:
        """Neighbours along m that a thread takes from shared memory at once."""
        return gcd(self.thread_m, max(1, _VECTOR_BYTES // self.element_bytes))

    @property
    def run_n(self) -> int:
        """Neighbours along n that a thread takes from shared memory at once."""
        return gcd(self.thread_n, max(1, _VECTOR_BYTES // self.element_bytes))

    def load_run(self, extent: int, tile: int) -> int:
        """Neighbours a thread reads from memory at once, of a tile of an axis of ``extent`` elements."""
        run = gcd(gcd(self.vector, tile), extent)
        return run & -run


def element_bytes(contraction: Contraction) -> int:
    """Bytes of a sum, and of a factor in shared memory."""
    return contraction.accumulator.bytes


def oriented(product: ProductRegion, region: Region) -> Contraction:
    """The contraction with n as what moves through neighbours of the first result."""
    contraction = product.contraction
    order: list[tuple[str, int]] = []
    for position, size in zip(contraction.result, contraction.hero_dims, strict=True):
        groups = [axis[0] for axis, _ in position.terms if axis[0] != "b"]
        order.append((groups[-1] if groups else "b", size))
    shape = region.results[0].shape
    for move in product.routes[0]:
        if move.opcode == "transpose":
            order = [order[dimension] for dimension in move.attributes["dimensions"]]
        elif move.array.dims != tuple(size for _, size in order):
            # Reshaped elements keep their order as long as that is the one in memory.
            shape = move.operands[0].array
            break
    if len(shape.dims) == len(order):
        order = [order[dimension] for dimension in major_to_minor(shape)]
    last = next((group for group, size in reversed(order) if size > 1), "n")
    return contraction.swapped() if last == "m" else contraction


def contraction_of(site: Site) -> Contraction:
    """The oriented contraction of a region that is a product."""
    return oriented(product_of(site.region), site.region)


def default_tile(site: Site, contraction: Contraction, split: int = 1) -> dict[str, int]:
    """The tile whose slowest core is done first.

    A core does its blocks one after the other; a multiply-add of a thread with t_m by t_n results takes as
    long as 1 + 2/t_m + 2/t_n, since it reads 1/t_m + 1/t_n factors from shared memory.
    """
    size = element_bytes(contraction)
    m, n, k = (contraction.size(group) for group in ("m", "n", "k"))

    def cost(shape: tuple[int, int, int, int]) -> float:
        rows, columns, thread_m, thread_n = shape
        blocks = contraction.size("b") * split * -(-m // rows) * -(-n // columns)
        waves = -(-blocks // site.target.cores)
        return waves * rows * columns * (1 + 2 / thread_m + 2 / thread_n)

    shapes = _SHAPES[max(4, size)]
    rows, columns, thread_m, thread_n = min(shapes, key=cost)
    depth = 16 if size <= 4 else 8
    while depth > 4 and depth // 2 >= -(-k // split):
        depth //= 2
    return {
        "m": rows,
        "n": columns,
        "k": depth,
        "thread_m": thread_m,
        "thread_n": thread_n,
        "vector": max(1, _VECTOR_BYTES * 8 // _narrowest(contraction)),
        "prefetch": int(k > 2 * depth * split),
    }


def _narrowest(contraction: Contraction) -> int:
    """Bits of the narrower operand, of which a load of 16 bytes has the most elements."""
    sides = (contraction.lhs, contraction.rhs)
    return max(8, min(side.instruction.array.dtype.bits for side in sides))


def tiling_of(contraction: Contraction, tile: Tile, kernel: str) -> Tiling:
    """The counts of a tile.  Raises ``UsageError`` for one that cannot be."""
    for key, value in tile.items():
        if value < (0 if key == "prefetch" else 1):
            raise UsageError(f"{kernel}: {key}={value}; it must be at least 1")
    for whole, part in (("m", "thread_m"), ("n", "thread_n")):
        if tile[whole] % tile[part]:
            raise UsageError(
                f"{kernel}: {whole}={tile[whole]} is not a multiple of {part}={tile[part]}"
            )
    k, split = contraction.size("k"), tile.get("split", 1)
    chunk = -(-k // (split * tile["k"])) * tile["k"]
    size = element_bytes(contraction)
    tiling = Tiling(
        m=tile["m"],
        n=tile["n"],
        k=tile["k"],
        thread_m=tile["thread_m"],
        thread_n=tile["thread_n"],
        vector=tile["vector"],
        prefetch=bool(tile["prefetch"]),
        split=-(-k // chunk),
        chunk=chunk,
        blocks_m=-(-contraction.size("m") // tile["m"]),
        blocks_n=-(-contraction.size("n") // tile["n"]),
        element_bytes=size,
    )
    if tiling.threads > 1024 or tiling.threads % 32:
        raise UsageError(
            f"{kernel}: m / thread_m * n / thread_n = {tiling.threads} threads; a block has a multiple of"
            " 32 of them, at most 1024"
        )
    if tile["vector"] not in (1, 2, 4, 8, 16):
        raise UsageError(f"{kernel}: vector={tile['vector']}; it is 1, 2, 4, 8 or 16")
    # Four elements a row are left free against bank conflicts.
    shared = tile["k"] * (tile["m"] + tile["n"] + 8) * size
    if shared > SHARED_BYTES:
        raise UsageError(
            f"{kernel}: tiles of {shared} bytes; shared memory has {SHARED_BYTES}: make m, n or k smaller"
        )
    return tiling


def efficiency_of(contraction: Contraction, tiling: Tiling) -> Efficiency:
    """How near tiles come to the machine: multiply-adds among all a thread does, on results that there are;
    how often operands are read, once for each tile of the other side.
    """
    own = tiling.thread_m * tiling.thread_n
    share = own / (own + tiling.thread_m + tiling.thread_n)
    m, n = contraction.size("m"), contraction.size("n")
    filled = m * n / (tiling.blocks_m * tiling.m * tiling.blocks_n * tiling.n)
    lhs, rhs = (side.instruction.shape.byte_size for side in (contraction.lhs, contraction.rhs))
    repeats = (lhs * tiling.blocks_n + rhs * tiling.blocks_m) / max(1, lhs + rhs)
    reason = (
        f"{tiling.thread_m} by {tiling.thread_n} results a thread, {filled:.0%} of tiles filled"
    )
    return Efficiency(compute=share * filled, repeats=max(1.0, repeats), reason=reason)


# What a flop, a byte, a byte of partial sums and a launch weigh (XLA's split-k rewriter).
_HOPPER = (100.0, 0.194136, 193.1384, 4.36e7)
_BLACKWELL = (100.0, 0.0848863, 189.711, 1.21563e8)
_OTHERS = (100.0, 0.0666955, 467.815, 5.65307e7)
_MOST_SPLITS = 2048
_XLA_TILE = 128


def splits_wanted(site: Site, contraction: Contraction) -> int:
    """Into how many parts XLA's cost formula would cut the contracted axis: a power of two, 1 for none."""
    major = site.target.capability[0]
    weights = _BLACKWELL if major >= 10 else _HOPPER if major == 9 else _OTHERS
    candidates = [1 << power for power in range(_MOST_SPLITS.bit_length())]
    longest = contraction.size("k")
    return min(
        (split for split in candidates if split <= longest),
        key=lambda split: _split_cost(contraction, split, site.target.cores, weights),
    )


def _split_cost(
    contraction: Contraction, split: int, cores: int, weights: tuple[float, float, float, float]
) -> float:
    """The cost of XLA's split-k rewriter for ``split`` parts, in its own units."""
    flop, byte, partial, launch = weights
    b, m, n, k = (contraction.size(group) for group in ("b", "m", "n", "k"))
    lhs, rhs = (
        side.instruction.array.dtype.bits / 8 for side in (contraction.lhs, contraction.rhs)
    )
    wide, out = contraction.accumulator.bits / 8, contraction.result_dtype.bits / 8
    tiles = b * split * -(-m // _XLA_TILE) * -(-n // _XLA_TILE)
    slots = cores * _XLA_TILE**2 / (min(m, _XLA_TILE) * min(n, _XLA_TILE))
    compute = 2 * m * n * -(-k // split) * max(1.0, tiles / slots) * flop
    written = m * n * b * split * (wide if split > 1 else out)
    memory = (m * k * b * lhs + n * k * b * rhs + written) * byte
    cost = max(compute, memory)
    if split == 1:
        return cost
    return cost + launch + (b * split * m * n * wide + b * m * n * out) * partial
