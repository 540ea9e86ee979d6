"""``hloopt optimize``."""

from __future__ import annotations

from typing import Any

import click

from hloopt.cli.files import Input, each_input, open_texts
from hloopt.cli.help import GroupedCommand
from hloopt.cli.kernel_options import KERNEL_OPTIONS, choices_of, kernel_options, selecting
from hloopt.cli.options import (
    files_argument,
    json_option,
    print_options,
    strict_option,
)
from hloopt.cli.outputs import Product
from hloopt.cli.pipeline_options import PASS_OPTIONS, chosen, pipeline_options
from hloopt.cli.watching import WATCH_OPTIONS, watch_options, watching
from hloopt.ir import Module

__all__ = ["command"]


@click.command(
    "optimize",
    cls=GroupedCommand,
    groups={
        "Passes": PASS_OPTIONS,
        "Kernels": KERNEL_OPTIONS,
        "Looking on": WATCH_OPTIONS,
        "Input": ("module", "stage", "strict"),
        "Output": ("output", "emit", "canonical", "no_layouts", "no_metadata", "as_json"),
    },
    bare={"--print-changed": "hlo"},
)
@files_argument
@strict_option()
@click.option("-o", "--output", metavar="OUT", help="A file or directory; '-' is stdout.")
@pipeline_options
@kernel_options
@watch_options
@click.option(
    "--emit",
    type=click.Choice(["hlo", "xla", "proto"]),
    default="hlo",
    show_default=True,
    help="xla: fusions taken apart and bitcasts written out, as XLA compiles it; proto: an HloProto, as for "
    "OUT called .pb.",
)
@print_options
@json_option
@click.pass_context
def command(
    ctx: click.Context, files: tuple[str, ...], output: str | None, emit: str, as_json: bool
) -> None:
    """Run passes over modules and print them as HLO.

    HLO goes to stdout (or OUT; a directory for several modules), everything else to stderr.  Of several
    modules on stdout each begins with a comment that names its file.

    \b
    Example:
      hloopt optimize dump.txt --passes 'simplify,cse,dce' --stats -o better.hlo
      hloopt optimize dump.txt --print-changed=diff -o /dev/null
      hloopt optimize dump.txt --remarks-out remarks.sarif --dump-dir stages
    """
    from hloopt.report.console import write_json
    from hloopt.report.pipeline import pipeline_json
    from hloopt.runtime.xla_form import make_for_xla

    choice, watch, selection = chosen(), watching(), selecting(predicted=True)
    pipeline = selection.applied(choice.pipeline) if selection.asked else choice.pipeline
    watch.check(pipeline)
    texts = open_texts(files)
    product = Product.of(output, texts, proto=emit == "proto", as_json=as_json)

    def step(found: Input) -> dict[str, Any]:
        module, name = found.module, found.name
        report = pipeline.run(
            module,
            controls=watch.controls(choice.controls),
            watchers=(
                *choice.watchers,
                *watch.watchers(found, choice.label, heading=len(texts) > 1),
            ),
        )
        selection.lock(module, choices_of(report))
        if emit == "xla":
            make_for_xla(module)
            _warn_of_elided(name, module)
        watch.tell(report, found, as_json=as_json)
        row = {"module": module.name, "pipeline": str(pipeline), **pipeline_json(report)}
        return {**row, **product.write(module, name)}

    rows, code = each_input(texts, step, "optimizing")
    watch.finish()
    selection.finish()
    if as_json:
        write_json("optimize", {"modules": rows})
    ctx.exit(code)


def _warn_of_elided(name: str, module: Module) -> None:
    """XLA reads ``{...}`` and runs with values of its own making: nobody should do that unawares."""
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
