"""``hloopt check --equivalent``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from hloopt.cli.files import Input, each_input, open_each
from hloopt.cli.json_out import write_json
from hloopt.cli.options import PICK
from hloopt.cli.waiting import patience
from hloopt.driver.writing import check_writable, write_bytes
from hloopt.errors import UsageError
from hloopt.prover.equivalence import STEPS, decide
from hloopt.report.comparing import show_equivalence
from hloopt.report.console import ONE_LINE, product
from hloopt.runtime.inputs import npz

__all__ = ["check_equivalent"]

_SIDES = 2
_CODES = {"proved": 0, "refuted": 1, "not known": 4}


def check_equivalent(
    ctx: click.Context,
    files: Sequence[str],
    *,
    steps: int | None,
    save: str | None,
    as_json: bool,
) -> None:
    """Decide whether two modules are equal, print it, and exit with 0, 1 or 4."""
    if len(files) != _SIDES:
        raise UsageError(f"--equivalent compares two modules, not {len(files)}")
    if save is not None:
        check_writable(save)
    stages = ctx.meta.get(PICK, {}).get("stage", ())
    sides = open_each(files, (stages[:1], stages[-1:]))
    for name, texts in zip(files, sides, strict=True):
        if len(texts) != 1:
            raise UsageError(
                f"{name} has {len(texts)} modules: --module and --stage pick one of them"
            )
    found: list[Input] = []

    def step(read: Input) -> dict[str, Any]:
        found.append(read)
        return {"module": read.module.name}

    rows, code = each_input([*sides[0], *sides[1]], step)
    content: dict[str, Any] = {"files": rows}
    if not code:
        before, after = found
        names = before.name, after.name
        with patience("proving", f"{names[0]} and {names[1]}", alone=True):
            answer = decide(
                before.module, after.module, names, steps=STEPS if steps is None else steps
            )
        code = _CODES[answer.verdict]
        content |= answer.to_json()
        if not as_json:
            show_equivalence(answer, product(ONE_LINE), names)
        if save is not None and answer.counterexample is not None:
            write_bytes(save, npz(answer.counterexample.arrays()), save)
    if as_json:
        write_json("check", content)
    ctx.exit(code)
