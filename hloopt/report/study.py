"""The results of a study, and their ratios: the figures behind table, JSON and page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, field
from functools import cached_property
from math import isfinite
from statistics import geometric_mean
from typing import Any

from hloopt.dataclass import dataclass
from hloopt.kernels.costs import launches_text
from hloopt.numbers import byte_size, seconds
from hloopt.spelling import first_of
from hloopt.study.cells import Cell, Measured
from hloopt.study.devices import way_of
from hloopt.study.plan import ModuleRow, Strategy

__all__ = [
    "MeanRatio",
    "Ratio",
    "Study",
    "StudyDevice",
    "launch_text",
    "result_text",
    "study_json",
    "time_text",
]


@dataclass(frozen=True)
class StudyDevice:
    """A device of the study; ``title`` is the whole name, ``model`` predicts it, empty where none does."""

    name: str
    title: str
    model: str = ""
    calibrated: bool = True

    @property
    def heading(self) -> str:
        """Measured, verified or predicted."""
        way = way_of(self.name)
        return f"{way} by {self.model}" if self.model else way


@dataclass(frozen=True)
class Ratio:
    """How many times as fast; None without two times.

    ``is_clear`` says whether the times are surely different; predictions always are.
    """

    value: float | None = None
    is_clear: bool = True

    def __str__(self) -> str:
        """``2.31x``; a hundred and more without decimals; ``~`` unless it is clear."""
        ratio = self.value
        if ratio is None:
            return "-"
        if not self.is_clear:
            return "~"
        return f"{ratio:.{0 if ratio >= 99.95 else 1 if ratio >= 9.995 else 2}f}x"


@dataclass(frozen=True)
class MeanRatio:
    """How many times as fast as the baseline a strategy is on a device, over ``modules`` modules.

    ``mean`` is the geometric one; ``least`` is that of the module that gains least, ``most`` of the one that
    gains most.
    """

    strategy: str
    device: str
    modules: int
    mean: float
    least: float
    most: float


@dataclass
class Study:
    """All cells so far; ``inputs`` of a module are in words, by its name."""

    title: str
    baseline: str
    modules: Sequence[ModuleRow]
    strategies: Sequence[Strategy]
    devices: Sequence[StudyDevice]
    cells: list[Cell] = field(default_factory=list)

    @cached_property
    def _by_name(self) -> dict[tuple[str, str, str], Cell]:
        return {(one.module, one.strategy, one.device): one for one in self.cells}

    def cell(self, module: str, strategy: str, device: str) -> Cell | None:
        """One cell; None where the strategy is not for the module."""
        return self._by_name.get((module, strategy, device))

    def rows(self, module: str) -> list[Strategy]:
        """The strategies that are for a module, in their order."""
        return [one for one in self.strategies if one.is_for(module)]

    def over(self, cell: Cell) -> Ratio:
        """How many times as fast as the baseline of its module, or of the one it is a variant of."""
        return _ratio(self._with_baseline(cell))

    def means(self) -> list[MeanRatio]:
        """Of strategies but the baseline, on each device where several modules have right results and times."""
        found: list[MeanRatio] = []
        for strategy in self.strategies:
            for device in self.devices:
                cells = (self.cell(row.name, strategy.name, device.name) for row in self.modules)
                right = (cell for cell in cells if cell is not None and not cell.wrong)
                ratios = [value for cell in right if (value := self.over(cell).value)]
                if len(ratios) > 1 and strategy.name != self.baseline:
                    mean = geometric_mean(ratios)
                    row = strategy.name, device.name, len(ratios), mean, min(ratios), max(ratios)
                    found.append(MeanRatio(*row))
        return found

    def bought(self, cell: Cell) -> Ratio:
        """What a step bought: on a ladder over the row before, of an ablation what is lost without it."""
        return _ratio(self._with_step(cell))

    def _with_baseline(self, cell: Cell) -> tuple[Cell, Cell] | None:
        row = next(one for one in self.modules if one.name == cell.module)
        for module in (row.variant_of, cell.module):
            base = self.cell(module, self.baseline, cell.device)
            if module and base is not None:
                return base, cell
        return None

    def _with_step(self, cell: Cell) -> tuple[Cell, Cell] | None:
        strategy = next(one for one in self.strategies if one.name == cell.strategy)
        if strategy.before:
            before = self.cell(cell.module, strategy.before, cell.device)
            return None if before is None else (before, cell)
        whole = self.cell(cell.module, strategy.whole, cell.device) if strategy.whole else None
        return None if whole is None else (cell, whole)

    def best(self, module: str, device: str) -> Cell | None:
        """The fastest right cell of a module on a device, the first of equal ones."""
        cells = (self.cell(module, one.name, device) for one in self.rows(module))
        timed = [one for one in cells if one is not None and one.seconds is not None]
        right = [one for one in timed if not one.wrong]
        return min(right, key=lambda one: one.seconds or 0.0, default=None)

    def missing(self, module: str, device: str) -> bool:
        """Whether a device is not there for any strategy of a module."""
        cells = [self.cell(module, one.name, device) for one in self.rows(module)]
        return all(one is not None and one.missing for one in cells)

    def problems(self) -> Iterator[str]:
        """A line for each thing that went wrong, equal ones once."""
        seen: dict[str, dict[str, None]] = {}
        for cell in self.cells:
            line, what = _problem(cell)
            if line and not cell.same_as:
                seen.setdefault(line, {})[what] = None
        for line, names in seen.items():
            yield line.replace(_NAMES, first_of(names, _MOST_NAMES), 1)

    def places(self) -> dict[str, str]:
        """Where times were measured, by device."""
        found: dict[str, str] = {}
        for cell in self.cells:
            if cell.measured is not None:
                found[cell.device] = cell.measured.where
        return found

    @property
    def passed(self) -> bool:
        """Whether no result differs."""
        return not any(cell.wrong for cell in self.cells)


_MOST_NAMES = 4
_NAMES = "\0"
"""Stands for names in a line; no name holds it."""


def _ratio(pair: tuple[Cell, Cell] | None) -> Ratio:
    """Of a slow and a fast cell.

    Without a value where one prediction has trip counts that another lacks: those loops count once.
    """
    if pair is None:
        return Ratio()
    slow, fast = pair
    is_clear = (
        slow is fast
        or slow.measured is None
        or fast.measured is None
        or slow.measured.timing.is_apart(fast.measured.timing)
    )
    known = [one.counts is None or one.counts.known for one in pair]
    same = slow.module == fast.module and not any(known)
    if slow.predicted is not None and not all(known) and not same:
        return Ratio(None, is_clear)
    value = slow.seconds / fast.seconds if slow.seconds and fast.seconds else None
    return Ratio(value, is_clear)


def _problem(cell: Cell) -> tuple[str, str]:
    """A line with a gap, and the name for it: of lines that are alike the names are listed in one."""
    if cell.missing:
        return f"no device {cell.device}: {cell.problem}", ""
    here = f"{cell.strategy} for {cell.device}"
    if cell.problem:
        return f"failed: {cell.module}: {_NAMES}: {cell.problem}", here
    if cell.wrong and cell.checked is not None:
        at = f" on {cell.checked.device}"
        line = f"differs: {cell.module}: {_NAMES}: results{at}: {cell.checked.problem}"
        return line, here
    if cell.checked is not None and cell.checked.results == "not verified":
        where = f" on {cell.device}" if way_of(cell.device) == "verified" else ""
        return f"not verified{where}: {_NAMES}: {cell.checked.problem}", cell.module
    return "", ""


def result_text(cell: Cell) -> str:
    """One or two words about the results."""
    checked = cell.checked
    if checked is None:
        return "failed" if cell.problem and not cell.missing else "-"
    if checked.results == "within tolerance":
        if checked.device and checked.device != cell.device:
            return f"right on {checked.device}"
        return f"right, {checked.share:.2g} of allowed"
    return {"equal": "equal", "differ": "DIFFER"}.get(checked.results, checked.results)


def time_text(cell: Cell) -> str:
    """A time, with the deviation where it was measured, and a mark where whole loops are predicted."""
    if cell.missing:
        return "no device"
    if cell.problem:
        return "failed"
    if cell.measured is not None:
        spread = f" ± {seconds(cell.measured.deviation)}" if _several(cell.measured) else ""
        return seconds(cell.measured.seconds) + spread
    if cell.predicted is None:
        return "-"
    return seconds(cell.predicted.seconds) + (" *" if cell.predicted.loops else "")


def _several(found: Measured) -> bool:
    return len(found.timing.seconds) > 1


def launch_text(cell: Cell) -> tuple[str, str, str]:
    """Kernels, launches (``+``: at least so many, ``<=``: at most) and bytes."""
    counts = cell.counts
    if counts is None:
        return "-", "-", "-"
    return (
        str(counts.kernels),
        launches_text(counts.launches, known=counts.known, bounded=counts.bounded),
        byte_size(counts.bytes),
    )


def study_json(study: Study) -> dict[str, Any]:
    """Everything as JSON values; times in seconds."""
    return {
        "title": study.title,
        "baseline": study.baseline,
        "passed": study.passed,
        "devices": [
            {
                "name": one.name,
                "title": one.title,
                "way": way_of(one.name),
                "cost_model": one.model or None,
                "calibrated": one.calibrated,
            }
            for one in study.devices
        ],
        "modules": [
            {"name": one.name, "file": one.file, "variant_of": one.variant_of or None}
            for one in study.modules
        ],
        "strategies": [_strategy_json(one) for one in study.strategies],
        "cells": [_cell_json(study, one) for one in study.cells],
        "means": [asdict(one) for one in study.means()],
    }


def _strategy_json(one: Strategy) -> dict[str, Any]:
    return {
        "name": one.name,
        "kind": one.kind,
        "family": one.family,
        "before": one.before or None,
        "whole": one.whole or None,
        "passes": one.text,
        "modules": list(one.modules),
        "kernels": list(one.selection.kernel),
        "selector": one.selection.selector,
    }


def _cell_json(study: Study, cell: Cell) -> dict[str, Any]:
    counts, checked = cell.counts, cell.checked
    over, bought = study.over(cell), study.bought(cell)
    return {
        "module": cell.module,
        "strategy": cell.strategy,
        "device": cell.device,
        "way": cell.way,
        "problem": cell.problem or None,
        "missing": cell.missing,
        "same_as": cell.same_as or None,
        "kernels": counts.kernels if counts else None,
        "launches": counts.launches if counts else None,
        "launches_known": counts.known if counts else None,
        "launches_bounded": counts.bounded if counts else None,
        "bytes": counts.bytes if counts else None,
        "results": checked.results if checked else None,
        "checked": {
            "device": checked.device,
            "against": list(checked.against),
            "ulp": checked.ulp,
            "share": _finite(checked.share),
            "problem": checked.problem or None,
        }
        if checked
        else None,
        "measured": _measured_json(cell.measured) if cell.measured else None,
        "predicted": _predicted_json(cell) if cell.predicted else None,
        "over_baseline": _finite(over.value),
        "over_baseline_clear": over.is_clear,
        "bought": _finite(bought.value),
        "bought_clear": bought.is_clear,
    }


def _measured_json(found: Measured) -> dict[str, Any]:
    return {
        "where": found.where,
        "seconds": list(found.timing.seconds),
        "median": found.seconds,
        "min": found.timing.least,
        "deviation": found.deviation,
    }


def _predicted_json(cell: Cell) -> dict[str, Any]:
    found = cell.predicted
    assert found is not None, "the caller checked that it exists"
    return {
        "target": found.target,
        "cost_model": found.model,
        "calibrated": found.calibrated,
        "seconds": found.seconds,
        "launch_seconds": found.parts.launch,
        "memory_seconds": found.parts.memory,
        "compute_seconds": found.parts.compute,
        "latency_seconds": found.parts.latency,
        "loop_kernels": found.loops,
        "longest_kernels": [asdict(one) for one in found.longest],
    }


def _finite(ratio: float | None) -> float | None:
    return ratio if ratio is not None and isfinite(ratio) else None
