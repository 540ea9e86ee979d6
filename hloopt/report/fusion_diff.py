"""What changed between two modules, kernel by kernel: the figures of ``hloopt diff``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from rich.console import Console

from hloopt.analysis.differences import Difference, differences
from hloopt.cost_models.predictor import Predictor
from hloopt.dataclass import dataclass
from hloopt.display import Displayed
from hloopt.fusion.matching import KernelGroup, Status, match_kernels
from hloopt.ir import Instruction, Module
from hloopt.kernels.costs import KernelCost, Totals, kernel_costs, totals
from hloopt.numbers import amount, byte_size, seconds
from hloopt.ops.traits import PLUMBING
from hloopt.report.console import say, table
from hloopt.report.differences import differences_json, show_differences
from hloopt.rewrite.source_lines import lines_text
from hloopt.spelling import first_of

__all__ = [
    "FusionDifference",
    "compare_kernels",
    "figure_text",
    "figures",
    "show_difference",
]

_MOST_OPCODES = 8
_MOST_GROUPS = 25
_STATUS: tuple[Status, ...] = (
    "same",
    "grew",
    "shrank",
    "merged",
    "split",
    "regrouped",
    "repeated",
    "changed",
    "came",
    "went",
)


@dataclass(frozen=True)
class FusionDifference(Displayed):
    """Two modules side by side: ``before`` and ``after`` are lists of the kernels with their costs.

    equal   whether the modules are the same but for names, metadata and order
    named   what differs otherwise, instruction by instruction
    """

    equal: bool
    before: list[KernelCost]
    after: list[KernelCost]
    totals: tuple[Totals, Totals]
    opcodes: tuple[Counter[str], Counter[str]]
    groups: list[KernelGroup]
    named: list[Difference]

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        costs = [{row.instruction: row for row in rows} for rows in (self.before, self.after)]
        return {
            "equal": self.equal,
            "before": _totals_json(self.totals[0]),
            "after": _totals_json(self.totals[1]),
            "opcodes": {
                name: {"before": self.opcodes[0][name], "after": self.opcodes[1][name]}
                for name in sorted(self.opcodes[0] | self.opcodes[1])
            },
            "kernels": [
                {
                    "status": group.status,
                    "before": [_kernel_json(costs[0][kernel]) for kernel in group.before],
                    "after": [_kernel_json(costs[1][kernel]) for kernel in group.after],
                    "gained": dict(group.gained),
                    "lost": dict(group.lost),
                    "elsewhere": [kernel.name for kernel in group.elsewhere],
                    "kernel": _other_kernel(group),
                    "other_operands": self.is_elsewhere(group),
                }
                for group in self.groups
            ],
            "differences": differences_json(self.named),
        }

    def is_elsewhere(self, group: KernelGroup) -> bool:
        """Whether a kernel does the same as before, but to operands in another order or to others."""
        return group.status == "same" and group.before[0] in self._moved

    @cached_property
    def _moved(self) -> set[Instruction]:
        return {
            one.before
            for one in self.named
            if one.before is not None and one.what.startswith("operand")
        }


def compare_kernels(
    before: Module, after: Module, predictor: Predictor | None = None
) -> FusionDifference:
    """Two modules, matched by structure."""
    rows = kernel_costs(before, predictor), kernel_costs(after, predictor)
    groups = match_kernels(
        before,
        [row.instruction for row in rows[0]],
        after,
        [row.instruction for row in rows[1]],
    )
    named = differences(before, after)
    return FusionDifference(
        not named,
        rows[0],
        rows[1],
        (totals(before, rows[0]), totals(after, rows[1])),
        (_opcodes(before), _opcodes(after)),
        groups,
        named,
    )


def _opcodes(module: Module) -> Counter[str]:
    return Counter(entry.opcode for entry in module.instructions())


def figures(found: Totals) -> dict[str, float]:
    """The figures that gates are about but for the peak, by name; time only where it was predicted."""
    rows: dict[str, float] = {
        "kernels": found.kernels,
        "launches": found.launches,
        "bytes": found.cost.bytes_accessed,
        "flops": found.cost.flops,
        "transcendentals": found.cost.transcendentals,
        "instructions": found.instructions,
    }
    if found.seconds is not None:
        rows["time"] = found.seconds
    return rows


def _totals_json(found: Totals) -> dict[str, Any]:
    return {
        "kernels": found.kernels,
        "launches": found.launches,
        "instructions": found.instructions,
        "bytes_read": found.cost.bytes_read,
        "bytes_written": found.cost.bytes_written,
        "flops": found.cost.flops,
        "transcendentals": found.cost.transcendentals,
        "seconds": found.seconds,
    }


def _kernel_json(row: KernelCost) -> dict[str, Any]:
    home = row.instruction.computation
    return {
        "name": row.instruction.name,
        "opcode": row.instruction.opcode,
        "computation": home.name if home is not None else "",
        "line": row.line,
        "lines": list(row.lines),
        "launches": row.launches,
        "launches_known": row.known,
        "bytes_read": row.cost.bytes_read,
        "bytes_written": row.cost.bytes_written,
        "flops": row.cost.flops,
        "transcendentals": row.cost.transcendentals,
        "seconds": row.prediction.seconds if row.prediction else None,
    }


def show_difference(
    found: FusionDifference,
    console: Console,
    *,
    every: bool = False,
) -> None:
    """Print the figures, then the kernels that are not the same, of many those whose bytes change most.

    ``every`` prints them all, and those that are the same.
    """
    console.print(_summary(found))
    _show_opcodes(found, console)
    counts = Counter(group.status for group in found.groups)
    parts = [f"{counts[status]} {status}" for status in _STATUS if counts[status]]
    if elsewhere := sum(map(found.is_elsewhere, found.groups)):
        parts[0] += f" ({elsewhere} of them with other operands)"
    if found.equal:
        parts = ["the modules are equal"]
    say(console, f"\nkernels: {', '.join(parts) or 'none'}")
    costs = [{row.instruction: row for row in rows} for rows in (found.before, found.after)]
    shown = [group for group in found.groups if every or _differs(group, costs)]
    left = 0 if every else max(0, len(shown) - _MOST_GROUPS)
    if left:
        kept = sorted(shown, key=lambda group: -_change(group, costs))[:_MOST_GROUPS]
        shown = [group for group in shown if group in kept]
    if shown:
        rows = table(
            *("", "kernel", "computes", "from", "launches", "bytes", *_timed(found)),
            left=4,
            optional=("computes", "bytes"),
        )
        cells = [list(_group_rows(group, costs, timed=bool(_timed(found)))) for group in shown]
        apart = any(len(one) > 1 for one in cells)
        for number, group_cells in enumerate(cells):
            if apart and number:
                rows.add_row()
            for row in group_cells:
                rows.add_row(*row)
        console.print(rows)
    if left:
        say(console, f"and {left} groups whose bytes change less (--all)")
    instructions = max(one.instructions for one in found.totals)
    show_differences(found.named, instructions, console, every=every)


def _timed(found: FusionDifference) -> tuple[str, ...]:
    return ("time",) if any(one.seconds is not None for one in found.totals) else ()


def _count(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.1f}"


def _bytes(value: float) -> str:
    return f"-{byte_size(round(-value))}" if value < 0 else byte_size(round(value))


def _amount(value: float) -> str:
    return f"-{amount(round(-value))}" if value < 0 else amount(round(value))


def _time(value: float) -> str:
    return f"-{seconds(-value)}" if value < 0 else seconds(value)


_FORMATS = {
    "kernels": _count,
    "launches": _count,
    "instructions": _count,
    "bytes": _bytes,
    "peak": _bytes,
    "flops": _amount,
    "transcendentals": _amount,
    "time": _time,
}


def figure_text(figure: str, value: float) -> str:
    """A figure of ``figures``, or a change of one, with its unit."""
    return _FORMATS[figure](value)


def _summary(found: FusionDifference) -> Any:
    rows = table("", "before", "after", "change", "")
    first, second = found.totals
    lines: list[tuple[str, str, float, float]] = [
        ("kernels", "kernels", first.kernels, second.kernels),
        ("launches", "launches", first.launches, second.launches),
        ("bytes read", "bytes", first.cost.bytes_read, second.cost.bytes_read),
        ("bytes written", "bytes", first.cost.bytes_written, second.cost.bytes_written),
        ("flops", "flops", first.cost.flops, second.cost.flops),
        ("transcendentals", "flops", first.cost.transcendentals, second.cost.transcendentals),
        ("instructions", "instructions", first.instructions, second.instructions),
    ]
    if first.seconds is not None and second.seconds is not None:
        lines.append(("predicted time", "time", first.seconds, second.seconds))
    for name, figure, before, after in lines:
        shape = _FORMATS[figure]
        change = after - before
        sign = "+" if change > 0 else ""
        share = f"{change / before:+.1%}" if before and change else ""
        rows.add_row(
            name, shape(before), shape(after), f"{sign}{shape(change)}" if change else "=", share
        )
    return rows


def _show_opcodes(found: FusionDifference, console: Console) -> None:
    """One line: which opcodes there are more or fewer of, the largest differences first."""
    change = Counter(found.opcodes[1])
    change.subtract(found.opcodes[0])
    changed = [(name, count) for name, count in change.items() if count]
    changed.sort(key=lambda row: (-abs(row[1]), row[0]))
    if changed:
        parts = [f"{count:+d} {name}" for name, count in changed[:_MOST_OPCODES]]
        rest = len(changed) - len(parts)
        parts += [f"{rest} others"] if rest else []
        say(console, f"\nopcodes: {', '.join(parts)}")


_Costs = dict[Instruction, KernelCost]


def _differs(group: KernelGroup, costs: Sequence[_Costs]) -> bool:
    if group.status != "same":
        return True
    first, second = costs[0][group.before[0]], costs[1][group.after[0]]
    return first.launches != second.launches or bool(_other_kernel(group))


def _other_kernel(group: KernelGroup) -> str:
    """How the kernel of a fusion that computes the same differs; empty where it does not."""
    if group.status != "same":
        return ""
    first, second = group.before[0].attributes, group.after[0].attributes
    if "kind" not in first or "kind" not in second:
        return ""
    if first["kind"] != second["kind"]:
        return f"{first['kind']} before, {second['kind']} after"
    if first.get("backend_config") != second.get("backend_config"):
        return "another backend_config"
    return ""


def _change(group: KernelGroup, costs: Sequence[_Costs]) -> int:
    """By how many bytes a run of the entry moves more or less."""
    sides = (group.before, group.after)
    moved = [
        sum(rows[kernel].runs * rows[kernel].cost.bytes_accessed for kernel in kernels)
        for rows, kernels in zip(costs, sides, strict=True)
    ]
    return abs(moved[1] - moved[0])


def _group_rows(
    group: KernelGroup, costs: Sequence[_Costs], *, timed: bool
) -> Iterator[tuple[str, ...]]:
    """A line for each kernel, those before under ``-``, those after under ``+``."""
    status: str = group.status
    other = _other_kernel(group)
    if group.status == "same" and _differs(group, costs):
        status = "kind" if other else "launches"
    notes = [other] if other else []
    notes += [f"+{count} {name}" for name, count in group.gained]
    notes += [f"-{count} {name}" for name, count in group.lost]
    for mark, kernels, rows in (("-", group.before, costs[0]), ("+", group.after, costs[1])):
        for kernel in kernels:
            row = rows[kernel]
            cells = (
                f"{status:<9} {mark}",
                kernel.name,
                computes(kernel),
                lines_text(row.lines),
                row.launches_text,
                byte_size(row.cost.bytes_accessed),
            )
            time = seconds(row.prediction.seconds) if row.prediction else ""
            yield (*cells, time) if timed else cells
            status = ""
    if group.status in ("came", "went"):
        notes = []
    if group.elsewhere:
        names = first_of(kernel.name for kernel in group.elsewhere)
        where = "after" if group.before else "before"
        notes.append(f"computed in {names} {where}")
    if notes:
        blank = ("",) * (5 if timed else 4)
        yield ("", "", ", ".join(notes), *blank[1:])


def computes(kernel: Instruction) -> str:
    """What a kernel does, in opcodes: the most frequent ones of a fusion."""
    if kernel.opcode != "fusion":
        target = kernel.custom_call_target
        return f"{kernel.opcode} {target}" if target else kernel.opcode
    counts = Counter(
        entry.opcode for entry in kernel.calls if entry.opcode not in PLUMBING | {"bitcast"}
    )
    named = [f"{count} {name}" if count > 1 else name for name, count in counts.most_common(4)]
    rest = len(counts) - len(named)
    return ", ".join([*named, f"{rest} others"] if rest else named)
