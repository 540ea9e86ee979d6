"""Sorts of which more is read than a few elements: what they cost, where XLA has nothing cheaper."""

from __future__ import annotations

from typing import Any, Final

from hloopt.cost_models.sorting import sort_of, sort_passes
from hloopt.dataclass import dataclass
from hloopt.findings.full_sorts import is_of_few
from hloopt.findings.planning import Planner
from hloopt.findings.trials import Subject
from hloopt.ir import Instruction
from hloopt.kernels.costs import KernelCost
from hloopt.rewrite.site import sites
from hloopt.text.parser import parse_module

__all__ = ["WholeSort", "whole_sorts"]

_SHARE: Final = 0.1
"""The share of the whole time from which on a sort is worth a note."""
_SHOWN: Final = 2
_MOST: Final = 16
_LEAST_ROW: Final = 1024
"""Elements that XLA's kernel takes of a row at most, and how long a row is at least."""
_TOP: Final = """HloModule top
ENTRY main {{
  x = {shape} parameter(0)
  ROOT r = ({kind}[{rows}{most}], s32[{rows}{most}]) topk(x), k={most}, largest=true
}}
"""


@dataclass(frozen=True, slots=True)
class WholeSort:
    """A sort that takes much of the time and of which more is read than a few elements.

    kernel   that is or ends with the sort ``name``
    row      elements that are put in order
    passes   kernels that the sort is on a GPU; 1 elsewhere
    seconds  of all of them, ``share`` of the whole
    top      what the 16 largest of each row take; None where XLA has no kernel for that
    """

    name: str
    kernel: str
    line: str
    row: int
    passes: int
    seconds: float
    share: float
    top: float | None

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "name": self.name,
            "kernel": self.kernel,
            "line": self.line,
            "row": self.row,
            "passes": self.passes,
            "seconds": self.seconds,
            "share": self.share,
            "top_k_16_seconds": self.top,
        }


def whole_sorts(subject: Subject) -> tuple[WholeSort, ...]:
    """Those that take most, without those of which a few elements are read: these are findings."""
    plan = subject.plan
    few = {one.name for one in sites(subject.module, "sort") if is_of_few(one)}
    rows = [
        (row, sort)
        for row in plan.rows
        if row.seconds >= _SHARE * plan.seconds
        and (sort := sort_of(row.instruction)) is not None
        and sort.name not in few
    ]
    rows.sort(key=lambda pair: -pair[0].seconds)
    return tuple(_whole_sort(subject, *pair) for pair in rows[:_SHOWN])


def _whole_sort(subject: Subject, row: KernelCost, sort: Instruction) -> WholeSort:
    target, plan = subject.planner.predictor.target, subject.plan
    return WholeSort(
        sort.name,
        row.instruction.name,
        row.line,
        sort.operands[0].array.dims[sort.dimensions[0]],
        sort_passes(sort) if target.has_threads else 1,
        row.seconds,
        row.seconds / plan.seconds,
        _top_seconds(subject.planner, sort) if target.has_threads else None,
    )


def _top_seconds(planner: Planner, sort: Instruction) -> float | None:
    """Seconds of a top-k of each row, planned as a program by itself; None where XLA has no kernel for it."""
    key = sort.operands[0].array
    last = key.rank - 1
    if key.dtype.name not in ("f32", "bf16") or sort.dimensions != (last,):
        return None
    if key.dims[last] < _LEAST_ROW or len(sort.operands) > 2:
        return None
    rows = "".join(f"{size}," for size in key.dims[:last])
    kind = key.dtype.name
    text = _TOP.format(shape=f"{kind}[{rows}{key.dims[last]}]", kind=kind, rows=rows, most=_MOST)
    return planner.plan(parse_module(text)).seconds
