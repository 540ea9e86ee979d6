"""What is slow in a module, why, and what would help: what ``hloopt.why`` returns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, overload

from hloopt.analysis.measured import joined_times
from hloopt.backends import check_device
from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import DEFAULT, model_for
from hloopt.driver.parted import final_modules, plans_parted
from hloopt.driver.run import read_task
from hloopt.errors import UsageError
from hloopt.findings import (
    MEASURING,
    Findings,
    Planner,
    RealRuns,
    SearchProgress,
    chosen_kinds,
    find,
    pipeline_for,
)
from hloopt.pipelines import make_pipeline
from hloopt.profiles import read_profile
from hloopt.rewrite import Pipeline
from hloopt.rewrite.entries import aimed
from hloopt.targets import find_target

if TYPE_CHECKING:
    from hloopt.ir import Module
    from hloopt.pipelines import Given
    from hloopt.profiles.spans import TraceProfile
    from hloopt.report.module_pairs import GivenModule
    from hloopt.report.parted import PlansParted

__all__ = ["why", "why_module", "why_slower"]


@overload
def why(
    module: Module | str | Path,
    target: str = ...,
    *,
    after: None = ...,
    kinds: Sequence[str] = ...,
    most: int = ...,
    pipeline: Given | None = ...,
    cost_model: str = ...,
    profile: TraceProfile | str | Path | None = ...,
    measure: str | None = ...,
) -> Findings: ...
@overload
def why(
    module: Module | str | Path,
    target: str = ...,
    *,
    after: Module | str | Path,
    most: int = ...,
    pipeline: Given | None = ...,
    cost_model: str = ...,
) -> PlansParted: ...
def why(
    module: Module | str | Path,
    target: str = "h200",
    *,
    after: Module | str | Path | None = None,
    kinds: Sequence[str] = (),
    most: int = 10,
    pipeline: Given | None = None,
    cost_model: str = DEFAULT,
    profile: TraceProfile | str | Path | None = None,
    measure: str | None = None,
) -> Findings | PlansParted:
    """What ``hloopt why`` says: what costs most on a target, why, and what changing it gains.

    ``module`` is a module, which stays as it is, or the path of one.  ``pipeline`` (as ``optimize`` takes it)
    stands for the compiler of ``target``: by default XLA's order of passes for a GPU, O2 and copy insertion for
    others; a module that is fused and ordered already is priced as it stands.  ``kinds`` are names as ``hloopt
    why --kinds`` lists them, all where there is none; ``most`` is the number of findings.

    The record has ``rows``, each a ``Finding`` whose change was made, compared and priced; the module's
    ``seconds``, ``launches``, ``peak_bytes`` and longest ``kernels``; and ``to_json()``.

    With a ``profile``, the trace of a real run, findings are ranked by what their kernels took there, and both
    times stand in the record.  ``measure`` is a device, ``cpu`` or ``native``, on which each change is
    measured: both plans run there in turn; for the target ``host``.

    With ``after`` it is why that is slower: both are modules or dump directories, of two versions of a compiler
    or of other flags.  The record, a ``PlansParted``, has ``rows``, pairs of modules by the time lost, each
    with the ``first`` decision that differs.

    Raises ``UsageError`` for an unknown kind, target, cost model or pass, and what ``read`` raises.
    """
    predictor = Predictor(model_for(cost_model, find_target(target)))
    if after is not None:
        if kinds or profile is not None or measure is not None:
            raise UsageError(
                "kinds, profile and measure are for one module, not for two compilations"
            )
        sides = final_modules(module), final_modules(after)
        return why_slower(*sides, predictor, target, most=most, pipeline=pipeline)
    found = read_task(module).module
    trace = read_profile(profile) if isinstance(profile, str | Path) else profile
    joined = None if trace is None else partial(joined_times, profile=trace)
    real = RealRuns(joined, measure)
    return why_module(
        found, predictor, target, kinds=kinds, most=most, pipeline=pipeline, real=real
    )


def why_module(
    module: Module,
    predictor: Predictor,
    target: str,
    *,
    kinds: Sequence[str] = (),
    most: int = 10,
    pipeline: Given | None = None,
    progress: SearchProgress | None = None,
    real: RealRuns | None = None,
) -> Findings:
    """As ``why``, with a predictor; ``progress`` and ``real`` are those of ``find``.

    Raises ``UsageError`` where changes are to be measured for a target that is not this machine.
    """
    device = None if real is None else real.device
    if device is not None and device not in MEASURING:
        raise UsageError(f"changes are measured on {' and '.join(MEASURING)}, not on '{device}'")
    if device is not None and predictor.target.kind != "cpu":
        raise UsageError(
            f"{device} is this processor: what is measured there is promised for the target host, "
            f"not for {predictor.target.name}"
        )
    if device is not None:
        check_device(device)
    chosen = chosen_kinds(kinds)
    passes, label = _passes(pipeline, predictor, target)
    return find(module, Planner(passes, predictor), label, chosen, most, progress, real)


def why_slower(
    before: Sequence[GivenModule],
    after: Sequence[GivenModule],
    predictor: Predictor,
    target: str,
    *,
    most: int = 10,
    pipeline: Given | None = None,
    progress: SearchProgress | None = None,
) -> PlansParted:
    """As ``why`` with ``after``, of modules that are read already."""
    passes, _ = _passes(pipeline, predictor, target)
    return plans_parted(before, after, Planner(passes, predictor), target, most, progress)


def _passes(pipeline: Given | None, predictor: Predictor, target: str) -> tuple[Pipeline, str]:
    """The passes that stand for the target's compiler, and what they are called."""
    if pipeline is None:
        return pipeline_for(predictor.target, target)
    made = make_pipeline(pipeline)
    label = pipeline if isinstance(pipeline, str) else "the given passes"
    return Pipeline(aimed(made.entries, target)), label
