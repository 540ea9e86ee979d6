"""What ``hloopt targets`` does."""

from __future__ import annotations

from hloopt.cli.json_out import write_json
from hloopt.report.console import product
from hloopt.report.targets import describe, overview, rates, sheet
from hloopt.targets import find_target, targets

__all__ = ["execute"]


def execute(name: str | None, as_json: bool) -> None:
    """What ``hloopt targets`` does."""
    devices = list(targets().values()) if name is None else [find_target(name)]
    if as_json:
        write_json("targets", {"targets": [describe(device) for device in devices]})
        return
    console = product()
    if name is None:
        console.print(overview(devices))
        console.print("* predictions only: never held against measurements of such a device")
        return
    (device,) = devices
    prediction = "" if device.calibrated else "; for prediction only"
    console.print(f"{device.name}: {device.title} ({device.kind}{prediction})\n", markup=False)
    numbers, sources = sheet(device)
    console.print(numbers)
    by_type = rates(device, sources)
    if by_type is not None:
        console.print()
        console.print(by_type)
    console.print()
    for text, number in sources.items():
        console.print(f"[{number}] {text}", markup=False, soft_wrap=True)
