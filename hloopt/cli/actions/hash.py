"""What ``hloopt hash`` does."""

from __future__ import annotations

from typing import Any

import click

from hloopt.cli.files import InputText, each_module
from hloopt.cli.json_out import end
from hloopt.ir import Module
from hloopt.ir.canonical import fingerprint

__all__ = ["execute"]


@click.pass_context
def execute(ctx: click.Context, files: tuple[str, ...], as_json: bool) -> None:
    """What ``hloopt hash`` does."""

    def step(text: InputText, module: Module) -> dict[str, Any]:
        digest = fingerprint(module)
        if not as_json:
            click.echo(f"{digest}  {text.name}")
        return {"hash": digest}

    rows, code = each_module(files, step, "hashing")
    end(ctx, rows, code)
