"""JSON for scripts, separate from the tables: a command that prints no table does not load them."""

from __future__ import annotations

import json
import sys
from typing import Any, NoReturn

import click

from hloopt.cli.options import JSON_WANTED

__all__ = ["SCHEMA", "end", "write_json"]

SCHEMA = 1
"""Raised when a field of any command's JSON changes its meaning or goes away."""


def write_json(command: str, content: dict[str, Any]) -> None:
    """One JSON object on one line: the schema number, the command, and what it found."""
    json.dump({"schema": SCHEMA, "command": command, **content}, sys.stdout, allow_nan=False)
    sys.stdout.write("\n")


def end(ctx: click.Context, rows: list[dict[str, Any]], code: int) -> NoReturn:
    """End a command that has a row for each module: their JSON, where wanted, and the exit code."""
    if ctx.meta.get(JSON_WANTED):
        write_json(str(ctx.command.name), {"modules": rows})
    ctx.exit(code)
