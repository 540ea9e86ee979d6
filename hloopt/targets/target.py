"""A device as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from hloopt.dataclass import dataclass

__all__ = ["HOST", "Rate", "Target", "Unit"]


Unit: TypeAlias = Literal["scalar", "matrix"]
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Rate:
    """Units of a core that compute with one element type.

    clock_ghz  their clock
    units      of a core
    ops        fused multiply-adds one of them starts in a clock
    """

    clock_ghz: float
    units: int
    ops: int

    @property
    def flops_per_clock(self) -> int:
        """Flops of one core in a clock: a multiply-add is two."""
        return 2 * self.units * self.ops


@dataclass(frozen=True)
class Target:
    """A device description.  0 stands where a number is not known or means nothing for the device.

    name                  as ``--target`` has it
    title                 the product's name
    kind                  ``cuda``, ``rocm``, ``tpu`` or ``cpu``
    capability            of CUDA: (major, minor)
    cores                 streaming multiprocessors (compute units, TensorCores)
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
    shared_per_block      bytes a block has by default
    shared_per_block_optin  bytes a block has at most
    shared_per_core       bytes
    grid_limit            blocks in x, y, z
    block_limit           threads of a block in x, y, z
    blocks_per_core       limit
    reserved_shared_per_block  bytes of shared memory the system takes of each block
    memory_clock_ghz      of the device's memory
    pcie_bandwidth        bytes a second between host and device
    interconnect_links    active links to other devices
    l1_per_core           bytes of first-level cache that XLA's cost model assumes a kernel can use
    dram_transaction      bytes of the smallest access to memory
    core_transaction      bytes a core exchanges with the memory system in a clock
    calibrated            whether the cost model has measured figures of such a device; else it only predicts
    scalar_rates          by element type: what XLA's description says of the units for single numbers
    matrix_rates          by element type: the same of the units for matrices
    scalar_peaks          by element type: flops a second, where a document other than XLA's gives them
    matrix_peaks          by element type: the same for dense matrix products
    sources               by field, or ``field.type``: where a number is from; ``""`` is for all others
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
    block_limit: tuple[int, int, int] = (0, 0, 0)
    blocks_per_core: int = 0
    reserved_shared_per_block: int = 0
    memory_clock_ghz: float = 0.0
    pcie_bandwidth: int = 0
    interconnect_links: int = 0
    l1_per_core: int = 0
    dram_transaction: int = 0
    core_transaction: int = 0
    calibrated: bool = True
    scalar_rates: Mapping[str, Rate] = field(default_factory=lambda: _NOTHING, hash=False)
    matrix_rates: Mapping[str, Rate] = field(default_factory=lambda: _NOTHING, hash=False)
    scalar_peaks: Mapping[str, float] = field(default_factory=lambda: _NOTHING, hash=False)
    matrix_peaks: Mapping[str, float] = field(default_factory=lambda: _NOTHING, hash=False)
    sources: Mapping[str, str] = field(default_factory=lambda: _NOTHING, hash=False, repr=False)

    def source(self, name: str) -> str:
        """Where the number ``name`` (``cores``, ``matrix_rates.f16``) is from; empty where that is unknown."""
        whole = name.split(".", maxsplit=1)[0]
        return self.sources.get(name) or self.sources.get(whole) or self.sources.get("", "")

    @property
    def has_threads(self) -> bool:
        """Whether kernels run in blocks of threads here, and how many is known."""
        return bool(self.cores and self.warp_size and self.fpus_per_core and self.grid_limit[0])

    def peak_flops(self, dtype: str, unit: Unit = "scalar") -> float | None:
        """Flops a second of all cores with numbers of an element type; None where nothing is known.

        ``matrix`` is for products of dense matrices, with the scalar units' rate where no unit for matrices
        takes the type (``f32`` in matrices is TF32 on CUDA).  The rate of a description counts ``clock * cores
        * units * ops * 2``; without one, floats of up to 32 bits have ``clock * cores * fpus * 2``.
        """
        if unit == "matrix":
            rate = self._peak(dtype, self.matrix_rates, self.matrix_peaks)
            if rate is not None:
                return rate
        rate = self._peak(dtype, self.scalar_rates, self.scalar_peaks)
        if rate is None and self.fpus_per_core and dtype in _FALLBACK:
            rate = self.clock_ghz * 1e9 * self.cores * self.fpus_per_core * 2
        return rate

    def _peak(
        self, dtype: str, rates: Mapping[str, Rate], peaks: Mapping[str, float]
    ) -> float | None:
        rate = rates.get(dtype)
        if rate is not None:
            return rate.clock_ghz * 1e9 * self.cores * rate.flops_per_clock
        return peaks.get(dtype)

    def roofline(self, bytes: int, flops: int, dtype: str, unit: Unit = "scalar") -> float:
        """The seconds that moving ``bytes`` and computing ``flops`` take at least, the longer of the two.

        Memory alone counts where no rate for ``dtype`` is known.
        """
        peak = self.peak_flops(dtype, unit)
        compute = flops / peak if peak else 0.0
        return max(bytes / self.memory_bandwidth, compute)


# Types the f32 lanes compute in, one element in a lane.
_FALLBACK = frozenset({"f32", "f16", "bf16"})


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
    scalar_rates=MappingProxyType({"f64": Rate(clock_ghz=3.0, units=8, ops=1)}),
    sources={"": "a usual core with vectors of 32 or 64 bytes, in round figures"},
)
"""A core with 8 to 16 lanes of f32, 32 KiB of first-level and 1 MiB of second-level cache."""
