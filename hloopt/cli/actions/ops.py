"""What ``hloopt ops`` does."""

from __future__ import annotations

from typing import Final

import click

from hloopt.cli.json_out import write_json
from hloopt.cli.waiting import patience
from hloopt.errors import UsageError
from hloopt.interpret import has_evaluation
from hloopt.ops import MANY, OPS
from hloopt.report.console import TableColumn, product, records_table
from hloopt.report.coverage import coverage, coverage_json, show_coverage
from hloopt.spelling import missing
from hloopt.targets import find_gpu
from hloopt.targets.target import HOST, Target

__all__ = ["execute"]


def execute(
    opcodes: tuple[str, ...], unsupported: bool, device: str | None, target: str, as_json: bool
) -> None:
    """What ``hloopt ops`` does."""
    for opcode in opcodes:
        if opcode not in OPS:
            raise UsageError(missing(opcode, OPS, "there is no opcode"))
    if device is not None:
        gpu = HOST if device == "native" else find_gpu(target)
        _kernels(gpu, opcodes, as_json, unsupported=unsupported)
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
        if not opcodes or row.opcode in opcodes
    ]
    if as_json:
        write_json("ops", {"ops": rows})
    elif not rows:
        click.echo(f"note: all {len(opcodes or OPS)} opcodes can be evaluated", err=True)
    else:
        made = records_table(_COLUMNS, rows, left=5, optional=("family",))
        made.columns[0].no_wrap = True
        product().print(made)


def _arity(operands: tuple[int, int | None]) -> str:
    low, high = operands
    return f"{low}+" if high is None else str(low) if low == high else f"{low}-{high}"


_COLUMNS: Final = (
    TableColumn("opcode", "opcode"),
    TableColumn("family", "family"),
    TableColumn("operands", "operands", _arity),
    TableColumn("runs", "evaluation", lambda found: "yes" if found else "no"),
    TableColumn("attributes", "attributes", ", ".join),
)


def _kernels(target: Target, opcodes: tuple[str, ...], as_json: bool, *, unsupported: bool) -> None:
    """The opcodes, all without any, by their kernels."""
    with patience("asking all kernels about all opcodes"):
        rows = coverage(target, opcodes or None)
    rows = [row for row in rows if not (unsupported and row.is_whole)]
    if as_json:
        write_json("ops", {"ops": [coverage_json(row) for row in rows]})
    else:
        show_coverage(rows, product())
