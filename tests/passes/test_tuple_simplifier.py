"""Transfers in tuples: they are taken out where that leaves each to the one op that ends it."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.ir import Module

PAIR = """HloModule m

ENTRY main {{
  x = f32[4] parameter(0)
  k = s32[] parameter(1)
  t0 = token[] after-all()
  sent = (f32[4], u32[], token[]) send(x, t0), channel_id=1
  t1 = token[] after-all()
  got = (f32[4], u32[], token[]) recv(t1), channel_id=2
  both = (s32[], (f32[4], u32[], token[]), (f32[4], u32[], token[])) tuple(k, sent, got)
  s = (f32[4], u32[], token[]) get-tuple-element(both), index=1
  g = (f32[4], u32[], token[]) get-tuple-element(both), index=2
  n = s32[] get-tuple-element(both), index=0
  {end}
  recvd = (f32[4], token[]) recv-done(g), channel_id=2
  data = f32[4] get-tuple-element(recvd), index=0
  ROOT r = (f32[4], s32[]) tuple(data, n)
}}
"""


def simplified(source: str, passes: str = "tuple-simplifier,dce") -> Module:
    """The module afterwards, verified."""
    module = hloopt.parse(source)
    hloopt.verify(module)
    module = hloopt.optimize(module, passes)
    hloopt.verify(module)
    return module


def test_transfers_that_are_ended_by_their_own_ops_are_taken_out() -> None:
    """Nothing is left of the tuple."""
    module = simplified(PAIR.format(end="done = token[] send-done(s), channel_id=1"))
    assert "both" not in module.entry.by_name
    assert module.entry.by_name["done"].operands[0].name == "sent"
    assert module.entry.by_name["recvd"].operands[0].name == "got"


@pytest.mark.parametrize(
    "end",
    [
        "done = (f32[4], token[]) recv-done(s), channel_id=1",
        """done = token[] send-done(s), channel_id=1
  again = (f32[4], u32[], token[]) get-tuple-element(both), index=1
  twice = token[] send-done(again), channel_id=1""",
    ],
)
def test_all_stay_where_one_of_them_is_ended_otherwise(end: str) -> None:
    """The tuple would go on using what was taken out of it; what is no transfer is read from its source."""
    module = simplified(PAIR.format(end=end))
    assert module.entry.by_name["g"].operands[0].name == "both"
    assert module.entry.by_name["s"].operands[0].name == "both"
    assert [one.name for one in module.entry.root.operands] == ["data", "k"]


PIPELINED = """HloModule m

condition {
  state = (s32[], (f32[4], u32[], token[])) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  most = s32[] constant(1)
  ROOT goes_on = pred[] compare(i, most), direction=LT
}

body {
  state = (s32[], (f32[4], u32[], token[])) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  before = (f32[4], u32[], token[]) get-tuple-element(state), index=1
  ended = (f32[4], token[]) recv-done(before), channel_id=1
  data = f32[4] get-tuple-element(ended), index=0
  t = token[] after-all()
  sent = (f32[4], u32[], token[]) send(data, t), channel_id=1
  ROOT result = (s32[], (f32[4], u32[], token[])) tuple(next, sent)
}

ENTRY main {
  x = f32[4] parameter(0)
  zero = s32[] constant(0)
  t = token[] after-all()
  first = (f32[4], u32[], token[]) send(x, t), channel_id=1
  init = (s32[], (f32[4], u32[], token[])) tuple(zero, first)
  loop = (s32[], (f32[4], u32[], token[])) while(init), condition=condition, body=body
  last = (f32[4], u32[], token[]) get-tuple-element(loop), index=1
  ended = token[] send-done(last), channel_id=1
  ROOT i = s32[] get-tuple-element(loop), index=0
}
"""


@pytest.mark.parametrize("passes", ["O1", "O2", "O3"])
def test_a_loop_of_one_trip_that_ends_a_send_as_if_it_were_a_recv_stays_valid(passes: str) -> None:
    """A loop's state hides from the verifier which kind of transfer it holds; taken apart, it would show."""
    simplified(PIPELINED, passes)
