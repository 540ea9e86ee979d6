"""Copies of fusions have bodies of their own, whichever pass makes them."""

from __future__ import annotations

from hloopt.passes.call_inliner import CallInliner
from tests.passes.proof import check

TWICE = """HloModule m
f { a = f32[4] parameter(0) ROOT b = f32[4] tanh(a) }
g { a = f32[4] parameter(0) ROOT b = f32[4] fusion(a), kind=kLoop, calls=f }
ENTRY e { x = f32[4] parameter(0) a = f32[4] call(x), to_apply=g ROOT b = f32[4] call(a), to_apply=g }
"""


def test_a_call_that_is_inlined_twice_leaves_two_fusions_with_a_body_each() -> None:
    """And no body that nobody calls."""
    module, _ = check(TWICE, CallInliner())
    fusions = [one for one in module.entry if one.opcode == "fusion"]
    bodies = {one.attributes["calls"] for one in fusions}
    assert len(bodies) == len(fusions) == len(module.computations) - 1 == 2
