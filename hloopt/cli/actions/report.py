"""What ``hloopt report`` does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from hloopt.cli.files import Input, InputText, each_input, one_text, open_texts, read_input
from hloopt.cli.given import chosen_passes, kernel_options
from hloopt.cli.json_out import end
from hloopt.cli.outputs import check_output
from hloopt.cli.waiting import patience
from hloopt.driver.page import ModulePage, page_of
from hloopt.driver.passes import Chosen
from hloopt.driver.selecting import Selecting, selecting
from hloopt.driver.writing import is_folder, write_text
from hloopt.errors import UsageError
from hloopt.findings import SearchProgress
from hloopt.pages.serving import PageServer
from hloopt.verifier import verify_module

__all__ = ["execute"]


@click.pass_context
def execute(
    ctx: click.Context,
    files: tuple[str, ...],
    output: str | None,
    serve: bool,
    sources: str | None,
    as_json: bool,
) -> None:
    """What ``hloopt report`` does."""
    folder = None if sources is None else Path(sources)
    if serve and (output is not None or as_json):
        raise UsageError("--serve shows the page in a browser: it goes with neither -o nor --json")
    if not serve and output is None and not as_json:
        raise UsageError("a page is not printed: give -o FILE.html or -o DIR, --serve or --json")
    options = kernel_options()
    selection = selecting(options, ctx.with_resource, predicted=True)
    chosen = chosen_passes(options)
    texts = open_texts(files)
    if serve:
        _serve(one_text(texts, "a page belongs"), chosen, selection, folder)
        return
    if output is not None:
        texts = _for_one_file(output, texts)
        check_output(output, texts, form="page")

    def step(found: Input) -> dict[str, Any]:
        at, alone = SearchProgress(), len(texts) == 1
        with patience(
            "reporting on", found.name, lambda: at.doing, part=lambda: at.part, alone=alone
        ):
            made = page_of(found.module, found.name, chosen, selection, folder, at)
        if output is not None:
            write_text(output, made.to_html(), found.name, form="page")
            where = Path(output)
            click.echo(f"{found.name}: {where}", err=True)
        return made.to_json() if as_json else {}

    rows, code = each_input(texts, step)
    end(ctx, rows, code)


def _for_one_file(output: str, texts: list[InputText]) -> list[InputText]:
    """What one file is about: of several modules of a dump the one with the longest text."""
    if len(texts) < 2 or is_folder(output) or not all(text.path for text in texts):
        return texts
    largest = max(texts, key=lambda text: text.path.stat().st_size if text.path else 0)
    click.echo(
        f"note: {largest.name} is the largest of {len(texts)} modules; --module picks another, and a directory "
        f"(-o {output.removesuffix('.html')}{os.sep}) gets a page of each",
        err=True,
    )
    return [largest]


def _serve(text: InputText, chosen: Chosen, selection: Selecting, sources: Path | None) -> None:
    """Serve the page until Ctrl-C.  Raises what reading the module does."""
    if text.path is None:
        raise UsageError("--serve follows a file, and standard input is none")

    ctx = click.get_current_context()

    at = SearchProgress()

    def make() -> ModulePage:
        with ctx.scope(cleanup=False):  # a thread has no context, which says how to read
            found = read_input(text)
        verify_module(found.module)
        return page_of(found.module, found.name, chosen, selection, sources, at)

    with patience("reporting on", text.path.name, lambda: at.doing, part=lambda: at.part):
        server = PageServer(make, [text.path])
    with server:
        click.echo(server.address)
        click.echo(f"{text.path} is followed; Ctrl-C ends", err=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return
