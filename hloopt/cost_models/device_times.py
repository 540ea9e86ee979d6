"""How long a device takes to read, write and compute, as XLA's model of 2026 has it; see ``xla_2026``.

Numbers are rounded to f32 where XLA's are floats, and times to whole ticks of a quarter of a nanosecond:
``absl::Duration`` rounds what it makes of a number of seconds, and each product of a time and a number, halves
away from zero; the steps in between are rounded as doubles are, which decides about halves.
"""

from __future__ import annotations

from math import floor, isinf
from typing import Final

from hloopt.cost_models.counting import narrow
from hloopt.targets import Target
from hloopt.types import ArrayShape, Shape

__all__ = [
    "L1_SPEEDUP",
    "L2_SPEEDUP",
    "LAUNCH_NS",
    "PARALLELISM",
    "DeviceTimes",
    "of_seconds",
    "scaled",
]


_TUPLE_ELEMENT_BYTES: Final = 4
"""What XLA assumes for an element of something that is not an array."""


LAUNCH_NS: Final = 1000.0
"""Of one kernel."""
L2_SPEEDUP: Final = 2.5
"""Of reads from the second-level cache over those from memory."""
L1_SPEEDUP: Final = 8.0
"""Of reads from the first-level cache over those from the second."""
PARALLELISM: Final = 0.95
"""The share of the shorter one of computing and memory traffic that the longer hides."""


class DeviceTimes:
    """Times in nanoseconds, in whole ticks of a quarter.

    Raises ``ValueError`` for a device that has no blocks and threads.
    """

    def __init__(self, target: Target) -> None:
        if not target.has_threads:
            raise ValueError(f"{target.name} runs no kernels: it has no blocks and threads")
        self.target = target
        clock = narrow(target.clock_ghz)
        self._bandwidth = narrow(target.memory_bandwidth)
        self._from_l2 = narrow(self._bandwidth * L2_SPEEDUP)
        self._from_l1 = narrow(self._from_l2 * L1_SPEEDUP)
        self._l1_bytes = target.l1_per_core * target.cores
        self._block_bandwidth = narrow(narrow(clock * 1e9) * target.core_transaction)
        self._unit_rate = narrow(clock * 2)
        # Kernels of one program read and compute the same again and again.
        self._reads: dict[tuple[int, int, int, int, bool], float] = {}
        self._computes: dict[tuple[int, int, int], float] = {}

    def read(self, shape: Shape, total: int, blocks: int, *, coalesced: bool) -> float:
        """To read ``total`` bytes of an array, repeated reads among them: the first time from memory."""
        key = (shape.byte_size, _element_bytes(shape), total, blocks, coalesced)
        known = self._reads.get(key)
        if known is None:
            known = self._reads[key] = self._read(*key)
        return known

    def _read(self, size: int, element: int, total: int, blocks: int, coalesced: bool) -> float:
        net = min(size, total)
        memory = again = self._bandwidth
        if not coalesced:
            memory = narrow(memory * element / self.target.dram_transaction)
        if net >= self.target.l2_size:
            again = memory
        elif net >= self._l1_bytes:
            again = self._from_l2
        else:
            again = self._from_l1
        limit = narrow(blocks * self._block_bandwidth)
        if not limit:
            return 0.0
        first = of_seconds(narrow(net / min(memory, limit)))
        if total == net:
            return first
        return first + of_seconds(narrow((total - net) / min(again, limit)))

    def write(self, count: int) -> float:
        """To write so many bytes."""
        return of_seconds(narrow(narrow(count) / self._bandwidth))

    def compute(self, flops: int, blocks: int, threads: int) -> float:
        """With so many blocks of so many threads each; idle cores and lanes do not help."""
        key = (flops, blocks, threads)
        known = self._computes.get(key)
        if known is None:
            known = self._computes[key] = self._compute(flops, blocks, threads)
        return known

    def _compute(self, flops: int, blocks: int, threads: int) -> float:
        target = self.target
        units = min(blocks, target.cores) * min(threads, target.fpus_per_core)
        rate = int(self._unit_rate * units)
        return scaled(1.0, narrow(narrow(flops) / rate)) if rate else 0.0

    def together(self, compute: float, memory: float) -> float:
        """Both, as far as they overlap."""
        return compute + memory - scaled(min(compute, memory), PARALLELISM)


def _element_bytes(shape: Shape) -> int:
    if not isinstance(shape, ArrayShape):
        return _TUPLE_ELEMENT_BYTES
    return shape.dtype.bytes


_SECOND: Final = 4e9


def of_seconds(seconds: float) -> float:
    """Nanoseconds of a number of seconds; infinity stays."""
    return seconds if isinf(seconds) else floor(seconds * _SECOND + 0.5) / 4


def scaled(nanoseconds: float, factor: float) -> float:
    """Nanoseconds of a time in whole ticks times a number; infinity stays."""
    return of_seconds(nanoseconds * 4 * factor / _SECOND)
