"""Small kernels beside each other: their cost is their launches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from hloopt.findings.finding import FindingRemedy
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Instruction, Module
from hloopt.kernels.costs import KernelCost
from hloopt.numbers import byte_size
from hloopt.pipelines import parse_pipeline

__all__ = ["side_by_side"]

_MANY: Final = 4
_JOINED: Final = "horizontal-loop-fusion,cse,dce"


def side_by_side(subject: Subject) -> Iterator[FindingCandidate]:
    """Kernels of the entry that wait for their launch, where fusion beside each other joins some."""
    plan = subject.plan
    if not subject.planner.predictor.target.has_threads:
        return
    small = [row for row in plan.rows if _is_small(row, plan.module)]
    if len(small) < _MANY:
        return
    entry = subject.module.entry
    lines = {line for row in small for line in row.lines}
    sites = [
        one
        for one in entry
        if one.op.family == "elementwise"
        and not lines.isdisjoint(subject.module.user_lines(one.metadata))
    ] or [one for one in entry if one.op.family == "elementwise"]
    if not sites:
        return
    seconds = sum(row.seconds for row in small)
    largest = max(row.cost.bytes_accessed for row in small)
    yield FindingCandidate(
        tuple(sites),
        f"{len(small)} kernels of the entry move {byte_size(largest)} or less each and take "
        f"{seconds * 1e6:.3g} us, nearly all of it launches. They do not wait for each other: "
        "some can be one kernel.",
        (*_one_array(small), FindingRemedy("hloopt", f"{_JOINED} after the other fusions")),
        _join,
        is_late=True,
    )


def _one_array(small: Sequence[KernelCost]) -> Iterator[FindingRemedy]:
    """What the user can do where half of the kernels, and ``_MANY`` at least, do the same with other arrays."""
    forms = Counter(
        tuple(sorted(Counter(one.opcode for one in row.instruction.calls).items())) for row in small
    )
    if max(forms.values()) >= max(_MANY, len(small) / 2):
        yield FindingRemedy(
            "model",
            "keep what is treated alike in one array: jax.flatten_util.ravel_pytree, "
            "optax.flatten(optimizer), jnp.stack or vmap",
        )


def _is_small(row: KernelCost, module: Module) -> bool:
    return (
        row.instruction.home is module.entry
        and row.prediction is not None
        and row.prediction.bound == "launch"
        and row.instruction.opcode == "fusion"
    )


def _join(module: Module, places: Sequence[Instruction]) -> bool:
    """Fuse what stands side by side; nothing where that finds nothing."""
    before = module.instruction_count()
    parse_pipeline(_JOINED).run(module)
    return module.instruction_count() != before
