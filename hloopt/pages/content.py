"""What a page says of a module, as JSON values: instructions, kernels, lines of the program, decisions.

Instructions are numbered through the module, computation after computation; everything else names them so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from hloopt.analysis.assignment import assign_buffers
from hloopt.ir import Instruction, Module
from hloopt.ir.instruction import brief
from hloopt.kernels.costs import KernelCost
from hloopt.pages.unfolding import Unfolding
from hloopt.report.fusion_diff import computes
from hloopt.report.kernels import kernel_text, launch_text
from hloopt.report.picture import draw, kind_of, short_text
from hloopt.rewrite.naming import op_name_of

if TYPE_CHECKING:
    from hloopt.fusion.explained import Lost
    from hloopt.fusion.history import FusionPlan
    from hloopt.fusion.matching import KernelGroup
    from hloopt.kernels.selection import Choice
    from hloopt.report.fusion_diff import FusionDifference

__all__ = [
    "PageNumbers",
    "beside_xla",
    "decisions",
    "graph_views",
    "instructions",
    "kernels",
    "memory",
    "source_lines",
]

_MOST_DECISIONS: Final = 4_000
_MOST_MOMENTS: Final = 2_000
_MOST_ALIVE: Final = 60
_MOST_TEXT: Final = 3 << 20
"""Characters of the HLO of XLA's kernels that a page holds: those whose time differs most."""


class PageNumbers:
    """The number of each instruction of a module, and of those that have a name."""

    def __init__(self, module: Module) -> None:
        self.order = [one for computation in module for one in computation]
        self.of = {one: number for number, one in enumerate(self.order)}
        self._places = {(one.home.name, one.name): number for one, number in self.of.items()}

    def at(self, computation: str, name: str) -> int | None:
        """The number of what is called so; None where nothing is any more."""
        return self._places.get((computation, name))


def instructions(
    module: Module, numbers: PageNumbers, spent: Mapping[Instruction, float]
) -> dict[str, Any]:
    """All instructions, a list for each property; ``spent`` are seconds of one run."""
    order = numbers.order
    return {
        "computations": [[computation.name, len(computation)] for computation in module],
        "entry": module.entry.name,
        "names": [one.name for one in order],
        "opcodes": [one.opcode for one in order],
        "kinds": [kind_of(one.opcode) for one in order],
        "shapes": [brief(one.shape) for one in order],
        "op_names": [op_name_of(one) for one in order],
        "lines": [list(module.user_lines(one.metadata)) for one in order],
        "texts": [short_text(one) for one in order],
        "operands": [[numbers.of[operand] for operand in one.operands] for one in order],
        "calls": {str(numbers.of[one]): one.calls.name for one in order if one.opcode == "fusion"},
        "seconds": {str(numbers.of[one]): seconds for one, seconds in spent.items() if seconds},
    }


def graph_views(
    module: Module, numbers: PageNumbers, spent: Mapping[Instruction, float]
) -> dict[str, Any]:
    """The views of the graph by key, each with its picture; keys of boxes are instructions or views."""
    found = {}
    for view in Unfolding(module, spent).every():
        found[view.key] = {
            "title": view.title,
            "above": view.above,
            "opens": view.opens,
            "members": [numbers.of[one] for one in view.members],
            "svg": draw(view.graph, style=False),
        }
    return found


def kernels(
    costs: Sequence[KernelCost], choices: Mapping[tuple[str, str], Choice], numbers: PageNumbers
) -> list[dict[str, Any]]:
    """Kernels with their times, bounds and launches, those that take longest first."""
    found = []
    for row in sorted(costs, key=lambda row: -row.seconds):
        predicted = row.prediction
        assert predicted is not None, "costs of a page are predicted"
        one = row.instruction
        choice = choices.get((one.home.name, one.name))
        found.append({
            "at": numbers.of[one],
            "seconds": row.seconds,
            "one": predicted.seconds,
            "launches": row.launches_text,
            "counted": row.counted,
            "bound": predicted.bound,
            "by": predicted.by,
            "coalesced": predicted.coalesced,
            "read": row.cost.bytes_read,
            "written": row.cost.bytes_written,
            "flops": row.cost.flops + row.cost.transcendentals,
            "lines": list(row.lines),
            **(_choice(choice) if choice is not None else {}),
        })  # fmt: skip
    return found


def _choice(choice: Choice) -> dict[str, Any]:
    if choice.spec is None:
        return {"kernel": "", "reason": choice.reason}
    return {
        "kernel": kernel_text(choice.kernel, choice.tile, breakable=True),
        "launch": launch_text(choice.spec),
        "reason": choice.reason,
    }


def source_lines(costs: Sequence[KernelCost], numbers: PageNumbers) -> list[dict[str, Any]]:
    """The user's lines: a kernel's time counts for its first line, as in ``hloopt stats --by source``."""
    spent: dict[str, float] = defaultdict(float)
    found: dict[str, dict[int, None]] = defaultdict(dict)
    for row in costs:
        spent[row.line] += row.seconds
        for line in row.lines or ("",):
            found[line][numbers.of[row.instruction]] = None
    rows = [
        {"line": line, "seconds": spent[line], "kernels": [*kernels]}
        for line, kernels in found.items()
    ]
    return sorted(rows, key=lambda row: (-row["seconds"], row["line"]))


