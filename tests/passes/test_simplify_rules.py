"""Every rule of simplify, from its own example: it applies, and no bit of any result changes."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import hloopt
from hloopt.errors import ParseError, VerifyError
from hloopt.ir import Module
from hloopt.ir.build import clone_module
from hloopt.ir.canonical import fingerprint
from hloopt.passes import convert_pairs
from hloopt.passes.examples import rule_examples, whole_module
from hloopt.rewrite import PassLog, Rule, RuleSet, apply_rules
from hloopt.simplify import RULES, Simplify
from tests.passes.proof import identical, inputs, ordinary

EXAMPLES = rule_examples()
DRAWS = 24
CASES = [
    pytest.param(rule, element, id=f"{rule.name} [{element}]")
    for rule in RULES.rules
    for element in EXAMPLES[rule.name].types
]
OTHER_TYPES = (
    ("pred", "u64", "f8e5m2"),
    ("s4", "f64", "f8e8m0fnu"),
    ("s1", "u4", "c64"),
    ("s64", "f16", "f4e2m1fn"),
    ("s8", "u16", "f8e4m3fnuz"),
)
RULE_CASES = [pytest.param(rule, id=rule.name) for rule in RULES.rules]


def read(text: str, element: str) -> Module:
    return hloopt.parse(whole_module(text, element), "example")


def is_loose(rule: Rule) -> bool:
    """Whether the rule needs an option, since it may change results."""
    return rule.fast_math or rule.floats_are_real


def options(rule: Rule) -> dict[str, bool]:
    """The options that the rule needs."""
    return {"fast_math": is_loose(rule), "floats_are_real": rule.floats_are_real}


def apply_one(rule: Rule, module: Module) -> tuple[Module, PassLog]:
    changed, log = clone_module(module), PassLog()
    for computation in changed:
        apply_rules(computation, RuleSet((rule,)), log, **options(rule))
    return changed, log


@pytest.mark.every_value("rule")
@pytest.mark.parametrize(("rule", "element"), CASES)
def test_the_rule_applies_and_keeps_every_bit(rule: Rule, element: str) -> None:
    """The example is rewritten by this rule alone, verifies, and computes the same bits.

    Rules that need fast_math compute the same up to rounding, on ordinary positive numbers.
    """
    module = read(EXAMPLES[rule.name].example, element)
    hloopt.verify(module)
    changed, log = apply_one(rule, module)
    assert log.hits[rule.name] >= 1
    assert not log.notes
    hloopt.verify(changed)
    whole = clone_module(module)
    together = PassLog()
    assert Simplify(**options(rule)).run(whole, together)
    assert not together.notes, "rules fight"
    hloopt.verify(whole)
    for seed in range(DRAWS):
        arrays = inputs(module, seed)
        if is_loose(rule):
            arrays = ordinary(arrays)
        want = hloopt.evaluate(module, arrays)
        for other in (changed, whole):
            got = hloopt.evaluate(other, arrays)
            for a, b in zip(want, got, strict=True):
                if is_loose(rule):
                    np.testing.assert_allclose(b, a, rtol=1e-5)
                else:
                    assert identical(a, b), f"inputs {arrays}: {a} became {b}"


@pytest.mark.every_value
@pytest.mark.parametrize("types", OTHER_TYPES, ids=" ".join)
@pytest.mark.parametrize("rule", RULE_CASES)
def test_the_rule_keeps_every_bit_of_other_types(rule: Rule, types: tuple[str, ...]) -> None:
    """Wherever an example or counterexample is valid HLO, whatever applies to it changes no bit."""
    for element in types:
        for text in (EXAMPLES[rule.name].example, EXAMPLES[rule.name].counterexample):
            other = re.sub(r"\b(f32|s32|u32|u8|bf16|\$T)\[", f"{element}[", text)
            try:
                module = read(other, element)
                hloopt.verify(module)
            except (ParseError, VerifyError):
                continue
            changed = clone_module(module)
            if not Simplify().run(changed, PassLog()):
                continue
            hloopt.verify(changed)
            for seed in range(3):
                arrays = inputs(module, seed)
                pairs = zip(
                    hloopt.evaluate(module, arrays), hloopt.evaluate(changed, arrays), strict=True
                )
                assert all(identical(*pair) for pair in pairs), f"{other}\n{arrays}"


@pytest.mark.parametrize("rule", RULE_CASES)
def test_the_rule_leaves_its_counterexample_alone(rule: Rule) -> None:
    """The counterexample looks almost like the pattern, and is not rewritten."""
    module = read(EXAMPLES[rule.name].counterexample, EXAMPLES[rule.name].types[0])
    hloopt.verify(module)
    changed, log = apply_one(rule, module)
    assert log.hits[rule.name] == 0
    assert fingerprint(changed) == fingerprint(module)


@pytest.mark.parametrize("rule", RULE_CASES)
def test_the_rule_can_be_switched_off(rule: Rule) -> None:
    """disable=["..."] with the rule's equation keeps it from applying."""
    module = read(EXAMPLES[rule.name].example, EXAMPLES[rule.name].types[0])
    log = PassLog()
    Simplify(**options(rule), disable=(rule.name,)).run(module, log)
    assert log.hits[rule.name] == 0


@pytest.mark.parametrize(
    "rule", [pytest.param(rule, id=rule.name) for rule in RULES.rules if is_loose(rule)]
)
def test_the_rule_needs_fast_math(rule: Rule) -> None:
    """Without the option a rule that changes results is not applied."""
    log = PassLog()
    Simplify().run(read(EXAMPLES[rule.name].example, EXAMPLES[rule.name].types[0]), log)
    assert log.hits[rule.name] == 0


@pytest.mark.parametrize(
    "name", ["A + 0 => A", "A - 0 => A", "0 - A => -A", "A * 0 => 0", "A * 1 => A", "A - A => 0"]
)
def test_the_comparison_notices_a_wrong_rule(name: str) -> None:
    """Without its condition a rule changes bits of its counterexample, and that is seen."""
    (rule,) = (rule for rule in RULES.rules if rule.name == name)
    module = read(EXAMPLES[rule.name].counterexample, EXAMPLES[rule.name].types[0])
    changed, log = apply_one(replace(rule, when=None), module)
    assert log.hits[name] == 1
    assert not all(
        identical(want, got)
        for seed in range(DRAWS)
        for want, got in zip(
            hloopt.evaluate(module, inputs(module, seed)),
            hloopt.evaluate(changed, inputs(module, seed)),
            strict=True,
        )
    )


def test_every_rule_has_examples() -> None:
    """And every example a rule."""
    rules = {rule.name for rule in (*RULES.rules, *convert_pairs.RULES)}
    assert rules == EXAMPLES.keys()
