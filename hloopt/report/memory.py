"""The memory that a run of a module needs, as XLA assigns it, and what is alive where most is needed."""

from __future__ import annotations

from typing import Any, Final

from rich.console import Console

from hloopt.analysis.assignment import AssignedValue, BufferAssignment, assign_buffers
from hloopt.dataclass import dataclass
from hloopt.display import Displayed
from hloopt.ir import Module
from hloopt.numbers import byte_size
from hloopt.report.console import say, table
from hloopt.rewrite.source_lines import lines_text
from hloopt.types import TupleShape

__all__ = ["AliveValue", "MemoryUse", "memory_use"]

_LONGEST_SHAPE: Final = 40


@dataclass(frozen=True, slots=True)
class AliveValue:
    """A value that is alive where most memory is needed; ``index`` is where it is in a tuple."""

    name: str
    index: tuple[int, ...]
    byte_size: int
    shape: str
    kind: str
    lines: tuple[str, ...]

    @property
    def label(self) -> str:
        """``sort.3{1}``."""
        index = ",".join(map(str, self.index))
        return f"%{self.name}{{{index}}}" if index else f"%{self.name}"


@dataclass(frozen=True, slots=True)
class MemoryUse(Displayed):
    """Bytes of a run; parameters that are donated hold the results that they become, and count once.

    at         the instruction where most temporaries and results are alive, with its lines in the program
    alive      what is alive there, the largest first
    count      how many values those are, of which ``alive`` may be the first ones
    xla_bytes  what XLA itself assigned, where its dump says so
    """

    parameters: int
    results: int
    temporaries: int
    constants: int
    at: str
    lines: tuple[str, ...]
    alive: tuple[AliveValue, ...]
    count: int
    xla_bytes: int | None = None

    @property
    def byte_size(self) -> int:
        """All but the constants, which belong to the program."""
        return self.parameters + self.results + self.temporaries

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "bytes": self.byte_size,
            "parameters": self.parameters,
            "results": self.results,
            "temporaries": self.temporaries,
            "constants": self.constants,
            "xla_bytes": self.xla_bytes,
            "at": self.at,
            "lines": list(self.lines),
            "alive": [
                {
                    "name": one.name,
                    "index": list(one.index),
                    "bytes": one.byte_size,
                    "shape": one.shape,
                    "kind": one.kind,
                    "lines": list(one.lines),
                }
                for one in self.alive
            ],
            "alive_count": self.count,
        }

    def show(self, console: Console) -> None:
        """Print the sums, and what is alive where most is needed."""
        parts = f"parameters {byte_size(self.parameters)}, results {byte_size(self.results)}"
        parts += f", temporaries {byte_size(self.temporaries)}"
        say(console, f"memory {byte_size(self.byte_size)}: {parts}")
        if self.xla_bytes is not None:
            same = "the same" if self.xla_bytes == self.byte_size else byte_size(self.xla_bytes)
            say(console, f"XLA's own assignment in the dump: {same}")
        if not self.alive:
            return
        where = f", {lines_text(self.lines)}" if self.lines else ""
        say(console, f"most is needed at %{self.at}{where}, where these are alive:")
        made = table("value", "shape", "kind", "from", "size", left=4, optional=("kind",))
        for one in self.alive:
            shape = one.shape
            shape = shape if len(shape) < _LONGEST_SHAPE else shape[: _LONGEST_SHAPE - 1] + "…"
            made.add_row(
                one.label, shape, one.kind, lines_text(one.lines), byte_size(one.byte_size)
            )
        console.print(made)
        if self.count > len(self.alive):
            say(console, f"and {self.count - len(self.alive)} more")


def memory_use(
    module: Module, *, gpu: bool = False, most: int = 10, xla_bytes: int | None = None
) -> MemoryUse:
    """The memory of a module whose instructions run in the order of the text; ``most`` values are named.

    ``gpu`` is as for ``assign_buffers``.
    """
    found = assign_buffers(module, gpu=gpu)
    time = found.peak_time()
    order = found.schedule.order
    instruction = order[min(time, len(order) - 1)]
    alive = [value for value in found.alive(time) if value.byte_size]
    kinds = _kinds(found)
    return MemoryUse(
        found.bytes_of("parameter"),
        found.bytes_of("result"),
        found.bytes_of("temporary"),
        found.bytes_of("constant"),
        instruction.name,
        module.user_lines(instruction.metadata),
        tuple(_alive(module, value, kinds[value]) for value in alive[:most]),
        len(alive),
        xla_bytes,
    )


def _kinds(found: BufferAssignment) -> dict[AssignedValue, str]:
    return {value: one.kind for one in found.allocations for value, _ in one.values}


def _alive(module: Module, value: AssignedValue, kind: str) -> AliveValue:
    shape = value.instruction.shape
    for at in value.index:
        assert isinstance(shape, TupleShape)
        shape = shape.elements[at]
    text = f"{len(shape.elements)} pointers" if isinstance(shape, TupleShape) else str(shape)
    lines = module.user_lines(value.instruction.metadata)
    return AliveValue(value.instruction.name, value.index, value.byte_size, text, kind, lines)
