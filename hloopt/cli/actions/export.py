"""What ``hloopt export`` does."""

from __future__ import annotations

from pathlib import Path

import click

from hloopt.cli.files import one_text, open_texts, read_input
from hloopt.cli.given import chosen_passes, kernel_options
from hloopt.cli.json_out import write_json
from hloopt.cli.messages import show_warnings
from hloopt.cli.waiting import patience
from hloopt.driver.exporting import export_from
from hloopt.driver.selecting import selecting
from hloopt.driver.writing import is_folder, write_text
from hloopt.verifier import verify_module

__all__ = ["execute"]


@click.pass_context
def execute(
    ctx: click.Context,
    file: str,
    instruction: str,
    form: str,
    output: str | None,
    seed: int,
    as_json: bool,
) -> None:
    """What ``hloopt export`` does."""
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
