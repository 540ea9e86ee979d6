"""Buffers: each constraint broken, and its valid neighbour."""

from __future__ import annotations

import pytest

from tests.helpers.neighbours import Pair, check_pair

ONE_TO_ONE = "output_to_operand_aliasing={{}: (0, {})}"
WRITE = f'custom_call_target="w", {ONE_TO_ONE}'


def pinned(lines: str, array: str = "f32[4]") -> str:
    """An array that is pinned as %b in line 4; %p is the array."""
    return (
        f"HloModule m\nENTRY e {{\n  p = {array} parameter(0)\n"
        f'  b = b(f32[4]) custom-call(p), custom_call_target="Pin", {ONE_TO_ONE}\n{lines}\n}}'
    )


def unpinned(buffer: str) -> str:
    """The end of a buffer."""
    return f'  ROOT r = f32[4] custom-call({buffer}), custom_call_target="Unpin", {ONE_TO_ONE}'


LOOP = """
HloModule m
body {
  s = (s32[], b(f32[4])) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  b = b(f32[4]) get-tuple-element(s), index=1
  w = b(f32[4]) custom-call(b), custom_call_target="w", output_to_operand_aliasing={{}: (0, {})}
  ROOT r = (s32[], b(f32[4])) tuple(i, <>)
}
condition {
  s = (s32[], b(f32[4])) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  ROOT c = pred[] compare(i, i), direction=LT
}
ENTRY e {
  i = s32[] parameter(0)
  b = b(f32[4]) custom-call(), custom_call_target="CreateBuffer"
  t = (s32[], b(f32[4])) tuple(i, b)
  l = (s32[], b(f32[4])) while(t), condition=condition, body=body
  x = b(f32[4]) get-tuple-element(l), index=1
  ROOT r = f32[4] custom-call(x), custom_call_target="Unpin", output_to_operand_aliasing={{}: (0, {})}
}
"""

PAIRS = [
    Pair(
        "a buffer has one writer",
        "buffer",
        pinned(
            f"  v = b(f32[4]) custom-call(b), {WRITE}\n  w = b(f32[4]) custom-call(<>), {WRITE}\n"
            + unpinned("w")
        ),
        "v",
        "b",
        4,
        "%b: the buffer {} has 2 writers, not one",
    ),
    Pair(
        "a buffer has one writer through tuples",
        "buffer",
        pinned(
            "  t = (f32[4], b(f32[4])) tuple(p, b)\n"
            "  x = b(f32[4]) get-tuple-element(t), index=1\n"
            f"  v = b(f32[4]) custom-call(x), {WRITE}\n" + unpinned("<>")
        ),
        "v",
        "b",
        4,
        "%b: the buffer {} has 2 writers, not one",
    ),
    Pair(
        "a loop passes on what was written",
        "buffer",
        LOOP,
        "w",
        "b",
        3,
        "%s: the buffer {1} has 2 writers, not one",
    ),
    Pair(
        "only some ops take buffers",
        "buffer",
        pinned("<>" + unpinned("b")),
        "  y = f32[4] negate(p)\n",
        "  y = b(f32[4]) copy(b)\n",
        5,
        "%y: copy takes and gives no buffers",
    ),
    Pair(
        "the entry takes no buffers",
        "buffer",
        "HloModule m\nENTRY e {\n  p = <> parameter(0)\n  ROOT c = f32[] constant(0)\n}",
        "f32[4]",
        "b(f32[4])",
        3,
        "%p: has shape b(f32[4]); the entry takes no buffers",
    ),
    Pair(
        "a custom call gives back each buffer",
        "buffer",
        pinned(f'  w = b(f32[4]) custom-call(b), custom_call_target="w"<>\n{unpinned("w")}'),
        f", {ONE_TO_ONE}",
        "",
        5,
        "%w: the buffer {} of operand 0 must be one result by output_to_operand_aliasing=, it is 0",
    ),
    Pair(
        "a custom call makes no buffer",
        "buffer",
        "HloModule m\nENTRY e {\n  p = f32[4] parameter(0)\n"
        f"  w = b(f32[4]) custom-call(<>\n{unpinned('w')}\n}}",
        '), custom_call_target="CreateBuffer"',
        'p), custom_call_target="w"',
        4,
        "%w: the buffer {} of the result must be one operand by output_to_operand_aliasing=, it is 0",
    ),
    Pair(
        "what creates a buffer takes nothing",
        "buffer",
        "HloModule m\nENTRY e {\n  p = f32[4] parameter(0)\n"
        f'  w = b(f32[4]) custom-call(<>), custom_call_target="CreateBuffer"\n{unpinned("w")}\n}}',
        "",
        "p",
        4,
        "%w: CreateBuffer takes no operands, not 1",
    ),
    Pair(
        "what creates a buffer gives one",
        "buffer",
        "HloModule m\nENTRY e {\n  w = b(f32[4]) custom-call(), "
        'custom_call_target="CreateBuffer"\n'
        '  v = <> custom-call(), custom_call_target="CreateBuffer"\n'
        f"{unpinned('w')}\n}}",
        "b(s32[])",
        "(b(s32[]))",
        4,
        "%v: CreateBuffer gives (b(s32[])), not a buffer",
    ),
    Pair(
        "what is unpinned is a buffer",
        "buffer",
        pinned(
            '  c = f32[4] custom-call(<>), custom_call_target="Unpin"'
            f", {ONE_TO_ONE}\n  ROOT n = f32[4] negate(c)"
        ),
        "b",
        "p",
        5,
        "%c: Unpin makes f32[4] to f32[4], not a buffer to an array",
    ),
    Pair(
        "what is unpinned is one operand",
        "buffer",
        pinned('  ROOT r = f32[4] custom-call(b), custom_call_target="Unpin"<>'),
        f", {ONE_TO_ONE}",
        "",
        5,
        "%r: Unpin has one pair in output_to_operand_aliasing=, not 0",
    ),
]


@pytest.mark.parametrize("pair", PAIRS, ids=[pair.name for pair in PAIRS])
def test_buffers(pair: Pair) -> None:
    """The neighbour passes, the broken text is refused by name and line."""
    check_pair(pair)
