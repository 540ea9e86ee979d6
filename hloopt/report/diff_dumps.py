"""What changed between the modules of two dumps: a row for each pair, and the totals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from hloopt.cost_models.predictor import Predictor
from hloopt.dataclass import dataclass
from hloopt.display import Displayed
from hloopt.report.console import say, table
from hloopt.report.fusion_diff import FusionDifference, compare_kernels, figure_text, figures
from hloopt.report.module_pairs import GivenModule, match_modules

__all__ = ["DumpDifference", "compare_dumps", "show_dumps"]


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
    """A row for each pair of modules, and those without a partner."""
    timed = "time" in found.sums[0]
    columns = ("kernels", "launches", "bytes", *(("time",) if timed else ()))
    made = table("module", "instructions", *columns, left=2)
    for before, _, difference in found.pairs:
        first, second = (figures(one) for one in difference.totals)
        cells = [_change(name, first.get(name, 0.0), second.get(name, 0.0)) for name in columns]
        made.add_row(before.module.name, _words(difference), *cells)
    first, second = found.sums
    if len(found.pairs) > 1:
        cells = [_change(name, first.get(name, 0.0), second.get(name, 0.0)) for name in columns]
        made.add_row("all", "", *cells)
    console.print(made)
    for side, rows in (("before", found.before), ("after", found.after)):
        for one in rows:
            say(console, f"only {side}: {one.module.name}, {one.file}")
    if any(not difference.equal for _, _, difference in found.pairs):
        say(console, "--module NAME shows what differs in one of them")


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
