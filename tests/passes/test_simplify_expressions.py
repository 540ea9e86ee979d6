"""Simplify on random expressions: whatever rules meet, no bit changes, and a second run has nothing to do."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.ir.build import clone_module
from hloopt.ir.canonical import fingerprint
from hloopt.rewrite import PassLog
from hloopt.simplify import Simplify
from tests.helpers.rarely import examples
from tests.passes.expressions import Maker
from tests.passes.proof import identical, inputs

SETTINGS = {"deadline": None, "suppress_health_check": list(HealthCheck)}
CHOOSERS = st.randoms(use_true_random=False)


@settings(max_examples=examples(80), **SETTINGS)
@given(chooser=CHOOSERS, few=st.booleans())
def test_no_bit_changes(chooser: random.Random, few: bool) -> None:
    """Every value of the expression is the same, on special values in all places."""
    module = hloopt.parse(Maker(chooser, few).text())
    better, log = clone_module(module), PassLog()
    changed = Simplify().run(better, log)
    assert changed is (fingerprint(better) != fingerprint(module))
    assert not log.notes
    hloopt.verify(better)
    again = clone_module(better)
    assert not Simplify().run(again, PassLog()), f"{better.to_text()}\nbecame\n{again.to_text()}"
    for seed in range(3):
        arrays = inputs(module, seed)
        want, got = hloopt.evaluate(module, arrays), hloopt.evaluate(better, arrays)
        for value, one, other in zip(module.entry.root.operands, want, got, strict=True):
            assert identical(one, other), f"{value}\n{module.to_text()}\n{better.to_text()}"


@settings(max_examples=examples(40), **SETTINGS)
@given(chooser=CHOOSERS)
def test_fast_math_comes_to_rest(chooser: random.Random) -> None:
    """With all rules none fights another, and the result is valid and stays as it is."""
    module, log = hloopt.parse(Maker(chooser, few=True).text()), PassLog()
    Simplify(fast_math=True).run(module, log)
    assert not log.notes
    hloopt.verify(module)
    assert not Simplify(fast_math=True).run(module, PassLog()), module.to_text()
