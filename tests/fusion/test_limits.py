"""Limits are counts: none is below zero, whichever strategy has it."""

from __future__ import annotations

import dataclasses

import pytest

from hloopt.errors import UsageError
from hloopt.pipelines import PASSES, parse_pipeline

STRATEGIES = (
    "copy-fusion",
    "fusion-merger",
    "horizontal-input-fusion",
    "horizontal-loop-fusion",
    "instruction-fusion",
    "multi-output-fusion",
    "priority-fusion",
)
LIMITS = [
    (name, field.name)
    for name in STRATEGIES
    for field in dataclasses.fields(PASSES[name])  # type: ignore[arg-type]
    if isinstance(field.default, int) and not isinstance(field.default, bool)
]


@pytest.mark.parametrize(("strategy", "limit"), LIMITS)
def test_a_limit_below_zero_is_refused(strategy: str, limit: str) -> None:
    """By its name and the pass's; but for those that a number below zero turns off."""
    text = f"{strategy}{{{limit}=-1}}"
    if limit in ("fuel", "slice_overlap_bytes"):
        assert parse_pipeline(text)
        return
    with pytest.raises(UsageError, match=f"{strategy}: {limit}=-1: less than 0"):
        parse_pipeline(text)


def test_there_are_limits() -> None:
    """The list above is not empty for any of them."""
    assert {name for name, _ in LIMITS} == set(STRATEGIES)
