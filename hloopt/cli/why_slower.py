"""``hloopt why BEFORE AFTER``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from hloopt.cli.files import Input, each_input, open_each
from hloopt.cli.json_out import write_json
from hloopt.cli.options import stages_of_sides
from hloopt.cli.predicting import note_other_devices
from hloopt.cli.waiting import patience
from hloopt.cost_models.predictor import Predictor
from hloopt.dataclass import dataclass
from hloopt.driver.parted import last_stage
from hloopt.driver.why import why_slower
from hloopt.errors import UsageError
from hloopt.findings import SearchProgress
from hloopt.report.console import product
from hloopt.report.module_pairs import GivenModule
from hloopt.report.parted_text import show_parted

__all__ = ["WhyOptions", "compare_plans"]


@dataclass(frozen=True)
class WhyOptions:
    """How findings are looked for, and two compilations compared."""

    predictor: Predictor
    target: str
    most: int
    pipeline: str | None
    as_json: bool


def _last(argument: str) -> Sequence[str]:
    """The stage of a dump directory that is compared."""
    stage = last_stage(Path(argument)) if Path(argument).is_dir() else ""
    return (stage,) if stage else ()


def compare_plans(ctx: click.Context, arguments: Sequence[str], options: WhyOptions) -> int:
    """Print where the second of two compilations loses time, and what they decide otherwise; the exit code."""
    if len(arguments) > 2:
        raise UsageError("why takes one module or dump, or two to compare")
    stages = stages_of_sides(ctx)
    if not any(stages):
        stages = _last(arguments[0]), _last(arguments[1])
    sides = open_each(arguments, stages)
    note_other_devices((text.name for side in sides for text in side), options.predictor)
    given: list[GivenModule] = []

    def step(found: Input) -> dict[str, Any]:
        given.append(GivenModule(found.name, found.module))
        return {"module": found.module.name}

    rows, code = each_input([*sides[0], *sides[1]], step)
    document: dict[str, Any] = {"modules": rows}
    if not code:
        count, at = len(sides[0]), SearchProgress()
        with patience("comparing", stage=lambda: at.doing, part=lambda: at.part):
            made = why_slower(
                given[:count],
                given[count:],
                options.predictor,
                options.target,
                most=options.most,
                pipeline=options.pipeline,
                progress=at,
            )
        document |= made.to_json()
        if not options.as_json:
            show_parted(made, product())
    if options.as_json:
        write_json("why", document)
    return code
