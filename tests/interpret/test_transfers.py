"""Transfers between devices: who sends to whom, in which order, and what does not work out."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.errors import EvaluationError
from tests.interpret.lockstep import ADD, RUNNERS, Runner, column, module, scalars

RING = "frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,2}}}"


@RUNNERS
def test_send_and_recv_along_pairs(run: Runner) -> None:
    """Data go from source to target; whoever nobody sends to has zeros, whoever sends to nobody goes on."""
    text = module(
        f"""
  k = token[] after-all()
  r = (f32[], u32[], token[]) recv(k), {RING}
  s = (f32[], u32[], token[]) send(p, k), {RING}
  sd = token[] send-done(s)
  rd = (f32[], token[]) recv-done(r)
  ROOT x = f32[] get-tuple-element(rd), index=0"""
    )
    assert scalars(run(text, column(5, 6, 7), 3)) == [[0], [5], [6]]
    # Partitions where a channel is given: here each replica has one.
    channel = text.replace(f", {RING}", f", channel_id=2, {RING}").replace(
        "-done(s)", "-done(s), channel_id=2"
    )
    channel = channel.replace("-done(r)", "-done(r), channel_id=2")
    found = run(channel, column(1, 2, 3, 4, 5, 6), 2, 3)
    assert scalars(found) == [[0], [1], [2], [0], [4], [5]]


@RUNNERS
def test_transfers_go_through_a_loop_in_order(run: Runner) -> None:
    """What a loop begins in one trip it ends in the next; the first one sent is the first received."""
    pairs = "frontend_attributes={_xla_send_recv_source_target_pairs={{0,1}}}"
    text = module(
        f"""
  k = token[] after-all()
  r0 = (f32[], u32[], token[]) recv(k), {pairs}
  s0 = (f32[], u32[], token[]) send(p, k), {pairs}
  zero = s32[] constant(0)
  z = f32[] constant(0)
  t = (s32[], f32[], f32[], (f32[], u32[], token[]), (f32[], u32[], token[])) tuple(zero, p, z, r0, s0)
  w = (s32[], f32[], f32[], (f32[], u32[], token[]), (f32[], u32[], token[])) while(t), condition=less, body=step
  rn = (f32[], u32[], token[]) get-tuple-element(w), index=3
  sn = (f32[], u32[], token[]) get-tuple-element(w), index=4
  rd = (f32[], token[]) recv-done(rn)
  sd = token[] send-done(sn)
  last = f32[] get-tuple-element(rd), index=0
  sum = f32[] get-tuple-element(w), index=2
  ROOT x = (f32[], f32[]) tuple(sum, last)""",
        f"""
