"""``hloopt ops``."""

from __future__ import annotations

from typing import Final

import click

from hloopt.cli.help import GroupedCommand
from hloopt.cli.json_out import write_json
from hloopt.cli.options import json_option
from hloopt.cli.waiting import patience
from hloopt.cli.words import complete_target
from hloopt.interpret import has_evaluation
from hloopt.ops import MANY, OPS
from hloopt.report.console import TableColumn, product, records_table
from hloopt.report.coverage import coverage, coverage_json, show_coverage
from hloopt.targets import find_gpu
from hloopt.targets.target import HOST

__all__ = ["command"]


@click.command("ops", cls=GroupedCommand)
@click.option("--unsupported", is_flag=True, help="Only opcodes that cannot be evaluated yet.")
@click.option(
    "--device",
    type=click.Choice(["gpu", "native"]),
    help="List the kernels of gpu or native. And for which element types, and why others have none.",
)
@click.option(
    "--target",
    metavar="NAME|FILE",
    default="h200",
    show_default=True,
    shell_complete=complete_target,
    help="The GPU of --device gpu.",
)
@json_option
def command(unsupported: bool, device: str | None, target: str, as_json: bool) -> None:
    """List the opcodes of HLO: family, operands, attributes, and whether they can be evaluated.

    \b
    Example:
      hloopt ops --unsupported
      hloopt ops --device gpu
    """
    if device is not None:
        _kernels("" if device == "native" else target, as_json, unsupported=unsupported)
        return
    rows = [
        {
            "opcode": row.opcode,
            "family": row.family,
            "operands": list(row.arity) if row.arity[1] < MANY else [row.arity[0], None],
            "attributes": [entry.name for entry in row.attributes],
            "evaluation": has_evaluation(row.opcode),
        }
        for row in sorted(OPS.values(), key=lambda row: row.opcode)
        if not (unsupported and has_evaluation(row.opcode))
    ]
    if as_json:
        write_json("ops", {"ops": rows})
    elif not rows:
        click.echo(f"note: all {len(OPS)} opcodes can be evaluated", err=True)
    else:
        made = records_table(_COLUMNS, rows, left=5)
        made.columns[0].no_wrap = True
        product().print(made)


def _arity(operands: tuple[int, int | None]) -> str:
    low, high = operands
    return f"{low}+" if high is None else str(low) if low == high else f"{low}-{high}"


_COLUMNS: Final = (
    TableColumn("opcode", "opcode"),
    TableColumn("family", "family"),
    TableColumn("operands", "operands", _arity),
    TableColumn("evaluation", "evaluation", lambda found: "yes" if found else "no"),
    TableColumn("attributes", "attributes", ", ".join),
)


def _kernels(target: str, as_json: bool, *, unsupported: bool) -> None:
    """The opcodes by their kernels, those of the native device where there is no ``target``."""
    with patience("asking all kernels about all opcodes"):
        rows = coverage(find_gpu(target) if target else HOST)
    rows = [row for row in rows if not (unsupported and row.is_whole)]
    if as_json:
        write_json("ops", {"ops": [coverage_json(row) for row in rows]})
    else:
        show_coverage(rows, product())
