"""Loops that do not end, as the executor finds them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import hloopt
from hloopt.errors import EvaluationError

LOOP = """HloModule m

body {{
  s = (s32[], {state}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = {state} get-tuple-element(s), index=1
  limit = s32[] constant({limit})
  one = s32[] constant(1)
  next = s32[] add(i, one)
  held = s32[] minimum(next, limit)
  zero = s32[] constant(0)
  part = {part} slice(x), slice={{[0:1]}}
  y = {state} dynamic-update-slice(x, part, zero)
  ROOT r = (s32[], {state}) tuple(held, y)
}}

condition {{
  s = (s32[], {state}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  limit = s32[] constant({end})
  ROOT c = pred[] compare(i, limit), direction=LT
}}

ENTRY e {{
  zero = s32[] constant(0)
  x = {state} parameter(0)
  start = (s32[], {state}) tuple(zero, x)
  ROOT w = (s32[], {state}) while(start), condition=condition, body=body
}}
"""


def program(kind: str, limit: int, end: int) -> hloopt.Program:
    text = LOOP.format(state=f"{kind}[3]", part=f"{kind}[1]", limit=limit, end=end)
    return hloopt.compile(hloopt.parse(text))


@pytest.mark.parametrize(("limit", "trip"), [(5, 256), (255, 256), (256, 512), (300, 512)])
def test_a_loop_that_changes_nothing_is_stopped(limit: int, trip: int) -> None:
    """At the first watched trip that leaves all of the state as it was, one updated in place included."""
    with pytest.raises(EvaluationError) as error:
        program("f32", limit, limit + 1).run([np.array([np.nan, 1, 2], np.float32)])
    assert error.value.message == (
        f"<text>:28:8: w: the loop does not end: iteration {trip} has not changed its state"
    )


@pytest.mark.parametrize("kind", ["f32", "bf16", "s4", "pred"])
def test_a_long_loop_goes_on(kind: str) -> None:
    """Its counter alone changes; the rest of the state may be of any type."""
    storage = {"bf16": ml_dtypes.bfloat16, "s4": ml_dtypes.int4, "pred": np.bool_}
    given = np.array([1, 0, 1]).astype(storage.get(kind, np.float32))
    count, after = program(kind, 3000, 2000).run([given])
    assert count == 2000
    assert after.tobytes() == given.tobytes()


TWO_WRITTEN = """HloModule m

body {
  s = (s32[], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  y = f32[4] get-tuple-element(s), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  part = f32[1] constant({10})
  x1 = f32[4] dynamic-update-slice(x, part, i)
  y1 = f32[4] dynamic-update-slice(y, part, i)
  sum = f32[4] add(x1, y1)
  ROOT r = (s32[], f32[4], f32[4]) tuple(next, sum, sum)
}

condition {
  s = (s32[], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  limit = s32[] constant(3)
  ROOT c = pred[] compare(i, limit), direction=LT
}

ENTRY e {
  zero = s32[] constant(0)
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  start = (s32[], f32[4], f32[4]) tuple(zero, x, y)
  ROOT w = (s32[], f32[4], f32[4]) while(start), condition=condition, body=body
}
"""


def test_one_array_for_two_elements_that_are_written_over() -> None:
    """Each element of the state has an array of its own in every trip."""
    module = hloopt.parse(TWO_WRITTEN)
    given = [np.arange(4, dtype=np.float32), np.arange(4, 8, dtype=np.float32)]
    want = hloopt.evaluate(module, given)
    for one, other in zip(hloopt.compile(module).run(given), want, strict=True):
        np.testing.assert_array_equal(one, other)
