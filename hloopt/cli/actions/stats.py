"""What ``hloopt stats`` does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hloopt.cli.files import Input, each_input, open_texts
from hloopt.cli.json_out import end
from hloopt.cli.measuring import Measuring
from hloopt.cli.predicting import predictor
from hloopt.dumps.content import assigned_bytes
from hloopt.report.console import product
from hloopt.report.stats import module_stats

if TYPE_CHECKING:
    from hloopt.report.prediction import By

__all__ = ["execute"]


@click.pass_context
def execute(
    ctx: click.Context,
    files: tuple[str, ...],
    buffers: int,
    target: str | None,
    cost_model: str,
    profile: str | None,
    by: By,
    top: int,
    as_json: bool,
) -> None:
    """What ``hloopt stats`` does."""
    predicting = predictor(target, cost_model, refuses=() if profile else ("by", "top"))
    measuring = None if profile is None else Measuring.of(profile, files)
    texts = open_texts(files) if measuring is None else measuring.texts

    def step(found: Input) -> dict[str, Any]:
        predicted = predicting if measuring is None else None
        assigned = assigned_bytes(Path(found.name))
        stats = module_stats(found.module, buffers=buffers, predictor=predicted, xla_bytes=assigned)
        if measuring is None:
            if not as_json:
                stats.show(product(), file=found.name, by=by, top=top)
            return stats.to_json()
        stats = replace(stats, measured=measuring.measured(found, predicting))
        if not as_json:
            stats.show(product(), file=found.name, by=by, top=top)
        return stats.to_json()

    rows, code = each_input(texts, step, "counting in")
    end(ctx, rows, code)
