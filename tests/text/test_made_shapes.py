"""Shapes that are made, whatever is written, as in XLA's parser."""

from __future__ import annotations

import pytest

from hloopt.text.parser import parse_module
from hloopt.verifier import verify_module

TEXT = """HloModule m
ENTRY e {
  x = f32[4,2]{0,1} parameter(0)
  t = token[] after-all()
  s = %s send(x, t), channel_id=1
  sd = %s send-done(s), channel_id=1
  r = (f32[2], u32[], token[]) recv(t), channel_id=2
  rd = %s recv-done(r), channel_id=2
  o = %s outfeed(x, rt)
}
"""
MADE = (
    "(f32[4,2]{0,1}, u32[], token[])",
    "token[]",
    "(f32[2], token[])",
    "token[]",
)


def text(*shapes: str) -> str:
    return (TEXT % shapes).replace("outfeed(x, rt)", "outfeed(x, t)")


def test_right_shapes_are_taken() -> None:
    """Nothing is said of a shape that is the one XLA makes."""
    module = parse_module(text(*MADE), strict=True)
    verify_module(module)
    assert not module.warnings


@pytest.mark.parametrize(
    ("index", "written"),
    [
        (0, "(f32[4,2], u32[], token[])"),
        (0, "(f32[9], u32[], token[])"),
        (1, "(f32[4,2]{0,1}, token[])"),
        (2, "(f32[3], token[])"),
        (3, "()"),
    ],
)
def test_other_shapes_are_made(index: int, written: str) -> None:
    """A warning at the instruction's name tells what the shape is read as."""
    shapes = [*MADE]
    shapes[index] = written
    module = parse_module(text(*shapes), strict=True)
    verify_module(module)
    name = ("s", "sd", "rd", "o")[index]
    instruction = module.entry.by_name[name]
    assert str(instruction.shape) == MADE[index]
    assert module.warnings == [
        (
            instruction.offset,
            f"the shape of {name!r} is read as {MADE[index]}: XLA takes it from the operands",
        )
    ]
    assert parse_module(module.to_text()).warnings == []


@pytest.mark.parametrize("written", ["(f32[2], token[])", "(f32[2], u32[8], token[])", "(f32[2])"])
def test_a_receive_takes_its_data_from_what_is_written(written: str) -> None:
    """Context and token are XLA's own."""
    module = parse_module(
        f"e {{ t = token[] parameter(0) r = {written} recv(t), channel_id=1 "
        "d = (f32[2], token[]) recv-done(r), channel_id=1 }"
    )
    verify_module(module)
    assert str(module.entry.by_name["r"].shape) == "(f32[2], u32[], token[])"
    assert len(module.warnings) == 1


def test_a_state_that_is_none_is_left_to_the_verifier() -> None:
    """A recv-done of an array has no shape that could be made."""
    module = parse_module("e { x = f32[2] parameter(0) d = f32[2] recv-done(x), channel_id=1 }")
    assert str(module.entry.by_name["d"].shape) == "f32[2]"
    assert not module.warnings


@pytest.mark.parametrize(
    ("instruction", "made"),
    [
        ("transpose(x), dimensions={1,0}", "f32[2,4]{0,1}"),
        ("transpose(y), dimensions={1,0}", "f32[2,4]{1,0}"),
        ("transpose(tiled), dimensions={1,0}", "f32[2,4]{1,0}"),
        ("transpose(deep), dimensions={2,0,1}", "f32[5,2,3]{1,0,2}"),
        ("reverse(y), dimensions={0}", "f32[4,2]{0,1}"),
        ("select(p, x, y)", "f32[4,2]{0,1}"),
        ("select(one, x, y)", "f32[4,2]"),
        ("select(p, tiled, x)", "f32[4,2]{0,1:T(2,2)}"),
        ("add(x, y)", "f32[4,2]"),
    ],
)
def test_an_inferred_layout_is_xlas(instruction: str, made: str) -> None:
    """A transpose moves no byte, a reverse is laid out as its operand, a select as its predicate."""
    module = parse_module(
        "e { x = f32[4,2] parameter(0) y = f32[4,2]{0,1} parameter(1)"
        " tiled = f32[4,2]{1,0:T(2,2)} parameter(2) deep = f32[2,3,5]{0,2,1} parameter(3)"
        f" p = pred[4,2]{{0,1}} parameter(4) one = pred[] parameter(5) ROOT r = {instruction} }}"
    )
    assert str(module.entry.root.shape) == made
