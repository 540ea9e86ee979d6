"""What ``hloopt.compare`` and ``hloopt.diff`` do, and the results of one module beside those of another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import DEFAULT, model_for
from hloopt.driver.run import read_task
from hloopt.interpret import Host
from hloopt.ir import Module
from hloopt.prover.compare import ModulesCompared, compare_modules
from hloopt.prover.comparing import check_alike
from hloopt.prover.executor import Executor
from hloopt.prover.reordering import adapted
from hloopt.prover.trials import TrialInputs, TrialOptions
from hloopt.report.fusion_diff import FusionDifference, compare_kernels
from hloopt.runtime.tolerance import Tolerance
from hloopt.targets import find_target
from hloopt.types import Array

__all__ = ["compare_given", "diff", "results_of"]


def compare_given(
    before: Module | str | Path,
    after: Module | str | Path,
    device: str,
    trials: tuple[Any, ...],
    allowed: tuple[Any, ...],
) -> ModulesCompared:
    """As ``hloopt.compare``; ``trials`` and ``allowed`` are fields of ``TrialOptions`` and ``Tolerance``."""
    one, other = read_task(before), read_task(after)
    tolerance = Tolerance(*allowed)
    tolerance.check()
    return compare_modules(
        one.module,
        other.module,
        (one.name, other.name),
        trials=TrialOptions(*trials),
        executor=Executor(device),
        tolerance=tolerance,
        snapshot=one.snapshot or other.snapshot,
    )


def diff(
    before: Module | str | Path,
    after: Module | str | Path,
    target: str | None = None,
    *,
    cost_model: str = DEFAULT,
) -> FusionDifference:
    """What ``hloopt diff`` does with two modules: their kernels, costs, and each instruction that differs.

    ``before`` and ``after`` are modules, or paths of texts, protocol buffers or snapshots.  With a ``target``,
    a device's name or the path of its description, times are predicted by ``cost_model``.

    The record has ``equal``; ``before`` and ``after``, the kernels of either with bytes, flops and launches,
    and ``totals`` of both; ``groups``, which kernels belong together and what became of them; ``named``, what
    differs instruction by instruction; and ``to_json()``, the JSON that the command prints.

    Raises ``DeviceError`` for an unknown target, ``UsageError`` for an unknown model, and what ``read`` raises.
    """
    predictor = None
    if target is not None:
        predictor = Predictor(model_for(cost_model, find_target(target)))
    return compare_kernels(read_task(before).module, read_task(after).module, predictor)


def results_of(
    path: str,
    module: Module,
    name: str,
    given: tuple[list[list[Array]], tuple[int, int], Host],
    *,
    excess_precision: bool,
) -> tuple[list[list[Array]], tuple[str, ...]]:
    """What the interpreter gives for the module in a file, on another module's inputs; what was done to run it.

    ``given`` are its inputs for each participant, replicas and partitions, and the host.
    Raises ``UsageError`` where the two take other inputs or give other results, and as ``read_task``.
    """
    other = read_task(path)
    taking, done = adapted(other.module, module, (path, name))
    check_alike(taking, module, (path, name))
    executor = Executor(excess_precision=excess_precision)
    return executor.run(taking, TrialInputs(*given), path).results, done
