"""``hloopt reduce``."""

from __future__ import annotations

import shlex
import sys
from time import monotonic
from typing import Any

import click
from click.core import ParameterSource

from hloopt.cli.files import Input, one_text, open_texts, read_input
from hloopt.cli.help import GroupedCommand
from hloopt.cli.json_out import write_json
from hloopt.cli.messages import show_warnings
from hloopt.cli.options import PICKED, files_argument, json_option
from hloopt.cli.pipeline_options import PASSES, pass_options
from hloopt.cli.tolerance_options import TOLERANCE, given_tolerance
from hloopt.cli.trial_options import EXECUTOR, TRIALS, executor_fields
from hloopt.cli.waiting import patience
from hloopt.driver.options import PassOptions
from hloopt.driver.reducing import (
    ReduceOptions,
    Reducing,
    check_output,
    inputs_path,
    resumed,
    shown_again,
    write_case,
)
from hloopt.errors import UsageError
from hloopt.prover.reduction.case import Case
from hloopt.prover.reduction.search import SearchLimits
from hloopt.verifier import verify_module

__all__ = ["command"]

_INPUTS = ("inputs", "seed", "participants")
_RUNS = ("device", "rounding")
_PAUSE = 10.0
"""So many times as long as writing a case took, none is written after it."""


@click.command(
    "reduce",
    cls=GroupedCommand,
    groups={
        "What fails": ("differs", "check", "against", *_RUNS, *TOLERANCE.names),
        "Passes": PASSES.names,
        "Input": (*PICKED, *_INPUTS),
        "Search": ("tests", "seconds", "timeout", "repeat", "jobs"),
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
    "--jobs",
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
@click.pass_context
def command(
    ctx: click.Context,
    /,
    files: tuple[str, ...],
    differs: bool,
    check: str | None,
    against: str | None,
    tests: int | None,
    seconds: float | None,
    timeout: float | None,
    repeat: int,
    jobs: int | None,
    output: str | None,
    as_json: bool,
) -> None:
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
      hloopt reduce dump.txt --differs --device native --inputs inputs.npz -o small.hlo
      hloopt reduce dump.txt --device xla-cpu -o small.hlo
      hloopt reduce dump.txt --check 'my_tool {} 2>&1 | grep -q "Check failed"'
    """
    text = one_text(open_texts(files), "a reduction belongs")
    if output is not None:
        check_output(output)
    given = {**TRIALS.given(), **executor_fields()}
    given |= given.pop("participants")
    plain = ctx.get_parameter_source("device") is ParameterSource.DEFAULT
    device = given.pop("device")
    device = None if plain else device
    if check is None and not (differs or against or device):
        raise UsageError("say what fails: --differs, --device xla-cpu, or --check CMD")
    passes = pass_options()
    options = ReduceOptions(
        None if passes == PassOptions() else passes,
        against,
        device,
        check,
        tolerance=given_tolerance(),
        limits=SearchLimits(tests, seconds, timeout, repeat=repeat),
        jobs=jobs,
        **given,
    )
    if check is not None and (differs or device or against or options.passes):
        raise UsageError(
            "--check decides by itself: give neither passes nor --differs, --device, --against"
        )
    _reduce(ctx, read_input(text), options, output, as_json=as_json)


def _reduce(
    ctx: click.Context, found: Input, options: ReduceOptions, output: str | None, *, as_json: bool
) -> None:
    show_warnings(found.module, found.name)
    verify_module(found.module)
    inputs = None
    if found.snapshot is not None and options.inputs is None and options.seed is None:
        inputs = list(found.snapshot.inputs)

    rest = 0.0

    def keep(case: Case) -> None:
        """Inputs that take long to write are written now and then, and in the end."""
        nonlocal rest
        begin = monotonic()
        if output is not None and begin >= rest:
            write_case(case, output)
            rest = monotonic() + _PAUSE * (monotonic() - begin)

    running = Reducing(found.module, found.name, options, inputs=inputs, on_better=keep)
    with patience("reducing", found.name, running.status):
        reduction = running.run()
    end = (
        ""
        if reduction.complete
        else ": interrupted"
        if reduction.interrupted
        else ": a limit is reached"
    )
    click.echo(f"{found.name}: {reduction.summary}{end}", err=True)
    if reduction.outcome.text:
        click.echo(f"as given: {reduction.outcome.text}", err=True)
    if not reduction.fails_again:
        click.echo(
            "warning: the smallest module did not fail when it was run again: the failure comes and goes; "
            "--repeat N runs each module up to N times",
            err=True,
        )
    rows: dict[str, Any] = reduction.to_json()
    if output is not None:
        write_case(reduction.case, output)
        rows |= {"output": output, "inputs": inputs_path(output)}
        click.echo(f"{output} and {inputs_path(output)} show it:", err=True)
        click.echo(f"  {shown_again(options, output)}", err=True)
        if not reduction.complete:
            click.echo(
                f"to go on:\n  {resumed(options, output)} -o {shlex.quote(output)}", err=True
            )
    elif reduction.inputs:
        click.echo("note: its inputs are not written without -o OUT", err=True)
    if as_json:
        write_json("reduce", rows)
    elif output is None:
        sys.stdout.write(reduction.text)
    ctx.exit(130 if reduction.interrupted else 0)
