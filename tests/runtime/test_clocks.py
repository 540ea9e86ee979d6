"""Programs with a clock around their steps: the same results, every execution counted, spans that nest."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import hloopt
from hloopt.backends.native import check_native
from hloopt.backends.native.clock import PlanClock
from hloopt.backends.native.program import NativeProgram
from hloopt.backends.numpy.clock import LineClock
from hloopt.backends.numpy.program import NumpyProgram
from hloopt.errors import DeviceError
from hloopt.runtime.inputs import generate_all
from hloopt.runtime.program import NumpyOptions
from hloopt.runtime.timing import ClockSpan, StepClock

LOOPS = """HloModule m

cond.1 {
  p = (s32[], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(4)
  ROOT lt = pred[] compare(i, n), direction=LT
}

body.1 {
  p = (s32[], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[8,8] get-tuple-element(p), index=1
  inner.dot = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  bounded = f32[8,8] tanh(inner.dot)
  ROOT t = (s32[], f32[8,8]) tuple(next, bounded)
}

cond.2 {
  p = (s32[], f32[8,8]) parameter(0)
  x = f32[8,8] get-tuple-element(p), index=1
  corner = f32[1,1] slice(x), slice={[0:1], [0:1]}
  value = f32[] reshape(corner)
  limit = f32[] constant(3)
  ROOT lt = pred[] compare(value, limit), direction=LT
}

body.2 {
  p = (s32[], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  zero = s32[] constant(0)
  x = f32[8,8] get-tuple-element(p), index=1
  start = (s32[], f32[8,8]) tuple(zero, x)
  inner = (s32[], f32[8,8]) while(start), condition=cond.1, body=body.1
  y = f32[8,8] get-tuple-element(inner), index=1
  one = f32[] constant(1)
  ones = f32[8,8] broadcast(one), dimensions={}
  more = f32[8,8] add(x, ones)
  both = f32[8,8] maximum(more, y)
  ROOT t = (s32[], f32[8,8]) tuple(i, both)
}

ENTRY e {
  x = f32[8,8] parameter(0)
  seven = s32[] constant(7)
  start = (s32[], f32[8,8]) tuple(seven, x)
  outer = (s32[], f32[8,8]) while(start), condition=cond.2, body=body.2
  y = f32[8,8] get-tuple-element(outer), index=1
  ROOT final = f32[8,8] exponential(y)
}
"""

RING = """HloModule ring, num_partitions=2

ENTRY e {
  x = f32[64] parameter(0)
  there = f32[64] collective-permute(x), channel_id=1, source_target_pairs={{0,1},{1,0}}
  ROOT sum = f32[64] add(x, there)
}
"""


def programs(text: str, device: str) -> tuple[NumpyProgram | NativeProgram, list[np.ndarray]]:
    module = hloopt.parse(text)
    if device == "native":
        try:
            check_native()
        except DeviceError as error:
            pytest.skip(str(error))
    program = hloopt.compile(module, device)
    assert isinstance(program, NumpyProgram | NativeProgram)
    return program, generate_all(module, 0, 1, 1)[0]


def recorded(clock: StepClock) -> tuple[dict[str, int], dict[str, int]]:
    """How often each instruction was executed, and each loop's body."""
    (run,) = clock.taken()
    names = [step.instruction.name for step in clock.steps]
    rows = list(zip(names, run.executions, run.iterations, strict=True))
    return {name: count for name, count, _ in rows if count}, {
        name: count for name, _, count in rows if count
    }


def check_spans(spans: list[ClockSpan], own: list[int]) -> None:
    """Spans of one participant lie within each other or apart, and own times are theirs without what is inside."""
    inside: Counter[int] = Counter()
    around: list[ClockSpan] = []
    for span in sorted(spans, key=lambda one: (one.begin, -one.end)):
        while around and around[-1].end <= span.begin:
            around.pop()
        if around:
            assert span.end <= around[-1].end
        outer = next((one for one in reversed(around) if not one.is_iteration), None)
        if outer is not None and not span.is_iteration:
            inside[outer.step] += span.end - span.begin
        around.append(span)
    whole: Counter[int] = Counter()
    for span in spans:
        if not span.is_iteration:
            whole[span.step] += span.end - span.begin
    for step, taken in whole.items():
        # The clock's own work within a step belongs to none.
        assert own[step] <= taken - inside[step]
        assert own[step] == taken or inside[step]


@pytest.mark.parametrize("device", ["cpu", "native"])
def test_loops(device: str) -> None:
    """A loop of unknown trip count around one of known: bodies are counted, and results keep their bits."""
    program, given = programs(LOOPS, device)
    timed, clock = program.timed()
    for _ in range(2):
        clock.start()
        results = timed.run(given)
    for one, two in zip(results, program.run(given), strict=True):
        np.testing.assert_array_equal(one, two)
    executions, iterations = recorded(clock)
    count = iterations["outer"]
    assert count > 1
    dot = executions["inner.dot"]
    assert dot == 4 * count == iterations["inner"]
    assert (executions["outer"], executions["inner"], executions["final"]) == (1, count, 1)
    (run,) = clock.taken()
    assert clock.left_out == 0
    assert sum(span.is_iteration for span in clock.spans()) == count + 4 * count
    check_spans(list(clock.spans()), list(run.own))


def test_no_more_spans_than_there_is_room_for() -> None:
    """Steps of the entry have theirs all the same; sums stay complete."""
    program, given = programs(LOOPS, "cpu")
    assert isinstance(program, NumpyProgram)
    clock = LineClock(most_spans=3)
    NumpyProgram(program.module, clock=clock).run(given)
    kept = [clock.steps[span.step].instruction.name for span in clock.spans()]
    assert kept[-2:] == ["outer", "final"]
    assert len(kept) == 5
    (run,) = clock.taken()
    assert clock.left_out + 5 == sum(run.executions) + sum(run.iterations)


def test_no_more_spans_than_there_is_room_for_natively() -> None:
    program, given = programs(LOOPS, "native")
    assert isinstance(program, NativeProgram)
    clock = PlanClock(program.plan, most_spans=3)
    timed = NativeProgram(program.module, program.plan, clock=clock)
    clock.start()
    timed.run(given)
    kept = [clock.steps[span.step].instruction.name for span in clock.spans()]
    assert {"outer", "final"} <= set(kept)
    assert sum(clock.steps[span.step].instruction.name == "inner.dot" for span in clock.spans()) < 4
    (run,) = clock.taken()
    assert clock.left_out + len(kept) == sum(run.executions) + sum(run.iterations)


def test_what_blocks_compute_together_is_one_step() -> None:
    """All of its instructions are named."""
    program, given = programs(
        "HloModule m\nENTRY e {\n  x = f32[512,512] parameter(0)\n  y = f32[512,512] sine(x)\n"
        "  z = f32[512,512] cosine(y)\n  ROOT w = f32[512,512] negate(z)\n}\n",
        "cpu",
    )
    timed, clock = program.timed()
    timed.run(given)
    (step,) = clock.steps
    assert [entry.name for entry in step.instructions] == ["y", "z", "w"]


def test_time_stands_still_while_others_run() -> None:
    """Two participants: what each recorded is together no more than the whole."""
    module = hloopt.parse(RING)
    program = NumpyProgram(module, NumpyOptions(partitions=2))
    timed, clock = program.timed()
    given = generate_all(module, 0, 1, 2)
    clock.start()
    results = timed.run_participants(given)
    for own, there in zip(results, program.run_participants(given), strict=True):
        np.testing.assert_array_equal(own[0], there[0])
    runs = clock.taken()
    assert [list(run.executions) for run in runs] == [[1, 1], [1, 1]]
    assert {span.participant for span in clock.spans()} == {0, 1}


def test_devices_without_a_clock_say_so() -> None:
    class Other(hloopt.runtime.program.Program):  # type: ignore[name-defined,misc]
        def run(self, inputs: object, host: object = None) -> list[np.ndarray]:
            return []

        def run_participants(self, inputs: object, host: object = None) -> list[list[np.ndarray]]:
            return []

    with pytest.raises(hloopt.UsageError, match="cpu, native and gpu"):
        Other().timed()
