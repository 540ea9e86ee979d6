"""``hloopt check``."""

from __future__ import annotations

from itertools import islice
from typing import Any

import click

from hloopt.cli.files import InputText, open_texts, read_input
from hloopt.cli.help import GroupedCommand
from hloopt.cli.json_out import write_json
from hloopt.cli.messages import each_error, error_json, show_errors
from hloopt.cli.options import files_argument, json_option, strict_option
from hloopt.cli.waiting import patience, progress
from hloopt.errors import HlooptError, ParseError, UsageError
from hloopt.verifier import RULES, violations

__all__ = ["command"]

_MOST_ERRORS = 20


@click.command("check", cls=GroupedCommand)
@files_argument
@strict_option
@click.option(
    "--rules",
    is_flag=True,
    help="List the constraints that errors name. They are in brackets there.",
)
@click.option(
    "--equivalent",
    is_flag=True,
    help="Prove that A and B give the same results. For all inputs; or find inputs for which they do not.",
)
@click.option(
    "--save-inputs",
    metavar="FILE.npz",
    help="Write inputs for which A and B differ. With --equivalent: an .npz file, as run --inputs reads "
    "it.",
)
@click.option(
    "--solver-steps",
    type=click.IntRange(1),
    metavar="N",
    help="How much z3 may do [20 million]. With --equivalent, by its own count; the default is some "
    "seconds.",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[str, ...],
    rules: bool,
    equivalent: bool,
    save_inputs: str | None,
    solver_steps: int | None,
    as_json: bool,
) -> None:
    """Parse and verify modules: one line per file, and every error with its place.

    Exits with 3 when a module cannot be read or is not valid.

    With --equivalent: whether A and B are equal, bit for bit but for which NaN a NaN is. They are where their
    canonical forms are, where exact rewrites make them the same, or where each element of their results is
    proved to be (by z3, which the extra 'prove' installs). The order in which reduce, dot and convolution add
    floats is open in HLO and does not count. Exits with 0 when they are proved equal, 1 when inputs were found
    for which they differ, and 4 when neither is known.

    \b
    Example:
      hloopt check dump --module jit_train
      hloopt check --rules
      hloopt check --equivalent before.hlo after.hlo --save-inputs differ.npz
    """
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
            row, worst = _check(text, as_json=as_json, alone=len(texts) == 1)
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
