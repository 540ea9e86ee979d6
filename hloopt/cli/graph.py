"""``hloopt graph``."""

from __future__ import annotations

import click

from hloopt.cli.help import GroupedCommand
from hloopt.cli.options import json_option, pick_options
from hloopt.cli.time_options import target_options
from hloopt.cli.words import OneOf, complete_place

__all__ = ["command"]


@click.command("graph", cls=GroupedCommand)
@click.argument("file", type=click.Path(), required=False)
@pick_options
@click.option(
    "--format",
    "form",
    type=OneOf(["svg", "dot", "model-explorer", "perfetto"]),
    default="svg",
    show_default=True,
    metavar="FORM",
    help="svg, dot, model-explorer or perfetto. svg is a picture; dot is for Graphviz; model-explorer is "
    "JSON of that tool, with namespaces as layers; perfetto is the predicted timeline, for "
    "ui.perfetto.dev and chrome://tracing.",
)
@click.option(
    "--at",
    metavar="NAME",
    shell_complete=complete_place,
    help="Draw this computation, or around this instruction. With svg; of an instruction that has a "
    "body, the body. The entry by default.",
)
@click.option(
    "--times",
    metavar="FILE",
    help="Write predicted times for model-explorer. For its option --node_data_paths.",
)
@target_options
@click.option("-o", "--output", metavar="OUT", help="Write to this file; else to stdout.")
@json_option
def command() -> None:
    """Draw the graph of a module, or write it for other tools, as it is: hloopt optimize goes before.

    A picture has 60 instructions at most, and the values that they read from elsewhere: of larger computations
    it has a box for those of one namespace of op_name, which --at opens. With --target boxes have times.

    \b
    Example:
      hloopt graph dump.txt -o entry.svg
      hloopt optimize dump.txt | hloopt graph --at loop_fusion.3 -o fusion.svg
      hloopt graph dump.txt --format perfetto --target h200 -o trace.json
      hloopt graph m.hlo --target h200 --format model-explorer \\
        -o m.json --times t.json
    """
