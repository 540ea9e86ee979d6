"""Live ranges and peaks of buffers."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.analysis.liveness import largest_buffers, live_ranges, peak


def _ranges(text: str) -> dict[str, tuple[int, int]]:
    buffers = live_ranges(hloopt.parse(text).entry)
    return {
        buffer.instruction.name + "".join(f".{at}" for at in buffer.index): (
            buffer.start,
            buffer.end,
        )
        for buffer in buffers
    }


def test_a_buffer_lives_to_its_last_use() -> None:
    """Parameters live throughout, results to the end, temporaries from definition to last use."""
    text = """HloModule m
ENTRY e {
  p = f32[4] parameter(0)
  a = f32[4] negate(p)
  b = f32[4] add(a, a)
  c = f32[4] add(a, b)
  ROOT d = f32[4] negate(c)
}
"""
    expected = {"p": (0, 4), "a": (1, 3), "b": (2, 3), "c": (3, 4), "d": (4, 4)}
    assert _ranges(text) == expected


def test_tuples_and_bitcasts_own_no_buffer() -> None:
    """A use through tuple, get-tuple-element or bitcast keeps the element's buffer alive."""
    text = """HloModule m
ENTRY e {
  p = f32[4] parameter(0)
  a = f32[4] negate(p)
  b = f32[4] negate(p)
  t = (f32[4], f32[4]) tuple(a, b)
  g = f32[4] get-tuple-element(t), index=1
  h = f32[2,2] bitcast(g)
  c = f32[4] negate(p)
  ROOT d = f32[2,2] negate(h)
}
"""
    expected = {"p": (0, 7), "a": (1, 1), "b": (2, 7), "c": (6, 6), "d": (7, 7)}
    assert _ranges(text) == expected


LOOP = """HloModule m
cond { s = (s32[], f32[256]) parameter(0) i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(10) ROOT c = pred[] compare(i, n), direction=LT }
body { s = (s32[], f32[256]) parameter(0) i = s32[] get-tuple-element(s), index=0
  x = f32[256] get-tuple-element(s), index=1 k = s32[] constant(1) j = s32[] add(i, k)
  y = f32[256] exponential(x) z = f32[256] add(x, y) ROOT r = (s32[], f32[256]) tuple(j, z) }
ENTRY e { x = f32[256] parameter(0) q = s32[] constant(0) a = f32[256] negate(x)
  t = (s32[], f32[256]) tuple(q, a) w = (s32[], f32[256]) while(t), condition=cond, body=body
  ROOT g = f32[256] get-tuple-element(w), index=1 }
"""


def test_a_loop_works_in_the_buffers_of_its_initial_state() -> None:
    """The while has none of its own; its body's temporaries count at the while."""
    module = hloopt.parse(LOOP)
    names = {buffer.instruction.name for buffer in live_ranges(module.entry)}
    assert names == {"x", "q", "a"}
    highest = peak(module.entry)
    assert highest.instruction is module.entry.by_name["w"]
    assert highest.called_bytes == 2048 + 4
    assert highest.byte_size == 2048 + 4 + highest.called_bytes


def test_the_largest_buffers_come_first() -> None:
    """Entry and loop bodies together; state that is passed in counts once, at its owner."""
    found = [buffer.instruction.name for buffer in largest_buffers(hloopt.parse(LOOP), 4)]
    assert sorted(found) == ["a", "x", "y", "z"]


def test_results_of_calls_are_leaves() -> None:
    """A multi-output op owns one buffer an element."""
    text = """HloModule m
less { a = f32[] parameter(0) b = f32[] parameter(1) c = s32[] parameter(2) d = s32[] parameter(3)
  ROOT l = pred[] compare(a, b), direction=LT }
ENTRY e {
  k = f32[8] parameter(0)
  v = s32[8] parameter(1)
  s = (f32[8], s32[8]) sort(k, v), dimensions={0}, to_apply=less
  ROOT g = s32[8] get-tuple-element(s), index=1
}
"""
    assert _ranges(text) == {"k": (0, 3), "v": (0, 3), "s.0": (2, 2), "s.1": (2, 3)}


NESTED = """HloModule m{alias}
inner {{
  x = f32[256] parameter(0)
  ROOT y = f32[256] cosine(x)
}}
outer {{
  x = f32[256] parameter(0)
  a = f32[256] sine(x)
  ROOT y = f32[256] call(a), to_apply=inner
}}
ENTRY e {{
  x = f32[256] parameter(0)
  ROOT y = f32[256] call(x), to_apply=outer
}}
"""


def test_results_of_calls_are_the_callers_buffers() -> None:
    """They count once, however deep the calls are: the parameter, the result, one temporary."""
    module = hloopt.parse(NESTED.format(alias=""))
    assert peak(module.entry).byte_size == 3 * 1024
    assert [entry.byte_size for entry in largest_buffers(module)] == [1024] * 3


STEP = """HloModule m{alias}
ENTRY e {{
  p = f32[256] parameter(0)
  g = f32[256] parameter(1)
  {last}
}}
"""
ELEMENTWISE = "ROOT new = f32[256] subtract(p, g)"
REVERSED = "ROOT new = f32[256] reverse(p), dimensions={0}"
AFTERWARDS = "r = f32[256] reverse(p), dimensions={0}\n  ROOT new = f32[256] subtract(r, g)"
DONATED = ", input_output_alias={ {}: (0, {}, may-alias) }"


@pytest.mark.parametrize(
    ("alias", "last", "buffers"),
    [
        ("", ELEMENTWISE, 3),
        (DONATED, ELEMENTWISE, 2),
        ("", AFTERWARDS, 4),
        (DONATED, AFTERWARDS, 3),
        (DONATED, REVERSED, 3),
    ],
)
def test_results_take_the_buffers_of_donated_parameters(
    alias: str, last: str, buffers: int
) -> None:
    """Where the parameter is no longer needed, or read element by element; else they are made beside it."""
    module = hloopt.parse(STEP.format(alias=alias, last=last))
    assert peak(module.entry).byte_size == buffers * 1024


def test_what_is_started_leaves_its_operand_where_it_is() -> None:
    """A copy that runs beside other work has one new buffer: where it goes."""
    module = hloopt.parse(
        "HloModule m\nENTRY e {\n  x = f32[256] parameter(0)\n"
        "  s = (f32[256], f32[256], u32[]) copy-start(x)\n  ROOT d = f32[256] copy-done(s)\n}\n"
    )
    assert peak(module.entry).byte_size == 2 * 1024 + 4
