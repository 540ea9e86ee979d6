"""The table of kernels on a GPU: how long each took, what it moved and computed, and of which limit that is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from hloopt.report.console import table
from hloopt.report.numbers import amount, byte_size, seconds

if TYPE_CHECKING:
    from hloopt.backends.cuda.profile import Profile
    from hloopt.backends.cuda.timing import KernelTime
    from hloopt.targets import Target

__all__ = ["profile_json", "show_profile"]

_MOST_ROWS = 40


def show_profile(profile: Profile, console: Console) -> None:
    """A row a kernel, what takes longest in a run first, and how much of the program they are."""
    made = table(
        "instruction", "kernel", "runs", "time", "of all", "GB/s", "GFLOP/s", "roofline",
        "registers", "spills", "occupancy", left=2,
        optional=("spills", "registers", "occupancy", "GFLOP/s", "runs"),
    )  # fmt: skip
    for kernel in profile.kernels[:_MOST_ROWS]:
        made.add_row(*_cells(kernel, profile))
    console.print(made)
    for line in _lines(profile):
        console.print(Text(line), soft_wrap=True)


def _cells(kernel: KernelTime, profile: Profile) -> list[str]:
    spread = f" ± {seconds(kernel.timing.spread)}" if kernel.timing.spread else ""
    taken = kernel.resources
    held = kernel.occupancy(profile.target)
    spills = taken.spill_stores + taken.spill_loads if taken is not None else 0
    return [
        kernel.instruction or f"({kernel.function})",
        kernel.function,
        str(kernel.launches),
        seconds(kernel.timing.median) + spread,
        f"{_share(kernel, profile):.0%}",
        f"{kernel.bytes_per_second / 1e9:,.0f}",
        f"{kernel.flops_per_second / 1e9:,.0f}" if kernel.flops else "",
        f"{kernel.share_of_roofline(profile.target):.0%}",
        str(taken.registers) if taken is not None else "",
        byte_size(spills) if spills else "",
        f"{held.fraction:.0%}" if held is not None else "",
    ]


def _share(kernel: KernelTime, profile: Profile) -> float:
    return kernel.timing.median * kernel.launches / profile.busy if profile.busy else 0.0


def _lines(profile: Profile) -> Iterator[str]:
    left = len(profile.kernels) - _MOST_ROWS
    if left > 0:
        yield f"{left} more, each of them shorter (--json has all)"
    moved = sum(kernel.bytes * kernel.launches for kernel in profile.kernels)
    flops = sum(kernel.flops * kernel.launches for kernel in profile.kernels)
    yield (
        f"{profile.target.title}: {seconds(profile.whole.median)} a run as one piece, "
        f"{seconds(profile.busy)} in its kernels one by one; {byte_size(moved)}, {amount(flops)} flops"
    )
    cache = "emptied before each kernel" if profile.is_cold else "as the kernel before left it"
    yield f"compiled with {profile.flags}; second-level cache {cache}"


def profile_json(profile: Profile) -> dict[str, Any]:
    """The profile as JSON values; times in seconds."""
    return {
        "target": profile.target.name,
        "flags": {"name": profile.flags.name, "options": list(profile.flags.options)},
        "is_cold": profile.is_cold,
        "whole": profile.whole.median,
        "whole_spread": profile.whole.spread,
        "busy": profile.busy,
        "kernels": [_json(kernel, profile.target) for kernel in profile.kernels],
    }


def _json(kernel: KernelTime, target: Target) -> dict[str, Any]:
    taken, held = kernel.resources, kernel.occupancy(target)
    return {
        "instruction": kernel.instruction,
        "function": kernel.function,
        "launches": kernel.launches,
        "seconds": kernel.timing.median,
        "spread": kernel.timing.spread,
        "bytes": kernel.bytes,
        "flops": kernel.flops,
        "roofline": kernel.share_of_roofline(target),
        "registers": taken.registers if taken is not None else None,
        "spill_stores": taken.spill_stores if taken is not None else None,
        "spill_loads": taken.spill_loads if taken is not None else None,
        "stack": taken.stack if taken is not None else None,
        "shared": taken.shared if taken is not None else None,
        "occupancy": held.fraction if held is not None else None,
        "limit": held.limit if held is not None else None,
    }
