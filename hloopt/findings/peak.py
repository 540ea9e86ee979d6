"""What a plan needs memory for: what is alive where most is needed, and what fusion keeps out of memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from hloopt.analysis.assignment import AssignedValue
from hloopt.dataclass import dataclass
from hloopt.findings.planning import is_planned
from hloopt.findings.trials import Subject
from hloopt.ir import Instruction, Module
from hloopt.ops.traits import SOURCES, VIEWS
from hloopt.rewrite.source_lines import kernel_lines
from hloopt.types import ArrayShape, TupleShape

__all__ = ["AliveArrays", "PeakUse", "WrittenArrays", "origins", "peak_use", "value_lines"]

_GROUPS: Final = 4
_LEAST: Final = 1 << 24
"""The least bytes of an array that is named although the plan does without it."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class AliveArrays:
    """Arrays of one shape from one line of the program, all alive at the peak; ``byte_size`` is that of all."""

    names: tuple[str, ...]
    shape: str
    kind: str
    line: str
    byte_size: int

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "names": list(self.names),
            "shape": self.shape,
            "kind": self.kind,
            "line": self.line,
            "bytes": self.byte_size,
        }


@dataclass(frozen=True, slots=True)
class WrittenArrays:
    """Arrays of the program as it is written, each larger than all that its plan needs.

    ``byte_size`` is that of one; ``lines`` of the program, each once.
    """

    names: tuple[str, ...]
    shape: str
    lines: tuple[str, ...]
    byte_size: int

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "names": list(self.names),
            "shape": self.shape,
            "lines": list(self.lines),
            "bytes_of_each": self.byte_size,
        }


@dataclass(frozen=True, slots=True)
class PeakUse:
    """What is alive where a plan needs most temporaries and results.

    at       the instruction of the plan that runs then, with its ``line`` in the program
    arrays   those that take most, and ``others``, how many more there are, of ``other_bytes``
    written  the largest arrays of the program that fusion keeps out of memory, if there are such
    """

    at: str
    line: str
    arrays: tuple[AliveArrays, ...]
    others: int
    other_bytes: int
    written: WrittenArrays | None

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "at": self.at,
            "line": self.line,
            "arrays": [one.to_json() for one in self.arrays],
            "others": self.others,
            "other_bytes": self.other_bytes,
            "kept_out_of_memory": None if self.written is None else self.written.to_json(),
        }


def peak_use(subject: Subject) -> PeakUse:
    """The arrays alive at the peak of the subject's plan, by shape and line, those that take most first."""
    plan = subject.plan
    found = plan.assignment
    time = found.peak_time()
    kinds = {value: one.kind for one in found.allocations for value, _ in one.values}
    alive = [one for one in found.alive(time) if kinds[one] != "constant" and one.byte_size]
    groups = _grouped(
        alive,
        lambda one: (kinds[one], _shape(one), next(iter(value_lines(plan.module, one)), "")),
    )
    rows = [
        AliveArrays(
            tuple(one.instruction.name for one in members),
            shape,
            kind,
            line,
            sum(one.byte_size for one in members),
        )
        for (kind, shape, line), members in groups.items()
    ]
    rows.sort(key=lambda row: -row.byte_size)
    rest = rows[_GROUPS:]
    at = found.schedule.order[time]
    return PeakUse(
        at.name,
        next(iter(kernel_lines(plan.module, at)), ""),
        tuple(rows[:_GROUPS]),
        sum(len(row.names) for row in rest),
        sum(row.byte_size for row in rest),
        _written(subject),
    )


def value_lines(module: Module, value: AssignedValue) -> tuple[str, ...]:
    """The lines of the program that a value is from; of a result of a fusion, those of what makes it there."""
    maker = value.instruction
    if maker.opcode == "fusion":
        inner = maker.calls.root
        if inner.opcode == "tuple" and value.index:
            inner = inner.operands[value.index[0]]
        return module.user_lines(inner.metadata) or kernel_lines(module, maker)
    return kernel_lines(module, maker)


def origins(subject: Subject, planned: Iterable[AssignedValue]) -> list[Instruction]:
    """The instructions of the subject that values of its plan are from, as far as their lines tell."""
    module, plan = subject.module, subject.plan.module
    by_line: dict[tuple[str, int], Instruction] = {}
    for one in module.instructions():
        if one.is_array and one.metadata is not None:
            for line in module.user_lines(one.metadata):
                by_line.setdefault((line, one.shape.byte_size), one)
    found: dict[Instruction, None] = {}
    for value in planned:
        home = module.computations.get(value.instruction.home.name)
        same = None if home is None else home.by_name.get(value.instruction.name)
        if same is None:
            lines = value_lines(plan, value)
            sources = (by_line.get((line, value.byte_size)) for line in lines)
            same = next((one for one in sources if one is not None), None)
        if same is not None:
            found[same] = None
    return list(found)


def _written(subject: Subject) -> WrittenArrays | None:
    """The largest arrays that the program computes, where each is more than the whole plan needs."""
    if is_planned(subject.module):
        return None
    least = max(_LEAST, subject.plan.peak_bytes)
    large = [
        one
        for one in subject.module.instructions()
        if one.opcode not in SOURCES | VIEWS
        and isinstance(one.shape, ArrayShape)
        and one.shape.byte_size > least
    ]
    if not large:
        return None
    groups = _grouped(large, lambda one: _dims(one.shape))
    most = max(groups.values(), key=lambda members: sum(one.shape.byte_size for one in members))
    module = subject.module
    lines = dict.fromkeys(line for one in most for line in module.user_lines(one.metadata)[:1])
    return WrittenArrays(
        tuple(one.name for one in most), _dims(most[0].shape), tuple(lines), most[0].shape.byte_size
    )


def _grouped(rows: Iterable[_T], key: Callable[[_T], Any]) -> dict[Any, list[_T]]:
    groups: dict[Any, list[_T]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return groups


def _shape(value: AssignedValue) -> str:
    shape = value.instruction.shape
    for at in value.index:
        assert isinstance(shape, TupleShape)
        shape = shape.elements[at]
    return f"{len(shape.elements)} pointers" if isinstance(shape, TupleShape) else _dims(shape)


def _dims(shape: object) -> str:
    """``f32[4,8]``: without the layout, which differs between arrays of the same use."""
    return str(shape).partition("{")[0]
