"""What ``hloopt reduce`` does."""

from __future__ import annotations

import shlex
import sys
from time import monotonic
from typing import Any

import click
from click.core import ParameterSource

from hloopt.cli.files import Input, one_text, open_texts, read_input
from hloopt.cli.given import executor_fields, given_tolerance, pass_options
from hloopt.cli.json_out import write_json
from hloopt.cli.messages import show_warnings
from hloopt.cli.trial_options import TRIALS
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

__all__ = ["execute"]


_PAUSE = 10.0
"""So many times as long as writing a case took, none is written after it."""


@click.pass_context
def execute(
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
    workers: int | None,
    output: str | None,
    as_json: bool,
) -> None:
    """What ``hloopt reduce`` does."""
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
        workers=workers,
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
