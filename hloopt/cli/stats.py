"""``hloopt stats``."""

from __future__ import annotations

from typing import Any

import click

from hloopt.cli.files import Text, each_module
from hloopt.cli.options import files_argument, json_option, strict_option
from hloopt.ir import Module

__all__ = ["command"]


@click.command("stats")
@files_argument
@strict_option()
@click.option(
    "--buffers",
    default=10,
    show_default=True,
    type=click.IntRange(0),
    help="How many of the largest buffers to list.",
)
@json_option
@click.pass_context
def command(ctx: click.Context, files: tuple[str, ...], buffers: int, as_json: bool) -> None:
    """Show what is in a module: opcodes, flops, bytes, the largest buffers.

    \b
    Example:
      hloopt optimize dump.txt | hloopt stats
    """
    from hloopt.report.console import product, write_json
    from hloopt.report.stats import module_stats, show_stats

    def step(text: Text, module: Module) -> dict[str, Any]:
        stats = module_stats(module, buffers=buffers)
        if not as_json:
            show_stats({"file": text.name, **stats}, product())
        return stats

    rows, code = each_module(files, step)
    if as_json:
        write_json("stats", {"modules": rows})
    ctx.exit(code)
