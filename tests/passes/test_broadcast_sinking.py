"""broadcast-sinking computes before broadcasts."""

from __future__ import annotations

import random

import pytest

from hloopt.ir import Module
from hloopt.passes.broadcast_sinking import BroadcastSinking
from tests.passes.proof import check
from tests.properties.random_modules import module_text


def module(entry: str) -> str:
    return f"HloModule m\nENTRY e {{\n{entry}\n}}\n"


def computed(better: Module) -> dict[str, int]:
    """How many elements each op that computes makes."""
    return {entry.opcode: entry.array.elements for entry in better.entry if entry.op.is_elementwise}


def test_the_example() -> None:
    """A tree with two users in its middle is computed for 64 elements, not 64,000."""
    better, _ = check(BroadcastSinking.example, BroadcastSinking(), draws=2)
    assert computed(better) == {"add": 64, "exponential": 64, "negate": 64}


def test_rows_and_blocks() -> None:
    """Operands with different dimensions are computed in those that some operand has."""
    text = module(
        "x = s32[3] parameter(0)\n y = s32[3,2] parameter(1)\n"
        "a = s32[3,9,2] broadcast(x), dimensions={0}\n"
        "b = s32[3,9,2] broadcast(y), dimensions={0,2}\n"
        "i = s32[3,9,2] iota(), iota_dimension=2\n s = s32[3,9,2] add(a, b)\n"
        "ROOT m = s32[3,9,2] multiply(s, i)"
    )
    better, _ = check(text, BroadcastSinking())
    assert computed(better) == {"add": 6, "multiply": 6}
    assert better.entry.root.name == "m"


@pytest.mark.parametrize(
    "entry",
    [
        (
            "x = f32[3] parameter(0)\n y = f32[3,2] parameter(1)\n"
            "a = f32[3,2] broadcast(x), dimensions={0}\n ROOT s = f32[3,2] add(a, y)"
        ),
        (
            "x = f32[3] parameter(0)\n y = f32[2] parameter(1)\n"
            "a = f32[3,2] broadcast(x), dimensions={0}\n b = f32[3,2] broadcast(y), dimensions={1}\n"
            "ROOT s = f32[3,2] add(a, b)"
        ),
        (
            "x = f32[3] parameter(0)\n a = f32[3,2] broadcast(x), dimensions={0}\n"
            "n = f32[3,2] negate(a)\n ROOT s = f32[3,2] copy(a), control-predecessors={n}"
        ),
    ],
    ids=["a whole operand", "across each other", "a control edge"],
)
def test_left_alone(entry: str) -> None:
    """Where no dimension is repeated by all operands, and across control edges."""
    check(module(entry), BroadcastSinking(), changes=False)


@pytest.mark.parametrize("seed", range(4))
def test_random_modules(seed: int) -> None:
    """Whatever a module is made of, its results stay."""
    check(module_text(random.Random(seed)), BroadcastSinking(), draws=2, changes=None)
