"""What changed between the modules of two dumps: a row for each pair, and the totals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from rich.console import Console

from hloopt.cost_models.predictor import Predictor
from hloopt.dataclass import dataclass
from hloopt.display import Displayed
from hloopt.fusion.matching import KernelGroup
from hloopt.ir import Instruction
from hloopt.kernels.costs import KernelCost
from hloopt.numbers import seconds
from hloopt.report.console import say, table
from hloopt.report.fusion_diff import FusionDifference, compare_kernels, figure_text, figures
from hloopt.report.module_pairs import GivenModule, match_modules
from hloopt.rewrite.source_lines import lines_text
from hloopt.spelling import first_of

__all__ = ["DumpDifference", "compare_dumps", "lost_seconds", "show_dumps", "where_lost"]

_MOST_EQUAL: Final = 8
"""Equal modules that have a row each; more are one row."""
_MOST_SLOWER: Final = 5
"""Modules of which it is said where they lose."""


@dataclass(frozen=True)
class DumpDifference(Displayed):
    """Pairs of modules with what differs, and the modules that only one side has."""

    pairs: tuple[tuple[GivenModule, GivenModule, FusionDifference], ...]
    before: tuple[GivenModule, ...]
    after: tuple[GivenModule, ...]

    @property
    def equal(self) -> bool:
        """Whether all modules have partners and none differs."""
        alike = all(difference.equal for _, _, difference in self.pairs)
        return alike and not self.before and not self.after

    @property
    def sums(self) -> tuple[dict[str, float], dict[str, float]]:
        """The figures of all pairs together."""
        found: tuple[dict[str, float], dict[str, float]] = ({}, {})
        for _, _, difference in self.pairs:
            for side, totals in zip(found, difference.totals, strict=True):
                for name, value in figures(totals).items():
                    side[name] = side.get(name, 0.0) + value
        return found

    def to_json(self) -> dict[str, Any]:
        """All pairs as JSON values."""
        return {
            "equal": self.equal,
            "pairs": [
                {
                    "before_file": before.file,
                    "after_file": after.file,
                    "module": before.module.name,
                    **difference.to_json(),
                }
                for before, after, difference in self.pairs
            ],
            "only_before": [one.file for one in self.before],
            "only_after": [one.file for one in self.after],
        }


def compare_dumps(
    before: Sequence[GivenModule], after: Sequence[GivenModule], predictor: Predictor | None = None
) -> DumpDifference:
    """The modules of two dumps, each with its partner."""
    pairs, left, right = match_modules(before, after)
    return DumpDifference(
        tuple(
            (one, other, compare_kernels(one.module, other.module, predictor))
            for one, other in pairs
        ),
        tuple(left),
        tuple(right),
    )


def show_dumps(found: DumpDifference, console: Console) -> None:
    """A row for each pair of modules, and those without a partner.

    Where times are predicted, the pair that loses most is first, and where it loses that is said.  Many equal
    modules are one row.
    """
    timed = "time" in found.sums[0]
    columns = ("kernels", "launches", "bytes", *(("time",) if timed else ()))
    made = table("module", "instructions", *columns, left=2)
    pairs = (
        sorted(found.pairs, key=lambda pair: -lost_seconds(pair[2])) if timed else [*found.pairs]
    )
    equal = [pair for pair in pairs if pair[2].equal]
    folded = equal if len(equal) > _MOST_EQUAL else []
    for before, _, difference in pairs:
        if folded and difference.equal:
            continue
        first, second = (figures(one) for one in difference.totals)
        cells = [_change(name, first.get(name, 0.0), second.get(name, 0.0)) for name in columns]
        made.add_row(before.module.name, _words(difference), *cells)
    if folded:
        rows = [figures(difference.totals[0]) for _, _, difference in folded]
        sums = (sum(row.get(name, 0.0) for row in rows) for name in columns)
        cells = [figure_text(name, value) for name, value in zip(columns, sums, strict=True)]
        made.add_row(f"{len(folded)} modules", "equal", *cells)
    first, second = found.sums
    if len(found.pairs) > 1:
        cells = [_change(name, first.get(name, 0.0), second.get(name, 0.0)) for name in columns]
        made.add_row("all", "", *cells)
    console.print(made)
    for before, _, difference in pairs[:_MOST_SLOWER]:
        if lost_seconds(difference) > 0:
            say(console, f"{before.module.name} {where_lost(difference)}")
    for side, alone in (("before", found.before), ("after", found.after)):
        for one in alone:
            say(console, f"only {side}: {one.module.name}, {one.file}")
    if any(not difference.equal for _, _, difference in found.pairs):
        say(console, "--module NAME shows what differs in one of them")


def lost_seconds(difference: FusionDifference) -> float:
    """The predicted seconds that a run takes longer; negative where it takes less."""
    before, after = difference.totals
    return (after.seconds or 0.0) - (before.seconds or 0.0)


def where_lost(difference: FusionDifference) -> str:
    """By how much a module is slower, and the kernels in whose place others lose most of that."""
    sides = [
        {row.instruction: row for row in rows} for rows in (difference.before, difference.after)
    ]

    def times(pair: _Kernels) -> tuple[float, float]:
        first = sum(sides[0][kernel].seconds for kernel in pair[0])
        return first, sum(sides[1][kernel].seconds for kernel in pair[1])

    groups = _replaced(difference.groups, sides)
    worst, status = max(groups, key=lambda group: times(group[0])[1] - times(group[0])[0])
    old, new = times(worst)
    lines = next(
        (
            side[one].lines
            for side, kernels in zip(sides, worst, strict=True)
            for one in kernels
            if side[one].lines
        ),
        (),
    )
    place = f" at {lines_text(lines)}" if lines else ""
    gone, new_ones = (first_of([f"%{kernel.name}" for kernel in kernels]) for kernels in worst)
    what = f"where {gone} becomes {new_ones}" if gone and new_ones else f"in {new_ones or gone}"
    return (
        f"takes {seconds(lost_seconds(difference))} longer, most of it {what}{place} ({status}): "
        f"{seconds(old)} -> {seconds(new)}"
    )


_Kernels: TypeAlias = tuple[tuple[Instruction, ...], tuple[Instruction, ...]]


def _replaced(
    groups: Sequence[KernelGroup], sides: Sequence[Mapping[Instruction, KernelCost]]
) -> list[tuple[_Kernels, str]]:
    """Groups of kernels with what became of them; those that went, with those that came for the same lines."""
    found: list[tuple[_Kernels, str]] = []
    moved: dict[str, tuple[list[Instruction], list[Instruction]]] = {}
    for group in groups:
        if group.status not in {"came", "went"}:
            found.append(((group.before, group.after), group.status))
            continue
        side = 0 if group.before else 1
        (kernel,) = group.before or group.after
        line = next(iter(sides[side][kernel].lines), "")
        moved.setdefault(line or kernel.name, ([], []))[side].append(kernel)
    for gone, new in moved.values():
        status = "replaced" if gone and new else "went" if gone else "came"
        found.append(((tuple(gone), tuple(new)), status))
    return found


def _words(difference: FusionDifference) -> str:
    if difference.equal:
        return "equal"
    only = sum(one.what == "instruction" for one in difference.named)
    changed = len({(one.before, one.after) for one in difference.named}) - only
    parts = [f"{changed} changed"] if changed else []
    return ", ".join([*parts, f"{only} added or removed"] if only else parts)


def _change(name: str, before: float, after: float) -> str:
    """``12 -> 9``; once where both are the same."""
    old, new = figure_text(name, before), figure_text(name, after)
    return old if old == new else f"{old} -> {new}"
