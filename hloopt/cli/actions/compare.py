"""What ``hloopt compare`` does."""

from __future__ import annotations

from typing import Any

import click

from hloopt.cli.files import Input, each_input, one_text, open_each
from hloopt.cli.given import executor, given_tolerance, trial_options
from hloopt.cli.json_out import write_json
from hloopt.cli.options import (
    stages_of_sides,
)
from hloopt.cli.waiting import patience
from hloopt.driver.writing import check_writable, write_bytes
from hloopt.errors import UsageError
from hloopt.interpret.plugins import load
from hloopt.prover.compare import ModulesCompared, compare_modules
from hloopt.report.comparing import show_compared
from hloopt.report.console import product
from hloopt.runtime.inputs import named_arrays, npz

__all__ = ["execute"]


@click.pass_context
def execute(
    ctx: click.Context,
    /,
    before: str,
    after: str,
    save_inputs: str | None,
    custom_calls: tuple[str, ...],
    as_json: bool,
) -> None:
    """What ``hloopt compare`` does."""
    if save_inputs == "-":
        raise UsageError("--save-inputs writes an .npz file, not standard output")
    if save_inputs is not None:
        check_writable(save_inputs)
    for call in custom_calls:
        load(call)
    texts = [
        one_text(side, "compare is about one module on each side, and belongs")
        for side in open_each([before, after], stages_of_sides(ctx))
    ]
    read: list[Input] = []

    def step(found: Input) -> dict[str, Any]:
        read.append(found)
        return {}

    rows, code = each_input(texts, step)
    if code:
        if as_json:
            write_json("compare", {"modules": rows})
        ctx.exit(code)
    found = _compared(*read)
    _save(save_inputs, found)
    if as_json:
        write_json("compare", found.to_json())
    else:
        show_compared(found, product())
    ctx.exit(0 if found.equal else 1)


def _compared(before: Input, after: Input) -> ModulesCompared:
    """Compare as the options of the running command say."""
    doing: list[str] = []
    with patience("comparing", "", lambda: doing[-1] if doing else ""):
        return compare_modules(
            before.module,
            after.module,
            (before.name, after.name),
            trials=trial_options(),
            executor=executor(),
            tolerance=given_tolerance(),
            snapshot=before.snapshot or after.snapshot,
            begin=doing.append,
        )


def _save(path: str | None, found: ModulesCompared) -> None:
    """Write the inputs that show a difference, and say so."""
    if path is None:
        return
    if found.verdict != "differ":
        click.echo(f"note: nothing differs, so {path} is not written", err=True)
        return
    write_bytes(path, npz(named_arrays("in", found.given.arrays)), path)
