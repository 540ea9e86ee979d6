"""Plans of linear algebra err by no more than their remarks say: a few of the 10,000 of ``cluster_rounding.py``."""

from __future__ import annotations

import pytest

from tests.oracle.cluster_rounding import KINDS, examined


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_errors_are_those_that_remarks_tell() -> None:
    answers = {examined(seed) for seed in range(100)}
    assert answers - {""} == set(KINDS)
