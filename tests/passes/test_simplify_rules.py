"""Every rule of simplify, from its own example: it applies, and no bit of any result changes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.errors import ParseError, VerifyError
from hloopt.ir import Module, fingerprint
from hloopt.ir.build import clone_module
from hloopt.passes.simplify import RULES, Simplify
from hloopt.rewrite import PassLog, Rule, RuleSet, apply_rules
from hloopt.types import DTYPES, ArrayShape, DType, leaves

DRAWS = 24
CASES = [
    pytest.param(rule, element, id=f"{rule.name} [{element}]")
    for rule in RULES.rules
    for element in rule.types
]
OTHER_TYPES = ("pred", "s1", "s4", "s8", "s64", "u4", "u16", "u64", "f16", "f64", "c64", "f8e5m2",
               "f8e4m3fnuz", "f8e8m0fnu", "f4e2m1fn")  # fmt: skip
RULE_CASES = [pytest.param(rule, id=rule.name) for rule in RULES.rules]


def read(text: str, element: str) -> Module:
    if not text.startswith("HloModule"):
        text = f"HloModule m\nENTRY e {{\n{text}\n}}\n"
    zero = "false" if element == "pred" else "0"
    return hloopt.parse(text.replace("$T", element).replace("$0", zero), "example")


def special_values(dtype: DType) -> np.ndarray[Any, Any]:
    storage = dtype.numpy
    if dtype.kind == "pred":
        return np.array([False, True])
    if dtype.is_integer:
        half = 1 << (dtype.bits - 1)
        low, high = (-half, half - 1) if dtype.kind == "signed" else (0, 2 * half - 1)
        numbers = [0, 1, 2, 3, 7, high // 2, high - 1, high, low, low + 1]
        return np.array(numbers, np.int64 if dtype.kind == "signed" else np.uint64).astype(storage)
    if dtype.kind == "complex":
        parts = special_values(part_of(dtype)).astype(np.float64)
        return np.array([complex(x, y) for x in parts for y in parts]).astype(storage)
    finite = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-3, 1e30, -1e30, 1e-40, -1e-45, 65504.0]
    with np.errstate(all="ignore"):
        return np.array([*finite, np.inf, -np.inf, np.nan]).astype(storage)


def hloopt_part(dtype: DType) -> DType:
    from hloopt.types import dtype as named

    return named("f32" if dtype.name == "c64" else "f64")


def part_of(dtype: DType) -> DType:
    return DTYPES["f32" if dtype.name == "c64" else "f64"]


def draw(dtype: DType, dims: tuple[int, ...], seed: int, position: int) -> np.ndarray[Any, Any]:
    """Special values in turn, so that each comes up in each place; later seeds mix in random ones."""
    special, size = special_values(dtype), int(np.prod(dims))
    turn = seed * (1 + 2 * position) + np.arange(size) + position
    values = special[turn % len(special)].reshape(dims)
    if dtype.kind == "pred" or seed < len(special):
        return values
    rng = np.random.default_rng([seed, position])
    plain = rng.integers(0, 100, dims) if dtype.is_integer else rng.normal(0, 3, dims)
    mixed = np.where(rng.random(dims) < 0.5, values, plain.astype(dtype.numpy))
    return np.array(mixed, dtype=dtype.numpy)


def inputs(module: Module, seed: int) -> list[np.ndarray[Any, Any]]:
    return [
        draw(leaf.dtype, leaf.dims, seed, position)
        for position, leaf in enumerate(
            leaf for shape in module.entry.parameter_shapes for leaf in leaves(shape)
        )
        if isinstance(leaf, ArrayShape)
    ]


def parts(array: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    if array.dtype.kind == "c":
        yield array.real
        yield array.imag
    else:
        yield array


def identical(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> bool:
    """Equal bit for bit, except that any NaN equals any other."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    for a, b in zip(parts(left), parts(right), strict=True):
        if a.dtype.kind in "biu" or np.can_cast(a.dtype, np.int64):
            if not np.array_equal(a, b):
                return False
            continue
        wide, other = a.astype(np.float64), b.astype(np.float64)
        same = (wide == other) & (np.signbit(wide) == np.signbit(other))
        if not np.all(same | (np.isnan(wide) & np.isnan(other))):
            return False
    return True


def apply_one(rule: Rule, module: Module) -> tuple[Module, PassLog]:
    changed, log = clone_module(module), PassLog()
    for computation in changed:
        apply_rules(computation, RuleSet((rule,)), log, fast_math=rule.fast_math)
    return changed, log


@pytest.mark.parametrize(("rule", "element"), CASES)
def test_the_rule_applies_and_keeps_every_bit(rule: Rule, element: str) -> None:
    """The example is rewritten by this rule alone, verifies, and computes the same bits.

    Rules that need fast_math compute the same up to rounding, on ordinary positive numbers.
    """
    module = read(rule.example, element)
    hloopt.verify(module)
    changed, log = apply_one(rule, module)
    assert log.hits[rule.name] >= 1
    assert not log.notes
    hloopt.verify(changed)
    whole = clone_module(module)
    assert Simplify(fast_math=rule.fast_math).run(whole, PassLog())
    hloopt.verify(whole)
    for seed in range(DRAWS):
        arrays = inputs(module, seed)
        if rule.fast_math:
            arrays = [
                np.abs(np.nan_to_num(array, nan=1, posinf=2, neginf=3)) % 4 + 1 for array in arrays
            ]
        want = hloopt.evaluate(module, arrays)
        for other in (changed, whole):
            got = hloopt.evaluate(other, arrays)
            for a, b in zip(want, got, strict=True):
                if rule.fast_math:
                    np.testing.assert_allclose(b, a, rtol=1e-5)
                else:
                    assert identical(a, b), f"inputs {arrays}: {a} became {b}"


@pytest.mark.parametrize("rule", RULE_CASES)
def test_the_rule_keeps_every_bit_of_other_types(rule: Rule) -> None:
    """Wherever an example or counterexample is valid HLO, whatever applies to it changes no bit."""
    for element in OTHER_TYPES:
        for text in (rule.example, rule.counterexample):
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
    module = read(rule.counterexample, rule.types[0])
    hloopt.verify(module)
    changed, log = apply_one(rule, module)
    assert log.hits[rule.name] == 0
    assert fingerprint(changed) == fingerprint(module)


@pytest.mark.parametrize("rule", RULE_CASES)
def test_the_rule_can_be_switched_off(rule: Rule) -> None:
    """disable=["..."] with the rule's equation keeps it from applying."""
    module = read(rule.example, rule.types[0])
    log = PassLog()
    Simplify(fast_math=rule.fast_math, disable=(rule.name,)).run(module, log)
    assert log.hits[rule.name] == 0


@pytest.mark.parametrize(
    "rule", [pytest.param(rule, id=rule.name) for rule in RULES.rules if rule.fast_math]
)
def test_the_rule_needs_fast_math(rule: Rule) -> None:
    """Without the option a rule that changes results is not applied."""
    log = PassLog()
    Simplify().run(read(rule.example, rule.types[0]), log)
    assert log.hits[rule.name] == 0


@pytest.mark.parametrize(
    "name", ["A + 0 => A", "A - 0 => A", "0 - A => -A", "A * 0 => 0", "A * 1 => A", "A - A => 0"]
)
def test_the_comparison_notices_a_wrong_rule(name: str) -> None:
    """Without its condition a rule changes bits of its counterexample, and that is seen."""
    (rule,) = (rule for rule in RULES.rules if rule.name == name)
    module = read(rule.counterexample, rule.types[0])
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
