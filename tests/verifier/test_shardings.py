"""Shardings: each constraint broken, and its valid neighbour."""

from __future__ import annotations

import pytest

from tests.helpers.neighbours import Pair, check_pair

TUPLE = "(f32[4,8], f32[])"


def on(sharding: str, shape: str = "f32[4,8]") -> str:
    """A parameter with a sharding in line 3."""
    return (
        f"HloModule m\nENTRY e {{\n  p = {shape} parameter(0), sharding={sharding}\n"
        f"  ROOT c = f32[] constant(0)\n}}"
    )


def case(name: str, sharding: str, good: str, bad: str, message: str, shape: str = "") -> Pair:
    """A pair of shardings on one parameter."""
    text = on(sharding, shape or "f32[4,8]")
    said = f"%p: sharding={sharding.replace('<>', bad)}: {message}"
    return Pair(name, "sharding", text, good, bad, 3, said)


LOOP = """
HloModule m
body {
  p = (s32[], f32[4]) parameter(0), sharding={{replicated}, {devices=[2]<=[2]}}
  i = s32[] get-tuple-element(p), index=0
  x = f32[4] get-tuple-element(p), index=1
  ROOT r = (s32[], f32[4]) tuple(i, x)
}
condition {
  p = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  ROOT c = pred[] compare(i, i), direction=LT
}
ENTRY e {
  p = (s32[], f32[4]) parameter(0)
  ROOT w = (s32[], f32[4]) while(p), condition=condition, body=body, sharding={{replicated}, <>}
}
"""
BRANCHES = """
HloModule m
yes {
  p = f32[4] parameter(0)
  ROOT n = f32[4] negate(p), sharding={devices=[2]<=[2] metadata={op_name="n"}}
}
no {
  p = f32[4] parameter(0)
  ROOT n = f32[4] sine(p), sharding={devices=[2]<>}
}
ENTRY e {
  c = pred[] parameter(0)
  p = f32[4] parameter(1)
  ROOT w = f32[4] conditional(c, p, p), true_computation=yes, false_computation=no
}
"""

