"""The occupancy of a kernel: how many warps a multiprocessor holds, of those it could hold.

The formula of NVIDIA's occupancy calculator: registers are given to warps in units of 256, and warps in
fours; shared memory to blocks in units of 128 bytes (256 before Ampere), with a kilobyte for the system from
Ampere on.  The CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", has the limits.
"""

from __future__ import annotations

from typing import Literal

from hloopt.dataclass import dataclass
from hloopt.targets import Target

__all__ = ["Occupancy", "occupancy"]

Limit = Literal["threads", "blocks", "registers", "shared"]

_REGISTER_UNIT, _WARP_UNIT, _AMPERE = 256, 4, (8, 0)
# Blocks a multiprocessor holds, where it is not 32.
_BLOCKS = {(7, 5): 16, (8, 6): 16, (8, 7): 16, (8, 9): 24, (11, 0): 24, (12, 0): 24, (12, 1): 24}


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Of one multiprocessor: ``blocks`` and their ``warps`` of at most ``most``; ``limit`` allows no more."""

    blocks: int
    warps: int
    most: int
    limit: Limit

    @property
    def fraction(self) -> float:
        """Warps held of those that could be, 0 to 1."""
        return self.warps / self.most


def occupancy(target: Target, threads: int, registers: int, shared: int = 0) -> Occupancy:
    """Of a kernel of ``threads`` a block, ``registers`` a thread and ``shared`` bytes a block.

    0 blocks where one takes more than there is.
    """
    warps = _ceiling(threads, target.warp_size)
    most = target.threads_per_core // target.warp_size
    blocks = target.blocks_per_core or _BLOCKS.get(target.capability, 32)
    allowed: dict[Limit, int] = {
        "threads": most // warps if threads <= target.threads_per_block else 0,
        "registers": _by_registers(target, warps, registers),
        "shared": _by_shared(target, shared),
        "blocks": blocks,
    }
    limit = min(allowed, key=lambda name: allowed[name])
    return Occupancy(allowed[limit], allowed[limit] * warps, most, limit)


def _by_registers(target: Target, warps: int, registers: int) -> int:
    if not registers:
        return target.registers_per_core
    a_warp = _ceiling(registers * target.warp_size, _REGISTER_UNIT) * _REGISTER_UNIT
    held = target.registers_per_block // a_warp // _WARP_UNIT * _WARP_UNIT
    return held // warps * (target.registers_per_core // target.registers_per_block)


def _by_shared(target: Target, shared: int) -> int:
    is_new = target.capability >= _AMPERE
    reserved = target.reserved_shared_per_block or (1024 if is_new else 0)
    granule = 128 if is_new else 256
    a_block = _ceiling(shared + reserved, granule) * granule
    if shared > target.shared_per_block_optin:
        return 0
    return target.shared_per_core // a_block if a_block else target.shared_per_core


def _ceiling(amount: int, granule: int) -> int:
    return -(-amount // granule)
