"""A device as numbers."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Target"]


@dataclass(frozen=True)
class Target:
    """A device description.

    name                  as ``--target`` has it
    title                 the product's name
    kind                  ``cuda``, ``rocm`` or ``tpu``
    capability            of CUDA: (major, minor)
    cores                 streaming multiprocessors
    fpus_per_core         f32 lanes of one
    clock_ghz             boost clock
    memory_bandwidth      bytes a second
    memory_size           bytes
    l2_size               bytes
    warp_size             threads that run together
    threads_per_block     limit
    threads_per_core      limit
    registers_per_core    of 32 bits
    registers_per_block   of 32 bits
    shared_per_block      bytes a block has without asking
    shared_per_block_optin  bytes a block has at most
    shared_per_core       bytes
    grid_limit            blocks in x, y, z
    """

    name: str
    title: str
    kind: str
    capability: tuple[int, int]
    cores: int
    fpus_per_core: int
    clock_ghz: float
    memory_bandwidth: int
    memory_size: int
    l2_size: int
    warp_size: int
    threads_per_block: int
    threads_per_core: int
    registers_per_core: int
    registers_per_block: int
    shared_per_block: int
    shared_per_block_optin: int
    shared_per_core: int
    grid_limit: tuple[int, int, int]
