"""The table of kernels on a GPU: how long each took, what it moved and computed, and of which limit that is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from hloopt.numbers import amount, byte_size, seconds
from hloopt.report.console import TableColumn, records_table, say

if TYPE_CHECKING:
    from hloopt.backends.cuda.profile import Profile
    from hloopt.backends.cuda.timing import KernelTime
    from hloopt.targets import Target

__all__ = ["profile_json", "show_profile"]

_MOST_ROWS = 40
_RESOURCES: Final = ("registers", "spill_stores", "spill_loads", "stack", "shared")


def _time(row: dict[str, Any]) -> str:
    spread = row["spread"]
    return seconds(row["seconds"]) + (f" ± {seconds(spread)}" if spread else "")


_COLUMNS: Final = (
    TableColumn("instruction", "", lambda row: row["instruction"] or f"({row['function']})"),
    TableColumn("kernel", "function"),
    TableColumn("runs", "launches"),
    TableColumn("time", "", _time),
    TableColumn("of all", "share", "{:.0%}".format),
    TableColumn("GB/s", "bytes_per_second", lambda rate: f"{rate / 1e9:,.0f}"),
    TableColumn("GFLOP/s", "flops_per_second", lambda rate: f"{rate / 1e9:,.0f}" if rate else ""),
    TableColumn("roofline", "roofline", "{:.0%}".format),
    TableColumn("registers", "registers"),
    TableColumn("spills", "spills", lambda size: byte_size(size) if size else ""),
    TableColumn("occupancy", "occupancy", lambda part: "" if part is None else f"{part:.0%}"),
)


def show_profile(profile: Profile, console: Console) -> None:
    """A row a kernel, what takes longest in a run first, and how much of the program they are."""
    rows = [
        {
            **_json(kernel, profile.target),
            "share": kernel.timing.median * kernel.launches / (profile.busy or 1.0),
            "bytes_per_second": kernel.bytes_per_second,
            "flops_per_second": kernel.flops_per_second,
            "spills": taken.spill_stores + taken.spill_loads if taken is not None else 0,
        }
        for kernel in profile.kernels[:_MOST_ROWS]
        for taken in (kernel.resources,)
    ]
    optional = ("spills", "registers", "occupancy", "GFLOP/s", "runs")
    console.print(records_table(_COLUMNS, rows, left=2, optional=optional))
    for line in _lines(profile):
        say(console, line)


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
    held = kernel.occupancy(target)
    return {
        "instruction": kernel.instruction,
        "function": kernel.function,
        "launches": kernel.launches,
        "seconds": kernel.timing.median,
        "spread": kernel.timing.spread,
        "bytes": kernel.bytes,
        "flops": kernel.flops,
        "roofline": kernel.share_of_roofline(target),
        **{key: getattr(kernel.resources, key, None) for key in _RESOURCES},
        "occupancy": held.fraction if held is not None else None,
        "limit": held.limit if held is not None else None,
    }
