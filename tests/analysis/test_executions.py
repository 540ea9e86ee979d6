"""How often instructions run while the entry runs once."""

from __future__ import annotations

import hloopt
from hloopt.analysis.executions import executions

TEXT = """HloModule m

ten {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(10)
  ROOT r = pred[] compare(i, n), direction=LT
}

inner {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[8] get-tuple-element(s), index=1
  y = f32[8] negate(x)
  ROOT r = (s32[], f32[8]) tuple(j, y)
}

body {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[8] get-tuple-element(s), index=1
  zero = s32[] constant(0)
  t = (s32[], f32[8]) tuple(zero, x)
  w = (s32[], f32[8]) while(t), condition=ten, body=inner
  y = f32[8] get-tuple-element(w), index=1
  ROOT r = (s32[], f32[8]) tuple(j, y)
}

five {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT r = pred[] compare(i, n), direction=LT
}

never {
  s = (s32[], f32[8]) parameter(0)
  x = f32[8] get-tuple-element(s), index=1
  z = f32[1] slice(x), slice={[0:1]}
  c = f32[] reshape(z)
  n = f32[] constant(0)
  ROOT r = pred[] compare(c, n), direction=LT
}

small {
  p = f32[8] parameter(0)
  ROOT r = f32[8] negate(p)
}

large {
  p = f32[8] parameter(0)
  q = f32[8] negate(p)
  c = f32[8] call(q), to_apply=small
  ROOT r = f32[8] abs(c)
}

ENTRY e {
  x = f32[8] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[8]) tuple(zero, x)
  w = (s32[], f32[8]) while(t), condition=five, body=body
  v = (s32[], f32[8]) while(w), condition=never, body=inner2
  y = f32[8] get-tuple-element(v), index=1
  p = pred[] parameter(1)
  c = f32[8] conditional(p, y, y), true_computation=small, false_computation=large
  ROOT r = f32[8] call(c), to_apply=small
}
"""


def test_loops_branches_and_calls() -> None:
    """Trips multiply, unknown ones count once and are told, the heaviest branch counts, calls add up."""
    inner = TEXT[TEXT.index("inner {") : TEXT.index("body {")]
    module = hloopt.parse(TEXT.replace("five {", f"{inner.replace('inner', 'inner2')}five {{"))
    found = {
        computation.name: (row.times, row.counted, row.known)
        for computation, row in executions(module, lambda entry: entry.op.flops).items()
    }
    assert found == {
        "e": (1, 1, True),
        "five": (6, 6, True),
        "body": (5, 5, True),
        "ten": (55, 55, True),
        "inner": (50, 50, True),
        "never": (2, 2, False),
        "inner2": (1, 1, False),
        "large": (1, 1, True),
        "small": (3, 2, True),
    }


def test_the_branch_that_counts_is_the_heavier_one() -> None:
    """Another weight makes another branch count."""
    inner = TEXT[TEXT.index("inner {") : TEXT.index("body {")]
    module = hloopt.parse(TEXT.replace("five {", f"{inner.replace('inner', 'inner2')}five {{"))
    found = executions(module, lambda entry: float(entry.is_root and len(entry.users) == 0))
    # Both branches have one root each, and the large one calls the small one.
    assert found[module.computations["large"]].counted == 1
    found = executions(module, lambda entry: 0.0)
    assert found[module.computations["large"]].counted == 0


def test_a_ladder_of_calls_costs_no_more_than_its_calls() -> None:
    """Forty computations that call the next one twice run 2**40 times, counted in no time."""
    steps = [
        f"c{n} {{\n  p = f32[] parameter(0)\n  a = f32[] call(p), to_apply=c{n + 1}\n"
        f"  ROOT b = f32[] call(a), to_apply=c{n + 1}\n}}\n"
        for n in range(40)
    ]
    last = "c40 {\n  p = f32[] parameter(0)\n  ROOT r = f32[] negate(p)\n}\n"
    entry = "ENTRY e {\n  p = f32[] parameter(0)\n  ROOT r = f32[] call(p), to_apply=c0\n}\n"
    module = hloopt.parse("HloModule m\n\n" + last + "\n".join(reversed(steps)) + entry)
    found = executions(module, lambda entry: 1.0)
    assert found[module.computations["c40"]].times == 1 << 40
