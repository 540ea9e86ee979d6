"""``hloopt kernels``."""

from __future__ import annotations

from typing import Any

import click

from hloopt.cli.files import Input, each_input, open_texts
from hloopt.cli.help import GroupedCommand
from hloopt.cli.kernel_options import KERNEL_OPTIONS, kernel_options, selecting
from hloopt.cli.options import files_argument, json_option, strict_option
from hloopt.cli.pipeline_options import PASS_OPTIONS, chosen, pipeline_options
from hloopt.errors import UsageError

__all__ = ["command"]


@click.command(
    "kernels",
    cls=GroupedCommand,
    groups={
        "Passes": PASS_OPTIONS,
        "Kernels": KERNEL_OPTIONS,
        "Input": ("module", "stage", "strict"),
        "Output": ("source", "listing", "as_json"),
    },
)
@files_argument
@strict_option()
@pipeline_options
@kernel_options
@click.option("--source", is_flag=True, help="Print the CUDA C of all kernels.")
@click.option("--list", "listing", is_flag=True, help="List the kernels there are, and stop.")
@json_option
@click.pass_context
def command(
    ctx: click.Context, files: tuple[str, ...], source: bool, listing: bool, as_json: bool
) -> None:
    """Show which kernel runs each instruction, how it is launched, and what it is estimated to cost.

    The module is optimised (-O2 unless something else is asked for) and made ready for the device; then kernels
    are chosen. Times are bytes and flops over the rates of the target, plus launches. hloopt explain tells
    of one instruction why its kernel was chosen.

    \b
    Example:
      hloopt kernels dump.txt --target a100_sxm_80
      hloopt kernels dump.txt --kernel 'op:dot=dot-tiled{m=64}' --write-lock kernels.toml
      hloopt kernels dump.txt --lock kernels.toml --frozen --source > kernels.cu
    """
    from hloopt.report.console import product, write_json
    from hloopt.report.kernels import choice_json, kernel_list, show_choices, show_list

    if source and as_json:
        raise UsageError("--source prints CUDA C and --json JSON: ask for one of them")
    selection = selecting()
    if listing:
        from hloopt.kernels.registry import kernels

        every = (*kernels("gpu"), *kernels("cpu"))
        if as_json:
            write_json("kernels", {"kernels": kernel_list(every)})
        else:
            show_list(every, product())
        return
    choice = chosen()
    texts = open_texts(files)

    def step(found: Input) -> dict[str, Any]:
        module = found.module
        report = choice.pipeline.run(module, controls=choice.controls)
        rows, notes = selection.choose(module)
        for note in (*report.notes, *notes):
            click.echo(f"{found.name}: note: {note}", err=True)
        if source:
            click.echo(_source(module, selection.instance), nl=False)
        elif not as_json:
            if len(texts) > 1:
                click.echo(f"// {found.name}")
            show_choices(rows, product())
        return {
            "module": module.name,
            "target": selection.instance.target,
            "choices": [choice_json(row) for row in rows],
        }

    rows, code = each_input(texts, step)
    selection.finish()
    if as_json:
        write_json("kernels", {"modules": rows})
    ctx.exit(code)


def _source(module: Any, selection: Any) -> str:
    """The CUDA C of a module whose kernels are chosen.  Raises ``UnsupportedError``."""
    from hloopt.codegen.program import render
    from hloopt.kernels.planning import plan_program
    from hloopt.kernels.selection import choose
    from hloopt.targets import find_gpu

    target, limits = find_gpu(selection.target), selection.limits()
    plan = plan_program(module, lambda instruction: choose(instruction, target, limits))
    return render(plan, target, limits)