def decisions(
    plans: Iterable[FusionPlan], lost: Iterable[Lost], numbers: PageNumbers
) -> dict[str, Any]:
    """What fusion did, with both times where a cost model decided: pairs that it joined, and refusals.

    Refusals are those that cost time by the model, the costliest first.
    """
    joined = [row for plan in plans for row in _joined(plan)]
    return {
        "joined": joined[:_MOST_DECISIONS],
        "joined_count": len(joined),
        "refused": [_refused(row, numbers) for row in lost],
    }


def _joined(plan: FusionPlan) -> Iterator[dict[str, Any]]:
    for step in plan.steps:
        times = step.comparison
        yield {
            "pass": plan.strategy,
            "computation": step.computation,
            "producer": step.producer,
            "consumer": step.consumer,
            "fusion": step.fusion,
            "duplicated": step.duplicated,
            "multi_output": step.multi_output,
            "apart": None if times is None else times.unfused_us,
            "together": None if times is None else times.fused_us,
        }


def _refused(row: Lost, numbers: PageNumbers) -> dict[str, Any]:
    word = row.word
    comparison = word.comparison
    return {
        "pass": word.pass_name,
        "computation": row.computation,
        "producer": row.producer or word.names[0],
        "consumer": row.consumer or word.names[1],
        "at": numbers.at(row.computation, row.producer),
        "with": numbers.at(row.computation, row.consumer),
        "code": word.decision.code,
        "reason": word.decision.reason,
        "options": list(word.options),
        "advisable": word.advisable,
        "model": word.model,
        "source": row.source,
        "others": row.others,
        "lost": row.lost_us,
        "apart": None if comparison is None else comparison.unfused_us,
        "together": None if comparison is None else comparison.fused_us,
    }


def memory(module: Module, numbers: PageNumbers, *, gpu: bool) -> dict[str, Any]:
    """What a run needs as XLA assigns it, and what is alive at each instruction, and at the peak."""
    found = assign_buffers(module, gpu=gpu)
    order, time = found.schedule.order, found.peak_time()
    given = found.bytes_of("parameter")
    alive = [
        (numbers.of[one], given + size) for one, size in zip(order, found.over_time(), strict=True)
    ]
    kinds = {value: one.kind for one in found.allocations for value, _ in one.values}
    buffers = [value for value in found.alive(time) if value.byte_size]
    return {
        "assigned": {"bytes": found.byte_size}
        | {kind: found.bytes_of(kind) for kind in ("parameter", "result", "temporary")},
        "peak": alive[time][1],
        "at": alive[time][0],
        "moments": _thinned(alive),
        "buffers": [
            {
                "at": numbers.of[buffer.instruction],
                "index": list(buffer.index),
                "bytes": buffer.byte_size,
                "kind": kinds[buffer],
                "start": numbers.of[buffer.instruction],
                "end": numbers.of[order[min(buffer.life.end, len(order) - 1)]],
            }
            for buffer in buffers[:_MOST_ALIVE]
        ],
        "others": len(buffers[_MOST_ALIVE:]),
    }


def beside_xla(found: FusionDifference, stage: str, elsewhere: str) -> dict[str, Any]:
    """XLA's plan (``before``) beside ours, by groups of kernels that compute the same; seconds of all runs.

    ``elsewhere`` is the kind of device that XLA planned for, where prices are those of another.
    """
    costs = [{row.instruction: row for row in rows} for rows in (found.before, found.after)]

    def seconds(side: int, kernels: Iterable[Instruction]) -> float:
        return sum(costs[side][one].seconds for one in kernels)

    def changed(group: KernelGroup) -> float:
        return seconds(1, group.after) - seconds(0, group.before)

    left = _MOST_TEXT
    groups = list[dict[str, Any]]()
    for group in sorted(found.groups, key=lambda group: -abs(changed(group))):
        theirs = [_kernel_of_xla(costs[0][one], left > 0) for one in group.before]
        left -= sum(len(one["text"]) for one in theirs)
        ours = [{"key": f"{one.home.name}/{one.name}"} for one in group.after]
        groups.append({
            "status": group.status,
            "before": theirs,
            "after": ours,
            "seconds": [seconds(0, group.before), seconds(1, group.after)],
        })  # fmt: skip
    return {
        "stage": stage,
        "elsewhere": elsewhere,
        "totals": {
            side: {
                "seconds": sums.seconds or 0.0,
                "kernels": sums.kernels,
                "bytes": sums.cost.bytes_accessed,
            }
            for side, sums in zip(("before", "after"), found.totals, strict=True)
        },
        "groups": groups,
    }


def _kernel_of_xla(row: KernelCost, with_text: bool) -> dict[str, Any]:
    one = row.instruction
    body = one.calls if one.opcode == "fusion" else ()
    lines = [short_text(one), *(f"  {short_text(inner)}" for inner in body)]
    return {
        "name": one.name,
        "computes": computes(one),
        "lines": list(row.lines[:8]),
        "launches": row.launches_text,
        "seconds": row.seconds,
        "text": "\n".join(lines) if with_text else "",
    }


def _thinned(moments: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """So few of them that they can be drawn: the highest of each run."""
    length = -(-len(moments) // _MOST_MOMENTS) or 1
    return [
        max(moments[start : start + length], key=lambda moment: moment[1])
        for start in range(0, len(moments), length)
    ]
