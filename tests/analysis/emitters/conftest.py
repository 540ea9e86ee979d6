"""Devices the emitters are asked about."""

from __future__ import annotations

import pytest

from hloopt.targets import Target

_H200 = Target(
    name="h200", title="", kind="cuda", capability=(9, 0), cores=132, fpus_per_core=128,
    clock_ghz=1.98, memory_bandwidth=4_800_000_000_000, memory_size=151_397_597_184,
    l2_size=52_428_800, warp_size=32, threads_per_block=1024, threads_per_core=2048,
    registers_per_core=65536, registers_per_block=65536, shared_per_block=49152,
    shared_per_block_optin=232_448, shared_per_core=233_472,
    grid_limit=(2147483647, 65535, 65535),
)  # fmt: skip


@pytest.fixture
def h200() -> Target:
    """132 cores of 2048 threads."""
    return _H200
