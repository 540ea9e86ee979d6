"""The tables of ``hloopt stats``: opcodes, work, and the largest buffers of a module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from hloopt.analysis.cost import Cost
from hloopt.analysis.liveness import largest_buffers
from hloopt.cost_models.predictor import Predictor
from hloopt.dataclass import dataclass
from hloopt.display import Displayed
from hloopt.ir import Module
from hloopt.kernels.costs import KernelCost, kernel_costs, totals
from hloopt.numbers import amount, byte_size
from hloopt.report.console import TableColumn, records_table, show_name, table
from hloopt.report.memory import MemoryUse, memory_use
from hloopt.report.prediction import By, prediction_json, show_prediction
from hloopt.rewrite.source_lines import lines_text
from hloopt.types import Shape, TupleShape

if TYPE_CHECKING:
    from hloopt.report.measured import MeasuredTimes

__all__ = ["LargeBuffer", "ModuleStats", "module_stats"]

_MOST_OPCODES: Final = 15


@dataclass(frozen=True)
class LargeBuffer:
    """One of the largest arrays of a module; ``index`` is where it is in a tuple, ``kind`` what it is for."""

    name: str
    index: tuple[int, ...]
    byte_size: int
    shape: str
    kind: str
    lines: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "name": self.name,
            "index": list(self.index),
            "bytes": self.byte_size,
            "shape": self.shape,
            "kind": self.kind,
            "place": next(iter(self.lines), ""),
            "lines": list(self.lines),
        }


@dataclass(frozen=True)
class ModuleStats(Displayed):
    """What is in a module.

    opcodes       how many instructions have each, the most frequent first
    computations  how many there are
    cost          of the kernels of one run of the entry, loops counted as ``counted_trips`` has them
    memory        what a run needs in the order of the text, as XLA assigns it
    kernels       what runs by itself, with the times that were predicted
    predictor     what predicted them; None where no target was named
    measured      the times of a real run, where a trace was given
    """

    module: str
    instructions: int
    computations: int
    opcodes: Mapping[str, int]
    cost: Cost
    memory: MemoryUse
    buffers: tuple[LargeBuffer, ...]
    kernels: tuple[KernelCost, ...]
    predictor: Predictor | None = None
    measured: MeasuredTimes | None = None

    @property
    def seconds(self) -> float | None:
        """The predicted time of one run; None where no target was named."""
        return None if self.predictor is None else sum(row.seconds for row in self.kernels)

    def to_json(self) -> dict[str, Any]:
        """As JSON values; with ``prediction`` where a target was named."""
        cost = self.cost
        found: dict[str, Any] = {
            "module": self.module,
            "instructions": self.instructions,
            "computations": self.computations,
            "kernels": len(self.kernels),
            "opcodes": dict(self.opcodes),
            "flops": cost.flops,
            "transcendentals": cost.transcendentals,
            "bytes_read": cost.bytes_read,
            "bytes_written": cost.bytes_written,
            "arithmetic_intensity": cost.arithmetic_intensity,
            "peak_bytes": self.memory.byte_size,
            "memory": self.memory.to_json(),
            "buffers": [buffer.to_json() for buffer in self.buffers],
        }
        if self.predictor is not None:
            found["prediction"] = prediction_json(self.predictor, self.kernels)
        if self.measured is not None:
            found["measured"] = self.measured.to_json()
        return found

    def show(self, console: Console, *, file: str = "", by: By = "kernel", top: int = 20) -> None:
        """Print the tables; of a target's times the ``top`` rows by kernel, source line or opcode."""
        if self.measured is not None:
            show_name(self.module, file, console)
            self.measured.show(console, by=by, top=top)
            return
        if self.predictor is None:
            _show_contents(self.to_json(), file, console)
            console.print()
            self.memory.show(console)
            return
        show_name(self.module, file, console)
        show_prediction(self.kernels, self.predictor, console, by=by, top=top)


def module_stats(
    module: Module,
    *,
    buffers: int = 10,
    predictor: Predictor | None = None,
    gpu: bool | None = None,
    xla_bytes: int | None = None,
) -> ModuleStats:
    """Counts, work, memory with the largest ``buffers`` and, with a ``predictor``, times.

    ``gpu`` says whether memory is a GPU's, by default whether the predictor's target is one; ``xla_bytes`` is
    what XLA assigned itself.
    """
    opcodes = Counter(instruction.opcode for instruction in module.instructions())
    rows = kernel_costs(module, predictor)
    return ModuleStats(
        module.name,
        module.instruction_count(),
        len(module.computations),
        dict(opcodes.most_common()),
        totals(module, rows).cost,
        memory_use(
            module,
            gpu=gpu
            if gpu is not None
            else predictor is not None and predictor.target.kind != "cpu",
            most=buffers,
            xla_bytes=xla_bytes,
        ),
        tuple(
            LargeBuffer(
                entry.instruction.name,
                tuple(entry.index),
                entry.byte_size,
                str(_element(entry.instruction.shape, entry.index)),
                entry.kind,
                module.user_lines(entry.instruction.metadata),
            )
            for entry in largest_buffers(module, buffers)
        ),
        tuple(rows),
        predictor,
    )


def _element(shape: Shape, index: tuple[int, ...]) -> Shape:
    for at in index:
        assert isinstance(shape, TupleShape)
        shape = shape.elements[at]
    return shape


def _show_contents(stats: dict[str, Any], file: str, console: Console) -> None:
    show_name(stats["module"], file, console)
    summary = table("what", "value")
    for name in ("instructions", "computations", "kernels"):
        summary.add_row(name, str(stats[name]))
    for name in ("flops", "transcendentals"):
        summary.add_row(name, amount(stats[name]))
    for name in ("bytes_read", "bytes_written"):
        summary.add_row(name.replace("_", " "), byte_size(stats[name]))
    summary.add_row("flops per byte", f"{stats['arithmetic_intensity']:.2f}")
    console.print(summary)
    counts = table("opcode", "count", title="\nopcodes")
    found = list(stats["opcodes"].items())
    for opcode, count in found[:_MOST_OPCODES]:
        counts.add_row(opcode, str(count))
    if len(found) > _MOST_OPCODES:
        rest = sum(count for _, count in found[_MOST_OPCODES:])
        counts.add_row(f"{len(found) - _MOST_OPCODES} more", str(rest))
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
