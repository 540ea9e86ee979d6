"""The tables of ``hloopt stats``: opcodes, work, and the largest buffers of a module."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from rich.console import Console

from hloopt.analysis.liveness import largest_buffers, peak
from hloopt.ir import Module
from hloopt.report.console import TableColumn, records_table, show_name, table
from hloopt.report.cost import kernel_costs, totals
from hloopt.report.numbers import amount, byte_size
from hloopt.rewrite.source_lines import lines_text
from hloopt.types import Shape, TupleShape

__all__ = ["module_stats", "show_stats"]


def module_stats(module: Module, *, buffers: int = 10) -> dict[str, Any]:
    """Counts, flops, bytes and buffers, as JSON values.

    ``flops`` and bytes are those of the kernels of one run of the entry, loops counted as ``counted_trips``
    has them.  ``peak_bytes`` is the most that is alive at once in the order of the text.
    """
    opcodes = Counter(instruction.opcode for instruction in module.instructions())
    rows = kernel_costs(module)
    cost = totals(module, rows).cost
    return {
        "module": module.name,
        "instructions": module.instruction_count(),
        "computations": len(module.computations),
        "kernels": len(rows),
        "opcodes": dict(opcodes.most_common()),
        "flops": cost.flops,
        "transcendentals": cost.transcendentals,
        "bytes_read": cost.bytes_read,
        "bytes_written": cost.bytes_written,
        "arithmetic_intensity": cost.arithmetic_intensity,
        "peak_bytes": peak(module.entry).byte_size,
        "buffers": [
            {
                "name": entry.instruction.name,
                "index": list(entry.index),
                "bytes": entry.byte_size,
                "shape": str(_element(entry.instruction.shape, entry.index)),
                "kind": entry.kind,
                "place": module.user_line(entry.instruction.metadata),
                "lines": list(module.user_lines(entry.instruction.metadata)),
            }
            for entry in largest_buffers(module, buffers)
        ],
    }


def _element(shape: Shape, index: tuple[int, ...]) -> Shape:
    for at in index:
        assert isinstance(shape, TupleShape)
        shape = shape.elements[at]
    return shape


def show_stats(stats: dict[str, Any], console: Console, *, opcodes: int = 15) -> None:
    """Print what ``module_stats`` found."""
    show_name(stats["module"], stats.get("file", ""), console)
    summary = table("what", "value")
    for name in ("instructions", "computations", "kernels"):
        summary.add_row(name, str(stats[name]))
    for name in ("flops", "transcendentals"):
        summary.add_row(name, amount(stats[name]))
    for name in ("bytes_read", "bytes_written", "peak_bytes"):
        summary.add_row(name.replace("_", " "), byte_size(stats[name]))
    summary.add_row("flops per byte", f"{stats['arithmetic_intensity']:.2f}")
    console.print(summary)
    counts = table("opcode", "count", title="\nopcodes")
    found = list(stats["opcodes"].items())
    for opcode, count in found[:opcodes]:
        counts.add_row(opcode, str(count))
    if len(found) > opcodes:
        rest = sum(count for _, count in found[opcodes:])
        counts.add_row(f"{len(found) - opcodes} more", str(rest))
    console.print(counts)
    console.print(
        records_table(
            _BUFFERS, stats["buffers"], title="\nlargest buffers", left=4, optional=("kind",)
        )
    )


def _buffer_name(entry: dict[str, Any]) -> str:
    index = ",".join(map(str, entry["index"]))
    return f"{entry['name']}{{{index}}}" if index else str(entry["name"])


_BUFFERS: Final = (
    TableColumn("buffer", "", _buffer_name),
    TableColumn("shape", "shape", lambda shape: shape if len(shape) < 40 else shape[:39] + "…"),
    TableColumn("kind", "kind"),
    TableColumn("from", "lines", lines_text),
    TableColumn("size", "bytes", byte_size),
)
