"""map-inliner puts the ops of a map's computation in the place of the map."""

from __future__ import annotations

import random

from hloopt.passes.map_inliner import MapInliner
from tests.passes.proof import check
from tests.properties.random_modules import module_text

REGION = """scaled {
  x = f32[] parameter(0)
  y = s32[] parameter(1)
  two = f32[] constant(2)
  e = f32[] exponential(x)
  z = f32[] convert(y)
  m = f32[] multiply(z, two)
  ROOT r = f32[] add(e, m)
}
"""


def module(entry: str, region: str = REGION) -> str:
    return f"HloModule m\n{region}ENTRY e {{\n{entry}\n}}\n"


def test_the_example_is_rewritten() -> None:
    """The pass's own example has no map afterwards."""
    better, log = check(MapInliner.example, MapInliner())
    assert log.hits["inline a map"] == 1
    assert all(instruction.opcode != "map" for instruction in better.instructions())
    assert list(better.computations) == ["main"]


def test_operands_of_several_types_and_constants() -> None:
    """Each op gets the operands' dimensions and its own element type; constants are broadcast."""
    better, _ = check(
        module(
            "a = f32[2,3] parameter(0)\n b = s32[2,3] parameter(1)\n"
            "ROOT r = f32[2,3] map(a, b), dimensions={0,1}, to_apply=scaled"
        ),
        MapInliner(),
    )
    assert better.entry.root.opcode == "add"
    assert better.entry.root.name == "r"


def test_scalars_and_a_parameter_as_the_result() -> None:
    """A map of scalars makes scalars, and one that returns a parameter is that operand."""
    region = "second { x = f32[] parameter(0)\n ROOT y = f32[] parameter(1) }\n"
    better, _ = check(
        module(
            "a = f32[] parameter(0)\n b = f32[] parameter(1)\n"
            "m = f32[] map(a, b), dimensions={}, to_apply=second\n ROOT r = f32[] negate(m)",
            region,
        ),
        MapInliner(),
    )
    assert better.entry.root.operands[0].name == "b"


def test_a_call_in_the_computation_stays() -> None:
    """What is not elementwise is left to the passes that take calls and loops apart."""
    region = (
        "neg { x = f32[] parameter(0)\n ROOT r = f32[] negate(x) }\n"
        "calls { x = f32[] parameter(0)\n ROOT r = f32[] call(x), to_apply=neg }\n"
    )
    text = "a = f32[3] parameter(0)\n ROOT r = f32[3] map(a), dimensions={0}, to_apply=calls"
    check(module(text, region), MapInliner(), changes=False)


def test_another_layout_stays() -> None:
    """A map that also changes the layout is not elementwise ops of one layout."""
    region = "neg { x = f32[] parameter(0)\n ROOT r = f32[] negate(x) }\n"
    text = (
        "a = f32[3,2]{0,1} parameter(0)\n"
        "ROOT r = f32[3,2]{1,0} map(a), dimensions={0,1}, to_apply=neg"
    )
    check(module(text, region), MapInliner(), changes=False)


def test_random_modules_keep_their_results() -> None:
    """Modules without maps stay as they are."""
    for seed in range(6):
        check(module_text(random.Random(seed)), MapInliner(), changes=False, draws=1)
