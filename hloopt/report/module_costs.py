"""What the modules of a dump cost, those of one name together: the table of ``hloopt ls --sort``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from rich.console import Console

from hloopt.cost_models.predictor import Predictor
from hloopt.dataclass import dataclass
from hloopt.display import Displayed
from hloopt.findings import Planner, check_planned_for, is_planned, pipeline_for
from hloopt.ir import Module
from hloopt.numbers import byte_size, seconds
from hloopt.report.console import TableColumn, plain_text, records_table, say
from hloopt.rewrite import Pipeline

__all__ = ["SORTS", "ModuleCost", "ModuleCosts", "ModulePricer"]


@dataclass(frozen=True, slots=True)
class ModuleCost:
    """One run of a module: predicted ``seconds`` and ``launches``, and the bytes that XLA would assign."""

    name: str
    file: str
    instructions: int
    launches: int
    seconds: float
    peak_bytes: int


SORTS: Final[Mapping[str, Callable[[ModuleCost], float]]] = {
    "time": lambda one: one.seconds,
    "peak": lambda one: one.peak_bytes,
    "launches": lambda one: one.launches,
    "instructions": lambda one: one.instructions,
}
"""What modules are sorted by: the largest first."""


@dataclass(frozen=True, slots=True)
class ModuleCosts(Displayed):
    """The modules of a dump, each priced as if it ran once; ``sort`` is one of ``SORTS``.

    Modules of one name, such as the helpers that a jitted function is compiled into for each shape, are one
    row: their times, launches and instructions are added, of their memory the most counts.
    """

    target: str
    cost_model: str
    sort: str
    modules: tuple[ModuleCost, ...]

    def rows(self) -> list[dict[str, Any]]:
        """A row a name, the dearest first."""
        groups: dict[str, list[ModuleCost]] = {}
        for one in self.modules:
            groups.setdefault(one.name, []).append(one)
        whole = sum(one.seconds for one in self.modules)
        rows = [_row(group, whole) for group in groups.values()]
        key = {"time": "seconds", "peak": "peak_bytes"}.get(self.sort, self.sort)
        return sorted(rows, key=lambda row: -row[key])

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "target": self.target,
            "cost_model": self.cost_model,
            "sort": self.sort,
            "modules": self.rows(),
        }

    def show(self, console: Console) -> None:
        """Print the table."""
        if not self.modules:
            return
        console.print(records_table(_COLUMNS, self.rows(), optional=("instructions",)))
        total = seconds(sum(one.seconds for one in self.modules))
        count = f"{len(self.modules)} module{'s' if len(self.modules) > 1 else ''}"
        say(
            console,
            f"{count}, {total} in one run of each, predicted on {self.target} by {self.cost_model}",
        )


def _row(group: Sequence[ModuleCost], whole: float) -> dict[str, Any]:
    dearest = max(group, key=lambda one: one.seconds)
    time = sum(one.seconds for one in group)
    return {
        "module": dearest.name,
        "count": len(group),
        "instructions": sum(one.instructions for one in group),
        "launches": sum(one.launches for one in group),
        "seconds": time,
        "share": time / whole if whole else 0.0,
        "peak_bytes": max(one.peak_bytes for one in group),
        "files": [one.file for one in group],
    }


_COLUMNS: Final[Iterable[TableColumn]] = (
    TableColumn("module", "module"),
    TableColumn("count", "count", plain_text),
    TableColumn("instructions", "instructions", plain_text),
    TableColumn("launches", "launches", plain_text),
    TableColumn("time", "seconds", seconds),
    TableColumn("share", "share", "{:.0%}".format),
    TableColumn("peak", "peak_bytes", byte_size),
)


class ModulePricer:
    """Prices modules on the target of a predictor, which options call ``name``."""

    def __init__(self, predictor: Predictor, name: str) -> None:
        self._predictor = predictor
        self._planner = Planner(pipeline_for(predictor.target, name)[0], predictor)

    def cost(self, module: Module, file: str) -> ModuleCost:
        """What one run of a module costs; one that is fused and ordered already is taken as it stands.

        Raises ``UsageError`` for a plan of a GPU on a CPU.
        """
        check_planned_for(self._predictor.target, module, file)
        planner = Planner(Pipeline(()), self._predictor) if is_planned(module) else self._planner
        plan = planner.plan(module)
        return ModuleCost(
            module.name,
            file,
            module.instruction_count(),
            plan.totals.launches,
            plan.seconds,
            plan.peak_bytes,
        )

    def costs(self, modules: Sequence[ModuleCost], sort: str) -> ModuleCosts:
        """The record of a dump; ``sort`` is one of ``SORTS``."""
        predictor = self._predictor
        return ModuleCosts(predictor.target.name, predictor.model.name, sort, tuple(modules))
