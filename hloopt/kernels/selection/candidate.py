"""What could run an instruction: every kernel of the device with its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.kernels.estimate import Estimate, estimate
from hloopt.kernels.kernel import NO, Kernel, Site, Verdict
from hloopt.kernels.spec import KernelSpec, Launch, Tile
from hloopt.rewrite.spec import did_you_mean
from hloopt.types import ArrayShape, DType

__all__ = ["Candidate", "candidates", "packing_problem", "with_tile"]

_SWITCHES: Final = ("keep", "units", "prefetch", "skip")
"""Parameters of tiles that say yes or no by 1 or 0."""


@dataclass(frozen=True)
class Candidate:
    """A kernel at a site.

    ``ok`` and ``reason`` say whether it can run there and why not; the rest is computed only where it can,
    and with its default tile.
    """

    kernel: Kernel
    site: Site
    fits: Verdict

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.kernel.name

    @property
    def ok(self) -> bool:
        """Whether it can run there."""
        return self.fits.ok

    @property
    def reason(self) -> str:
        """Why it cannot."""
        return self.fits.reason

    @cached_property
    def wanted(self) -> Verdict:
        """Whether a rule says that it should."""
        return self.kernel.wanted(self.site) if self.ok else NO("")

    @cached_property
    def tile(self) -> Tile:
        """The default tile."""
        return self.kernel.tile(self.site)

    @cached_property
    def spec(self) -> KernelSpec:
        """Launches and buffers."""
        return self.kernel.spec(self.site, self.tile)

    @cached_property
    def estimate(self) -> Estimate:
        """What it would cost."""
        return estimate(self.site, self.kernel, self.spec)


def candidates(site: Site, kernels: Sequence[Kernel]) -> tuple[Candidate, ...]:
    """All kernels at a site, in order of preference."""
    shapeless = _shapeless(site)
    waiting = _waiting(site)
    refused = {"gpu": shapeless if waiting is None else waiting, "native": shapeless}

    def verdict(kernel: Kernel) -> Verdict:
        found = refused.get(kernel.device)
        return kernel.fits(site) if found is None else found

    return tuple(Candidate(kernel, site, verdict(kernel)) for kernel in kernels)


def _waiting(site: Site) -> Verdict | None:
    """Why no kernel of a GPU runs an instruction: it waits for the host."""
    for inner in site.region.body:
        if inner.op.family == "host":
            return NO(f"{inner.opcode} waits for the host, which no kernel does")
    return None


def _shapeless(site: Site) -> Verdict | None:
    """What no kernel of a device does: arrays of unknown sizes, types without a form in its memory."""
    region = site.region
    shapes = [*region.operands, *(result.shape for result in region.results)]
    shapes += [inner.shape for inner in region.body if isinstance(inner.shape, ArrayShape)]
    for shape in shapes:
        if any(shape.dynamic):
            return NO(f"{shape} has a dimension whose size the program decides")
        if problem := packing_problem(shape.dtype):
            return NO(problem)
    return None


def packing_problem(dtype: DType) -> str:
    """Why elements of a type have no place in a device's memory, empty where they have."""
    if dtype.bits == 0 or dtype.bits % 8 == 0 or 8 % dtype.bits == 0:
        return ""
    return f"elements of {dtype} have {dtype.bits} bits, which are not packed into bytes"


def with_tile(kernel: Kernel, site: Site, given: Tile) -> tuple[Tile, KernelSpec]:
    """The default tile with what was given in its place, and its spec.

    Raises ``UsageError`` for a parameter the kernel does not have and a value that cannot be.
    """
    default = kernel.tile(site)
    for key in given:
        if key not in default:
            hint = did_you_mean(key, default) if default else " (its tile has none)"
            raise UsageError(f"the tile of {kernel.name} has no '{key}'{hint}")
        if given[key] < (0 if key in _SWITCHES else 1):
            raise UsageError(f"{kernel.name}: {key}={given[key]}; a tile's sizes are 1 or more")
    tile = {**default, **given}
    spec = kernel.spec(site, tile)
    most = site.target.threads_per_block
    for launch in spec.steps if kernel.device == "gpu" and most else ():
        threads = prod(launch.block) if isinstance(launch, Launch) else 1
        if threads > most:
            raise UsageError(
                f"{kernel.name}: a block would have {threads} threads, {most} at most on {site.target.name}"
            )
    return tile, spec
