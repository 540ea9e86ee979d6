"""Mistakes planted in products by matrix units: each is found, or has its reason; ``matrix_mutants`` has all."""

from __future__ import annotations

import random

import pytest

from tests.codegen.matrix_mutants import CAUGHT, SUBJECTS, Mutant, Trial, reason
from tests.helpers.rarely import one_in


def drawn(name: str, trial: Trial) -> list[tuple[int, Mutant]]:
    """One of each kind of the first subject, some of the others."""
    every = trial.mutants()
    random.Random(1).shuffle(every)
    if name == "bf16":
        return list({one.kind: (at, one) for at, one in every}.values())
    return every[:2]


@pytest.mark.parametrize("name", one_in(4, SUBJECTS))
def test_mistakes_are_found(name: str) -> None:
    """One that is not would let a wrong kernel pass; the kernel itself does."""
    trial = Trial(name)
    for got, want, judge in zip(trial.right, trial.wanted, trial.judges, strict=True):
        assert all(one.passed for one in judge.compare_all([got], [want]))
    found = [(trial.verdict(at, one.function), one) for at, one in drawn(name, trial)]
    assert any(verdict in CAUGHT for verdict, _ in found)
    missed = [one for verdict, one in found if verdict not in CAUGHT and not reason(one)]
    assert not missed, [f"{one.kind}: {one.before}" for one in missed]
