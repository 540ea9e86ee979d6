"""``hloopt bisect``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from hloopt.cli.bisect_xla import XLA, bisect_by_xla
from hloopt.cli.files import Input, each_input, open_texts
from hloopt.cli.help import GroupedCommand
from hloopt.cli.json_out import end
from hloopt.cli.kernel_options import KERNELS, kernel_options
from hloopt.cli.messages import error_json, show_error
from hloopt.cli.options import PICK, PICKED, custom_call_option, json_option, pick_options
from hloopt.cli.pipeline_options import COMMON_PASSES, PASSES, pass_options
from hloopt.cli.tolerance_options import TOLERANCE, given_tolerance
from hloopt.cli.trial_options import EXECUTOR, TRIALS, executor, trial_options
from hloopt.cli.waiting import patience
from hloopt.driver.bisecting import Bisecting, BisectOptions, dump_search, dumped_modules
from hloopt.dumps import matching_stages
from hloopt.errors import HlooptError, UsageError
from hloopt.interpret.plugins import load
from hloopt.prover.bisection import Bisection
from hloopt.prover.dump_bisect import DumpBisect
from hloopt.prover.stage_check import StageCheck
from hloopt.reading import is_dump
from hloopt.report.bisect import show_bisection
from hloopt.report.console import product

__all__ = ["command"]


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
@click.pass_context
def command(
    ctx: click.Context,
    /,
    paths: tuple[str, ...],
    every: bool,
    show_all: bool,
    eager: bool,
    custom_calls: tuple[str, ...],
    check: str | None,
    as_json: bool,
) -> None:
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
      hloopt bisect model.hlo -O3 --fast-math --check 'my_compiler {} && ! grep NaN log'
      hloopt bisect dump
      hloopt bisect dump --module jit_step --inputs inputs.npz
      hloopt bisect dump --trials 8 --every
      hloopt bisect model.hlo --xla --special huge
      hloopt bisect model.hlo --eager
    """
    for call in custom_calls:
        load(call)
    path = _only(ctx, paths, check)
    if XLA.given()["xla"]:
        rows, code = bisect_by_xla(path, every=every, as_json=as_json, show_all=show_all)
        end(ctx, rows, code)
    if not is_dump(Path(path)):
        rows, code = _bisect_file(ctx, path, check, show_all=show_all)
        end(ctx, rows, code)
    _check_dump_options(ctx)
    options = _dump_options(check, every=every)
    rows, code = _bisect_dump(ctx, path, options, show_all=show_all, as_json=as_json)
    end(ctx, rows, code)


def _only(ctx: click.Context, paths: tuple[str, ...], check: str | None) -> str:
    """The path.  Raises ``UsageError`` for several, and for options that exclude each other."""
    path, *others = paths
    if others:
        raise UsageError(
            "bisect takes one module or dump directory; hloopt compare A B finds where two modules "
            "begin to differ"
        )
    if check is not None and XLA.given()["xla"]:
        raise UsageError(
            "--check and --xla exclude each other: bisect a dump of XLA's with --check"
        )
    if ctx.params["eager"]:
        _check_eager(ctx, path)
    return path


def _check_eager(ctx: click.Context, path: str) -> None:
    """Raise ``UsageError`` for what has no meaning with ``--eager``: passes, commands, devices, tolerances."""
    if is_dump(Path(path)):
        raise UsageError("--eager is for a module: give the file before_optimizations of the dump")
    others = ("check", "every", *XLA.names, *TOLERANCE.names, *EXECUTOR.names)
    _refuse(ctx, (*others, *PASSES.names, *KERNELS.names), "has no meaning with --eager")


def _bisect_file(
    ctx: click.Context, path: str, check: str | None, *, show_all: bool
) -> tuple[list[dict[str, Any]], int]:
    """Search the passes of each module in a file: a row for each, and the exit code.

    Raises ``UsageError`` for options that cannot be, before anything is read.
    """
    if ctx.params["every"]:
        raise UsageError("--every is for a dump directory: of passes the first is found")
    selected = (pass_options(), kernel_options(), trial_options(), executor(), given_tolerance())
    options = BisectOptions(*selected, check, ctx.params["eager"])
    bisecting = Bisecting.of(options, ctx.with_resource)
    codes = [0]

    def step(found: Input) -> dict[str, Any]:
        bisecting.at = None
        with patience("bisecting", found.name, lambda: bisecting.stage):
            record = bisecting.run(found.module, found.name, found.snapshot)
        codes.append(record.exit_code)
        if not ctx.params["as_json"]:
            show_bisection(record, product(), every=show_all)
        return record.to_json()

    rows, code = each_input(open_texts((path,)), step)
    return rows, max(code, *codes)


def _bisect_dump(
    ctx: click.Context, path: str, options: BisectOptions, *, show_all: bool, as_json: bool
) -> tuple[list[dict[str, Any]], int]:
    """Search the stages of each module of a dump: a row for each, and the exit code."""
    rows: list[dict[str, Any]] = []
    code = 0
    for module in dumped_modules(path, ctx.meta.get(PICK, {}).get("module")):
        wanted = ctx.meta.get(PICK, {}).get("stage", ())
        picked = matching_stages(module, wanted) if wanted else None
        search = dump_search(module, path, options, picked)
        try:
            found = _run(search)
        except HlooptError as error:
            show_error(error)
            rows.append({"module": module.label, "error": error_json(error)})
            code = max(code, error.exit_code)
            continue
        for unread in getattr(search, "unreadable", ()):
            show_error(unread)
        rows.append(found.to_json())
        code = max(code, found.exit_code)
        if not as_json:
            show_bisection(found, product(), every=show_all)
    return rows, code


def _dump_options(check: str | None, *, every: bool) -> BisectOptions:
    expect = XLA.given()["expect"]
    return BisectOptions(
        trials=trial_options(),
        executor=executor(),
        tolerance=given_tolerance(),
        check=check,
        every=every,
        expect=None if expect is None else Path(expect),
        xla_flags=XLA.given()["xla_flags"],
    )


def _check_dump_options(ctx: click.Context) -> None:
    """Raise ``UsageError`` for options about passes: those of a dump have run."""
    why = "is for a module: the passes of a dump directory have run"
    _refuse(ctx, (*PASSES.names, *KERNELS.names), why)


def _refuse(ctx: click.Context, names: Iterable[str], why: str) -> None:
    for name in names:
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = "-O" if name == "level" else f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} {why}")


def _run(search: DumpBisect | StageCheck) -> Bisection:
    with patience("bisecting", search.name, lambda: search.status):
        return search.run()
