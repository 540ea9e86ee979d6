"""``hloopt doctor``."""

from __future__ import annotations

import click

from hloopt.cli.help import GroupedCommand
from hloopt.cli.json_out import write_json
from hloopt.cli.options import json_option
from hloopt.cli.waiting import patience
from hloopt.cli.words import complete
from hloopt.driver.machine import PARTS, Part, examine, versions
from hloopt.errors import DeviceError, UsageError
from hloopt.report.console import Console, paragraph, product, say
from hloopt.rewrite.spec import did_you_mean

__all__ = ["command", "write_versions"]

_STYLES = {"ok": "green", "missing": "yellow", "broken": "red"}
_INDENT = " " * 20


@click.command("doctor", cls=GroupedCommand)
@click.argument(
    "parts", nargs=-1, metavar="[PART]...", shell_complete=complete("driver.machine", "PARTS")
)
@json_option
@click.pass_context
def command(ctx: click.Context, parts: tuple[str, ...], as_json: bool) -> None:
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
    for name in parts:
        if name not in PARTS:
            raise UsageError(f"no part is called '{name}'{did_you_mean(name, PARTS)}")
    with patience("looking at this machine"):
        found = examine(parts)
    if as_json:
        write_json("doctor", {"versions": versions(), "parts": [one.to_json() for one in found]})
    else:
        _show(found, product())
    fails = [one for one in found if one.state == "broken" or (parts and one.state == "missing")]
    ctx.exit(DeviceError.exit_code if fails else 0)


def write_versions() -> None:
    """The JSON of ``hloopt --version``."""
    write_json("version", versions())


def _show(found: list[Part], console: Console) -> None:
    about = versions()
    say(console, f"hloopt {about['hloopt']}, Python {about['python']}, {about['platform']}")
    width = max(console.width, 50)
    for part in found:
        say(console, f"{part.name:10}", (f"{part.state:10}", _STYLES[part.state]), part.purpose)
        paragraph(console, part.found, width, _INDENT)
        if part.remedy:
            say(console, f"{_INDENT}-> {part.remedy}")
