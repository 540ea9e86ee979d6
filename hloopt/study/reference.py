"""What the results of a module have to be: those of the interpreter, those recorded beside the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hloopt.analysis.cost import instruction_cost
from hloopt.analysis.executions import executions
from hloopt.dataclass import dataclass
from hloopt.interpret import (
    evaluate_participants,
    participant_counts,
    supported,
    tells_participants_apart,
)
from hloopt.ir import Instruction, Module
from hloopt.ops.traits import CONTROL_FLOW, PLUMBING
from hloopt.runtime.inputs import (
    generate_all,
    load_all_expected,
    load_all_inputs,
    load_host,
    origin_of,
    stored,
)
from hloopt.runtime.judge import Judge
from hloopt.runtime.tolerance import FREE, Tolerance
from hloopt.study.cells import Checked
from hloopt.types import ArrayShape, leaves

if TYPE_CHECKING:
    from hloopt.interpret import Host
    from hloopt.runtime.judge import OutputComparison

__all__ = ["MOST_WORK", "StudyReference", "reference", "work"]

MOST_WORK: Final = 40_000_000_000
"""Elements that the interpreter computes for a reference: half a minute at the 1.5e9 a second of loops."""

_INSTRUCTION: Final = 5_000
"""One instruction takes the interpreter as long as so many elements, however few it has."""


@dataclass
class StudyReference:
    """Inputs of one module, and results to compare with.

    counts       participants: replicas and partitions
    origin       where the inputs are from
    interpreted  None where that would have been too much work: ``skipped`` is the message
    recorded     None where there are none; ``tolerance`` is for these, which another compiler computed
    judge        what decides about all but these
    """

    counts: tuple[int, int]
    inputs: list[list[Any]]
    origin: str
    host: Host
    interpreted: list[list[Any]] | None = None
    written: dict[str, Any] = field(default_factory=dict)
    recorded: list[list[Any]] | None = None
    skipped: str = ""
    tolerance: Tolerance = FREE
    judge: Judge | None = None

    @property
    def empty(self) -> bool:
        """Whether there is nothing to compare with."""
        return self.interpreted is None and self.recorded is None

    def check(self, device: str, results: Sequence[Sequence[Any]], host: Host) -> Checked:
        """Compare what a device gave, and what it wrote to the host, with all there is."""
        named: list[tuple[str, str, OutputComparison]] = []
        against: list[str] = []
        judge = self.judge or Judge()
        given = Judge(tolerance=self.tolerance)
        for title, wanted, one in (
            ("interpreter", self.interpreted, judge),
            ("recorded results", self.recorded, given if self.tolerance.is_given else judge),
        ):
            if wanted is None:
                continue
            against.append(title)
            found = iter(one.compare_all(results, wanted))
            for number, outputs in enumerate(wanted):
                of = f".{number}" if len(wanted) > 1 else ""
                named.extend((title, f"out_{at}{of}", next(found)) for at in range(len(outputs)))
        if self.interpreted is not None:
            for name, entry in judge.compare_named(host.written, self.written):
                named.append(("interpreter", name, entry))
        if not against:
            return Checked("not verified", device, (), self.skipped)
        wrong = [row for row in named if not row[2].passed]
        share = max((entry.share for title, _, entry in named if title == against[0]), default=0.0)
        if wrong:
            title, output, entry = wrong[0]
            problem = f"{output} against {title}: {entry.reason}"
            if self.interpreted is not None and title != "interpreter":
                problem += "; those of the interpreter are met"
            return Checked("differ", device, tuple(against), problem, _ulp(named), share)
        if not any(entry.finite for _, _, entry in named):
            problem = "no result holds a finite number"
            return Checked("not verified", device, tuple(against), problem)
        first = [row for row in named if row[0] == against[0]]
        return Checked(
            "within tolerance" if share else "equal",
            device,
            tuple(against),
            ulp=_ulp(first),
            share=share,
        )


def _ulp(named: Sequence[tuple[str, str, OutputComparison]]) -> int:
    return max((entry.ulp for _, _, entry in named), default=0)


def reference(
    module: Module,
    beside: Path | None,
    seed: int | None,
    most_work: int | None,
    snapshot: Any = None,
) -> StudyReference:
    """Inputs, and the results they give; without ``most_work`` nothing is to be compared.

    ``beside`` is an .npz or a folder with ``in_0``, ... and perhaps ``out_0``, ...; it counts unless there is a
    seed.  Raises ``UsageError`` for arrays that do not fit the module, ``UnsupportedError`` for what the
    interpreter cannot evaluate.
    """
    counts = _participants(module)
    supported(module, *counts)
    host = load_host(None, seed or 0)
    recorded: list[list[Any]] | None = None
    if seed is None and beside is not None:
        inputs, origin = load_all_inputs(beside, module, prod(counts)), str(beside)
        if any(name.startswith("out_") for name in stored(beside)):
            recorded = load_all_expected(beside, module, prod(counts))
    elif seed is None and snapshot is not None and prod(counts) == 1:
        inputs, origin = [list(snapshot.inputs)], "snapshot"
        recorded = [list(snapshot.results)] if snapshot.results else None
    else:
        inputs, origin = (
            generate_all(module, seed or 0, *counts),
            origin_of(module, f"seed {seed or 0}"),
        )
    found = StudyReference(counts, inputs, origin, host, recorded=recorded)
    if most_work is None:
        found.recorded, found.skipped = None, "not requested"
        return found
    needed = work(module) * prod(counts)
    if needed > most_work:
        found.skipped = (
            f"the interpreter would compute {needed:.2g} elements, the limit is {most_work:.2g}"
        )
        return found
    own = host.restarted()
    found.interpreted = evaluate_participants(module, inputs, *counts, host=own)
    found.written = dict(own.written)
    found.judge = Judge.of(
        module, inputs, found.interpreted, counts=counts, host=host, written=found.written
    )
    return found


def _participants(module: Module) -> tuple[int, int]:
    if tells_participants_apart(module):
        return participant_counts(module, None, None)
    return participant_counts(module, 1, 1)


def work(module: Module) -> int:
    """Elements that the interpreter computes in one run; an instruction counts as some thousands at least.

    Loops whose trip count is unknown count once.
    """
    weights: dict[Instruction, int] = {}

    def weight(entry: Instruction) -> float:
        cost = instruction_cost(entry) if entry.opcode not in CONTROL_FLOW else None
        size = sum(leaf.elements for leaf in leaves(entry.shape) if isinstance(leaf, ArrayShape))
        done = cost.flops + cost.transcendentals if cost is not None else 0
        weights[entry] = 0 if entry.opcode in _FREE else _INSTRUCTION + max(size, done)
        return weights[entry]

    found = executions(module, weight)
    return sum(
        execution.counted * sum(weights[entry] for entry in computation)
        for computation, execution in found.items()
    )


_FREE: Final = CONTROL_FLOW | PLUMBING
