"""Schedules: lower peaks, never higher ones, and an order that keeps what order is for."""

from __future__ import annotations

import random

import pytest

import hloopt
from hloopt.analysis.liveness import live_ranges, peak
from hloopt.analysis.memory import memory_model
from hloopt.passes.schedule import Schedule, ScheduleRecord
from hloopt.rewrite import PassLog
from tests.helpers.rarely import one_in
from tests.helpers.support import count_calls
from tests.passes import proof
from tests.properties.random_modules import module_text


def scheduled(text: str) -> hloopt.Module:
    return proof.check(text, Schedule())[0]


def names(module: hloopt.Module) -> list[str]:
    return [instruction.name for instruction in module.entry]


def test_the_example_of_the_pass_needs_half_the_memory() -> None:
    """Each array is summed up before the next one is made."""
    module = hloopt.parse(Schedule.example)
    log = PassLog()
    assert Schedule().run(module, log)
    (record,) = log.records
    assert isinstance(record, ScheduleRecord)
    assert record.before >= 2 * 4096
    assert record.after < 4096 + 64
    assert log.notes == [
        f"peak memory of the entry: {record.before} bytes before, {record.after} after"
    ]
    assert module.attributes["is_scheduled"] is True
    scheduled(Schedule.example)


def test_without_memory_the_order_given_becomes_the_schedule() -> None:
    """Only the header says something new."""
    module, _ = proof.check(Schedule.example, Schedule(memory=False))
    assert names(module) == names(hloopt.parse(Schedule.example))
    assert module.to_text().startswith("HloModule sums, is_scheduled=true")


@pytest.mark.parametrize("seed", one_in(3, range(60)))
def test_random_modules_never_need_more(seed: int) -> None:
    """Peaks fall or stay in every random module, and results stay the same bits."""
    text = module_text(random.Random(seed))
    module, _ = proof.check(text, Schedule(), draws=2)
    assert peak(module.entry).byte_size <= peak(hloopt.parse(text).entry).byte_size


@pytest.mark.parametrize("seed", range(40))
def test_the_model_and_the_live_ranges_agree(seed: int) -> None:
    """Bytes counted while stepping through an order are those of the live ranges at each position."""
    module = hloopt.parse(module_text(random.Random(seed)))
    for computation in module:
        model = memory_model(computation)
        order = range(len(computation))
        got = [moment.peak for moment in model.moments(order, [0] * len(computation))]
        ranges = live_ranges(computation)
        assert got == [
            sum(entry.byte_size for entry in ranges if entry.start <= at <= entry.end)
            for at in order
        ]


def test_effects_and_control_edges_keep_their_order() -> None:
    """Outfeeds stay in their order although the other one frees more, and so does what an edge holds."""
    module = scheduled("""HloModule m
add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT z = f32[] add(x, y) }
ENTRY e {
  p = f32[] parameter(0)
  zero = f32[] constant(0)
  tok = token[] after-all()
  a = f32[512]{0} broadcast(p), dimensions={}
  b = f32[512]{0} broadcast(p), dimensions={}
  first = token[] outfeed(p, tok), outfeed_shape=f32[]
  second = token[] outfeed(a, tok), outfeed_shape=f32[512]{0}
  s = f32[] reduce(a, zero), dimensions={0}, to_apply=add
  late = f32[] negate(p), control-predecessors={s}
  ROOT t = f32[] reduce(b, zero), dimensions={0}, to_apply=add
}
""")
    order = names(module)
    assert order.index("first") < order.index("second")
    assert order.index("s") < order.index("late")
    assert order.index("b") > order.index("s")


LOOP = """HloModule m
cond {{ s = (s32[], f32[64]{{0}}) parameter(0) i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3) ROOT c = pred[] compare(i, n), direction=LT }}
body {{
  s = (s32[], f32[64]{{0}}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[64]{{0}} get-tuple-element(s), index=1
{body}
  ROOT r = (s32[], f32[64]{{0}}) tuple(j, y)
}}
ENTRY e {{
  x = f32[64]{{0}} parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[64]{{0}}) tuple(zero, x)
  w = (s32[], f32[64]{{0}}) while(t), condition=cond, body=body
  ROOT g = f32[64]{{0}} get-tuple-element(w), index=1
}}
"""


def test_an_update_in_place_needs_no_second_buffer() -> None:
    """A loop's state is written in place; where it is read afterwards the update has its own buffer."""
    update = "u = f32[1]{0} constant({7})\n y = f32[64]{0} dynamic-update-slice(x, u, i)"
    module = hloopt.parse(LOOP.format(body=update))
    (body,) = (entry for entry in module if entry.name == "body")
    assert {entry.instruction.name for entry in live_ranges(body)} == {"s", "one", "j", "u"}
    late = "u = f32[1]{0} constant({7})\n v = f32[64]{0} dynamic-update-slice(x, u, i)"
    module = hloopt.parse(LOOP.format(body=f"{late}\n y = f32[64]{{0}} add(x, v)"))
    (body,) = (entry for entry in module if entry.name == "body")
    assert {entry.instruction.name for entry in live_ranges(body)} == {
        "s",
        "one",
        "j",
        "u",
        "v",
        "y",
    }


def test_loop_bodies_are_ordered_too() -> None:
    """The order within a loop lowers the peak of its caller."""
    body = """
  a = f32[4096]{0} broadcast(i1), dimensions={}
  b = f32[4096]{0} broadcast(i2), dimensions={}
  u = f32[1]{0} slice(a), slice={[0:1]}
  v = f32[1]{0} slice(b), slice={[0:1]}
  z = f32[1]{0} add(u, v)
  y = f32[64]{0} dynamic-update-slice(x, z, i)"""
    body = "  i1 = f32[] convert(i)\n  i2 = f32[] negate(i1)" + body
    text = LOOP.format(body=body)
    module = scheduled(text)
    assert peak(module.entry).byte_size < peak(hloopt.parse(text).entry).byte_size - 16000


def test_time_is_in_proportion_to_the_module() -> None:
    """Four times the instructions take no more than five times the calls."""

    def chain(length: int) -> hloopt.Module:
        lines = ["p = f32[8]{0} parameter(0)", "x0 = f32[8]{0} negate(p)"]
        lines += [
            f"x{at} = f32[8]{{0}} add(x{at - 1}, x{max(0, at - 7)})" for at in range(1, length)
        ]
        return hloopt.parse("HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}\n")

    calls = [
        count_calls(lambda size=size: Schedule().run(chain(size), PassLog()))
        for size in (300, 1200)
    ]
    assert calls[1] < 5 * calls[0]
