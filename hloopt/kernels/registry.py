"""All kernels there are, in order of preference: hloopt's own families, then what else was registered.

A family is loaded when kernels are first requested, so that naming one here costs nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache

from hloopt.errors import UsageError
from hloopt.kernels.kernel import Kernel, KernelDevice
from hloopt.rewrite.spec import did_you_mean

__all__ = [
    "FAMILIES",
    "find_kernel",
    "kernels",
    "register",
    "registered",
    "registered_kernels",
    "unregister",
]

# Special kernels come before general ones; each family adds its line.
FAMILIES: tuple[str, ...] = (
    "kernels.families.copy",
    "kernels.families.while_per_thread",
    "kernels.families.while_per_block",
    "kernels.families.fft",
    "kernels.families.linear_systems",
    "kernels.families.library",
    "kernels.families.attention",
    "kernels.families.dot_vector",
    "kernels.families.dot_small",
    "kernels.families.dot_mma",
    "kernels.families.dot_tiled",
    "kernels.families.convolution",
    "kernels.families.in_place_update",
    "kernels.families.scatter",
    "kernels.families.scan",
    "kernels.families.sort",
    "kernels.families.whole_row",
    "kernels.families.running_reduction",
    "kernels.families.row_reduction",
    "kernels.families.column_reduction",
    "kernels.families.split_reduction",
    "kernels.families.transpose",
    "kernels.families.loop_along",
    "kernels.families.concatenate",
    "kernels.families.loop",
    "backends.native.kernels.while_loop",
    "backends.native.kernels.update",
    "backends.native.kernels.dot",
    "backends.native.kernels.gemm",
    "backends.native.kernels.linear_systems",
    "backends.native.kernels.fft",
    "backends.native.kernels.reduction",
    "backends.native.kernels.running",
    "backends.native.kernels.sort",
    "backends.native.kernels.call",
    "backends.native.kernels.loop",
)
"""Modules with ``KERNELS``: those of GPUs, then those of the native device."""

_REGISTERED: dict[str, Kernel] = {}


@cache
def _own() -> tuple[Kernel, ...]:
    found: list[Kernel] = []
    for family in FAMILIES:
        module = importlib.import_module(f"hloopt.{family}")
        found.extend(module.KERNELS)
    return tuple(found)


@cache
def _installed() -> tuple[Kernel, ...]:
    from hloopt.kernels.user import installed

    found = installed()
    taken = {kernel.name for kernel in _own()}
    for kernel in found:
        if kernel.name in taken:
            raise UsageError(f"{kernel.owner}: there is a kernel '{kernel.name}' already")
    return found


def kernels(device: KernelDevice = "gpu") -> tuple[Kernel, ...]:
    """The kernels of a device in order of preference: registered ones, installed ones, hloopt's own.

    Raises ``UsageError`` for an installed one that cannot be loaded.
    """
    every = (*_REGISTERED.values(), *_installed(), *_own())
    return tuple(kernel for kernel in every if kernel.device == device)


def registered_kernels(device: KernelDevice) -> tuple[Kernel, ...]:
    """The kernels of a device that were registered in this process, such as those of ``--kernel FILE``."""
    return tuple(kernel for kernel in _REGISTERED.values() if kernel.device == device)


def find_kernel(name: str, device: KernelDevice = "gpu") -> Kernel:
    """The kernel of a name.  Raises ``UsageError`` with the nearest names where there is none."""
    known = {kernel.name: kernel for kernel in kernels(device)}
    if name not in known:
        raise UsageError(f"no kernel is called '{name}'" + did_you_mean(name, known))
    return known[name]


def register(kernel: Kernel) -> None:
    """Register a kernel for selection in this process.  Raises ``UsageError`` for a name that is taken."""
    for other in (*_REGISTERED.values(), *_installed(), *_own()):
        if other.name == kernel.name and other.device == kernel.device:
            whose = f" ({other.owner})" if other.owner else ""
            raise UsageError(f"{kernel.owner}: there is a kernel '{kernel.name}' already{whose}")
    _REGISTERED[f"{kernel.device} {kernel.name}"] = kernel


def unregister(kernel: Kernel) -> None:
    """Forget a kernel that was registered."""
    del _REGISTERED[f"{kernel.device} {kernel.name}"]


@contextmanager
def registered(found: Iterable[Kernel]) -> Iterator[None]:
    """Kernels that are known while the block runs."""
    known: list[Kernel] = []
    try:
        for kernel in found:
            register(kernel)
            known.append(kernel)
        yield
    finally:
        for kernel in known:
            unregister(kernel)
