"""Reductions and transposes in physical form, and the heroes of fusion bodies."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.analysis.hero import find_hero, is_real_reduction_hero, roots
from hloopt.analysis.layout import transpose_is_bitcast
from hloopt.analysis.reduction import ReductionDims, is_race_free, is_unnested, reduction_dims
from hloopt.analysis.transpose import tiled_transpose
from hloopt.ir import Instruction

SUM = "sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n"


def _entry(body: str) -> dict[str, Instruction]:
    return hloopt.parse(f"HloModule m\n{SUM}ENTRY e {{\n{body}\n}}\n").entry.by_name


def _reduce(source: str, dimensions: str, result: str) -> Instruction:
    return _entry(
        f"p = f32{source} parameter(0)\nz = f32[] constant(0)\n"
        f"ROOT r = f32{result} reduce(p, z), dimensions={dimensions}, to_apply=sum"
    )["r"]


@pytest.mark.parametrize(
    ("source", "dimensions", "result", "expected"),
    [
        ("[4,8]{1,0}", "{0,1}", "[]", ReductionDims(True, (1, 1, 32))),
        ("[4,8]{1,0}", "{1}", "[4]{0}", ReductionDims(True, (1, 4, 8))),
        ("[4,8]{1,0}", "{0}", "[8]{0}", ReductionDims(False, (1, 4, 8))),
        ("[4,8]{0,1}", "{0}", "[8]{0}", ReductionDims(True, (1, 8, 4))),
        ("[2,3,4]{2,1,0}", "{0,2}", "[3]{0}", ReductionDims(True, (2, 3, 4))),
        ("[2,3,4]{2,1,0}", "{1}", "[2,4]{1,0}", ReductionDims(False, (2, 3, 4))),
        ("[2,3,4,5]{3,2,1,0}", "{0,2}", "[3,5]{1,0}", None),
    ],
)
def test_reduction_dims(
    source: str, dimensions: str, result: str, expected: ReductionDims | None
) -> None:
    """Kept and reduced dimensions are merged in physical order."""
    assert reduction_dims(_reduce(source, dimensions, result)) == expected


@pytest.mark.parametrize(
    ("source", "dimensions", "result", "unnested", "race_free"),
    [
        ("[4,32]{1,0}", "{1}", "[4]{0}", True, True),
        ("[4,16]{1,0}", "{1}", "[4]{0}", True, True),
        ("[4,31]{1,0}", "{1}", "[4]{0}", False, True),
        ("[4,16384]{1,0}", "{1}", "[4]{0}", True, True),
        ("[4,16385]{1,0}", "{1}", "[4]{0}", True, False),
        ("[9,4,32]{2,1,0}", "{0,2}", "[4]{0}", True, False),
        ("[31,64]{1,0}", "{0}", "[64]{0}", False, True),
        ("[32,64]{1,0}", "{0}", "[64]{0}", True, True),
        ("[32,31]{1,0}", "{0}", "[31]{0}", False, True),
        ("[127,7]{1,0}", "{0}", "[7]{0}", False, True),
        ("[128,7]{1,0}", "{0}", "[7]{0}", True, True),
        ("[255,2]{1,0}", "{0}", "[2]{0}", False, True),
        ("[256,2]{1,0}", "{0}", "[2]{0}", True, True),
        ("[4097,64]{1,0}", "{0}", "[64]{0}", True, False),
    ],
)
def test_which_reductions_get_a_kernel(
    source: str, dimensions: str, result: str, unnested: bool, race_free: bool
) -> None:
    """The bounds on each side."""
    reduce = _reduce(source, dimensions, result)
    assert is_unnested(reduce) == unnested
    assert is_race_free(reduce) == race_free


@pytest.mark.parametrize(
    ("kind", "source", "permutation", "result", "expected"),
    [
        ("f32", "[64,64]", "{1,0}", "[64,64]", (64, 64)),
        ("f32", "[16,16]", "{1,0}", "[16,16]", (16, 16)),
        ("f32", "[15,64]", "{1,0}", "[64,15]", None),
        ("f32", "[8,1024]", "{1,0}", "[1024,8]", (1024, 8)),
        ("f32", "[8,1023]", "{1,0}", "[1023,8]", None),
        ("f32", "[2,64,64]", "{0,2,1}", "[2,64,64]", (2, 64, 64)),
        ("f32", "[1,64,1,64]", "{3,2,1,0}", "[64,1,64,1]", (64, 64)),
        ("f32", "[8,16,64]", "{2,0,1}", "[64,8,16]", (64, 128)),
        ("f32", "[64,64]", "{0,1}", "[64,64]", None),
        ("f32", "[64,64,2]", "{1,0,2}", "[64,64,2]", (64, 64, 2)),
        ("f32", "[64,64,3]", "{1,0,2}", "[64,64,3]", None),
        ("f32", "[64,1,2]", "{1,0,2}", "[1,64,2]", None),
        ("bf16", "[64,64]", "{1,0}", "[64,64]", (64, 64)),
    ],
)
def test_tiled_transposes(
    kind: str, source: str, permutation: str, result: str, expected: tuple[int, ...] | None
) -> None:
    """Merged dimensions, and the least sizes."""
    transpose = _entry(
        f"p = {kind}{source} parameter(0)\n"
        f"ROOT t = {kind}{result} transpose(p), dimensions={permutation}"
    )["t"]
    found = tiled_transpose(transpose)
    assert (found.dims if found else None) == expected


def test_shared_memory_of_tiles() -> None:
    """32 by 33 elements; packed types fill a square of 32 banks of 32 bits."""
    plain = _entry(
        "p = f32[64,64] parameter(0)\nROOT t = f32[64,64] transpose(p), dimensions={1,0}"
    )
    packed = _entry(
        "p = s8[256,256] parameter(0)\nROOT t = s8[256,256] transpose(p), dimensions={1,0}"
    )
    wide = tiled_transpose(plain["t"])
    narrow = tiled_transpose(packed["t"])
    assert wide is not None
    assert narrow is not None
    assert wide.shared_bytes == 32 * 33 * 4
    assert narrow.shared_bytes == 32 * 4 * 32 * 4


def test_a_transpose_between_matching_layouts_is_a_bitcast() -> None:
    """The result's layout undoes the permutation."""
    names = _entry(
        "p = f32[4,8]{1,0} parameter(0)\n"
        "a = f32[8,4]{0,1} transpose(p), dimensions={1,0}\n"
        "ROOT b = f32[8,4]{1,0} transpose(p), dimensions={1,0}"
    )
    assert transpose_is_bitcast(names["a"])
    assert not transpose_is_bitcast(names["b"])


