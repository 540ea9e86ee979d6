"""``hloopt stats``."""

from __future__ import annotations

import click

from hloopt.cli.help import GroupedCommand
from hloopt.cli.options import files_argument, json_option
from hloopt.cli.time_options import profile_option, target_options
from hloopt.cli.words import OneOf

__all__ = ["command"]


@click.command("stats", cls=GroupedCommand)
@files_argument
@click.option(
    "--buffers",
    default=10,
    show_default=True,
    type=click.IntRange(0),
    help="List N of the largest buffers. And of those alive where most memory is needed.",
)
@target_options
@profile_option
@click.option(
    "--by",
    type=OneOf(["kernel", "source", "opcode"]),
    default="kernel",
    show_default=True,
    metavar="WHAT",
    help="Rows: kernel, source or opcode. With --target or --profile; source is a line of the program.",
)
@click.option(
    "--top",
    default=20,
    show_default=True,
    type=click.IntRange(0),
    help="List N rows, those that take longest. 0 for all; with --target or --profile.",
)
@json_option
def command() -> None:
    """Show what is in a module: opcodes, flops, bytes, the largest buffers.

    With --target: how long each kernel will take there, what it is bound by and its share of the whole.
    Launches include loop iterations, where the module shows the trip count; sums are of one run of the entry.

    With --profile: how long each instruction took in a real run, from a profiler's trace, beside what --target
    predicts. Without FILE the modules are those that the trace holds (.xplane.pb).

    \b
    Example:
      hloopt optimize dump.txt | hloopt stats
      hloopt optimize -O2 dump.txt | hloopt stats --target h200 --by source
      hloopt stats --profile host.xplane.pb --module jit_step
    """
