"""Selects that choose whole rows, as ``cond`` under ``vmap`` becomes: both arms are computed for all rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from math import prod
from typing import Any, Final

from hloopt.analysis.cost import instruction_cost
from hloopt.dataclass import dataclass
from hloopt.findings.planning import is_planned
from hloopt.findings.trials import Subject
from hloopt.ir import Computation, Instruction, edit
from hloopt.ir.build import clone_module
from hloopt.pipelines import parse_pipeline
from hloopt.rewrite.site import sites

__all__ = ["RowChoice", "own_of", "row_choices"]

_SHARE: Final = 0.1
"""The share of the whole time from which on an arm is worth a note."""
_WORK: Final = 0.05
"""The share of the work of a computation from which on an arm is priced."""
_SHOWN: Final = 2
_MOST: Final = 512
"""Instructions of an arm that are looked at."""
_LEAST_ROW: Final = 16
"""Elements of a row: choices of fewer are masks of elements."""


@dataclass(frozen=True, slots=True)
class RowChoice:
    """A select by rows, and the arm that takes longer.

    arm      what it computes for all rows, which nothing else reads
    other    the other arm
    rows     how many are chosen, one by one
    seconds  of a run, and ``without`` of one without the arm
    """

    name: str
    line: str
    arm: str
    other: str
    rows: int
    seconds: float
    without: float

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "name": self.name,
            "line": self.line,
            "arm": self.arm,
            "other": self.other,
            "rows": self.rows,
            "seconds": self.seconds,
            "without_seconds": self.without,
        }


def row_choices(subject: Subject) -> tuple[RowChoice, ...]:
    """Those whose costlier arm takes much of the time; none in modules that are planned, or large."""
    if is_planned(subject.module) or not subject.is_small:
        return ()
    works: dict[Computation, dict[Instruction, float]] = {}
    ranked = []
    for one in sites(subject.module, "select"):
        rows = _rows(one)
        if rows:
            home = one.home
            if home not in works:
                works[home] = {each: _work(each) for each in home}
            work = works[home]
            found, arm = max((sum(map(work.__getitem__, own_of(one, arm))), arm) for arm in (1, 2))
            if found >= _WORK * sum(work.values()):
                ranked.append((found, one, arm, rows))
    ranked.sort(key=lambda entry: -entry[0])
    choices = [_choice(subject, *entry[1:]) for entry in ranked[:_SHOWN]]
    return tuple(one for one in choices if one.seconds - one.without >= _SHARE * one.seconds)


def _rows(select: Instruction) -> int:
    """How many rows the mask chooses; 0 where it chooses single elements, or one arm is the same everywhere."""
    mask, *arms = select.operands
    if not select.is_array or not mask.array.dims or any(map(_is_uniform, arms)):
        return 0
    dims = select.array.dims
    varying = _varying(mask)
    rest = prod(size for at, size in enumerate(dims) if at not in varying)
    rows = prod(dims[at] for at in varying)
    return rows if rows > 1 and rest >= _LEAST_ROW else 0


def _is_uniform(arm: Instruction) -> bool:
    """A constant in all places: then the mask is one of what counts, and no choice."""
    while arm.opcode in ("broadcast", "convert", "reshape"):
        arm = arm.operands[0]
    return arm.opcode == "constant"


def _varying(mask: Instruction) -> frozenset[int]:
    """The dimensions along which a mask may vary."""
    known: dict[Instruction, frozenset[int]] = {}
    pending = [mask]
    while pending:
        one = pending[-1]
        elementwise = one.op.is_elementwise and all(
            operand.is_array and operand.array.dims == one.array.dims for operand in one.operands
        )
        if elementwise and len(known) < _MOST:
            left = [operand for operand in one.operands if operand not in known]
            if left:
                pending += left
                continue
            known[one] = frozenset().union(*(known[operand] for operand in one.operands))
        elif one.opcode == "broadcast":
            known[one] = frozenset(one.dimensions)
        elif one.opcode == "iota":
            known[one] = frozenset((one.iota_dimension,))
        else:
            known[one] = frozenset(range(one.array.rank))
        pending.pop()
    return known[mask]


def _work(one: Instruction) -> float:
    """Flops and bytes: which arms are worth a plan."""
    cost = instruction_cost(one)
    return float(cost.flops + cost.bytes_accessed)


def own_of(select: Instruction, arm: int) -> Collection[Instruction]:
    """What an arm of a select computes and nothing else reads, readers first; 512 instructions at most."""
    first = select.operands[arm]
    if select.operands.count(first) > 1:
        return ()
    reads = Counter({first: 1})
    own: dict[Instruction, None] = {}
    pending = [first]
    while pending and len(own) < _MOST:
        one = pending.pop()
        if one in own or one.is_root or one.opcode == "parameter":
            continue
        # The last of its readers puts it on the list once more.
        if reads[one] < sum(one.users.values()):
            continue
        own[one] = None
        reads.update(one.operands)
        pending.extend(dict.fromkeys(one.operands))
    return own


def _choice(subject: Subject, select: Instruction, arm: int, rows: int) -> RowChoice:
    """Priced by the plan of the module in which all rows are the other arm's."""
    copy = clone_module(subject.module)
    chosen = copy.computations[select.home.name].by_name[select.name]
    edit.replace_instruction(chosen, chosen.operands[3 - arm])
    parse_pipeline("dce").run(copy)
    return RowChoice(
        select.name,
        subject.module.user_line(select.metadata),
        select.operands[arm].name,
        select.operands[3 - arm].name,
        rows,
        subject.plan.seconds,
        subject.planner.plan(copy).seconds,
    )
