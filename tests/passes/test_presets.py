"""The orders of XLA as pipelines: they run, keep results, and name passes that there are."""

from __future__ import annotations

import random

import numpy as np
import pytest

import hloopt
from hloopt.ir.build import clone_module
from hloopt.pipelines import PASSES, parse_pipeline
from hloopt.presets import XLA_PRESETS, Rows, Step, preset_rows, preset_text
from tests.passes.proof import inputs, ordinary
from tests.properties.random_modules import module_text


@pytest.mark.every_value
@pytest.mark.parametrize("name", XLA_PRESETS)
@pytest.mark.parametrize("seed", range(4))
def test_a_preset_keeps_results(name: str, seed: int) -> None:
    """Valid after every pass; results as before, up to the rounding of the expanders."""
    module = hloopt.parse(module_text(random.Random(seed)))
    better = clone_module(module)
    parse_pipeline(name).run(better, verify_each=True)
    arrays = ordinary(inputs(module, seed))
    for one, other in zip(
        hloopt.evaluate(module, arrays), hloopt.evaluate(better, arrays), strict=True
    ):
        wide = (array.astype(np.complex128) for array in (other, one))
        np.testing.assert_allclose(*wide, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", XLA_PRESETS)
def test_a_preset_names_passes_that_there_are(name: str) -> None:
    """With options that they have."""
    pipeline = parse_pipeline(name)
    assert {instance.name for instance in pipeline.passes()} <= set(PASSES)
    assert all(step.xla for _, step in preset_rows(XLA_PRESETS[name]))


def test_groups_without_entries_are_left_out() -> None:
    """What XLA repeats and hloopt has nothing of is no group."""
    rows = (Step("A", "cse"), Rows("B", (Step("C", "", "for a reason"),)), Step("D", "dce"))
    assert preset_text(rows) == "cse,dce"
