"""What ``hloopt why`` does."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import click

from hloopt.analysis.measured import JoinedTimes, joined_times
from hloopt.cli.files import Input, each_input, open_texts
from hloopt.cli.json_out import end, write_json
from hloopt.cli.measuring import Measuring
from hloopt.cli.predicting import predictor
from hloopt.cli.waiting import patience
from hloopt.cli.why_slower import WhyOptions, compare_plans
from hloopt.driver.why import why_module
from hloopt.errors import UsageError
from hloopt.findings import RealRuns, SearchProgress
from hloopt.ir import Module
from hloopt.report.console import product
from hloopt.report.findings import kinds_json, kinds_table, show_findings

__all__ = ["execute"]


_TARGET = "h200"


_MEASURED = "host"


_LISTS_ALONE = (
    "--kinds lists the kinds of findings and takes nothing else; --kind NAME looks for one kind"
)


_FOR_ONE = "--kind, --profile and --measure are for one module, not for two compilations"


@click.pass_context
def execute(
    ctx: click.Context,
    files: tuple[str, ...],
    most: int,
    kinds: tuple[str, ...],
    list_kinds: bool,
    pipeline: str | None,
    target: str | None,
    cost_model: str,
    profile: str | None,
    measure: str | None,
    as_json: bool,
) -> None:
    """What ``hloopt why`` does."""
    if list_kinds:
        if files or kinds:
            raise UsageError(_LISTS_ALONE)
        _list_kinds(as_json=as_json)
        return
    aim = target or (_TARGET if measure is None else _MEASURED)
    predicting = predictor(aim, cost_model)
    assert predicting is not None, "a target is given"
    options = WhyOptions(predicting, aim, most, pipeline, as_json)
    if len(files) > 1:
        if kinds or profile is not None or measure is not None:
            raise UsageError(_FOR_ONE)
        ctx.exit(compare_plans(ctx, files, options))
    measuring = None if profile is None else Measuring.of(profile, files)
    rows, code = _findings(files, kinds, options, (measuring, measure))
    end(ctx, rows, code)


def _joined(name: str, measuring: Measuring, module: Module) -> JoinedTimes:
    """The times of the module of this name by the instructions of the plan that was made of it."""
    return joined_times(module, measuring.profile, measuring.programs.get(name))


def _list_kinds(*, as_json: bool) -> None:
    if as_json:
        write_json("why", {"kinds": kinds_json()})
    else:
        product().print(kinds_table())


def _findings(
    files: Sequence[str],
    kinds: Sequence[str],
    options: WhyOptions,
    measured: tuple[Measuring | None, str | None],
) -> tuple[list[dict[str, Any]], int]:
    """Print the findings of each module; their JSON and the exit code."""
    measuring, device = measured
    texts = open_texts(files) if measuring is None else measuring.texts

    def step(found: Input) -> dict[str, Any]:
        at, alone = SearchProgress(), len(texts) == 1
        with patience(
            "looking into", found.name, lambda: at.doing, part=lambda: at.part, alone=alone
        ):
            made = why_module(
                found.module,
                options.predictor,
                options.target,
                kinds=kinds,
                most=options.most,
                pipeline=options.pipeline,
                progress=at,
                real=RealRuns(
                    None if measuring is None else partial(_joined, found.name, measuring), device
                ),
            )
        if not options.as_json:
            show_findings(made, product(), file=found.name)
        return made.to_json()

    return each_input(texts, step)
