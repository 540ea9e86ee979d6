"""What ``hloopt bisect`` does."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from hloopt.cli.bisect import XLA
from hloopt.cli.bisect_xla import bisect_by_xla
from hloopt.cli.files import Input, each_input, open_texts
from hloopt.cli.given import executor, given_tolerance, kernel_options, pass_options, trial_options
from hloopt.cli.json_out import end
from hloopt.cli.kernel_options import KERNELS
from hloopt.cli.messages import error_json, show_error
from hloopt.cli.options import PICK
from hloopt.cli.pipeline_options import PASSES
from hloopt.cli.tolerance_options import TOLERANCE
from hloopt.cli.trial_options import EXECUTOR
from hloopt.cli.waiting import patience
from hloopt.driver.bisecting import Bisecting, BisectOptions, dump_search, dumped_modules
from hloopt.dumps import matching_stages
from hloopt.errors import HlooptError, UsageError
from hloopt.interpret.plugins import load
from hloopt.prover.bisection import Bisection, Examined
from hloopt.prover.dump_bisect import DumpBisect
from hloopt.prover.stage_check import StageCheck
from hloopt.reading import is_dump
from hloopt.report.bisect import show_bisection
from hloopt.report.console import product

__all__ = ["execute"]


@click.pass_context
def execute(
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
    """What ``hloopt bisect`` does."""
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
        with (
            _examined_so_far("runs of passes", lambda: bisecting.examined),
            patience("bisecting", found.name, lambda: bisecting.stage),
        ):
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
    if not isinstance(search, DumpBisect):
        with patience("bisecting", search.name, lambda: search.status):
            return search.run()
    with (
        _examined_so_far("stages", lambda: search.search.examined if search.search else ()),
        patience("bisecting", search.name, lambda: search.status, part=lambda: search.part),
    ):
        return search.run()


@contextmanager
def _examined_so_far(what: str, examined: Callable[[], Collection[Examined]]) -> Iterator[None]:
    """Say after Ctrl-C what the search knew by then."""
    try:
        yield
    except KeyboardInterrupt:
        rows = examined()
        bad = next((row.name for row in rows if row.outcome in ("differs", "fails")), None)
        known = f"{bad} is the first known to be wrong" if bad else "none of them known to be wrong"
        click.echo(f"\n{len(rows)} {what} examined, {known}", err=True)
        raise
