"""``hloopt bisect`` of a module: its passes, then the kernels of a device."""

from __future__ import annotations

from shlex import quote
from typing import Any

from hloopt.cli.files import Input, each_input, open_texts
from hloopt.cli.pipeline_options import PASSES, pass_options
from hloopt.cli.tolerance_options import given_tolerance
from hloopt.cli.trial_options import executor, trial_options
from hloopt.cli.waiting import patience
from hloopt.driver.options import KernelOptions
from hloopt.driver.passes import choose_passes
from hloopt.prover.checks import CommandCheck, ModuleCheck, ResultCheck
from hloopt.prover.pipeline_bisect import PipelineSearch
from hloopt.report.bisect import show_bisection
from hloopt.report.console import product

__all__ = ["bisect_file", "typed_passes"]


def bisect_file(
    path: str, command: CommandCheck | None, *, as_json: bool, show_all: bool
) -> tuple[list[dict[str, Any]], int]:
    """Search the passes of each module in a file: a row for each, and the exit code.

    Raises ``UsageError`` for options that cannot be, before anything is read.
    """
    options, trials, tolerance, runs = (
        pass_options(),
        trial_options(),
        given_tolerance(),
        executor(),
    )
    chosen = choose_passes(options, KernelOptions())
    codes = [0]

    def step(found: Input) -> dict[str, Any]:
        module = found.module
        inputs = [] if command is not None else list(trials.all(module, found.snapshot))
        with patience("running", found.name):
            check: ModuleCheck = command or ResultCheck(module, runs, inputs, tolerance)
        search = PipelineSearch(module, chosen.pipeline, check, chosen.controls, typed_passes())
        with patience("bisecting", found.name, lambda: search.stage):
            record = search.run(found.name, tuple(one.origin for one in inputs))
        codes.append(record.exit_code)
        if not as_json:
            show_bisection(record, product(), every=show_all)
        return record.to_json()

    rows, code = each_input(open_texts((path,)), step)
    return rows, max(code, *codes)


def typed_passes() -> str:
    """The options that select the pipeline, as they are typed."""
    given = PASSES.given()
    words = [f"-O{given['level']}"] if given["level"] else []
    for name in ("passes", "pass_file", "fusion_rule", "only", "disable"):
        value = given[name]
        values = (value,) if isinstance(value, str) else value or ()
        words += [f"--{name.replace('_', '-')} {quote(str(one))}" for one in values]
    return " ".join(words + ["--fast-math"] * bool(given["fast_math"]))
