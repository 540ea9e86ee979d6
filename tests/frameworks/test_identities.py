"""Identities of linear algebra as JAX lowers them: hloopt finds the best known flops; needs JAX."""

from __future__ import annotations

import pytest

pytest.importorskip("jax")

from tests.frameworks.identities import identities, paired
from tests.frameworks.identity_board import flops, is_best, modules

FORWARD = identities(1024)
# Rows that are none are masked here, which costs an op an element, and JAX says that there are none.
MASKED = "9 one-hot rows"
GRADIENTS = (
    "1 chain",
    "6 rank one update",
    "10 triangle",
    "11 symmetric",
    "12 one row",
    "19 blocks",
)


@pytest.mark.parametrize("name", [name for name in FORWARD if name != MASKED])
def test_identity_has_the_best_known_flops(name: str) -> None:
    one = FORWARD[name]
    assert is_best(flops(modules(one.shapes(), one.written, one.best)))


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradient_has_the_best_known_flops(name: str) -> None:
    one = FORWARD[name].gradient()
    assert is_best(flops(modules(one.shapes(), one.written, one.best)))


def test_pair_has_the_best_known_flops() -> None:
    one = paired(FORWARD["4 common factor"], FORWARD["10 triangle"])
    assert is_best(flops(modules(one.shapes(), one.written, one.best)))
