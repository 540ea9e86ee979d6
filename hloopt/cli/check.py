"""``hloopt check``."""

from __future__ import annotations

import click

from hloopt.cli.help import GroupedCommand
from hloopt.cli.options import files_argument, json_option, strict_option

__all__ = ["command"]


@click.command("check", cls=GroupedCommand)
@files_argument
@strict_option
@click.option(
    "--rules",
    is_flag=True,
    help="List the constraints that errors name. They are in brackets there.",
)
@click.option(
    "--equivalent",
    is_flag=True,
    help="Prove that A and B give the same results. For all inputs; or find inputs for which they do not.",
)
@click.option(
    "--save-inputs",
    metavar="FILE.npz",
    help="Write inputs for which A and B differ. With --equivalent: an .npz file, as run --inputs reads "
    "it.",
)
@click.option(
    "--solver-steps",
    type=click.IntRange(1),
    metavar="N",
    help="How much z3 may do [20 million]. With --equivalent, by its own count; the default is some "
    "seconds.",
)
@json_option
def command() -> None:
    """Parse and verify modules: one line per file, and every error with its place.

    Exits with 3 when a module cannot be read or is not valid.

    With --equivalent: whether A and B are equal, bit for bit but for which NaN a NaN is. They are where their
    canonical forms are, where exact rewrites make them the same, or where each element of their results is
    proved to be (by z3, which the extra 'prove' installs). The order in which reduce, dot and convolution add
    floats is open in HLO and does not count. Exits with 0 when they are proved equal, 1 when inputs were found
    for which they differ, and 4 when neither is known.

    \b
    Example:
      hloopt check dump --module jit_train
      hloopt check --rules
      hloopt check --equivalent before.hlo after.hlo --save-inputs differ.npz
    """
