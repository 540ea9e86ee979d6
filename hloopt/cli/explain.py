"""``hloopt explain``."""

from __future__ import annotations

import click

from hloopt.cli.help import GroupedCommand
from hloopt.cli.kernel_options import KERNELS
from hloopt.cli.options import PICKED, Function, json_option, pick_options
from hloopt.cli.pipeline_options import COMMON_PASSES, PASSES
from hloopt.cli.time_options import profile_option
from hloopt.cli.words import complete_instruction

__all__ = ["command", "xla_option"]


def xla_option(function: Function) -> Function:
    """``--xla-dump``, parameter ``xla_dump``."""
    return click.option(
        "--xla-dump",
        "xla_dump",
        metavar="DUMP",
        type=click.Path(),
        help="Explain the decisions of XLA in this dump. A dump directory, XLA's "
        "priority_fusion_dump.txt, or a module after optimisation.",
    )(function)


@click.command(
    "explain",
    cls=GroupedCommand,
    groups={
        "Passes": COMMON_PASSES,
        "Kernels": KERNELS.names,
        "Input": ("xla_dump", *PICKED),
    },
)
@click.argument(
    "files",
    nargs=-1,
    metavar="[FILE|DIR]... [INSTRUCTION]...",
    type=click.Path(),
    shell_complete=complete_instruction,
)
@pick_options
@xla_option
@profile_option
@PASSES.only(*COMMON_PASSES)
@KERNELS
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="List kernels for other opcodes, too.",
)
@json_option
def command() -> None:
    """Explain why instructions are fused or apart, and their kernels: [FILE] [INSTRUCTION [INSTRUCTION]].

    Two instructions: whether they are in one kernel, what keeps them apart, what that costs, which option,
    rule or line of a lock file would change it. One: what is known of it as a matrix, its kernel, what joined
    that, why its neighbours did not, which kernels could run it, which limits ruled out the others, and
    what each costs. None: the ten refusals that cost the most time, the arrays that stay in memory between
    kernels with the codes of the refusals that keep them there, and a summary by kernel and reason.

    An INSTRUCTION is a name of the file as it is given, or after optimisation; a glob, /regex/, op:OPCODE or
    op_name:GLOB mean several.

    With --xla-dump DUMP: why XLA fused two instructions, or did not, as far as its dump shows: [INSTRUCTION
    [INSTRUCTION]].

    With --profile: how long the instructions took in a real run, too; if none is named, the longest.

    \b
    Example:
      hloopt explain dump.txt
      hloopt explain dump.txt fusion.3
      hloopt explain dump.txt multiply.7 reduce.9 --passes priority-fusion
      hloopt optimize dump.txt | hloopt explain -O0 - dot.1 --target a100_sxm_80
    """