PAIRS = [
    case(
        "tiles cut each dimension",
        "{devices=<>0,1}",
        "[2,1]",
        "[2]",
        "the grid [2] cuts 1 dimensions, the shape has 2",
    ),
    case(
        "tiles cut no dimension that is not there",
        "{devices=<>0,1,2,3}",
        "[2,2]",
        "[1,2,2,1]",
        "the grid [1,2,2,1] cuts 4 dimensions, the shape has 2",
    ),
    case(
        "the last tile dimension may be of replicas",
        "{devices=[1,2,2]<=[4]<>}",
        " last_tile_dim_replicate",
        "",
        "the grid [1,2,2] cuts 3 dimensions, the shape has 2",
    ),
    case(
        "last tile dimensions may be of subgroups",
        "{devices=[2,1,2,2]<=[8] last_tile_dims={manual<>}}",
        ", replicated",
        "",
        "the grid [2,1,2,2] cuts 3 dimensions, the shape has 2",
    ),
    case(
        "there is one way to say what the last dimensions are",
        "{devices=[2,1,2]<=[4] <>last_tile_dims={manual}}",
        "",
        "last_tile_dim_replicate ",
        "last_tile_dim_replicate and last_tile_dims= exclude each other",
    ),
    case(
        "each tile has a device",
        "{devices=[2,2]0,1,2<>}",
        ",3",
        "",
        "the grid [2,2] has 4 tiles, 3 devices are listed",
    ),
    case(
        "an iota has a device for each tile",
        "{devices=[2,2]<=[<>]}",
        "4",
        "8",
        "the grid [2,2] has 4 tiles, the iota has 8 devices",
    ),
    case(
        "an iota permutes its dimensions",
        "{devices=[2,2]<=[2,2]T(1,<>)}",
        "0",
        "2",
        "T(1,2) is not a permutation of rank 2",
    ),
    case("a device has one tile", "{devices=[2,1]0,<>}", "1", "0", "device 0 is listed twice"),
    case("a tile's device is one", "{devices=[2,1]0,<>}", "1", "-1", "device -1 is negative"),
    case("a device is not negative", "{maximal device=<>}", "0", "-1", "device -1 is negative"),
    case(
        "tiles have sizes",
        "{devices=[1,<>]<=[2]}",
        "2",
        "0",
        "the grid [1,0] has a size that is not positive",
    ),
    case(
        "a tuple's leaves have a sharding each",
        "{{devices=[2,1]<=[2]}<>}",
        ", {replicated}",
        "",
        "it has 1 elements, (f32[4,8], f32[]) has 2 leaves",
        TUPLE,
    ),
    case(
        "each leaf's sharding fits it",
        "{{devices=[2,1]<=[2]}, {<>}}",
        "replicated",
        "devices=[2]<=[2]",
        "leaf 1: the grid [2] cuts 1 dimensions, the shape has 0",
        TUPLE,
    ),
    case(
        "one sharding for a tuple fits each leaf",
        "{<>}",
        "replicated",
        "devices=[2,1]<=[2]",
        "the grid [2,1] cuts 2 dimensions, the shape has 0",
        TUPLE,
    ),
    case(
        "an array has no tuple's sharding",
        "<>",
        "{replicated}",
        "{{replicated}}",
        "it is for a tuple, the shape is f32[4,8]",
    ),
    case(
        "a mesh cuts each dimension",
        "{mesh['x'=2,'y'=2], [{'x'}<>]}",
        ", {'y'}",
        "",
        "it cuts 1 dimensions, the shape has 2",
    ),
    case(
        "axes are those of the mesh",
        "{mesh['x'=2,'y'=2], [{'x'}, {'<>'}]}",
        "y",
        "z",
        "the mesh has no axis 'z'",
    ),
    case(
        "an axis is used once",
        "{mesh['x'=2,'y'=2], [{'x'}, {?}], replicated={'<>'}}",
        "y",
        "x",
        "the axis 'x' is used twice",
    ),
    case(
        "parts of an axis do not overlap",
        "{mesh['x'=8], [{'x':(1)2}, {'x':(<>)2}]}",
        "2",
        "1",
        "the axis 'x' is used twice",
    ),
    case(
        "parts of an axis divide it",
        "{mesh['x'=8], [{'x':(1)2}, {'x':(2)<>}]}",
        "4",
        "3",
        "'x':(2)3 is not a part of the axis, whose size is 8",
    ),
    case(
        "a mesh names an axis once",
        "{mesh['x'=2,'<>'=2], [{'x'}, {}]}",
        "y",
        "x",
        "the mesh has the axis 'x' twice",
    ),
    case(
        "a mesh has all its devices",
        "{mesh['x'=2,'y'=2,device_ids=(3,2,1<>)], [{'x'}, {'y'}]}",
        ",0",
        "",
        "the mesh has 4 positions, 3 devices are listed",
    ),
    case(
        "a mesh has each device once",
        "{mesh['x'=2,'y'=2,device_ids=(3,2,1,<>)], [{'x'}, {'y'}]}",
        "0",
        "1",
        "device 1 is listed twice",
    ),
    Pair(
        "a loop is sharded like its state",
        "sharding-agreement",
        LOOP,
        "{ devices=[2]<=[2] }",
        "{replicated}",
        15,
        "%w: %w has sharding={{replicated}, {replicated}}, %p has {{replicated}, "
        "{devices=[2]<=[2]}}; they must agree",
    ),
    Pair(
        "branches are sharded alike",
        "sharding-agreement",
        BRANCHES,
        "<=[2]",
        "1,0",
        13,
        '%w: %n has sharding={devices=[2]<=[2] metadata={op_name="n"}}, %n has {devices=[2]1,0}; '
        "they must agree",
    ),
]


@pytest.mark.parametrize("pair", PAIRS, ids=[pair.name for pair in PAIRS])
def test_shardings(pair: Pair) -> None:
    """The neighbour passes, the broken text is refused by name and line."""
    check_pair(pair)


@pytest.mark.parametrize("sharding", ["{manual}", "{unknown}", "{unreduced}", "{replicated}"])
def test_what_says_nothing_of_tiles_fits_everything(sharding: str) -> None:
    """Words fit each shape; a device that is listed twice shows that the check is there."""
    check_pair(
        Pair(
            "words",
            "sharding",
            on("<>", "token[]").replace("token[]", "f32[2]"),
            sharding,
            "{devices=[2]1,1}",
            3,
            "%p: sharding={devices=[2]1,1}: device 1 is listed twice",
        )
    )
