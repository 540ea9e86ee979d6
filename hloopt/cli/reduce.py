"""``hloopt reduce``."""

from __future__ import annotations

import click

from hloopt.cli.help import GroupedCommand
from hloopt.cli.options import PICKED, files_argument, json_option
from hloopt.cli.pipeline_options import PASSES
from hloopt.cli.tolerance_options import TOLERANCE
from hloopt.cli.trial_options import EXECUTOR, TRIALS
from hloopt.cli.words import complete_pipeline

__all__ = ["command"]


_INPUTS = ("inputs", "seed", "participants")


_RUNS = ("device", "rounding")


@click.command(
    "reduce",
    cls=GroupedCommand,
    groups={
        "What fails": ("differs", "check", "against", *_RUNS, *TOLERANCE.names),
        "Passes": PASSES.names,
        "Input": (*PICKED, *_INPUTS),
        "Search": ("tests", "seconds", "timeout", "repeat", "workers"),
        "Output": ("output", "as_json"),
    },
)
@files_argument
@click.option(
    "--differs",
    is_flag=True,
    help="The failure is a wrong result. Results differ from the interpreter's by more than rounding "
    "explains, or passes or the device fail: after the passes, -O2 if none are named, or on --device.",
)
@click.option(
    "--check",
    metavar="CMD",
    help="The failure is that CMD exits with 0. {} in it is the file of a smaller module, {inputs} its "
    "inputs (.npz); a command without either gets the module at its end.",
)
@click.option(
    "--against",
    metavar="TEXT",
    shell_complete=complete_pipeline,
    help="Compare with the module after this pipeline. Instead of the module as given.",
)
@PASSES
@TRIALS.only(*_INPUTS)
@EXECUTOR.only(*_RUNS)
@TOLERANCE
@click.option("--tests", type=click.IntRange(0), metavar="N", help="Run at most N smaller modules.")
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="End the search after S seconds. With the smallest module so far.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="Stop a single run after S seconds. By default, three times as long as the last that failed, "
    "and 2 s at least.",
)
@click.option(
    "--repeat",
    type=click.IntRange(1),
    default=1,
    metavar="N",
    help="Run a module up to N times until it fails. For a failure that does not show in every run.",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    metavar="N",
    help="Run N modules at once. By default one for each core, 4 at most; the result does not depend on "
    "it.",
)
@click.option(
    "-o",
    "--output",
    metavar="OUT",
    help="Write the smallest module so far, and its inputs. Whenever there is one; the inputs are beside "
    "it (OUT, less its suffix, .npz).",
)
@json_option
def command() -> None:
    """Find the smallest module that still fails, with its inputs.

    Values become parameters (with what they were in the run), operands or constants; results, calls, loops,
    elements of tuples, attributes and dimensions go. Every module that is run is valid. A smaller module has to
    fail in the same way: a crash does not take the place of a wrong result, nor NaN that of a number.

    The module goes to stdout, or to OUT with its inputs beside it. Ctrl-C ends the search: the smallest module
    so far is kept, and the exit code is 130. To go on, reduce OUT with --inputs. A module that does not fail
    is an error (2). --check takes 0 for a module that is still interesting, as other reducers do; for bisect
    --check, 0 is good.

    \b
    Example:
      hloopt reduce dump.txt --differs -O2 -o small.hlo
      hloopt reduce m.hlo --differs --device native --inputs in.npz -o small.hlo
      hloopt reduce dump.txt --device xla-cpu -o small.hlo
      hloopt reduce dump.txt --check 'my_tool {} 2>&1 | grep -q "Check failed"'
    """
