"""What a plan needs memory for is what XLA's assignment says, by line and shape; what fusion saves is named."""

from __future__ import annotations

import json

import pytest

import hloopt

_DISTANCES = """HloModule distances
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
ENTRY main {
  x = f32[4000] parameter(0)
  y = f32[5000] parameter(1)
  xs = f32[4000,5000] broadcast(x), dimensions={0}
  ys = f32[4000,5000] broadcast(y), dimensions={1}
  d = f32[4000,5000] subtract(xs, ys), metadata={source_file="near.py" source_line=7}
  q = f32[4000,5000] multiply(d, d), metadata={source_file="near.py" source_line=8}
  zero = f32[] constant(0)
  ROOT r = f32[4000] reduce(q, zero), dimensions={1}, to_apply=add
}
"""
_STEPS = """HloModule steps, is_scheduled=true
ENTRY main {
  x = f32[1000000] parameter(0)
  a = f32[1000000] sine(x), metadata={source_file="steps.py" source_line=3}
  b = f32[1000000] cosine(x), metadata={source_file="steps.py" source_line=3}
  c = f32[500000] slice(a), slice={[0:500000]}, metadata={source_file="steps.py" source_line=4}
  d = f32[500000] slice(b), slice={[0:500000]}, metadata={source_file="steps.py" source_line=4}
  ROOT r = f32[500000] add(c, d), metadata={source_file="steps.py" source_line=5}
}
"""


def test_arrays_that_fusion_keeps_out_of_memory_are_named() -> None:
    """With their lines and the bytes of each; the plan needs far less."""
    found = hloopt.why(hloopt.parse(_DISTANCES), kinds=["order"])
    written = found.peak.written
    assert written is not None
    assert written.names == ("d", "q")
    assert written.shape == "f32[4000,5000]"
    assert written.lines == ("near.py:7", "near.py:8")
    assert written.byte_size == 80_000_000 > found.peak_bytes


def test_a_plan_that_writes_the_arrays_names_none_as_saved() -> None:
    """They are alive at the peak then."""
    text = _DISTANCES.replace("ROOT r = f32[4000]", "r = f32[4000]").replace(
        "to_apply=add\n}", "to_apply=add\n  ROOT both = (f32[4000], f32[4000,5000]) tuple(r, q)\n}"
    )
    found = hloopt.why(hloopt.parse(text), kinds=["order"])
    assert found.peak.written is None
    assert found.peak.arrays[0].shape == "f32[4000,5000]"
    assert found.peak.arrays[0].kind == "result"
    assert found.peak.arrays[0].line == "near.py:8"


def test_the_peak_is_that_of_stats() -> None:
    """The same bytes, at the same instruction; arrays of one line and shape together."""
    module = hloopt.parse(_STEPS)
    found, stats = hloopt.why(module, kinds=["order"]), hloopt.stats(module, target="h200")
    assert found.peak_bytes == stats.memory.byte_size
    assert found.peak.at == stats.memory.at == "c"
    first = found.peak.arrays[0]
    assert (first.names, first.line, first.byte_size) == (("a", "b"), "steps.py:3", 8_000_000)
    made = json.loads(json.dumps(found.to_json()))["peak"]
    assert made["arrays"][0]["names"] == ["a", "b"]
    assert made["kept_out_of_memory"] is None


def test_a_donated_argument_that_is_read_after_its_result_saves_nothing() -> None:
    """Copy insertion copies it then: the promise is what is left."""
    found = hloopt.why(
        hloopt.parse("""HloModule late, is_scheduled=true
ENTRY main {
  x = f32[1000000] parameter(0)
  a = f32[1000000] reverse(x), dimensions={0}
  b = f32[1000000] reverse(a), dimensions={0}
  c = f32[1000000] add(b, x)
  ROOT r = (f32[1000000], f32[1000000]) tuple(a, c)
}
"""),
        kinds=["not-donated"],
    )
    for row in found.rows:
        assert row.gain.after >= 8_000_000


_TWICE = """HloModule twice, is_scheduled=true
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT l = pred[] compare(a, b), direction=LT }
ENTRY main {
  p = f32[] parameter(0)
  zero = f32[] constant(0)
  s = f32[1000000] broadcast(p), dimensions={}
  one = f32[] reduce(s, zero), dimensions={0}, to_apply=add
  m = f32[1000000] broadcast(one), dimensions={}
  n = f32[1000000] sort(m), dimensions={0}, to_apply=less
  t = f32[1000000] sine(n)
  u = f32[] reduce(t, zero), dimensions={0}, to_apply=add
  ROOT r = f32[] reduce(LATE, u), dimensions={0}, to_apply=add
}
"""


@pytest.mark.parametrize(("late", "saves"), [("s", True), ("t", False)])
def test_a_value_read_before_and_after_the_peak_is_computed_again(late: str, saves: bool) -> None:
    """In a plan that is ordered already; where nothing reads it again, there is nothing to save."""
    found = hloopt.why(hloopt.parse(_TWICE.replace("LATE", late)), kinds=["kept"]).rows
    assert [row.instruction for row in found] == ["s"] * saves
    for row in found:
        assert row.gain.before - row.gain.after >= 4_000_000
        assert row.gain.verdict == "equal"
