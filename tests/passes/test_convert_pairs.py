"""convert-pairs moves data in the narrower type, and drops conversions that are taken back."""

from __future__ import annotations

import random

import pytest

from hloopt.ir import Module
from hloopt.passes.convert_pairs import RULES, ConvertPairs
from hloopt.passes.examples import rule_examples
from hloopt.passes.reshape_mover import ReshapeMover
from hloopt.rewrite import Rule
from hloopt.simplify import Simplify
from tests.passes.proof import check
from tests.properties.random_modules import module_text

OWN = [rule for rule in RULES if rule.name not in Simplify.rules]


def module(entry: str) -> str:
    return f"HloModule m\nENTRY e {{\n{entry}\n}}\n"


def opcodes(better: Module) -> list[str]:
    return [entry.opcode for entry in better.entry if entry.opcode not in ("parameter", "constant")]


def test_the_example() -> None:
    """A bf16 that is moved as f32 and rounded back is moved as bf16."""
    better, _ = check(ConvertPairs.example, ConvertPairs(), draws=2)
    assert opcodes(better) == ["transpose", "reshape"]


@pytest.mark.parametrize(
    ("rule", "element"),
    [
        pytest.param(rule, element, id=f"{rule.name} [{element}]")
        for rule in OWN
        for element in rule_examples()[rule.name].types
    ],
)
def test_the_rule_applies(rule: Rule, element: str) -> None:
    """The example of each rule is rewritten, and no bit of the result changes."""
    _, log = check(
        module(rule_examples()[rule.name].example.replace("$T", element)), ConvertPairs()
    )
    assert log.hits[rule.name] >= 1


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.name) for rule in OWN])
def test_the_rule_leaves_its_counterexample_alone(rule: Rule) -> None:
    """The counterexample looks almost like the pattern."""
    _, log = check(module(rule_examples()[rule.name].counterexample), ConvertPairs(), changes=None)
    assert log.hits[rule.name] == 0


@pytest.mark.parametrize(
    "entry",
    [
        "x = f32[6] parameter(0)\n n = bf16[6] convert(x)\n ROOT r = f32[6] convert(n)",
        (
            "x = bf16[6] parameter(0)\n w = f32[6] convert(x)\n r = f32[2,3] reshape(w)\n"
            "ROOT t = (f32[2,3], f32[6]) tuple(r, w)"
        ),
        (
            "x = bf16[6] parameter(0)\n w = f32[6] convert(x)\n"
            "ROOT r = f32[4,6] broadcast(w), dimensions={1}"
        ),
        (
            "x = bf16[6] parameter(0)\n y = f16[6] parameter(1)\n a = f32[6] convert(x)\n"
            "b = f32[6] convert(y)\n ROOT r = f32[12] concatenate(a, b), dimensions={0}"
        ),
        (
            "x = s8[6] parameter(0)\n y = s8[6] parameter(1)\n a = s32[6] convert(x)\n"
            "b = s32[6] convert(y)\n d = s32[6] divide(a, b)\n ROOT r = s8[6] convert(d)"
        ),
    ],
    ids=["rounding", "wide values used", "a broadcast", "two narrow types", "signed division"],
)
def test_left_alone(entry: str) -> None:
    """Where values would change, or more would be converted, nothing does."""
    check(module(entry), ConvertPairs(), changes=False)


def test_slices_and_broadcasts() -> None:
    """A slice is taken before widening, a broadcast made after narrowing."""
    text = module(
        "x = bf16[6] parameter(0)\n y = f32[6] parameter(1)\n w = f32[6] convert(x)\n"
        "s = f32[2] slice(w), slice={[1:3]}\n b = f32[4,6] broadcast(y), dimensions={1}\n"
        "n = bf16[4,6] convert(b)\n ROOT r = (f32[2], bf16[4,6]) tuple(s, n)"
    )
    better, _ = check(text, ConvertPairs())
    assert opcodes(better) == ["slice", "convert", "convert", "broadcast", "tuple"]


def test_no_fight_with_the_mover_of_reshapes() -> None:
    """Each moves what it moves towards fewer bytes: together they come to rest."""
    text = module(
        "x = bf16[2,3] parameter(0)\n y = bf16[2,3] parameter(1)\n a = bf16[6] reshape(x)\n"
        "b = bf16[6] reshape(y)\n u = f32[6] convert(a)\n v = f32[6] convert(b)\n"
        "s = f32[6] add(u, v)\n r = f32[3,2] reshape(s)\n ROOT c = bf16[3,2] convert(r)"
    )
    check(text, ConvertPairs(), ReshapeMover(), ConvertPairs(), Simplify())


def test_no_fight_about_ones_in_front_of_a_broadcast() -> None:
    """A reshape that a broadcast does the work of is left where the broadcast meets it."""
    text = module(
        "x = bf16[6] parameter(0)\n a = bf16[1,1,6] reshape(x)\n c = f32[1,1,6] convert(a)\n"
        "ROOT b = f32[2,1,1,6] broadcast(c), dimensions={1,2,3}"
    )
    better, _ = check(text, ReshapeMover(), ConvertPairs(), Simplify())
    assert opcodes(better) == ["convert", "broadcast"]


@pytest.mark.parametrize("seed", range(8))
def test_random_modules(seed: int) -> None:
    """Whatever a module is made of, its results stay."""
    check(module_text(random.Random(seed)), ConvertPairs(), draws=2, changes=None)
