"""``hloopt export``."""

from __future__ import annotations

import click

from hloopt.cli.help import GroupedCommand
from hloopt.cli.kernel_options import KERNELS
from hloopt.cli.options import PICKED, json_option, pick_options
from hloopt.cli.pipeline_options import COMMON_PASSES, PASSES
from hloopt.cli.words import complete, complete_planned, one_of

__all__ = ["command"]


@click.command(
    "export",
    cls=GroupedCommand,
    groups={
        "Passes": COMMON_PASSES,
        "Kernels": KERNELS.names,
        "Input": PICKED,
        "Output": ("form", "output", "seed", "as_json"),
    },
)
@click.argument("file", type=click.Path())
@click.argument("instruction", metavar="KERNEL", shell_complete=complete_planned)
@pick_options
@PASSES.only(*COMMON_PASSES)
@KERNELS.only("target", "kernel", "lock")
@click.option(
    "--as",
    "form",
    callback=one_of("driver.exporting", "FORMS"),
    shell_complete=complete("driver.exporting", "FORMS"),
    required=True,
    metavar="FORM",
    help="cuda, cupy, jax or torch. cuda is CUDA C with a main that checks it; the others are a Python "
    "file with a function of arrays. Required.",
)
@click.option(
    "-o",
    "--output",
    metavar="OUT",
    help="Write to this file or directory, not to stdout.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="What its inputs are made from.",
)
@json_option
def command() -> None:
    """Write a kernel as a file that runs alone and checks itself.

    KERNEL is an instruction that hloopt kernels lists with the same options: the module is optimised (-O2
    unless other passes are given), made ready for the target, and the functions of that instruction are
    taken out. -O0 keeps the fusions of a module as they are.

    The check makes inputs from a formula and compares some elements of each result with the interpreter's,
    within what rounding allows; it exits with 1 where one differs. Files are imported without a GPU; on the
    CPU, jax and torch compute the same by their own operations, which are differentiable and need nothing
    of hloopt.

    \b
    Example:
      hloopt export dump.txt loop_fusion --as cuda -o loop_fusion.cu
      hloopt export dump.txt fusion.3 -O0 --target a100 --as cupy -o kernels/
      hloopt export dump.txt loop_fusion --as torch -o f.py && python f.py
    """
