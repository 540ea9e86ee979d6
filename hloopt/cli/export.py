"""``hloopt export``."""

from __future__ import annotations

from pathlib import Path

import click

from hloopt.cli.files import one_text, open_texts, read_input
from hloopt.cli.help import GroupedCommand
from hloopt.cli.json_out import write_json
from hloopt.cli.kernel_options import KERNELS, kernel_options
from hloopt.cli.messages import show_warnings
from hloopt.cli.options import PICKED, json_option, pick_options
from hloopt.cli.pipeline_options import COMMON_PASSES, PASSES, chosen_passes
from hloopt.cli.waiting import patience
from hloopt.cli.words import complete_instruction
from hloopt.driver.exporting import FORMS, export_from
from hloopt.driver.selecting import selecting
from hloopt.driver.writing import is_folder, write_text
from hloopt.verifier import verify_module

__all__ = ["command"]


@click.command(
    "export",
    cls=GroupedCommand,
    groups={
        "Passes": COMMON_PASSES,
        "Kernels": KERNELS.names,
        "Input": PICKED,
        "Output": ("form", "output", "seed", "as_json"),
    },
)
@click.argument("file", type=click.Path())
@click.argument("instruction", metavar="KERNEL", shell_complete=complete_instruction)
@pick_options
@PASSES.only(*COMMON_PASSES)
@KERNELS.only("target", "kernel", "lock")
@click.option(
    "--as",
    "form",
    type=click.Choice(list(FORMS)),
    required=True,
    metavar="FORM",
    help="cuda, cupy, jax or torch. cuda is CUDA C with a main that checks it; the others are a Python "
    "file with a function of arrays. Required.",
)
@click.option(
    "-o",
    "--output",
    metavar="OUT",
    help="Write to this file or directory, not to stdout.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="What its inputs are made from.",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    file: str,
    instruction: str,
    form: str,
    output: str | None,
    seed: int,
    as_json: bool,
) -> None:
    """Write a kernel as a file that runs alone and checks itself.

    KERNEL is an instruction that hloopt kernels lists with the same options: the module is optimised (-O2
    unless other passes are given), made ready for the target, and the functions of that instruction are
    taken out. -O0 keeps the fusions of a module as they are.

    The check makes inputs from a formula and compares some elements of each result with the interpreter's,
    within what rounding allows; it exits with 1 where one differs. Files are imported without a GPU; on the
    CPU, jax and torch compute the same by their own operations, which are differentiable and need nothing
    of hloopt.

    \b
    Example:
      hloopt export dump.txt loop_fusion --as cuda -o loop_fusion.cu
      hloopt export dump.txt fusion.3 -O0 --target a100 --as cupy -o kernels/
      hloopt export dump.txt loop_fusion --as torch -o loop_fusion.py && python loop_fusion.py
    """
    options = kernel_options()
    selection = selecting(options, ctx.with_resource)
    chosen = chosen_passes(options)
    found = read_input(one_text(open_texts((file,)), "an export belongs"))
    show_warnings(found.module, found.name)
    verify_module(found.module)
    with patience("exporting", found.name):
        made, notes = export_from(found.module, instruction, form, chosen, selection.instance, seed)
    for note in notes:
        click.echo(f"{found.name}: note: {note}", err=True)
    if not made.compared:
        click.echo(
            "note: no result has a finite number on the inputs of the check: try another --seed",
            err=True,
        )
    if as_json:
        write_json("export", {"file": found.name, **made.to_json()})
    if output is not None or not as_json:
        into = output is not None and is_folder(output)
        write_text(str(Path(output or "") / made.name) if into else output, made.text, made.name)
