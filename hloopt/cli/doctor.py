"""``hloopt doctor``."""

from __future__ import annotations

import click

from hloopt.cli.help import GroupedCommand
from hloopt.cli.options import json_option
from hloopt.cli.words import complete

__all__ = ["command"]


@click.command("doctor", cls=GroupedCommand)
@click.argument(
    "parts", nargs=-1, metavar="[PART]...", shell_complete=complete("driver.machine", "PARTS")
)
@json_option
def command() -> None:
    """Say what this machine can do, and what to type for the rest.

    Parts are looked for: BLAS and its threads, a C++ compiler, the folder of the cache, a GPU with its driver,
    NVRTC, a Python with jaxlib, and the packages of the other extras.

    Exits with 0 where all that is there works, though parts may be missing; with 5 where something is there
    and does not work, or a PART that is named is missing: 'hloopt doctor compiler gpu' guards a job that needs
    both.

    \b
    Example:
      hloopt doctor
      hloopt doctor compiler gpu
    """
