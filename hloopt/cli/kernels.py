"""``hloopt kernels``."""

from __future__ import annotations

from typing import Any

import click

from hloopt.cli.files import Input, each_input, open_texts
from hloopt.cli.help import GroupedCommand
from hloopt.cli.json_out import end, write_json
from hloopt.cli.kernel_options import KERNELS, kernel_options
from hloopt.cli.options import PICKED, files_argument, json_option
from hloopt.cli.pipeline_options import COMMON_PASSES, PASSES, chosen_passes
from hloopt.driver.kernels import ModuleKernels, kernels_of
from hloopt.driver.selecting import selecting
from hloopt.errors import UsageError
from hloopt.kernels.registry import kernels
from hloopt.report.console import ONE_LINE, product, show_name
from hloopt.report.kernels import kernel_list, show_list

__all__ = ["command"]


@click.command(
    "kernels",
    cls=GroupedCommand,
    groups={
        "Passes": COMMON_PASSES,
        "Kernels": KERNELS.names,
        "Input": PICKED,
        "Output": ("planned", "source", "ir", "compiled", "listing", "as_json"),
    },
)
@files_argument
@PASSES.only(*COMMON_PASSES)
@KERNELS
@click.option(
    "--plan", "planned", is_flag=True, help="Show the plan: order, loops and buffers as well."
)
@click.option("--source", is_flag=True, help="Print the CUDA C (of host: C++) of all kernels.")
@click.option("--ir", is_flag=True, help="Print the kernel IR that it is printed from.")
@click.option(
    "--compile", "compiled", is_flag=True, help="Compile it by NVRTC: registers, stack and spills."
)
@click.option("--list", "listing", is_flag=True, help="List the kernels there are, and stop.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[str, ...],
    planned: bool,
    source: bool,
    ir: bool,
    compiled: bool,
    listing: bool,
    as_json: bool,
) -> None:
    """Show which kernel runs each instruction, how it is launched, and how long it takes.

    The module is optimised (-O2 unless other passes are given) and made ready for the device; then kernels
    are chosen. Times are those of hloopt stats --target, of one launch, whichever kernel runs the instruction:
    hloopt explain compares the kernels of one and says why it was chosen.

    With --target host they are the loops in C++ that hloopt run --device native runs: a launch has tasks in
    place of blocks, and times are those of the cost model host, of one core.

    --ir lists the kernel IR: loops, memory and types as they are before code is printed for a device.
    JSON has the CUDA C with --source, the IR with --ir, the plan and its module's text with --plan.

    \b
    Example:
      hloopt kernels dump.txt --target a100
      hloopt kernels dump.txt --kernel 'op:dot=dot-tiled{m=64}' --write-lock kernels.toml
      hloopt kernels dump.txt --lock kernels.toml --frozen --source > kernels.cu
      hloopt kernels dump.txt --target host --plan
    """
    if planned + source + ir > 1 and not as_json:
        raise UsageError("give only one of --plan, --source and --ir, or --json")
    options = kernel_options()
    selection = selecting(options, ctx.with_resource)
    if listing:
        _list(as_json)
        return
    choice = chosen_passes(options)
    if compiled and selection.is_native:
        raise UsageError("--compile is for CUDA C (NVRTC): for host, use --source")
    texts = open_texts(files)

    def step(found: Input) -> dict[str, Any]:
        shown = kernels_of(found.module, choice, selection)
        for note in shown.notes:
            click.echo(f"{found.name}: note: {note}", err=True)
        if compiled:
            shown.compile()
        row: dict[str, Any] = {}
        if as_json:
            row = shown.to_json(planned=planned, source=source, ir=ir)
        else:
            text = shown.source if source else shown.ir if ir else ""
            _show(shown, found.name if len(texts) > 1 else "", text, planned=planned)
        if not (planned or source or ir) and shown.plan_problem:
            click.echo(f"note: no plan: {shown.plan_problem}", err=True)
        return row

    rows, code = each_input(texts, step, "choosing kernels for")
    selection.finish(choice.watcher)
    end(ctx, rows, code)


def _show(shown: ModuleKernels, name: str, text: str, *, planned: bool) -> None:
    """A text as it is, or the table; below ``name`` where there are several."""
    if text:
        click.echo(f"// {name}\n{text}" if name else text, nl=False)
        return
    if name:
        show_name(shown.module.name, name, product())
    shown.show(product(ONE_LINE), planned=planned)


def _list(as_json: bool) -> None:
    """The kernels there are."""
    every = (*kernels("gpu"), *kernels("native"))
    if as_json:
        write_json("kernels", {"kernels": kernel_list(every)})
    else:
        show_list(every, product())
