"""Every rule of simplify is proved for all values of its example, or is listed with the reason why not.

A rule is applied alone to its example, and each element of the result proved to be what it was: as terms, by z3
with a fixed number of steps.  None of hloopt's rewrites takes part in the proof.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

import hloopt
from hloopt.passes.examples import rule_examples, whole_module
from hloopt.prover.equivalence import by_elements, differing
from hloopt.rewrite import Rule
from hloopt.simplify import RULES
from tests.passes.test_simplify_rules import apply_one, is_loose

pytest.importorskip("z3")

EXAMPLES = rule_examples()
NOT_PROVED = tomllib.loads((Path(__file__).parent / "rules_not_proved.toml").read_text())
SLOW = bool(os.environ.get("HLOOPT_SLOW"))
ENOUGH = 50_000_000 if SLOW else 16_000_000
"""Steps in which what is not listed is proved, with as much to spare: they change with what z3 did before."""
FEW = 2_000_000
"""Steps in which what is listed is not proved."""
TRIALS = 200
"""Inputs on which a rule that may change results is seen to do so."""


@pytest.mark.parametrize(
    "rule", [pytest.param(rule, id=rule.name) for rule in RULES.rules if not is_loose(rule)]
)
def test_the_rule_is_proved(rule: Rule) -> None:
    """For each type of its example, the first where time matters; what is listed is not, and nothing is refuted."""
    found = {}
    row = NOT_PROVED.get(rule.name, {})
    types = EXAMPLES[rule.name].types if SLOW else EXAMPLES[rule.name].types[:1]
    listed = [element for element in row.get("types", []) if element in types]
    for element in types:
        module = hloopt.parse(whole_module(EXAMPLES[rule.name].example, element), "example")
        steps = FEW if not SLOW and element in listed else ENOUGH
        found[element] = by_elements(module, apply_one(rule, module)[0], steps)
    assert "refuted" not in {answer.verdict for answer in found.values()}, found
    left = {e: answer.reason for e, answer in found.items() if answer.verdict != "proved"}
    if SLOW:
        assert left.keys() <= set(row.get("never", listed)), left
    else:
        assert list(left) == listed, left


@pytest.mark.parametrize(
    "rule", [pytest.param(rule, id=rule.name) for rule in RULES.rules if is_loose(rule)]
)
def test_the_rule_is_refuted(rule: Rule) -> None:
    """A rule that needs fast_math changes results, so that it does need it."""
    (element,) = EXAMPLES[rule.name].types
    module = hloopt.parse(whole_module(EXAMPLES[rule.name].example, element), "example")
    changed, _ = apply_one(rule, module)
    assert (differing(module, changed, TRIALS) is None) == (rule.name in NOT_PROVED)


def test_what_is_listed_has_a_reason() -> None:
    """And is the name of a rule, with types of its example."""
    names = {rule.name for rule in RULES.rules}
    for name, row in NOT_PROVED.items():
        assert name in names
        assert row["reason"]
        assert set(row["types"]) <= set(EXAMPLES[name].types)
        assert set(row.get("never", ())) <= set(row["types"])


def test_most_are_proved() -> None:
    """At least 180 at every type of their examples."""
    strict = {rule.name for rule in RULES.rules if not is_loose(rule)}
    assert len(strict - NOT_PROVED.keys()) >= 180
