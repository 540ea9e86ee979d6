"""Which other passes would make one kernel of two instructions: tried, not guessed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hloopt.driver.explain_fusion import Questions
from hloopt.errors import UsageError
from hloopt.fusion.advice import Advice
from hloopt.fusion.provenance import Provenance
from hloopt.fusion.remedies import OTHER_PASSES
from hloopt.ir import build
from hloopt.pipelines import parse_pipeline
from hloopt.rewrite import Controls, Pipeline
from hloopt.rewrite.entries import with_options
from hloopt.rewrite.spec import value_text

if TYPE_CHECKING:
    from hloopt.driver.passes import Chosen
    from hloopt.fusion.explained import Pair
    from hloopt.ir import Module
    from hloopt.rewrite.entries import Entry
    from hloopt.targets import Target

__all__ = ["Trials"]

_PRESET = "xla-gpu-2026"
"""What XLA does today, with the passes before fusion that such passes may need."""


class Trials:
    """The module as it was given, for other pipelines than the one that is explained.

    ``given`` is a copy that no pass has changed, ``aim`` what the command line calls ``target``.
    """

    def __init__(self, given: Module, choice: Chosen, target: Target, aim: str) -> None:
        self.given = given
        self.choice = choice
        self.aim = aim
        self.target = target

    def ways(self, pair: Pair, names: Sequence[str]) -> list[str]:
        """The pipelines, as ``--passes`` takes them, by which two that are apart share a kernel: one at most.

        ``names`` are those of the command line.  Nothing is tried beside a user's rules and lock files.
        """
        if pair.common or self.choice.controls.advice:
            return []
        return next(([text] for text, made in self._others(pair) if self._joins(made, names)), [])

    def _others(self, pair: Pair) -> Iterator[tuple[str, Pipeline]]:
        def aimed(name: str) -> Sequence[Entry]:
            option = (("target", value_text(self.aim)),)
            return with_options(parse_pipeline(name).entries, name, option)

        apart = [edge for edge in pair.edges if not edge.common]
        nodes = [node for edge in apart for node in (edge.producer, edge.consumer)]
        had = {instance.name for instance in self.choice.pipeline.passes()}
        names = dict.fromkeys(OTHER_PASSES.get(node.opcode, "") for node in nodes)
        wanted = [name for name in names if name and name not in had]
        for name in wanted:
            entries = (*aimed(name), *self.choice.pipeline.entries)
            yield f"{name},{self.choice.text}", Pipeline(entries)
        if wanted:
            yield _PRESET, Pipeline(tuple(aimed(_PRESET)))

    def _joins(self, pipeline: Pipeline, names: Sequence[str]) -> bool:
        module, advice = build.clone_module(self.given), Advice()
        provenance = Provenance(advice.histories)
        pipeline.run(module, controls=Controls(advice=advice), watchers=(provenance,))
        return _share(Questions(module, provenance, self.target), names)


def _share(questions: Questions, names: Sequence[str]) -> bool:
    try:
        first, second = (questions.nodes(name) for name in names)
    except UsageError:  # one of them was removed before anything was fused
        return False
    return any(questions.explanation.pair(a, b).common for a in first for b in second if a is not b)
