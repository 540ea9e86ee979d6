"""Attributes that an op does not have: kept as text, and never taken for values of those they are named like."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import hloopt
from hloopt.ir import Instruction, Module
from hloopt.ops import COMMON_ATTRIBUTES, OPS, attributes_of
from hloopt.passes.examples import rule_examples, whole_module
from hloopt.pipelines import PASSES
from hloopt.rewrite import Pass, PassLog
from hloopt.simplify import RULES, Simplify
from hloopt.types import ArrayShape, Verbatim, attribute_name

# A literal is read by its own rule, and an accuracy of an op that is exact is an offence.
EXAMPLES = rule_examples()
NAMES = sorted(
    {entry.name for row in OPS.values() for entry in row.attributes}
    - {"literal", "result_accuracy"}
)
COMMON = {entry.name for entry in COMMON_ATTRIBUTES}

CASES = [
    pytest.param(
        whole_module(EXAMPLES[rule.name].example, EXAMPLES[rule.name].types[0]),
        Simplify(fast_math=rule.fast_math),
        id=rule.name,
    )
    for rule in RULES.rules
] + [pytest.param(kind.example, kind(), id=name) for name, kind in PASSES.items()]


def with_strays(text: str) -> Iterator[Module]:
    """The module twice: the first and the last operand of the result have all attributes of all other ops, too."""
    module = hloopt.parse(text)
    root = module.entry.root
    for instruction in {(root.operands or (root,))[at]: None for at in (0, -1)}:
        own = dict(instruction.attributes)
        instruction.attributes.update(strays(instruction))
        yield hloopt.parse(module.to_text())
        instruction.attributes.clear()
        instruction.attributes.update(own)


def strays(instruction: Instruction) -> dict[str, Verbatim]:
    own = (attributes_of(instruction.opcode) or frozenset()) | COMMON
    return {name: Verbatim("{}") for name in NAMES if name not in own}


@pytest.mark.parametrize(("text", "one"), CASES)
def test_no_rule_and_no_pass_reads_a_stray_attribute(text: str, one: Pass) -> None:
    """Each runs over its example; what is left is valid and prints."""
    for module in with_strays(text):
        one.run(module, PassLog())
        hloopt.verify(module)
        hloopt.parse(module.to_text())


@pytest.mark.parametrize(("text", "one"), CASES)
def test_no_rule_and_no_pass_leaves_a_sharding_to_another_shape(text: str, one: Pass) -> None:
    """Every array of the entry is cut in two along its first dimension."""
    module = hloopt.parse(text)
    for instruction in module.entry:
        if isinstance(instruction.shape, ArrayShape) and instruction.shape.rank:
            grid = ",".join(["2", *["1"] * (instruction.shape.rank - 1)])
            instruction.attributes.setdefault("sharding", Verbatim(f"{{devices=[{grid}]0,1}}"))
    hloopt.verify(module)
    one.run(module, PassLog())
    hloopt.verify(module)


def test_a_stray_attribute_is_printed_back_and_has_a_key_of_its_own() -> None:
    """An attribute that no op has is under its name."""
    text = """HloModule m

ENTRY %e (p: f32[16]) -> f32[16] {
  ROOT %p = f32[16] parameter(0), dimensions={}, colour=red
}
"""
    module = hloopt.parse(text)
    root = module.entry.root
    assert module.to_text() == text + "\n"
    assert "dimensions" not in root.attributes
    assert sorted(map(attribute_name, root.attributes)) == [
        "colour",
        "dimensions",
        "parameter_number",
    ]
    assert root.attributes["colour"] == Verbatim("red")
    assert not root.is_understood
