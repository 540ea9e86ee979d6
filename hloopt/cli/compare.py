"""``hloopt compare``."""

from __future__ import annotations

import click

from hloopt.cli.help import GroupedCommand
from hloopt.cli.options import (
    PICKED,
    custom_call_option,
    json_option,
    pick_options,
)
from hloopt.cli.tolerance_options import TOLERANCE
from hloopt.cli.trial_options import EXECUTOR, TRIALS

__all__ = ["command"]


@click.command(
    "compare",
    cls=GroupedCommand,
    groups={
        "Input": (*PICKED, *TRIALS.names),
        "Comparison": (*EXECUTOR.names, *TOLERANCE.names, "custom_calls"),
        "Output": ("save_inputs", "as_json"),
    },
)
@click.argument("before", type=click.Path())
@click.argument("after", type=click.Path())
@pick_options
@TRIALS
@EXECUTOR
@TOLERANCE
@click.option(
    "--save-inputs",
    metavar="FILE.npz",
    help="Write inputs that show a difference. As --inputs reads them; nothing where there is none.",
)
@custom_call_option
@json_option
def command() -> None:
    """Run two modules on the same inputs, and find the first value that differs.

    BEFORE and AFTER are texts, protocol buffers, snapshots or stages of a dump directory (--module picks the
    module, --stage given twice the stages); one may be '-'. Results are compared element by element, by what
    rounding allows in either module (see hloopt help accuracy).

    Without --inputs, --trials and --special, one random input is tried, and then each class of special values,
    for 30 seconds at most. A program and what XLA's SPMD partitioner made of it are compared by whole arrays;
    parameters that the other module does not use may be missing.

    Where results differ, the interpreter's values of all instructions are compared: in called computations,
    fusions and loops too. Values are matched by their data, so that rewriting in between does not matter. The
    first that differs though all it is made of agrees is shown with both instructions and their lines, an
    element, the operands there, and the rule that explains it, where one was tried and does.

    Exits with 0 when all results are equal, with 1 when any differs and when none has a finite number.

    \b
    Example:
      hloopt compare old.hlo new.hlo --trials 20 --save-inputs bad.npz
      hloopt compare dump dump --module jit_step --stage before --stage after
      hloopt optimize -O2 dump.txt | hloopt compare dump.txt - --special nan
    """
