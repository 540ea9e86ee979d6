"""What ``hloopt doctor`` does."""

from __future__ import annotations

import click

from hloopt.cli.json_out import write_json
from hloopt.cli.waiting import patience
from hloopt.driver.machine import PARTS, Part, examine, versions
from hloopt.errors import DeviceError, UsageError
from hloopt.report.console import Console, paragraph, product, say
from hloopt.rewrite.spec import did_you_mean

__all__ = ["execute", "write_versions"]


_STYLES = {"ok": "green", "missing": "yellow", "broken": "red"}


_INDENT = " " * 20


@click.pass_context
def execute(ctx: click.Context, parts: tuple[str, ...], as_json: bool) -> None:
    """What ``hloopt doctor`` does."""
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
