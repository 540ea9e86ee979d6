"""What ``hloopt run`` does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from hloopt.cli.files import Input, InputText, each_input, one_text, open_texts
from hloopt.cli.given import given_tolerance, kernel_options, pass_options
from hloopt.cli.json_out import write_json
from hloopt.cli.messages import show_error
from hloopt.cli.waiting import patience
from hloopt.driver.options import Profiling, RunOptions
from hloopt.driver.run import Runner, Task
from hloopt.interpret.plugins import load
from hloopt.ir.walk import custom_call_targets
from hloopt.report.console import product
from hloopt.report.run import show_summary

if TYPE_CHECKING:
    from hloopt.driver.spmd import World
from hloopt.cli.run import PROFILING

__all__ = ["execute"]


@click.pass_context
def execute(ctx: click.Context, /, files: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """What ``hloopt run`` does."""
    if ctx.get_parameter_source("seed") is ParameterSource.DEFAULT:
        given["seed"] = None
    profiling = PROFILING.given()
    how = profiling.pop("kernels")
    timed = Profiling(kernels=how is not None, cold_l2=how == "cold", **profiling)
    tolerance = given_tolerance()
    given |= {name: getattr(tolerance, name) for name in ("rtol", "atol", "ulp", "bitwise")}
    given |= given.pop("participants") | given.pop("rounding")
    options = RunOptions(pass_options(), kernel_options(), timed, **given)
    unused = dict.fromkeys(map(load, options.custom_calls))
    runner = Runner.of(options, ctx.with_resource)
    options.check()
    runner = replace(runner, world=_world(ctx, options))
    for note in runner.notes:
        click.echo(f"note: {note}", err=True)
    texts = _texts(files, options)

    def step(found: Input) -> dict[str, Any]:
        at, alone = runner.stage, len(texts) == 1
        with patience("running", found.name, at.__str__, part=lambda: at.part, alone=alone):
            report = runner.run(Task(found.module, found.name, found.snapshot))
        for target in custom_call_targets(found.module):
            unused.pop(target, None)
        for file, warning in report.warnings:
            click.echo(f"{file}: warning: {warning}", err=True)
        if not as_json:
            report.show(product())
        return report.to_json()

    rows, code = each_input(texts, step)
    runner.finish()
    if as_json:
        write_json("run", {"modules": rows})
    elif len(rows) > 1:
        show_summary(rows, product())
    if rows:
        for target in unused:
            click.echo(f"note: no custom call that was run has the target {target}", err=True)
    ctx.exit(max([code, *(row.get("verdict") in ("differs", "nothing verified") for row in rows)]))


def _world(ctx: click.Context, options: RunOptions) -> World | None:
    """The processes that mpiexec started, if wanted; all but the first serve it here, and end with it."""
    if options.spmd != "mpi":
        return None
    from hloopt.driver.spmd import World, processes

    world = World(processes(), show_error, exact=options.exact)
    if world.processes.rank:
        world.serve()
        ctx.exit(0)
    ctx.call_on_close(world.stop)
    return world


def _texts(files: tuple[str, ...], options: RunOptions) -> list[InputText]:
    """The texts to run.  Raises ``UsageError`` for several modules where an option belongs to one."""
    texts = open_texts(files)
    if options.names_arrays:
        one_text(texts, "--inputs, --expect and --save belong")
    if options.profiling.trace is not None:
        one_text(texts, "--trace belongs")
    return texts
