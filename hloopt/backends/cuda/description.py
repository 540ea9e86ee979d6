"""The GPU of this machine as a ``Target``: a built-in one, or the driver's description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hloopt.backends.cuda.device import CudaDevice
from hloopt.backends.cuda.driver import open_cupy
from hloopt.backends.cuda.timing import Stopwatch
from hloopt.targets import Target, targets

__all__ = ["describe_gpu", "known_target", "read_properties", "this_gpu"]

# f32 lanes of a multiprocessor (CUDA C++ Programming Guide, "Arithmetic Instructions").
_LANES = {(7, 0): 64, (7, 2): 64, (7, 5): 64, (8, 0): 64}
_LANES_SINCE = 128
# Of the memory, how far sizes of one product differ: parts are set aside for error correction.
_SAME_MEMORY = 0.1


def describe_gpu(device: CudaDevice) -> Target:
    """A known target of the same multiprocessors and memory; else the driver's numbers.

    Where the driver does not report the memory's clock, its bandwidth is measured.
    """
    properties = device.properties()
    known = known_target(properties)
    if known is not None:
        return known
    described = int(properties["memoryClockRate"]) * int(properties["memoryBusWidth"])
    # kHz, two transfers a clock, bits.
    bandwidth = 2 * described * 1000 // 8 or round(Stopwatch(device).copy_bandwidth())
    return read_properties(properties, bandwidth)


def this_gpu(number: int = 0) -> tuple[str, Target | None]:
    """The name of a GPU, and its target where hloopt has one.  Raises ``DeviceError`` without a GPU."""
    properties = open_cupy(number).cuda.runtime.getDeviceProperties(number)
    return _title(properties), known_target(properties)


def _title(properties: Mapping[str, Any]) -> str:
    title = properties["name"]
    return title.decode() if isinstance(title, bytes) else str(title)


def known_target(properties: Mapping[str, Any]) -> Target | None:
    """The built-in target with the same capability, multiprocessors and memory, or None."""
    capability = (int(properties["major"]), int(properties["minor"]))
    wanted = ("cuda", capability, int(properties["multiProcessorCount"]))
    memory = int(properties["totalGlobalMem"])
    for target in targets().values():
        same = (target.kind, target.capability, target.cores) == wanted
        if same and abs(target.memory_size - memory) <= _SAME_MEMORY * target.memory_size:
            return target
    return None


def read_properties(properties: Mapping[str, Any], bandwidth: int) -> Target:
    """A description out of ``cudaDeviceProp`` as CuPy gives it; ``bandwidth`` in bytes a second."""
    capability = (int(properties["major"]), int(properties["minor"]))
    grid = properties["maxGridSize"]
    block = properties["maxThreadsDim"]
    return Target(
        name="this-gpu",
        title=_title(properties),
        kind="cuda",
        capability=capability,
        cores=int(properties["multiProcessorCount"]),
        fpus_per_core=_LANES.get(capability, _LANES_SINCE),
        clock_ghz=int(properties["clockRate"]) / 1e6,
        memory_bandwidth=bandwidth,
        memory_size=int(properties["totalGlobalMem"]),
        l2_size=int(properties["l2CacheSize"]),
        warp_size=int(properties["warpSize"]),
        threads_per_block=int(properties["maxThreadsPerBlock"]),
        threads_per_core=int(properties["maxThreadsPerMultiProcessor"]),
        registers_per_core=int(properties["regsPerMultiprocessor"]),
        registers_per_block=int(properties["regsPerBlock"]),
        shared_per_block=int(properties["sharedMemPerBlock"]),
        shared_per_block_optin=int(properties["sharedMemPerBlockOptin"]),
        shared_per_core=int(properties["sharedMemPerMultiprocessor"]),
        grid_limit=(int(grid[0]), int(grid[1]), int(grid[2])),
        block_limit=(int(block[0]), int(block[1]), int(block[2])),
        blocks_per_core=int(properties["maxBlocksPerMultiProcessor"]),
        reserved_shared_per_block=int(properties["reservedSharedMemPerBlock"]),
        memory_clock_ghz=int(properties["memoryClockRate"]) / 1e6,
        calibrated=False,
        sources={"": "the CUDA runtime's cudaDeviceProp"},
    )
