"""``hloopt bisect``."""

from __future__ import annotations

import click

from hloopt.cli.help import GroupedCommand
from hloopt.cli.kernel_options import KERNELS
from hloopt.cli.options import (
    PICKED,
    OptionGroup,
    custom_call_option,
    json_option,
    option,
    pick_options,
)
from hloopt.cli.pipeline_options import COMMON_PASSES, PASSES
from hloopt.cli.tolerance_options import TOLERANCE
from hloopt.cli.trial_options import EXECUTOR, TRIALS

__all__ = ["XLA", "command"]


XLA = OptionGroup(
    "xla",
    option(
        "--xla",
        is_flag=True,
        help="Bisect XLA's own passes over the module. XLA's CPU compiler (HLOOPT_XLA_PYTHON) compiles "
        "it, and the stages that it dumps are bisected.",
    ),
    option(
        "--xla-flags",
        default="",
        metavar="FLAGS",
        help="XLA_FLAGS of the compilations. With --xla, and where the remedy for a dump is tried.",
    ),
    option(
        "--expect",
        metavar="PATH",
        help="Results of the compiled program. out_0, ... in an .npz or a folder, with a dump: where all "
        "stages agree and these differ, code generation is to blame.",
    ),
    option("--keep-dump", metavar="DIR", help="With --xla: keep its dump in this directory."),
)


@click.command(
    "bisect",
    cls=GroupedCommand,
    groups={
        "Search": ("every", "show_all", "eager", "check", *XLA.names),
        "Input": (*PICKED, *TRIALS.names),
        "Comparison": (*EXECUTOR.names, *TOLERANCE.names, "custom_calls"),
        "Passes": COMMON_PASSES,
        "Kernels": ("target", "kernel", "lock"),
    },
)
@click.argument("paths", metavar="PATH", nargs=-1, required=True, type=click.Path())
@pick_options
@click.option(
    "--every", is_flag=True, help="Find every stage that changes results. Otherwise the first."
)
@click.option("--all", "show_all", is_flag=True, help="List all stages, equal ones, too.")
@TRIALS
@EXECUTOR
@TOLERANCE
@XLA
@PASSES.only(*COMMON_PASSES)
@KERNELS.only("target", "kernel", "lock")
@click.option(
    "--eager",
    is_flag=True,
    help="Find inputs whose NaN depends on jit. The module gives NaN compiled as a whole (jit) and "
    "numbers one instruction at a time (eager), or the reverse: the instruction is shown, its operands "
    "either way, and what is merged before it.",
)
@click.option(
    "--check",
    metavar="CMD",
    help="Let a command judge, as git bisect run does. {} is the path of a module's text (or follows the "
    "command); 0 is good, 125 cannot be told, 1 to 127 is bad, more ends the search.",
)
@custom_call_option
@json_option
def command() -> None:
    """Find the pass, rewrite or kernel that changes the results of a module.

    PATH is a module or a dump directory. The passes that the options select (-O2 by default) are run over a
    module; its results are compared after each run, and the rewrite is found by fuel: its rule, the
    instructions before and after it, and the option that leaves it out, which is tried. A pass that fails and
    a module that is not valid any more are found as well. With --device cpu, native, gpu or emulator the
    kernels come next: each is compared with the interpreter on the operands it had in the run, and another
    kernel is tried in the place of the wrong one.

    Of a dump directory, of XLA (--xla_dump_to=DIR --xla_dump_hlo_as_text --xla_dump_hlo_pass_re=.*
    --xla_dump_large_constants) or of hloopt (optimize --dump-dir): stages are run on the same inputs, several
    at a time, and the first that changes results by more than the class of its pass allows is named. Passes
    that only move, share or fuse what is computed may change no bit; others what rounding allows. Of more than
    16 stages those between two with the same results are run only where nothing else is found. Exits with 1
    when a stage is found, with 0 when all agree. What disables the pass is tried where HLOOPT_XLA_PYTHON names
    a Python with jaxlib. Where all stages agree, and the compiled program gave other results (--expect, a
    snapshot in the dump, --xla), code generation is to blame, and jaxlib shows the first value that is wrong.

    With --eager no pass is searched. Compiled as a whole, instructions that compute the same are merged: x / x
    is then 1, or NaN where x is 0. Run one by one, each is rounded on its own. Inputs are tried whose sums are
    0, whose elements are equal, and other classes, unless some are asked for.

    With --check a command of yours judges each pass or stage, by any criterion.

    \b
    Example:
      hloopt bisect model.hlo --passes 'simplify,my-pass' --pass-file my_pass.py
      hloopt bisect model.hlo --device native --special all
      hloopt bisect m.hlo -O3 --fast-math --check './mine {} && ! grep NaN log'
      hloopt bisect dump
      hloopt bisect dump --module jit_step --inputs inputs.npz
      hloopt bisect dump --trials 8 --every
      hloopt bisect model.hlo --xla --special huge
      hloopt bisect model.hlo --eager
    """
