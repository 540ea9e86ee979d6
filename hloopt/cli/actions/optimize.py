"""What ``hloopt optimize`` does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from hloopt.cli.files import Input, each_input, open_texts
from hloopt.cli.given import chosen_passes, kernel_options
from hloopt.cli.json_out import end
from hloopt.cli.outputs import ModuleOutput
from hloopt.cli.watching import Watching
from hloopt.ir import Module
from hloopt.rewrite import PipelineReport
from hloopt.rewrite.spec import pass_text
from hloopt.runtime.xla_form import make_for_xla

__all__ = ["execute"]


@click.pass_context
def execute(
    ctx: click.Context, files: tuple[str, ...], output: str | None, emit: str, as_json: bool
) -> None:
    """What ``hloopt optimize`` does."""
    kernels, watch = kernel_options(), Watching.given()
    choice = chosen_passes(kernels)
    selection = None
    if kernels.needed_by(choice.pipeline):
        from hloopt.driver.selecting import selecting

        selection = selecting(kernels, ctx.with_resource, predicted=True)
        choice = replace(choice, pipeline=selection.applied(choice.pipeline))
    watch.check(choice.pipeline)
    texts = open_texts(files)
    product = ModuleOutput.of(output, texts, emit=emit, as_json=as_json)

    def step(found: Input) -> dict[str, Any]:
        module, name = found.module, found.name
        watchers = watch.watchers(name if len(texts) > 1 else "", choice)
        report = choice.run(module, watchers, **watch.controls)
        if selection is not None:
            selection.lock(report)
        if emit == "xla":
            make_for_xla(module)
            _warn_of_elided(name, module)
        remarks = watch.report(report, found, as_json=as_json)
        row = {"module": module.name, "pipeline": str(choice.pipeline), **_report_json(report)}
        return {**row, **remarks, **product.write(module, name)}

    rows, code = each_input(texts, step, "optimizing")
    watch.finish()
    if selection is not None:
        selection.finish(choice.watcher)
    end(ctx, rows, code)


def _report_json(report: PipelineReport) -> dict[str, Any]:
    """What passes did, as JSON values."""
    return {
        "instructions_before": report.instructions_before,
        "instructions_after": report.instructions_after,
        "seconds": report.seconds(),
        "hits": {name: dict(hits) for name, hits in report.hits().items()},
        "notes": report.notes,
        "runs": [
            {
                "number": run.number,
                "pass": pass_text(run.instance),
                "round": run.round,
                "changed": run.changed,
                "seconds": run.seconds,
                "instructions": run.instructions,
                "hits": dict(run.hits),
            }
            for run in report.runs
        ],
    }


def _warn_of_elided(name: str, module: Module) -> None:
    """Warn of constants that the text leaves out (``{...}``): XLA reads them and makes values up."""
    elided = [
        instruction
        for instruction in module.instructions()
        if instruction.literal is not None and instruction.literal.elided
    ]
    if elided:
        rest = f" and {len(elided) - 1} more" if len(elided) > 1 else ""
        click.echo(
            f"{name}: warning: the value of %{elided[0].name}{rest} is left out of the text ({{...}}): "
            "XLA would run this with made-up values (dump with --xla_dump_large_constants=true)",
            err=True,
        )
