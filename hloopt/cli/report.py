"""``hloopt report``."""

from __future__ import annotations

import click

from hloopt.cli.help import GroupedCommand
from hloopt.cli.kernel_options import KERNELS
from hloopt.cli.options import PICKED, files_argument, json_option
from hloopt.cli.pipeline_options import COMMON_PASSES, PASSES

__all__ = ["command"]


@click.command(
    "report",
    cls=GroupedCommand,
    groups={
        "Passes": COMMON_PASSES,
        "Kernels": KERNELS.names,
        "Input": PICKED,
        "Output": ("output", "serve", "sources", "as_json"),
    },
)
@files_argument
@PASSES.only(*COMMON_PASSES)
@KERNELS.only("target", "kernel", "lock")
@click.option("-o", "--output", metavar="OUT", help="Write the page to this file or directory.")
@click.option(
    "--serve",
    is_flag=True,
    help="Serve the page on this machine. It is made again when FILE changes, and any other plan is "
    "priced.",
)
@click.option(
    "--sources",
    metavar="DIR",
    type=click.Path(),
    help="Folder of the program, whose lines are shown. Those that FILE names, of files below it, are "
    "put into the page.",
)
@json_option
def command() -> None:
    """Write a page about a module: what costs, why, and what each pass and decision did.

    The page is one HTML file that needs no network: what the time goes to, by kernel and by line of the
    program; the graph, which unfolds by namespace; the CUDA C and the C++ of kernels beside their HLO; every
    decision about fusion with both prices, and what the plan would cost with another one, for any two boxes
    that are marked in the graph with --serve; what passes changed; the memory alive; the roofline; for a module
    of a dump XLA's own plan beside ours. Each instruction has an address.
    It begins with the changes that hloopt why finds. Of a dump one file is about the largest module, a
    directory gets a page of each.

    The module is optimised (-O2 unless other passes are given); times are predicted for --target.

    \b
    Example:
      hloopt report dump.txt -o report.html
      hloopt report dump/ --module jit_step --target a100 -o pages/
      hloopt report model.hlo --serve
      hloopt report model.hlo --sources ~/my_project -o report.html
    """
