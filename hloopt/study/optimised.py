"""A module by a strategy: the passes for a device, and what became fused."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from hashlib import blake2b

from hloopt.dataclass import dataclass
from hloopt.fusion.advice import advised
from hloopt.fusion.lock_adviser import LockWatcher
from hloopt.fusion.lock_file import decisions_text, head_text
from hloopt.fusion.strategies import has_strategy
from hloopt.fusion.user_rules import load_rule
from hloopt.ir import Module, build
from hloopt.ir.canonical import fingerprint
from hloopt.passes.loops.trip_count import TripCount
from hloopt.rewrite import Controls, Pipeline
from hloopt.study.plan import Strategy

__all__ = ["Optimised", "optimised"]


@dataclass(frozen=True, eq=False)
class Optimised:
    """A copy of a module after the passes.

    seconds   that the passes took
    notes     what they had to say
    lock      what is fused, as a lock file; empty where no pass fuses
    """

    module: Module
    seconds: float
    notes: tuple[str, ...]
    lock: str

    @cached_property
    def key(self) -> str:
        """Equal for modules that compute the same by the same kernels, in whatever order."""
        return fingerprint(self.module)

    @cached_property
    def text_key(self) -> str:
        """Equal for modules written alike: their order, which is not in ``key``, decides about time, too."""
        return blake2b(self.module.to_text().encode(), digest_size=16).hexdigest()


def optimised(
    module: Module, strategy: Strategy, target: str | None, rules: Sequence[str] = ()
) -> Optimised:
    """Run a strategy's passes over a copy; ``target`` is the device that passes with a target decide for.

    Trip counts are annotated first, as XLA does, since fusions would hide them from cost models.
    ``rules`` count after those that the strategy names.  Raises what passes raise.
    """
    copy = build.clone_module(module)
    Pipeline((TripCount(),)).run(copy)
    pipeline = strategy.aimed(target)
    if not has_strategy(pipeline):
        start = time.perf_counter()
        report = pipeline.run(copy)
        return Optimised(copy, time.perf_counter() - start, tuple(report.notes), "")
    texts = (*strategy.rules, *rules)
    pipeline, advice = advised(pipeline, [load_rule(text) for text in texts], strategy.lock)
    watcher = LockWatcher(advice.histories)
    start = time.perf_counter()
    report = pipeline.run(copy, controls=Controls(advice=advice), watchers=(watcher,))
    seconds = time.perf_counter() - start
    lock = head_text({}) + decisions_text(watcher.groups, watcher.unfused, watcher.loops)
    return Optimised(copy, seconds, tuple(report.notes), lock)
