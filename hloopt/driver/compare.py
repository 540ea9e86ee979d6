"""What ``hloopt.compare`` and ``hloopt.diff`` do, and the results of one module beside those of another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import DEFAULT, model_for
from hloopt.driver.recompiling import given_modules, why_recompiled
from hloopt.driver.run import read_task
from hloopt.dumps.content import is_fusion_log
from hloopt.errors import UsageError
from hloopt.fusion.log_differences import log_difference
from hloopt.fusion.xla_log import module_before, read_log_file
from hloopt.interpret import Host
from hloopt.ir import Module
from hloopt.prover.compare import ModulesCompared, compare_modules
from hloopt.prover.comparing import check_alike
from hloopt.prover.executor import Executor
from hloopt.prover.reordering import adapted
from hloopt.prover.trials import TrialInputs, TrialOptions
from hloopt.reading import is_dump
from hloopt.report.diff_dumps import compare_dumps
from hloopt.report.fusion_diff import compare_kernels
from hloopt.report.log_differences import LogsCompared
from hloopt.runtime.tolerance import Tolerance
from hloopt.targets import find_target
from hloopt.types import Array

__all__ = ["compare_given", "compare_logs", "diff", "results_of"]


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
    after: Module | str | Path | None = None,
    target: str | None = None,
    *,
    cost_model: str = DEFAULT,
    why_recompile: bool = False,
) -> Any:
    """What ``hloopt diff`` does with two modules: their kernels, costs, and each instruction that differs.

    ``before`` and ``after`` are modules, or paths of texts, protocol buffers or snapshots.  With a ``target``,
    a device's name or the path of its description, times are predicted by ``cost_model``.

    The record, a ``FusionDifference``, has ``equal``; ``before`` and ``after``, the kernels of either with
    bytes, flops and launches, and ``totals`` of both; ``groups``, which kernels belong together and what became
    of them; ``named``, what differs instruction by instruction.  Of two dump directories it is a
    ``DumpDifference``, whose ``pairs`` are such; of two of XLA's fusion logs it is ``LogsCompared``.

    With ``why_recompile`` it is what made a second compilation necessary: ``RecompiledPairs``, whose ``pairs``
    have ``reasons``; of one dump directory alone ``RecompiledFunctions``.  All of them have ``to_json()``, the
    JSON that the command prints, and show themselves in notebooks.

    Raises ``DeviceError`` for an unknown target, ``UsageError`` for an unknown model, and what ``read`` raises.
    """
    if why_recompile:
        return why_recompiled(before, after)
    if after is None:
        raise UsageError("diff takes two modules; of one dump directory it says why_recompile=True")
    paths = [Path(one) for one in (before, after) if not isinstance(one, Module)]
    if len(paths) == 2 and any(map(is_fusion_log, paths)):
        return compare_logs(*paths)
    predictor = None
    if target is not None:
        predictor = Predictor(model_for(cost_model, find_target(target)))
    sides = given_modules(before), given_modules(after)
    if any(map(is_dump, paths)):
        return compare_dumps(*sides, predictor)
    return compare_kernels(sides[0][0].module, sides[1][0].module, predictor)


def compare_logs(before: Path, after: Path) -> LogsCompared:
    """What differs between two logs.

    Raises ``UsageError`` where only one of the files is a log, or a log has no module, ``FileError`` for a
    damaged log.
    """
    paths = before, after
    for path, other in (paths, paths[::-1]):
        if not is_fusion_log(path):
            raise UsageError(
                f"{other} is a fusion log of XLA, {path} is none: two logs are compared, or two modules"
            )
    sides = [(module_before(log), log) for log in map(read_log_file, paths)]
    return LogsCompared((str(before), str(after)), log_difference(sides[0], sides[1]))


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
