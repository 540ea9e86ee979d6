"""Scatters that set one element in each row: a comparison does that without a kernel of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hloopt.findings.finding import FindingRemedy
from hloopt.findings.planning import is_planned
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Instruction, Module
from hloopt.numbers import byte_size
from hloopt.passes.indexing.scatter_to_select import ScatterToSelect
from hloopt.rewrite import PassLog
from hloopt.rewrite.site import sites

__all__ = ["selections"]

_LEAST: Final = 1 << 16
"""Bytes of an array that is worth a word."""


def selections(subject: Subject) -> Iterator[FindingCandidate]:
    """Scatters of one element a row, of any array; the change finds out whether there is one in each."""
    if is_planned(subject.module) or subject.planner.predictor.target.kind == "cpu":
        return
    for scatter in sites(subject.module, "scatter"):
        if not scatter.is_array or scatter.shape.byte_size < _LEAST:
            continue
        yield FindingCandidate(
            (scatter,),
            f"%{scatter.name} changes one element in each row of {scatter.array}. As a scatter it is a kernel "
            f"by itself, which needs all {byte_size(scatter.shape.byte_size)} of "
            f"%{scatter.operands[0].name} in "
            "memory; a comparison of the index with each place fuses with what makes and what reads the array.",
            (
                FindingRemedy(
                    "model",
                    "jnp.where(jnp.arange(n) == i, value, x) for x.at[i].set(value) under jax.vmap, "
                    "jnp.where(jnp.arange(n) == i, x + value, x) for add",
                ),
                FindingRemedy("hloopt", "scatter-to-select{whole=true}, before other passes"),
            ),
            _selected,
            (scatter.operands[0],),
        )


def _selected(module: Module, places: Sequence[Instruction]) -> bool:
    rule, changed = ScatterToSelect(whole=True), False
    for one in places:
        changed |= rule.rewrite(one, PassLog())
    return changed
