"""Random loops, fused: executor by blocks of any size and emulator against the interpreter."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.backends.numpy.loop_plan import Blocking
from hloopt.backends.numpy.program import NumpyProgram
from hloopt.fusion.loop_fusion import LoopFusion
from hloopt.ir import Module
from tests.helpers.random_loops import inputs, loop_text
from tests.helpers.rarely import examples
from tests.helpers.support import Array

LENGTHS = (20, 33)
"""What is longer than 16 is shared out among units."""


def fused_loop(chooser: random.Random) -> tuple[Module, list[Array], list[Array]]:
    """A module with its loop fused, where that is possible; inputs, and what the interpreter makes of them."""
    module = hloopt.parse(loop_text(chooser, LENGTHS))
    arrays = inputs([one.array.dims for one in module.entry.parameters])
    fused = hloopt.optimize(module, LoopFusion(always=True))
    return fused, arrays, hloopt.evaluate(module, arrays)


def compare(found: list[Array], wanted: list[Array]) -> None:
    """Equal up to the rounding of sums, which blocks add in another order."""
    for got, expected in zip(found, wanted, strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@settings(max_examples=examples(80), deadline=None, suppress_health_check=list(HealthCheck))
@given(chooser=st.randoms(use_true_random=False), units=st.integers(1, 40))
def test_random_loops_by_blocks(chooser: random.Random, units: int) -> None:
    """Whatever the size of a block, and whatever of the loop cannot be cut."""
    fused, arrays, wanted = fused_loop(chooser)
    compare(NumpyProgram(fused, blocking=Blocking(work_items=units)).run(arrays), wanted)


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(chooser=st.randoms(use_true_random=False))
def test_random_loops_on_the_emulator(chooser: random.Random) -> None:
    """By threads or by blocks of threads, with every access checked."""
    fused, arrays, wanted = fused_loop(chooser)
    compare(hloopt.compile(fused, "emulator").run(arrays), wanted)
