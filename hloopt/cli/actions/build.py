"""What ``hloopt build`` does."""

from __future__ import annotations

import click

from hloopt.cli.files import one_text, open_texts, read_input
from hloopt.cli.given import kernel_options, pass_options
from hloopt.cli.json_out import write_json
from hloopt.cli.messages import show_warnings
from hloopt.cli.waiting import patience
from hloopt.driver.building import BuildOptions, build_from
from hloopt.driver.passes import choose_passes
from hloopt.driver.selecting import selecting
from hloopt.verifier import verify_module

__all__ = ["execute"]


@click.pass_context
def execute(ctx: click.Context, /, file: str, as_json: bool, **given: str) -> None:
    """What ``hloopt build`` does."""
    options = BuildOptions(**given)
    kernels = kernel_options()
    selection = selecting(kernels, ctx.with_resource, device="native", target="host")
    chosen = choose_passes(pass_options(), kernels, "host")
    for note in chosen.notes:
        click.echo(f"note: {note}", err=True)
    found = read_input(one_text(open_texts((file,)), "a library belongs"))
    show_warnings(found.module, found.name)
    verify_module(found.module)
    with patience("building", found.name):
        made, notes = build_from(found.module, options, chosen, selection.instance)
    for note in notes:
        click.echo(f"{found.name}: note: {note}", err=True)
    if as_json:
        write_json("build", {"file": found.name, **made.to_json()})
    else:
        click.echo(str(made))
