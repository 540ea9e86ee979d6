"""Control flow, tuples and asynchronous calls."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.errors import EvaluationError, UnsupportedError

COMPUTATIONS = """
double {
  x = f32[] parameter(0)
  ROOT y = f32[] add(x, x)
}

square {
  x = f32[] parameter(0)
  ROOT y = f32[] multiply(x, x)
}

minus {
  x = f32[] parameter(0)
  ROOT y = f32[] negate(x)
}
"""


def run(
    entry: str, *arrays: object, computations: str = COMPUTATIONS, **options
) -> list[np.ndarray]:
    text = f"HloModule m\n{computations}\nENTRY e {{\n{entry}\n}}\n"
    module = hloopt.parse(text)
    return hloopt.evaluate(module, [np.asarray(array) for array in arrays], **options)


def f32(value: float) -> np.ndarray:
    return np.array(value, np.float32)


@pytest.mark.parametrize(("value", "expected"), [(True, 6), (False, 9)])
def test_a_true_predicate_takes_the_first_branch(value: bool, expected: float) -> None:
    for branches in (
        "true_computation=double, false_computation=square",
        "branch_computations={double, square}",
    ):
        entry = (
            "  i = pred[] parameter(0)\n  x = f32[] parameter(1)\n"
            f"  ROOT c = f32[] conditional(i, x, x), {branches}"
        )
        (found,) = run(entry, np.bool_(value), f32(3))
        assert found == expected


def test_only_the_chosen_branch_is_run() -> None:
    """A loop without end in the other branch does no harm."""
    loops = """
always {
  x = f32[] parameter(0)
  ROOT t = pred[] constant(true)
}

same {
  ROOT x = f32[] parameter(0)
}

never {
  x = f32[] parameter(0)
  ROOT w = f32[] while(x), condition=always, body=same
}
"""
    entry = (
        "  i = pred[] parameter(0)\n  x = f32[] parameter(1)\n"
        "  ROOT c = f32[] conditional(i, x, x), branch_computations={double, never}"
    )
    (found,) = run(entry, np.bool_(True), f32(3), computations=COMPUTATIONS + loops)
    assert found == 6


def test_a_loop_that_changes_nothing_is_an_error() -> None:
    loop = """
body {
  s = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[] get-tuple-element(s), index=1
  limit = s32[] constant(5)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  held = s32[] minimum(next, limit)
  ROOT r = (s32[], f32[]) tuple(held, x)
}

condition {
  s = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  limit = s32[] constant(5)
  ROOT c = pred[] compare(i, limit), direction=LE
}
"""
    entry = """
  zero = s32[] constant(0)
  n = f32[] constant(nan)
  start = (s32[], f32[]) tuple(zero, n)
  ROOT w = (s32[], f32[]) while(start), condition=condition, body=body
"""
    with pytest.raises(EvaluationError) as error:
        run(entry, computations=loop)
    assert error.value.message == (
        "<text>:26:8: w: the loop does not end: iteration 8 has not changed its state"
    )


UNTIL = """HloModule m

body {{
  s = (s32[], pred[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  t = token[] after-all()
  {line}
  ROOT r = (s32[], pred[]) tuple(i, again)
}}

condition {{
  s = (s32[], pred[]) parameter(0)
  ROOT c = pred[] get-tuple-element(s), index=1
}}

ENTRY e {{
  zero = s32[] constant(0)
  yes = pred[] constant(true)
  start = (s32[], pred[]) tuple(zero, yes)
  ROOT w = (s32[], pred[]) while(start), condition=condition, body=body
}}
"""


def test_a_loop_that_only_tells_the_host_something_does_not_end() -> None:
    """What an outfeed writes does not come back; what an infeed reads may end the loop at any trip."""
    line = "o = token[] outfeed(i, t)\n  again = pred[] get-tuple-element(s), index=1"
    with pytest.raises(EvaluationError, match="w: the loop does not end"):
        hloopt.evaluate(hloopt.parse(UNTIL.format(line=line)), [])
    line = "f = (pred[], token[]) infeed(t)\n  again = pred[] get-tuple-element(f), index=0"
    given = {f"infeed_{at}": np.array(at < 40) for at in range(41)}
    host = hloopt.Host(given)
    _, again = hloopt.evaluate(hloopt.parse(UNTIL.format(line=line)), [], host=host)
    assert not again
    assert host.unread == []


def test_copies_barriers_and_dependencies_pass_values_on() -> None:
    entry = """
  x = f32[2] parameter(0)
  s = (f32[2], f32[2], u32[]) copy-start(x)
  y = f32[2] copy-done(s)
  t = (f32[2], f32[2]) tuple(x, y)
  b = (f32[2], f32[2]) opt-barrier(t)
  z = f32[2] get-tuple-element(b), index=1
  k = token[] after-all()
  w = f32[2] add-dependency(z, k)
  v = f32[2] domain(w), domain={kind="sharding", entry={maximal device=0}, exit={maximal device=1}}
  n = s32[] get-dimension-size(v), dimensions={0}
  full = s32[] constant(2)
  f = f32[2] set-dimension-size(v, full), dimensions={0}
  ROOT r = (f32[2], s32[], token[]) tuple(f, n, k)
"""
    found, size = run(entry, np.array([1, 2], np.float32))
    assert found.tolist() == [1, 2]
    assert (size.dtype, int(size)) == (np.int32, 2)


def test_a_size_that_depends_on_data_is_refused() -> None:
    entry = """
  x = f32[4] parameter(0)
  n = s32[] parameter(1)
  ROOT r = f32[4] set-dimension-size(x, n), dimensions={0}
"""
    with pytest.raises(UnsupportedError) as error:
        run(entry, np.zeros(4, np.float32), np.int32(2))
    message = "r: dimension 0 of f32[4] may be set to a size other than 4"
    assert error.value.message == message
