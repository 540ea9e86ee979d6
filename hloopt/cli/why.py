"""``hloopt why``."""

from __future__ import annotations

import click

from hloopt.cli.help import GroupedCommand
from hloopt.cli.options import files_argument, json_option
from hloopt.cli.time_options import profile_option, target_options
from hloopt.cli.words import complete, complete_pipeline, one_of

__all__ = ["command"]


@click.command("why", cls=GroupedCommand)
@files_argument
@click.option(
    "-n",
    "most",
    default=10,
    show_default=True,
    type=click.IntRange(1),
    help="Print N findings. Those that gain most.",
)
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    callback=one_of("findings", "KINDS"),
    shell_complete=complete("findings", "KINDS"),
    metavar="KIND",
    help="Look for this kind alone. hloopt why --kinds lists them (may be repeated).",
)
@click.option(
    "--kinds",
    "list_kinds",
    is_flag=True,
    help="List the kinds of findings.",
)
@click.option(
    "--passes",
    "pipeline",
    metavar="TEXT|FILE.toml",
    shell_complete=complete_pipeline,
    help="Passes that stand for the target's compiler. xla-gpu-2026 for a GPU, O2,copy-insertion for "
    "others.",
)
@target_options
@profile_option
@click.option(
    "--measure",
    callback=one_of("findings", "MEASURING"),
    shell_complete=complete("findings", "MEASURING"),
    metavar="[cpu|native]",
    help="Measure each change on this device. Before and after in turn; native on one core, as the host "
    "is.",
)
@json_option
def command() -> None:
    """Say what is slow, why, and what would help.

    The findings are those that gain most on --target, h200 by default. Each names the instruction and the
    line of the program, what it costs, the cause, the change that helps, and its gain. That is not guessed:
    the change is made on a copy of the module, the results are compared, and both are planned and priced for
    the target. A change without gain is not printed.

    Below them are the large arrays between two kernels, each with the refusal that keeps it in memory, the
    times fused and apart, and, where fused is faster, what lets the pair through; and scatters that take far
    longer where their indices are equal, which a module does not say.

    A module before optimisation is planned as XLA does it; one that is fused and scheduled is taken as it is.

    With --profile: findings are ranked by what their kernels took in a real run, from a profiler's trace, and
    both times are printed. Without FILE the modules are those that the trace holds (.xplane.pb).

    With --measure: the program is compiled for the device before and after each change, and both run in turn.
    What was measured is printed below what is predicted; a change that does not gain there is said so.

    Two modules or dump directories, of other versions of XLA or other flags, are compared: which module loses
    most time, where, and the first decision that differs. That is the first pass whose result differs, where
    both dumps have their stages (--xla_dump_hlo_pass_re=.*); else what the final modules show. Flags that
    differ are named. Modules of dumps are compared as they are after optimisation, unless --stage says which.

    \b
    Example:
      hloopt why dump.txt
      hloopt why dump.txt --target a100 -n 3
      hloopt why dump.txt --kind copy --kind not-donated
      hloopt why --profile host.xplane.pb --target host
      hloopt why dump_of_monday dump_of_tuesday
    """
