"""``hloopt ls``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hloopt.cli.json_out import write_json
from hloopt.cli.options import PICK, folders_argument, json_option
from hloopt.cli.waiting import patience
from hloopt.dumps import matching_modules, matching_stages, pick, read_dump
from hloopt.errors import UsageError
from hloopt.report.console import product
from hloopt.report.dump import dump_json, show_modules, show_stages, show_total

if TYPE_CHECKING:
    from hloopt.dumps import Dump, DumpModule, Stage

__all__ = ["command"]


@click.command("ls")
@folders_argument
@click.option("--stages", is_flag=True, help="List every stage, as for a single module.")
@click.option(
    "--counts/--no-counts",
    default=True,
    show_default=True,
    help="Count instructions and computations; that reads the files.",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context, files: tuple[str, ...], stages: bool, counts: bool, as_json: bool
) -> None:
    """List the modules of XLA's dump directories: stages, formats, sizes, instructions.

    Without DIR it is the current directory.  Every command that reads modules takes such a directory, with
    the same --module and --stage.  Instructions and computations are counted by lines, as XLA prints them.

    \b
    Example:
      hloopt ls dump --module jit_train --stage algsimp
    """
    wanted = ctx.meta.get(PICK, {})
    rows = []
    for name in files or (".",):
        dump = _open(name)
        found = _found(dump, wanted.get("module"), wanted.get("stage", ()))
        single = stages or "stage" in wanted or len(found) == 1
        counted = "none" if not counts else "all" if single or as_json else "ends"
        with patience("counting in", name):
            content = dump_json(dump, found, counted=counted)
        rows.append(content)
        if as_json:
            continue
        if len(files) > 1:
            click.echo(f"{name}:")
        if single and found:
            show_stages(content, product(), others="stage" not in wanted)
        elif found:
            show_modules(content, product())
        if not wanted:
            show_total(content, product())
    if as_json:
        write_json("ls", {"dumps": rows})


def _open(name: str) -> Dump:
    folder = Path(name)
    if not folder.is_dir():
        raise UsageError(f"{name}: {'not a' if folder.exists() else 'no such'} directory")
    try:
        return read_dump(folder)
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror or error}") from error


def _found(
    dump: Dump, module: str | None, stages: Sequence[str]
) -> list[tuple[DumpModule, tuple[Stage, ...]]]:
    """The selected modules, each with all its stages or the selected ones.

    Raises ``UsageError`` with the candidates when a selected one does not exist.
    """
    modules = matching_modules(dump, module)
    if stages or (module is not None and not modules):
        pick(dump, module, stages)
    rows = [
        (entry, tuple(matching_stages(entry, stages)) if stages else entry.stages)
        for entry in modules
    ]
    return [row for row in rows if row[1] or not stages]
