"""Orders and forms of products beside those that equality saturation finds; needs egglog."""

from __future__ import annotations

import pytest

import hloopt
from tests.oracle.saturation import expression, is_no_dearer, planned

pytest.importorskip("egglog")

COUNT = 60


def test_plans_are_no_dearer_than_those_of_saturation() -> None:
    from tests.oracle.saturated import saturated

    dearer = []
    for seed in range(COUNT):
        given = expression(seed)
        ours, theirs = planned(hloopt.parse(given.text(), str(given))), saturated(given)
        if not is_no_dearer(ours, theirs):
            dearer.append((seed, ours, theirs, str(given)))
    assert len(dearer) <= COUNT * 0.05, dearer
