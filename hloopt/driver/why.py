"""What is slow in a module, why, and what would help: what ``hloopt.why`` returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import DEFAULT, model_for
from hloopt.driver.run import read_task
from hloopt.findings import Findings, Planner, chosen_kinds, find, pipeline_for
from hloopt.pipelines import make_pipeline
from hloopt.rewrite import Pipeline
from hloopt.rewrite.entries import aimed
from hloopt.targets import find_target

if TYPE_CHECKING:
    from pathlib import Path

    from hloopt.ir import Module
    from hloopt.pipelines import Given

__all__ = ["why", "why_module"]


def why(
    module: Module | str | Path,
    target: str = "h200",
    *,
    kinds: Sequence[str] = (),
    most: int = 10,
    pipeline: Given | None = None,
    cost_model: str = DEFAULT,
) -> Findings:
    """What ``hloopt why`` says: what costs most on a target, why, and what changing it gains.

    ``module`` is a module, which stays as it is, or the path of one.  ``pipeline`` (as ``optimize`` takes it)
    stands for the compiler of ``target``: by default XLA's order of passes for a GPU, O2 and copy insertion for
    others; a module that is fused and ordered already is priced as it stands.  ``kinds`` are names as ``hloopt
    why --kinds`` lists them, all where there is none; ``most`` is the number of findings.

    The record has ``rows``, each a ``Finding`` whose change was made, compared and priced; the module's
    ``seconds``, ``launches``, ``peak_bytes`` and longest ``kernels``; and ``to_json()``.

    Raises ``UsageError`` for an unknown kind, target, cost model or pass, and what ``read`` raises.
    """
    predictor = Predictor(model_for(cost_model, find_target(target)))
    found = read_task(module).module
    return why_module(found, predictor, target, kinds=kinds, most=most, pipeline=pipeline)


def why_module(
    module: Module,
    predictor: Predictor,
    target: str,
    *,
    kinds: Sequence[str] = (),
    most: int = 10,
    pipeline: Given | None = None,
    begin: Callable[[str], object] = str,
) -> Findings:
    """As ``why``, with a predictor; ``begin`` is called with what is done next."""
    chosen = chosen_kinds(kinds)
    if pipeline is None:
        passes, label = pipeline_for(predictor.target, target)
    else:
        made = make_pipeline(pipeline)
        passes = Pipeline(aimed(made.entries, target))
        label = pipeline if isinstance(pipeline, str) else "the given passes"
    return find(module, Planner(passes, predictor), label, chosen, most, begin)
