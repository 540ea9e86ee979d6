"""What ``hloopt defuse`` does."""

from __future__ import annotations

from typing import Any

import click

from hloopt.cli.files import Input, each_input, open_texts
from hloopt.cli.json_out import end
from hloopt.cli.outputs import ModuleOutput
from hloopt.pipelines import parse_pipeline

__all__ = ["execute"]


_SIMPLIFICATION = "fix(tuple-simplifier,simplify,cse,dce)"


@click.pass_context
def execute(
    ctx: click.Context,
    files: tuple[str, ...],
    simplify: bool,
    output: str | None,
    emit: str,
    as_json: bool,
) -> None:
    """What ``hloopt defuse`` does."""
    pipeline = parse_pipeline(f"defuse,{_SIMPLIFICATION}" if simplify else "defuse")
    texts = open_texts(files)
    product = ModuleOutput.of(output, texts, emit=emit, as_json=as_json)

    def step(found: Input) -> dict[str, Any]:
        module = found.module
        report = pipeline.run(module)
        fusions = report.hits()["defuse"]["inline a fusion"]
        if not as_json:
            click.echo(f"{found.name}: fusions expanded: {fusions}", err=True)
        row = {"module": module.name, "fusions": fusions}
        counts = {"before": report.instructions_before, "after": report.instructions_after}
        return {**row, "instructions": counts, **product.write(module, found.name)}

    rows, code = each_input(texts, step, "defusing")
    end(ctx, rows, code)
