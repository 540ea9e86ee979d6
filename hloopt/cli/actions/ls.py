"""What ``hloopt ls`` does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hloopt.cli.files import Input, each_input, open_texts
from hloopt.cli.json_out import write_json
from hloopt.cli.options import PICK
from hloopt.cli.predicting import note_other_devices, predictor
from hloopt.cli.waiting import INTERRUPTED, patience
from hloopt.dumps import matching_modules, matching_stages, pick, read_dump
from hloopt.errors import UsageError
from hloopt.report.console import product
from hloopt.report.dump import dump_json, show_modules, show_stages, show_total
from hloopt.report.module_costs import ModulePricer

if TYPE_CHECKING:
    from hloopt.dumps import Dump, DumpModule, Stage

__all__ = ["execute"]


_TARGET = "h200"


@click.pass_context
def execute(
    ctx: click.Context,
    files: tuple[str, ...],
    stages: bool,
    counts: bool,
    sort: str | None,
    target: str | None,
    cost_model: str,
    as_json: bool,
) -> None:
    """What ``hloopt ls`` does."""
    if sort is not None:
        ctx.exit(_priced(files or (".",), sort, target or _TARGET, cost_model, as_json=as_json))
    if target is not None:
        raise UsageError("--target is for prices: it needs --sort")
    predictor(None, cost_model, ())
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


def _priced(
    files: tuple[str, ...], sort: str, target: str, cost_model: str, *, as_json: bool
) -> int:
    """Price every module, and print or write those of each dump; the exit code."""
    predicting = predictor(target, cost_model)
    assert predicting is not None, "a target is given"
    pricer = ModulePricer(predicting, target)
    dumps, codes = [], [0]
    for name in files:
        _open(name)

        def step(found: Input) -> dict[str, object]:
            return {"cost": pricer.cost(found.module, found.name)}

        texts = open_texts((name,))
        note_other_devices((text.name for text in texts), predicting)
        rows, code = each_input(texts, step, "pricing")
        codes.append(code)
        costs = pricer.costs([row["cost"] for row in rows if "cost" in row], sort)
        dumps.append({"folder": name, **costs.to_json()})
        if not as_json:
            if len(files) > 1:
                click.echo(f"{name}:")
            costs.show(product())
        if code == INTERRUPTED:
            break
    if as_json:
        write_json("ls", {"dumps": dumps})
    return max(codes)


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
