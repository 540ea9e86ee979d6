"""``hloopt diff``."""

from __future__ import annotations

import click

from hloopt.cli.help import GroupedCommand
from hloopt.cli.options import json_option, pick_options
from hloopt.cli.time_options import target_options

__all__ = ["command"]


@click.command("diff", cls=GroupedCommand)
@click.argument("before", type=click.Path())
@click.argument("after", type=click.Path(), required=False)
@pick_options
@target_options
@click.option("--all", "every", is_flag=True, help="List kernels that are the same, too.")
@click.option(
    "--why-recompile",
    "why",
    is_flag=True,
    help="Say what made XLA compile a function again. Arguments, constants, donation, sharding, flags "
    "... With a dump directory alone: of each function that was compiled several times.",
)
@json_option
def command() -> None:
    """Compare two modules: their kernels, what those cost, and each instruction that differs.

    Kernels are matched by what they compute: names, metadata, the order of instructions and the names of
    fusions do not matter. Launches include loop iterations, where the module shows the trip count. BEFORE and
    AFTER are texts, protocol buffers or dump directories (--module and --stage pick); one may be '-'. The exit
    code is 0 for equal modules and 1 for others; hloopt gate sets limits instead.

    Directories of several modules are compared module by module: those that are equal belong together, then
    those of the same name and the same ops, whatever their numbers. --stage is for both sides, or given twice,
    for each.

    Two of XLA's fusion logs (priority_fusion_dump.txt) are compared step by step: the first that differs, with
    both prices, and what was fused in one of them only.

    \b
    Example:
      hloopt diff old.hlo new.hlo
      hloopt diff dump dump --stage before --stage after
      hloopt optimize -O2 dump.txt | hloopt diff dump.txt - --target h200
      hloopt diff --why-recompile dump
      hloopt diff --why-recompile monday tuesday --module jit_step
      hloopt diff old.priority_fusion_dump.txt new.priority_fusion_dump.txt
    """
