"""Which arrays stay in memory between kernels, and why, for people and as JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from hloopt.fusion.between import ArrayBetween
from hloopt.fusion.explained import Edge, KernelFacts
from hloopt.numbers import byte_size
from hloopt.report.console import say, table
from hloopt.report.fusion import why_apart

__all__ = ["kept_json", "show_kept"]

_MOST_ROWS = 12


def show_kept(rows: Sequence[ArrayBetween], console: Console) -> None:
    """The largest arrays with their writers and readers, and the codes of the refusals between them."""
    made = table(
        "in memory", "written by", "read by", "not fused", "bytes", left=4, below="not fused"
    )
    for row in rows[:_MOST_ROWS]:
        why: dict[str, list[str]] = {}
        for reader, edge in row.readers:
            why.setdefault(_codes(edge), []).append(_called(reader))
        size = byte_size(row.node.byte_size)
        for codes, readers in why.items():
            made.add_row(f"%{row.node.name}", _called(row.kernel), ", ".join(readers), codes, size)
            size = ""
    console.print(made)
    total = sum(row.node.byte_size for row in rows)
    more = f", {len(rows) - _MOST_ROWS} of them not shown" if len(rows) > _MOST_ROWS else ""
    arrays = "1 array" if len(rows) == 1 else f"{len(rows)} arrays"
    line = f"between kernels: {byte_size(total)} in {arrays}{more}"
    say(console, line)


def kept_json(rows: Sequence[ArrayBetween]) -> list[dict[str, Any]]:
    """All of them, a reader a row, with each pass's code; ``why`` has words where no pass refused."""
    return [
        {
            "computation": row.node.computation,
            "array": row.node.name,
            "shape": row.node.shape,
            "bytes": row.node.byte_size,
            "kernel": row.kernel.now or row.kernel.name,
            "reader": reader.now or reader.name,
            "not_fused": [
                {"pass": name, "code": code}
                for name, code in dict.fromkeys(
                    (word.pass_name, word.decision.code) for word in edge.words
                )
            ],
            "why": why_apart(edge),
        }
        for row in rows
        for reader, edge in row.readers
    ]


def _codes(edge: Edge) -> str:
    """``priority-fusion: slower``, the codes of each pass; in words where no pass refused."""
    codes: dict[str, dict[str, None]] = {}
    for word in edge.words:
        codes.setdefault(word.pass_name, {})[word.decision.code] = None
    refusals = "; ".join(f"{name}: {', '.join(found)}" for name, found in codes.items())
    return refusals or why_apart(edge)


def _called(kernel: KernelFacts) -> str:
    return f"%{kernel.now or kernel.name}"
