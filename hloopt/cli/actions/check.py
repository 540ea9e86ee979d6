"""What ``hloopt check`` does."""

from __future__ import annotations

from itertools import islice
from typing import Any

import click

from hloopt.cli.files import InputText, open_texts, read_input
from hloopt.cli.json_out import write_json
from hloopt.cli.messages import each_error, error_json, show_errors
from hloopt.cli.waiting import interrupted, patience, progress
from hloopt.errors import HlooptError, ParseError, UsageError
from hloopt.verifier import RULES, violations

__all__ = ["execute"]


_MOST_ERRORS = 20


@click.pass_context
def execute(
    ctx: click.Context,
    files: tuple[str, ...],
    rules: bool,
    equivalent: bool,
    save_inputs: str | None,
    solver_steps: int | None,
    as_json: bool,
) -> None:
    """What ``hloopt check`` does."""
    if equivalent:
        from hloopt.cli.check_equivalent import check_equivalent

        check_equivalent(ctx, files, steps=solver_steps, save=save_inputs, as_json=as_json)
    elif save_inputs is not None or solver_steps is not None:
        option = "--solver-steps" if save_inputs is None else "--save-inputs"
        raise UsageError(f"{option} is for --equivalent")
    if rules:
        _list_rules(as_json=as_json)
        return
    rows: list[dict[str, Any]] = []
    code = 0
    texts = open_texts(files)
    with progress(texts, lambda text: text.name) as each:
        for text in each:
            try:
                row, worst = _check(text, as_json=as_json, alone=len(texts) == 1)
            except KeyboardInterrupt:
                if not rows:
                    raise
                code = interrupted(len(rows), len(texts), "files")
                break
            rows.append(row)
            code = max(code, worst)
    if as_json:
        write_json("check", {"ok": code == 0, "files": rows})
    ctx.exit(code)


def _list_rules(*, as_json: bool) -> None:
    from hloopt.report.console import product, table

    if as_json:
        write_json("check", {"rules": dict(sorted(RULES.items()))})
        return
    made = table("rule", "meaning", left=2)
    made.columns[0].no_wrap = True
    for name, meaning in sorted(RULES.items()):
        made.add_row(name, meaning)
    product().print(made)


def _check(text: InputText, *, as_json: bool, alone: bool) -> tuple[dict[str, Any], int]:
    """Check one text and print the result, unless it goes into JSON; return the exit code."""
    row: dict[str, Any] = {"file": text.name, "warnings": [], "errors": []}
    with patience("checking", text.name, alone=alone):
        errors, more, warnings = _examine(text, row)
    row["errors"] = [error_json(error, alone=True) for error in errors]
    row["ok"] = not errors
    if more:
        row["more"] = True
    if not as_json:
        for line in warnings:
            click.echo(line, err=True)
        if errors:
            show_errors(errors, more=more)
        else:
            click.echo(f"{row['file']}: ok")
    return row, max((error.exit_code for error in errors), default=0)


def _examine(text: InputText, row: dict[str, Any]) -> tuple[list[HlooptError], bool, list[str]]:
    """The errors of one text, whether there are more, and the warnings as lines.

    The name of the file that was read and the warnings as values are put into ``row``.
    """
    try:
        found = read_input(text)
    except ParseError as error:
        return list(each_error(error)), error.more, []
    except HlooptError as error:
        return [error], False, []
    module = found.module
    row["file"] = found.name
    lines = []
    for offset, message in module.warnings:
        warning: dict[str, Any] = {"message": message}
        place = found.name
        if module.source is not None and offset >= 0:
            line, column = module.source.line_column(offset)
            warning = {"line": line, "column": column, **warning}
            place = f"{found.name}:{line}:{column}"
        row["warnings"].append(warning)
        lines.append(f"{place}: warning: {message}")
    errors = list(islice(violations(module), _MOST_ERRORS + 1))
    return [*errors[:_MOST_ERRORS]], len(errors) > _MOST_ERRORS, lines
