"""What ``hloopt kernels`` does."""

from __future__ import annotations

from typing import Any

import click

from hloopt.cli.files import Input, each_input, open_texts
from hloopt.cli.given import chosen_passes, kernel_options
from hloopt.cli.json_out import end, write_json
from hloopt.driver.kernels import ModuleKernels, kernels_of
from hloopt.driver.selecting import selecting
from hloopt.errors import UsageError
from hloopt.kernels.registry import kernels
from hloopt.report.console import ONE_LINE, product, show_name
from hloopt.report.kernels import kernel_list, show_list

__all__ = ["execute"]


@click.pass_context
def execute(
    ctx: click.Context,
    files: tuple[str, ...],
    planned: bool,
    source: bool,
    ir: bool,
    compiled: bool,
    listing: bool,
    as_json: bool,
) -> None:
    """What ``hloopt kernels`` does."""
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