less {{
  t = (s32[], f32[], f32[], (f32[], u32[], token[]), (f32[], u32[], token[])) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(2)
  ROOT c = pred[] compare(i, n), direction=LT
}}
step {{
  t = (s32[], f32[], f32[], (f32[], u32[], token[]), (f32[], u32[], token[])) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[] get-tuple-element(t), index=1
  ten = f32[] constant(10)
  y = f32[] multiply(x, ten)
  r = (f32[], u32[], token[]) get-tuple-element(t), index=3
  s = (f32[], u32[], token[]) get-tuple-element(t), index=4
  rd = (f32[], token[]) recv-done(r)
  sd = token[] send-done(s)
  got = f32[] get-tuple-element(rd), index=0
  sum = f32[] get-tuple-element(t), index=2
  new = f32[] add(sum, got)
  k = token[] after-all(sd)
  rr = (f32[], u32[], token[]) recv(k), {pairs}
  ss = (f32[], u32[], token[]) send(y, k), {pairs}
  ROOT u = (s32[], f32[], f32[], (f32[], u32[], token[]), (f32[], u32[], token[])) tuple(j, y, new, rr, ss)
}}
""",
    )
    assert scalars(run(text, column(1, 2), 2)) == [[0, 0], [11, 100]]


CHANNEL = """
sends {
  x = f32[] parameter(0)
  k = token[] after-all()
  s = (f32[], u32[], token[]) send(x, k), channel_id=7
  sd = token[] send-done(s), channel_id=7
  ROOT z = f32[] constant(0)
}
receives {
  x = f32[] parameter(0)
  k = token[] after-all()
  r = (f32[], u32[], token[]) recv(k), channel_id=7
  rd = (f32[], token[]) recv-done(r), channel_id=7
  ROOT y = f32[] get-tuple-element(rd), index=0
}
neither {
  ROOT x = f32[] parameter(0)
}
"""
WHO = """
  i = s32[] convert(p)
  ROOT r = f32[] conditional(i, p, p, p), branch_computations={sends, receives, neither}"""


@RUNNERS
def test_a_channel_of_two(run: Runner) -> None:
    """Without pairs the one that sends and the one that receives belong together, in either order."""
    assert scalars(run(module(WHO, CHANNEL), column(0, 1, 2), 3)) == [[0], [0], [2]]
    assert scalars(run(module(WHO, CHANNEL), column(1, 2, 0.5), 3)) == [[0.5], [2], [0]]


@RUNNERS
@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            (1, 2, 2),
            (
                "m.hlo:14:3: rd: participant 0 waits for data that is never sent in recv-done; "
                "1 and 2 have ended"
            ),
        ),
        (
            (0, 0, 1),
            "m.hlo:6:3: s: participants 0 and 1 use one channel without source-target pairs",
        ),
        (
            (0, 1, 1),
            "m.hlo:13:3: r: participants 1 and 2 use one channel without source-target pairs",
        ),
    ],
)
def test_a_channel_that_does_not_work_out(
    run: Runner, inputs: tuple[float, ...], message: str
) -> None:
    """Nobody that sends, or more than one: HLO does not say who is meant."""
    with pytest.raises(EvaluationError) as error:
        run(module(WHO, CHANNEL), column(*inputs), 3)
    assert error.value.message == message


def test_the_only_participant_sends_to_itself() -> None:
    """What it sent first comes first, and it cannot wait for more."""
    text = module(
        """
  k = token[] after-all()
  n = f32[] negate(p)
  s = (f32[], u32[], token[]) send(p, k), channel_id=1
  sd = token[] send-done(s), channel_id=1
  t = (f32[], u32[], token[]) send(n, sd), channel_id=CHANNEL
  td = token[] send-done(t), channel_id=CHANNEL
  r = (f32[], u32[], token[]) recv(k), channel_id=1
  rd = (f32[], token[]) recv-done(r), channel_id=1
  q = (f32[], u32[], token[]) recv(k), channel_id=1
  qd = (f32[], token[]) recv-done(q), channel_id=1
  x = f32[] get-tuple-element(rd), index=0
  y = f32[] get-tuple-element(qd), index=0
  ROOT v = (f32[], f32[]) tuple(x, y)"""
    )
    three = [np.array(3, np.float32)]
    parsed = hloopt.parse(text.replace("CHANNEL", "1"), "m.hlo")
    for found in (hloopt.evaluate(parsed, three), hloopt.compile(parsed).run(three)):
        assert [float(x) for x in found] == [3, -3]
    other = hloopt.parse(text.replace("CHANNEL", "2"), "m.hlo")
    with pytest.raises(EvaluationError) as error:
        hloopt.evaluate(other, three)
    assert error.value.message == "m.hlo:21:3: qd: waits for data that is never sent"


@RUNNERS
def test_the_sender_is_elsewhere(run: Runner) -> None:
    """The error says from whom data do not come, and where that one is."""
    pairs = "frontend_attributes={_xla_send_recv_source_target_pairs={{1,0}}}"
    text = module(
        f"""
  k = token[] after-all()
  r = (f32[], u32[], token[]) recv(k), {pairs}
  a = f32[] conditional(i, p, p), branch_computations={{end, sum}}
  rd = (f32[], token[]) recv-done(r)
  s = (f32[], u32[], token[]) send(a, k), {pairs}
  sd = token[] send-done(s)
  ROOT x = f32[] get-tuple-element(rd), index=0""".replace(
            "  a =", "  i = s32[] convert(p)\n  a ="
        ),
        ADD
        + """
sum {
  x = f32[] parameter(0)
  ROOT a = f32[] all-reduce(x), replica_groups={}, to_apply=add
}
end {
  ROOT x = f32[] parameter(0)
}
""",
    )
    assert scalars(run(text, column(1, 1), 2)) == [[2], [0]]
    with pytest.raises(EvaluationError) as error:
        run(text, column(0, 1), 2)
    assert error.value.message == (
        "m.hlo:24:3: rd: participant 0 waits for data from 1 in recv-done; "
        "1 is at m.hlo:11:8: a (all-reduce)"
    )


AROUND = "frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,2},{2,0}}}"
ROUND = f"""
  k = token[] after-all()
  r = (f32[], u32[], token[]) recv(k), {AROUND}
  rd = (f32[], token[]) recv-done(r)
  x = f32[] get-tuple-element(rd), index=0
  r2 = (f32[], u32[], token[]) recv(k), {AROUND}
  rd2 = (f32[], token[]) recv-done(r2)
  s = (f32[], u32[], token[]) send(p, k), {AROUND}
  sd = token[] send-done(s)
  again = (f32[], u32[], token[]) send(x, sd), {AROUND}
  sd2 = token[] send-done(again)
  y = f32[] get-tuple-element(rd2), index=0
  ROOT z = (f32[], f32[]) tuple(x, y)"""


@RUNNERS
def test_nobody_waits_before_sending_what_is_there(run: Runner) -> None:
    """In a module without a schedule: what was sent goes around, and so does what was received."""
    assert scalars(run(module(ROUND), column(5, 6, 7), 3)) == [[7, 6], [5, 7], [6, 5]]


@RUNNERS
def test_a_schedule_is_kept(run: Runner) -> None:
    """Everybody waits where the schedule has it so."""
    text = module(ROUND, header=", is_scheduled=true")
    with pytest.raises(
        EvaluationError, match=r"m\.hlo:14:3: rd: participant 0 waits for data from 2"
    ):
        run(text, column(5, 6, 7), 3)
