"""The processor a program is compiled for natively, as a target.

Plans must not depend on the machine they are made on, so this describes a usual core, not the one at hand:
where a kernel wants blocks that stay in a cache, these are the sizes it goes by.
"""

from __future__ import annotations

from typing import Final

from hloopt.targets.target import Target

__all__ = ["HOST"]

HOST: Final = Target(
    name="host",
    title="the host's processor",
    kind="cpu",
    capability=(0, 0),
    cores=1,
    fpus_per_core=16,
    clock_ghz=3.0,
    memory_bandwidth=20_000_000_000,
    memory_size=0,
    l2_size=1 << 20,
    warp_size=0,
    threads_per_block=1,
    threads_per_core=1,
    registers_per_core=0,
    registers_per_block=0,
    shared_per_block=0,
    shared_per_block_optin=0,
    shared_per_core=0,
    grid_limit=(2**31 - 1, 1, 1),
    l1_per_core=32 << 10,
    sources={"": "a usual core with vectors of 32 or 64 bytes, in round figures"},
)
"""A core with 8 to 16 lanes of f32, 32 KiB of first-level and 1 MiB of second-level cache."""
