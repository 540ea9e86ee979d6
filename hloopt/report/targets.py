"""Device descriptions as tables and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from rich.table import Table

from hloopt.numbers import amount, byte_size
from hloopt.report.console import table
from hloopt.targets import Rate, Target

__all__ = ["describe", "overview", "rates", "sheet"]

_UNITS = {
    "clock_ghz": "GHz",
    "memory_clock_ghz": "GHz",
    "memory_bandwidth": "bytes/s",
    "pcie_bandwidth": "bytes/s",
    "memory_size": "bytes",
    "l2_size": "bytes",
    "shared_per_block": "bytes",
    "shared_per_block_optin": "bytes",
    "shared_per_core": "bytes",
    "reserved_shared_per_block": "bytes",
    "l1_per_core": "bytes",
    "dram_transaction": "bytes",
    "core_transaction": "bytes/clock",
}
_WORDS = ("name", "title", "kind", "calibrated", "sources")
_RATES = ("scalar_rates", "matrix_rates")
_PEAKS = ("scalar_peaks", "matrix_peaks")


def overview(devices: Iterable[Target]) -> Table:
    """All devices: what a roofline needs of each."""
    made = table(
        *("target", "device", "cores", "GHz", "memory", "GB/s", "L2", "f32", "16-bit matrix"),
        left=2,
        optional=("GHz", "L2"),
    )
    for device in devices:
        made.add_row(
            device.name,
            device.title if device.calibrated else f"{device.title} *",
            str(device.cores),
            _known(device.clock_ghz),
            _bytes(device.memory_size),
            f"{device.memory_bandwidth / 1e9:.0f}",
            _bytes(device.l2_size),
            _flops(device.peak_flops("f32")),
            _flops(_narrow_matrix_peak(device)),
        )
    return made


def sheet(device: Target) -> tuple[Table, dict[str, int]]:
    """Every number of a device that is known, and the numbers of sources that the last column has."""
    numbers: dict[str, int] = {}
    made = table("number", "value", "unit", "from", left=3)
    for entry in fields(Target):
        value = getattr(device, entry.name)
        if entry.name in (*_WORDS, *_RATES, *_PEAKS) or value in (0, (0, 0), (0, 0, 0)):
            continue
        made.add_row(
            entry.name,
            _value(value),
            _UNITS.get(entry.name, ""),
            _note(device, entry.name, numbers),
        )
    return made, numbers


def rates(device: Target, numbers: dict[str, int]) -> Table | None:
    """Flops by element type, of a core in a clock and of the device in a second; None where none is given."""
    made = table("type", "unit", "GHz", "flops/clock/core", "flops/s", "from", left=2)
    for unit in ("scalar", "matrix"):
        given: Mapping[str, Rate] = getattr(device, f"{unit}_rates")
        for dtype, rate in given.items():
            made.add_row(
                dtype, unit, f"{rate.clock_ghz:g}", str(rate.flops_per_clock),
                _flops(rate.clock_ghz * 1e9 * device.cores * rate.flops_per_clock),
                _note(device, f"{unit}_rates.{dtype}", numbers),
            )  # fmt: skip
        peaks: Mapping[str, float] = getattr(device, f"{unit}_peaks")
        for dtype, peak in peaks.items():
            note = _note(device, f"{unit}_peaks.{dtype}", numbers)
            made.add_row(dtype, unit, "-", "-", _flops(peak), note)
    return made if made.row_count else None


def describe(device: Target) -> dict[str, Any]:
    """A device as JSON values: every field, units as in ``Target``, None where nothing is known."""
    found: dict[str, Any] = {}
    for entry in fields(Target):
        value = getattr(device, entry.name)
        if entry.name == "sources":
            found["source"] = value.get("", "")
            found["sources"] = {key: text for key, text in value.items() if key}
        elif entry.name in _RATES:
            found[entry.name] = {dtype: _rate(rate) for dtype, rate in value.items()}
        elif entry.name in _PEAKS:
            found[entry.name] = dict(value)
        elif entry.name in _WORDS:
            found[entry.name] = value
        elif isinstance(value, tuple):
            found[entry.name] = list(value) if any(value) else None
        else:
            found[entry.name] = value or None
    return found


def _rate(rate: Rate) -> dict[str, float | int]:
    return {
        "clock_ghz": rate.clock_ghz,
        "units": rate.units,
        "ops": rate.ops,
        "flops_per_clock": rate.flops_per_clock,
    }


def _note(device: Target, name: str, numbers: dict[str, int]) -> str:
    source = device.source(name)
    return f"[{numbers.setdefault(source, len(numbers) + 1)}]" if source else "-"


def _value(value: float | tuple[int, ...]) -> str:
    if isinstance(value, tuple):
        return " x ".join(f"{part:,}" for part in value) if len(value) > 2 else _version(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _version(value: tuple[int, ...]) -> str:
    return ".".join(map(str, value))


def _known(value: float) -> str:
    return f"{value:g}" if value else "-"


def _bytes(value: int) -> str:
    return byte_size(value) if value else "-"


def _narrow_matrix_peak(device: Target) -> float:
    """Flops per second in 16-bit floats of matrix units; 0 where the device has none."""
    if not (device.matrix_rates or device.matrix_peaks):
        return 0.0
    return max(device.peak_flops(dtype, "matrix") or 0.0 for dtype in ("f16", "bf16"))


def _flops(value: float | None) -> str:
    return amount(round(value)) if value else "-"
