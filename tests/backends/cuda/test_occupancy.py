"""Occupancy, against figures of NVIDIA's published occupancy calculator."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hloopt.backends.cuda.occupancy import occupancy
from hloopt.targets import Target, target

# Threads, registers and shared bytes a multiprocessor has, by compute capability (CUDA C++ Programming Guide).
CORES = {
    (7, 0): (2048, 98304),
    (7, 5): (1024, 65536),
    (8, 0): (2048, 167936),
    (8, 6): (1536, 102400),
    (8, 9): (1536, 102400),
    (9, 0): (2048, 233472),
    (10, 0): (2048, 233472),
    (12, 0): (1536, 102400),
}


def core(capability: tuple[int, int]) -> Target:
    """A device of a compute capability."""
    threads, shared = CORES[capability]
    reserved = 1024 if capability >= (8, 0) else 0
    return replace(
        target("h200"),
        capability=capability,
        threads_per_core=threads,
        shared_per_core=shared,
        shared_per_block_optin=shared - reserved,
        blocks_per_core=0,
        reserved_shared_per_block=0,
    )


@pytest.mark.parametrize(
    ("capability", "threads", "registers", "shared", "blocks", "warps", "limit"),
    [
        # Full: every register of 2048 threads is one of 32.
        ((9, 0), 256, 32, 0, 8, 64, "threads"),
        ((8, 0), 1024, 32, 0, 2, 64, "threads"),
        ((7, 0), 256, 32, 0, 8, 64, "threads"),
        ((7, 5), 1024, 64, 0, 1, 32, "threads"),
        ((8, 6), 256, 40, 0, 6, 48, "threads"),
        # One register more than fits: registers come in eights a thread, warps in fours.
        ((9, 0), 256, 33, 0, 6, 48, "registers"),
        ((9, 0), 256, 40, 0, 6, 48, "registers"),
        ((9, 0), 256, 41, 0, 5, 40, "registers"),
        ((9, 0), 128, 64, 0, 8, 32, "registers"),
        ((8, 0), 256, 255, 0, 1, 8, "registers"),
        ((9, 0), 1024, 65, 0, 0, 0, "registers"),
        # Warps in fours: 65536 / (56 * 32) = 36.6 warps, 36; blocks of 5 warps: 7.
        ((9, 0), 160, 56, 0, 7, 35, "registers"),
        # Small blocks: as many as there may be.
        ((9, 0), 32, 16, 0, 32, 32, "blocks"),
        ((7, 5), 32, 16, 0, 16, 16, "blocks"),
        ((8, 6), 64, 16, 0, 16, 32, "blocks"),
        ((8, 9), 32, 16, 0, 24, 24, "blocks"),
        ((12, 0), 32, 16, 0, 24, 24, "blocks"),
        # Shared memory, with the kilobyte the system takes of each block from Ampere on.
        ((9, 0), 256, 32, 49152, 4, 32, "shared"),
        ((8, 0), 256, 32, 49152, 3, 24, "shared"),
        ((8, 6), 256, 32, 49152, 2, 16, "shared"),
        ((7, 0), 256, 32, 49152, 2, 16, "shared"),
        ((7, 0), 256, 32, 12289, 7, 56, "shared"),
        ((7, 5), 256, 32, 32768, 2, 16, "shared"),
        ((10, 0), 256, 32, 227 * 1024, 1, 8, "shared"),
        ((10, 0), 256, 32, 227 * 1024 + 1, 0, 0, "shared"),
    ],
)
def test_blocks_a_multiprocessor_holds(
    capability: tuple[int, int],
    threads: int,
    registers: int,
    shared: int,
    blocks: int,
    warps: int,
    limit: str,
) -> None:
    """Blocks, their warps, and which limit was met first."""
    found = occupancy(core(capability), threads, registers, shared)
    assert (found.blocks, found.warps, found.limit) == (blocks, warps, limit)
    assert found.fraction == warps / (CORES[capability][0] / 32)


def test_a_block_that_is_too_large_is_never_held() -> None:
    """2048 threads are more than a block may have, whatever the multiprocessor holds."""
    assert occupancy(core((9, 0)), 2048, 16).blocks == 0