def _fusion_hero(body: str, operands: str, shapes: str) -> tuple[str, bool]:
    text = f"HloModule m\n{SUM}f {{\n{body}\n}}\nENTRY e {{\n{shapes}\n"
    module = hloopt.parse(
        f"{text}ROOT x = f32[64]{{0}} fusion({operands}), kind=kInput, calls=f\n}}\n"
    )
    computation = module.entry.root.attributes["calls"]
    (root,) = roots(computation)
    hero = find_hero(root)
    return hero.name, is_real_reduction_hero(root, hero)


def test_a_reduction_behind_elementwise_ops_is_the_hero() -> None:
    """negate(reduce) has the reduce as hero."""
    hero = _fusion_hero(
        "p = f32[64,64]{1,0} parameter(0)\nz = f32[] constant(0)\n"
        "r = f32[64]{0} reduce(p, z), dimensions={1}, to_apply=sum\n"
        "ROOT n = f32[64]{0} negate(r)",
        "a",
        "a = f32[64,64]{1,0} parameter(0)",
    )
    assert hero == ("r", True)


def test_two_operands_end_the_walk_to_a_reduction() -> None:
    """add(reduce, p) is not looked through."""
    hero = _fusion_hero(
        "p = f32[64,64]{1,0} parameter(0)\nq = f32[64]{0} parameter(1)\nz = f32[] constant(0)\n"
        "r = f32[64]{0} reduce(p, z), dimensions={1}, to_apply=sum\n"
        "ROOT n = f32[64]{0} add(r, q)",
        "a, b",
        "a = f32[64,64]{1,0} parameter(0)\nb = f32[64]{0} parameter(1)",
    )
    assert hero == ("n", False)


def test_a_single_transpose_is_found_through_three_operands() -> None:
    """select(pred, transpose, q) keeps the transpose as hero; two transposes give none."""
    body = (
        "c = pred[32,64] parameter(0)\np = f32[64,32] parameter(1)\nq = f32[32,64] parameter(2)\n"
        "t = f32[32,64] transpose(p), dimensions={1,0}\n"
        "ROOT s = f32[32,64] select(c, t, q)"
    )
    text = (
        f"HloModule m\nf {{\n{body}\n}}\nENTRY e {{\nc = pred[32,64] parameter(0)\n"
        "p = f32[64,32] parameter(1)\nq = f32[32,64] parameter(2)\n"
        "ROOT x = f32[32,64] fusion(c, p, q), kind=kInput, calls=f\n}\n"
    )
    computation = hloopt.parse(text).entry.root.attributes["calls"]
    assert find_hero(computation.root).name == "t"
    twice = text.replace(
        "ROOT s = f32[32,64] select(c, t, q)",
        "u = f32[32,64] transpose(p), dimensions={1,0}\nROOT s = f32[32,64] select(c, t, u)",
    )
    computation = hloopt.parse(twice).entry.root.attributes["calls"]
    assert find_hero(computation.root).name == "s"


@pytest.mark.parametrize("element", ["u8", "f32"])
def test_a_transpose_of_nothing_has_no_tiles(element: str) -> None:
    """Where a dimension is 0 there is nothing to move through shared memory."""
    transpose = _entry(
        f"p = {element}[0,3]{{1,0}} parameter(0)\n"
        f"ROOT t = {element}[3,0]{{1,0}} transpose(p), dimensions={{1,0}}"
    )["t"]
    assert tiled_transpose(transpose) is None
