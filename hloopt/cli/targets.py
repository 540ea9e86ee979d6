"""``hloopt targets``."""

from __future__ import annotations

import click

from hloopt.cli.help import GroupedCommand
from hloopt.cli.json_out import write_json
from hloopt.cli.options import json_option
from hloopt.cli.words import complete_target
from hloopt.report.console import product
from hloopt.report.targets import describe, overview, rates, sheet
from hloopt.targets import find_target, targets

__all__ = ["command"]


@click.command("targets", cls=GroupedCommand)
@click.argument("name", required=False, shell_complete=complete_target)
@json_option
def command(name: str | None, as_json: bool) -> None:
    """List the devices hloopt knows, or every number of one with its source.

    NAME may also be the path of a description of your own: TOML with the keys that --json shows
    (base = "h200" takes all others from that device), or XLA's GpuTargetConfigProto as text (.txtpb).
    Every --target takes the same names and paths.

    \b
    Example:
      hloopt targets h200
      hloopt kernels dump.txt --target h200
    """
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
