"""``hloopt bisect``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hloopt.cli.json_out import write_json
from hloopt.cli.messages import error_json, show_error
from hloopt.cli.options import PICK, json_option, pick_options
from hloopt.cli.tolerance_options import TOLERANCE, given_tolerance
from hloopt.cli.trial_options import EXECUTOR, TRIALS, executor, trial_options
from hloopt.cli.waiting import patience
from hloopt.dumps import DumpModule, matching_stages, pick, read_dump
from hloopt.errors import HlooptError, UsageError
from hloopt.interpret.plugins import load
from hloopt.prover.bisection import Bisection
from hloopt.prover.dump_bisect import DumpBisect
from hloopt.prover.stages import stages_of
from hloopt.report.bisect import show_bisection
from hloopt.report.console import product

__all__ = ["command"]


@click.command("bisect")
@click.argument("path", type=click.Path())
@pick_options
@click.option(
    "--every", is_flag=True, help="Find every stage that changes results, not only the first."
)
@click.option("--all", "show_all", is_flag=True, help="List all stages, equal ones, too.")
@TRIALS
@EXECUTOR
@TOLERANCE
@click.option(
    "--custom-call",
    "custom_calls",
    metavar="[TARGET=]MODULE:FUNCTION",
    multiple=True,
    help="Evaluate the custom calls of a target by a Python function (may be repeated).",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    path: str,
    every: bool,
    show_all: bool,
    custom_calls: tuple[str, ...],
    as_json: bool,
) -> None:
    """Find the pass that changes the results of a module.

    PATH is a dump directory, of XLA (--xla_dump_to=DIR --xla_dump_hlo_as_text --xla_dump_hlo_pass_re=.*
    --xla_dump_large_constants) or of hloopt (optimize --dump-dir): every stage is run on the same inputs, and
    the first that changes results by more than the class of its pass allows is named. Passes that only move,
    share or fuse what is computed may change no bit; others what rounding allows. Exits with 1 when a stage is
    found, with 0 when all agree.

    \b
    Example:
      hloopt bisect dump
      hloopt bisect dump --module jit_step --inputs inputs.npz
      hloopt bisect dump --trials 8 --every
    """
    if not Path(path).is_dir():
        raise UsageError(f"{path}: {'not a' if Path(path).exists() else 'no such'} directory")
    for call in custom_calls:
        load(call)
    rows: list[dict[str, Any]] = []
    code = 0
    for module in _modules(ctx, path):
        wanted = ctx.meta.get(PICK, {}).get("stage", ())
        stages = stages_of(module, matching_stages(module, wanted) if wanted else None)
        search = DumpBisect(
            module.label, path, stages, trial_options(), executor(), given_tolerance(), every
        )
        try:
            found = _run(search)
        except HlooptError as error:
            show_error(error)
            rows.append({"module": module.label, "error": error_json(error)})
            code = max(code, error.exit_code)
            continue
        for unread in search.unreadable:
            show_error(unread)
        rows.append(found.to_json())
        code = max(code, found.exit_code)
        if not as_json:
            show_bisection(found, product(), every=show_all)
    if as_json:
        write_json("bisect", {"modules": rows})
    ctx.exit(code)


def _run(search: DumpBisect) -> Bisection:
    with patience("bisecting", search.name, lambda: search.status):
        return search.run()


def _modules(ctx: click.Context, path: str) -> list[DumpModule]:
    """The modules that are picked; without ``--module`` those that have several stages.

    Raises ``UsageError`` where there is none.
    """
    try:
        dump = read_dump(Path(path))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    wanted = ctx.meta.get(PICK, {}).get("module")
    modules = [module for module, _ in pick(dump, wanted)]
    several = [module for module in modules if len(stages_of(module)) > 1]
    return modules if wanted or not several else several
