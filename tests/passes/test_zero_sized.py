"""zero-sized computes nothing where the result has no elements."""

from __future__ import annotations

import random

import pytest

from hloopt.passes.zero_sized import ZeroSized
from tests.passes.proof import check
from tests.properties.random_modules import module_text


def module(entry: str) -> str:
    return f"HloModule m\nENTRY e {{\n{entry}\n}}\n"


def test_the_example() -> None:
    """A product without rows is an empty broadcast."""
    better, log = check(ZeroSized.example, ZeroSized())
    assert better.entry.by_name["d"].opcode == "broadcast"
    assert sum(log.hits.values()) == 1


def test_a_call_without_result() -> None:
    """Whatever is called is not needed for no elements."""
    text = (
        "HloModule m\nf { a = f32[3] parameter(0)\n ROOT s = f32[0] slice(a), slice={[1:1]} }\n"
        "ENTRY e { x = f32[3] parameter(0)\n ROOT r = f32[0] call(x), to_apply=f }\n"
    )
    better, log = check(text, ZeroSized())
    assert better.entry.root.opcode == "broadcast"
    assert sum(log.hits.values()) == 2


def test_layout_and_sharding_stay() -> None:
    """The broadcast lies as the result did, and is spread as it was."""
    text = module(
        "x = f32[0,4]{0,1} parameter(0)\n"
        'ROOT r = f32[0,4]{0,1} negate(x), sharding={replicated}, frontend_attributes={a="b"}'
    )
    better, _ = check(text, ZeroSized())
    assert "f32[0,4]{0,1} broadcast" in better.to_text()
    assert {"sharding", "frontend_attributes"} <= better.entry.root.attributes.keys()


@pytest.mark.parametrize(
    "entry",
    [
        (
            "x = f32[0,4] parameter(0)\n z = f32[] constant(0)\n"
            "ROOT r = f32[4] reduce(x, z), dimensions={0}, to_apply=add"
        ),
        "ROOT r = s32[0] constant({})",
        "z = s32[] constant(0)\n ROOT r = s32[0] broadcast(z), dimensions={}",
        (
            "x = f32[0] parameter(0)\n y = f32[0] negate(x)\n"
            "ROOT r = f32[0] exponential(x), control-predecessors={y}"
        ),
        "x = f32[0] parameter(0)\n ROOT r = f32[0] opt-barrier(x)",
        "x = f32[<=0] parameter(0)\n ROOT r = f32[<=0] negate(x)",
    ],
    ids=["elements", "a constant", "done", "a control edge", "a barrier", "a size not known yet"],
)
def test_left_alone(entry: str) -> None:
    """Results with elements, constants, and what is there for more than its result."""
    add = (
        "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b) }\n"
        if "to_apply" in entry
        else ""
    )
    check(f"HloModule m\n{add}ENTRY e {{\n{entry}\n}}\n", ZeroSized(), changes=False)


def test_a_side_effect_stays() -> None:
    """A custom call that says it does more is made."""
    text = module(
        "x = f32[0] parameter(0)\n ROOT r = f32[0] custom-call(x), "
        'custom_call_target="Sharding", custom_call_has_side_effect=true'
    )
    check(text, ZeroSized(), changes=False)


@pytest.mark.parametrize("seed", range(4))
def test_random_modules(seed: int) -> None:
    """Whatever a module is made of, its results stay."""
    check(module_text(random.Random(seed)), ZeroSized(), draws=2, changes=None)


def test_the_body_of_an_empty_fusion_goes_with_it() -> None:
    """What nobody calls any more is not looked at as a computation of its own by a second run."""
    text = (
        "HloModule m\nf { a = pred[0,3] parameter(0)\n ROOT n = pred[0,3] not(a) }\n"
        "ENTRY e { x = pred[0,3] parameter(0)\n y = pred[0,3] fusion(x), kind=kLoop, calls=f\n"
        "ROOT r = pred[0,3] not(y) }\n"
    )
    better, _ = check(text, ZeroSized())
    assert [computation.name for computation in better] == ["e"]
