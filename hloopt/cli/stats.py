"""``hloopt stats``."""

from __future__ import annotations

import click

from hloopt.cli.files import modules
from hloopt.cli.options import files_argument, json_option

__all__ = ["command"]


@click.command("stats")
@files_argument
@click.option(
    "--buffers",
    default=10,
    show_default=True,
    type=click.IntRange(0),
    help="How many of the largest buffers to list.",
)
@json_option
def command(files: tuple[str, ...], buffers: int, as_json: bool) -> None:
    """Show what is in a module: opcodes, flops, bytes, the largest buffers.

    \b
    Example:
      hloopt optimize dump.txt | hloopt stats
    """
    from hloopt.report.console import product, write_json
    from hloopt.report.stats import module_stats, show_stats

    rows = []
    for text, module in modules(files):
        stats = module_stats(module, buffers=buffers)
        rows.append({"file": text.name, **stats})
        if not as_json:
            show_stats(stats, product())
    if as_json:
        write_json("stats", {"modules": rows})
