"""``hloopt optimize``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from hloopt.cli.files import Input, each_input, open_texts
from hloopt.cli.help import GroupedCommand
from hloopt.cli.json_out import end
from hloopt.cli.kernel_options import KERNELS, kernel_options
from hloopt.cli.options import (
    PICKED,
    files_argument,
    json_option,
)
from hloopt.cli.outputs import PRINT, ModuleOutput
from hloopt.cli.pipeline_options import PASSES, chosen_passes
from hloopt.cli.watching import WATCH, Watching
from hloopt.ir import Module
from hloopt.rewrite import PipelineReport
from hloopt.rewrite.spec import pass_text
from hloopt.runtime.xla_form import make_for_xla

__all__ = ["command"]


@click.command(
    "optimize",
    cls=GroupedCommand,
    groups={
        "Passes": PASSES.names,
        "Kernels": KERNELS.names,
        "Instrumentation": WATCH.names,
        "Input": PICKED,
        "Output": ("output", "emit", *PRINT.names, "as_json"),
    },
    bare={"--print-changed": "hlo"},
)
@files_argument
@click.option(
    "-o",
    "--output",
    metavar="OUT",
    help="Write to this file or directory. - is stdout, the default.",
)
@PASSES
@KERNELS
@WATCH
@click.option(
    "--emit",
    type=click.Choice(["hlo", "xla", "proto", "stablehlo", "mlir.bc"]),
    default="hlo",
    show_default=True,
    metavar="FORM",
    help="xla, proto, stablehlo or mlir.bc. xla: fusions expanded and bitcasts written out, as XLA "
    "compiles it; proto: an HloProto, as for OUT called .pb; stablehlo: that of xla as StableHLO text, "
    "as for .mlir; mlir.bc: as a portable artifact (both need jaxlib).",
)
@PRINT
@json_option
@click.pass_context
def command(
    ctx: click.Context, files: tuple[str, ...], output: str | None, emit: str, as_json: bool
) -> None:
    """Run passes over modules and print them as HLO, or as StableHLO for frameworks.

    HLO goes to stdout (or OUT; a directory for several modules), everything else to stderr.  Where several
    modules go to stdout, each begins with a comment that names its file.

    \b
    Example:
      hloopt optimize dump.txt --passes 'simplify,cse,dce' --stats -o better.hlo
      hloopt optimize dump.txt --print-changed=diff -o /dev/null
      hloopt optimize dump.txt --remarks-out remarks.sarif --dump-dir stages
      hloopt optimize model.mlir --emit stablehlo -o better.mlir
    """
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
        watchers = watch.watchers(name if len(texts) > 1 else "", choice.label)
        report = choice.run(module, watchers, **watch.controls)
        if selection is not None:
            selection.lock(report)
        if emit == "xla":
            make_for_xla(module)
            _warn_of_elided(name, module)
        watch.report(report, found, as_json=as_json)
        row = {"module": module.name, "pipeline": str(choice.pipeline), **_report_json(report)}
        return {**row, **product.write(module, name)}

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
