"""What ``hloopt.gate`` does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeAlias

from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import DEFAULT, model_for
from hloopt.driver.run import read_task
from hloopt.dumps import pick, read_dump
from hloopt.ir import Module
from hloopt.reading import is_dump
from hloopt.report.gate import parse_gates
from hloopt.report.gated import GateReport
from hloopt.report.gating import gate_modules
from hloopt.report.module_pairs import GivenModule
from hloopt.targets import find_target

__all__ = ["GATED_STAGES", "GATED_TARGET", "gate"]

GATED_STAGES: Final = ("final",)
"""What is taken of a directory: modules as they were compiled, where it has them so."""
GATED_TARGET: Final = "h200"
"""What times are predicted for where a limit is about them and no target is named."""

_Modules: TypeAlias = Module | str | Path | Sequence[Module | str | Path]


def gate(
    base: _Modules,
    head: _Modules,
    max: str,
    target: str | None = None,
    *,
    total: bool = False,
    cost_model: str = DEFAULT,
) -> GateReport:
    """What ``hloopt gate`` does: whether modules cost more than they may beside those they replace.

    ``base`` and ``head`` are modules, paths of modules or of directories of some, or sequences of these.
    ``max`` are the limits, such as ``"kernels<=+0,peak<=+2%,time<=+3%"``; times are predicted for a ``target``
    by ``cost_model``, for h200 where a limit is about them and none is named.  With ``total`` the sums of all
    modules are judged, not each module.

    The record has ``passed``; ``modules``, each with its figures, its verdicts and the kernels that cost more;
    ``to_json()``, ``markdown()`` and ``sarif()``.

    Raises ``UsageError`` for limits that make no sense, ``DeviceError`` for an unknown target, and what
    ``read`` raises.
    """
    gates = parse_gates(max)
    if target is None and any(one.figure == "time" for one in gates):
        target = GATED_TARGET
    predictor = None
    if target is not None:
        predictor = Predictor(model_for(cost_model, find_target(target)))
    return gate_modules(_given(base), _given(head), gates, predictor, total=total)


def _given(modules: _Modules) -> list[GivenModule]:
    if isinstance(modules, Module | str | Path):
        modules = [modules]
    found: list[GivenModule] = []
    for one in modules:
        paths: Sequence[Module | str | Path] = [one]
        if not isinstance(one, Module) and is_dump(Path(one)):
            stages = pick(read_dump(Path(one)), None, GATED_STAGES)
            paths = [stage.paths()[0] for _, stage in stages]
        found += [GivenModule(task.name, task.module) for task in map(read_task, paths)]
    return found
