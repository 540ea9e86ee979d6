"""How long products by ``mma.sync`` take, by the tile of a block and those of its warps.

::

    time = fill + max(waves * 2 * m * n * k / rate, bytes / bandwidth)

``waves`` are the tiles over the cores, rounded up; ``rate`` the flops a second of a core: what its matrix units
sustain by such instructions, what its shared memory feeds to the registers of warps, and the second-level cache
to shared memory.  A warp of ``rows`` by ``columns`` results reads ``rows + columns`` elements for
``2 * rows * columns`` flops.  With one rate fitted to the largest it is within 9 % of 512 to 8192 squared on an
RTX PRO 6000 (public benchmark blackwell-tensorcore-kernels).
"""

from __future__ import annotations

from math import ceil
from typing import Final

from hloopt.cost_models.device_times import L2_SPEEDUP
from hloopt.dataclass import dataclass
from hloopt.targets import Target

__all__ = ["TileSizes", "matrix_unit_time"]

_FILL_S: Final = 1e-6
"""First loads and last stores."""
_SHARED_CLOCK_BYTES: Final = 128
_L2_CLOCK_BYTES: Final = 64
_SUSTAINED: Final = {9: 0.6, 10: 0.6}
"""Share of the peak by the major number of the compute capability: where larger instructions reach the rest."""
_SUSTAINED_ELSEWHERE: Final = 0.85


@dataclass(frozen=True, slots=True)
class TileSizes:
    """A tile of a block and of a warp, of results."""

    rows: int
    columns: int
    warp_rows: int
    warp_columns: int


def matrix_unit_time(
    sizes: tuple[int, int, int, int],
    tile: TileSizes,
    dtype: str,
    element_bytes: int,
    moved_bytes: int,
    target: Target,
) -> float:
    """Seconds, without the launch, of b products of m by k and k by n elements; ``sizes`` are b, m, n, k.

    ``moved_bytes`` is what comes from memory and goes there.  Infinite on devices whose rates are not known.
    """
    batch, rows, columns, depth = sizes
    peak = target.peak_flops(dtype, "matrix")
    if not peak:
        return float("inf")
    blocks = batch * ceil(rows / tile.rows) * ceil(columns / tile.columns)
    clock = target.clock_ghz * 1e9
    sustained = peak / target.cores * _SUSTAINED.get(target.capability[0], _SUSTAINED_ELSEWHERE)
    read = (tile.warp_rows + tile.warp_columns) * element_bytes
    fed = clock * _SHARED_CLOCK_BYTES * 2 * tile.warp_rows * tile.warp_columns / read
    from_l2 = min(
        target.memory_bandwidth * L2_SPEEDUP / min(blocks, target.cores), clock * _L2_CLOCK_BYTES
    )
    cached = 2 * tile.rows * tile.columns / ((tile.rows + tile.columns) * element_bytes)
    rate = min(sustained, fed, from_l2 * cached)
    waves = ceil(blocks / target.cores)
    computing = waves * 2 * tile.rows * tile.columns * depth / rate
    return _FILL_S + max(computing, moved_bytes / target.memory_bandwidth)
