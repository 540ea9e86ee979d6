"""Several participants: in lock step, one at a time, ended whatever happens."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.errors import EvaluationError
from hloopt.interpret.participant import Participant
from hloopt.interpret.participants import Participants
from tests.interpret.lockstep import ADD, RUNNERS, Runner, column, module, scalars


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Any:
    """Whatever a test does, its threads have ended."""
    before = threading.active_count()
    yield
    assert threading.active_count() == before


# ---- the baton ----------------------------------------------------------------------------------


def meet(participant: Participant, group: Sequence[int], value: float, at: Any) -> float:
    found = participant.exchange(
        at, group, np.array(value), lambda values: [np.sum(values)] * len(group)
    )
    return float(found)


@pytest.fixture
def places() -> list[Any]:
    """Instructions to meet at."""
    return list(hloopt.parse(module("  ROOT n = f32[] negate(p)"), "m.hlo").entry)


def test_the_lowest_number_that_can_go_on_runs(places: list[Any]) -> None:
    """A participant runs until it waits; those it waited for go on in the order of their numbers."""
    order: list[tuple[int, str]] = []

    def body(participant: Participant) -> float:
        number = participant.number
        order.append((number, "before"))
        total = meet(participant, [number % 2, number % 2 + 2], number, places[0])
        order.append((number, "between"))
        total = meet(participant, [0, 1, 2, 3], total, places[1])
        order.append((number, "after"))
        return total

    for _ in range(5):
        order.clear()
        assert Participants[float](4, 1).run(body) == [12.0] * 4
        assert order == [
            (0, "before"),
            (1, "before"),
            (2, "before"),
            (2, "between"),
            (0, "between"),
            (3, "before"),
            (3, "between"),
            (1, "between"),
            (1, "after"),
            (0, "after"),
            (2, "after"),
            (3, "after"),
        ]


def test_the_baton_is_announced(places: list[Any]) -> None:
    """``entered`` is called in the thread that runs, whenever another one ran before."""
    entered: list[tuple[int, str]] = []

    def note(participant: Participant) -> None:
        entered.append((participant.number, threading.current_thread().name))

    Participants[float](1, 2, note).run(lambda one: meet(one, [0, 1], 1.0, places[0]))
    assert [number for number, _ in entered] == [0, 1, 0]
    assert all(name == f"participant {number}" for number, name in entered)


@pytest.mark.parametrize("error", [ValueError("wrong"), KeyboardInterrupt(), SystemExit(3)])
@pytest.mark.parametrize("who", [0, 2])
def test_an_error_in_one_ends_all(places: list[Any], error: BaseException, who: int) -> None:
    """The caller gets the error itself; the others do not go on."""
    after: list[int] = []

    def body(participant: Participant) -> float:
        if participant.number == who:
            raise error
        total = meet(participant, [0, 1, 2], 1.0, places[0])
        after.append(participant.number)
        return total

    with pytest.raises(type(error)) as caught:
        Participants[float](3, 1).run(body)
    assert caught.value is error
    assert not after


def test_a_thread_that_cannot_be_started_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that have been started end."""
    real = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name == "participant 2":
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(EvaluationError) as caught:
        Participants[int](4, 1).run(lambda participant: participant.number)
    assert caught.value.message == "4 participants need as many threads: can't start new thread"


def test_an_interrupt_of_the_caller_stops_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a loop that would not end, in a thread that never waits."""
    running = threading.Event()
    real = threading.Thread.join
    joined: list[str] = []

    def join(thread: threading.Thread, timeout: float | None = None) -> None:
        if not joined:
            joined.append(thread.name)
            assert running.wait(10)
            raise KeyboardInterrupt
        real(thread, timeout)

    def body(participant: Participant) -> None:
        while True:
            running.set()

    monkeypatch.setattr(threading.Thread, "join", join)
    with pytest.raises(KeyboardInterrupt):
        Participants[None](3, 1).run(body)


# ---- programs -----------------------------------------------------------------------------------


@RUNNERS
def test_collectives_in_loops_and_calls(run: Runner) -> None:
    """Each trip is a meeting of its own; the loop ends for all at once."""
    text = module(
        """
  zero = s32[] constant(0)
  t = (s32[], f32[]) tuple(zero, p)
  w = (s32[], f32[]) while(t), condition=less, body=step
  ROOT r = f32[] get-tuple-element(w), index=1""",
        ADD
        + """
less {
  t = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}
around {
  x = f32[] parameter(0)
  q = f32[] collective-permute(x), source_target_pairs={{0,1},{1,2},{2,0}}
  a = f32[] all-reduce(q), replica_groups={}, to_apply=add
  ROOT s = f32[] subtract(a, q)
}
step {
  t = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[] get-tuple-element(t), index=1
  y = f32[] call(x), to_apply=around
  ROOT r = (s32[], f32[]) tuple(j, y)
}
""",
    )
    state = [1.0, 2.0, 4.0]
    for _ in range(3):
        total = sum(state)
        state = [total - state[number - 1] for number in range(3)]
    assert scalars(run(text, column(1, 2, 4), 3)) == [[value] for value in state]


@RUNNERS
def test_groups_go_on_without_each_other(run: Runner) -> None:
    """Each half has a number of trips of its own."""
    text = module(
        """
  t = (f32[]) tuple(p)
  w = (f32[]) while(t), condition=small, body=step
  ROOT r = f32[] get-tuple-element(w), index=0""",
        ADD
        + """
small {
  t = (f32[]) parameter(0)
  x = f32[] get-tuple-element(t), index=0
  n = f32[] constant(100)
  ROOT c = pred[] compare(x, n), direction=LT
}
step {
  t = (f32[]) parameter(0)
  x = f32[] get-tuple-element(t), index=0
  y = f32[] all-reduce(x), replica_groups={{0,2},{1,3}}, to_apply=add
  ROOT r = (f32[]) tuple(y)
}
""",
    )
    assert scalars(run(text, column(1, 30, 1, 30), 4)) == [[128], [120], [128], [120]]


@RUNNERS
def test_each_has_random_numbers_of_its_own(run: Runner) -> None:
    """The state of a generator belongs to a participant: none takes another's numbers."""
    text = module(
        """
  a = u64[2] rng-get-and-update-state(), delta=3
  g = f32[2] all-gather(q), replica_groups={}, dimensions={0}
  b = u64[2] rng-get-and-update-state(), delta=1
  ROOT r = (u64[2], u64[2], f32[2]) tuple(a, b, g)""".replace(
            "  g =", "  q = f32[1] reshape(p)\n  g ="
        )
    )
    first, second = run(text, column(1, 2), 2)
    for left, right in zip(first, second, strict=True):
        assert left.tolist() == right.tolist()


@RUNNERS
def test_what_one_gets_is_its_own(run: Runner) -> None:
    """A participant that writes over what it got does not change what others have."""
    text = f"""HloModule m
{ADD}
ENTRY e {{
  p = f32[4] parameter(0)
  n = f32[4] negate(p)
  g = f32[4] all-reduce(n), replica_groups={{}}, to_apply=add
  c = f32[4] collective-permute(n), source_target_pairs={{{{0,1}},{{1,0}}}}
  i = u32[] replica-id()
  five = f32[1] constant({{5}})
  d = f32[4] dynamic-update-slice(g, five, i)
  f = f32[4] dynamic-update-slice(c, five, i)
  h = f32[4] add(n, n)
  ROOT r = (f32[4], f32[4], f32[4]) tuple(d, f, h)
}}
"""
    ones, twos = np.ones(4, np.float32), np.full(4, 2, np.float32)
    first, second = run(text, [[ones], [twos]], 2)
    assert [x.tolist() for x in first] == [[5, -3, -3, -3], [5, -2, -2, -2], [-2, -2, -2, -2]]
    assert [x.tolist() for x in second] == [[-3, 5, -3, -3], [-1, 5, -1, -1], [-4, -4, -4, -4]]


def test_the_program_counts_the_launches_of_one() -> None:
    """Of participant 0, as if it were alone."""
    text = module(
        "  n = f32[] negate(p)\n  ROOT a = f32[] all-reduce(n), replica_groups={}, to_apply=add"
    )
    program = hloopt.compile(hloopt.parse(text), replicas=3)
    program.run_participants(column(1, 2, 3))
    assert program.launches == program.kernels == 2


def test_a_program_may_run_again_after_an_error() -> None:
    """And is not confused by what was under way."""
    text = module(
        """
  zero = f32[] constant(0)
  c = pred[] compare(p, zero), direction=GT
  ROOT r = f32[] conditional(c, p, p), true_computation=sum, false_computation=id""",
        ADD
        + """
sum {
  x = f32[] parameter(0)
  ROOT a = f32[] all-reduce(x), replica_groups={}, to_apply=add
}
id {
  ROOT x = f32[] parameter(0)
}
""",
    )
    program = hloopt.compile(hloopt.parse(text), replicas=2)
    for _ in range(2):
        with pytest.raises(EvaluationError):
            program.run_participants(column(1, -1))
        assert scalars(program.run_participants(column(1, 2))) == [[3], [3]]
        assert scalars(program.run_participants(column(-1, -2))) == [[-1], [-2]]


# ---- who waits for whom -------------------------------------------------------------------------


BRANCHES = (
    ADD
    + """
maximum {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] maximum(x, y)
}
first {
  x = f32[] parameter(0)
  ROOT a = f32[] all-reduce(x), replica_groups={}, to_apply=add
}
second {
  x = f32[] parameter(0)
  ROOT b = f32[] all-reduce(x), replica_groups={}, to_apply=maximum
}
neither {
  ROOT x = f32[] parameter(0)
}
pair {
  x = f32[] parameter(0)
  ROOT g = f32[] all-reduce(x), replica_groups={{0,1},{2,3}}, to_apply=add
}
"""
)


@RUNNERS
@pytest.mark.parametrize(
    ("branches", "inputs", "message"),
    [
        (
            "first, second",
            (0, 0, 1),
            (
                "m.hlo:16:8: a: participants 0 and 1 wait for 2 in all-reduce; "
                "2 is at m.hlo:20:8: b (all-reduce)"
            ),
        ),
        (
            "first, neither",
            (0, 1, 0),
            "m.hlo:16:8: a: participants 0 and 2 wait for 1 in all-reduce; 1 has ended",
        ),
        (
            "first, neither, second",
            (2, 1, 0, 1, 1),
            (
                "m.hlo:20:8: b: participant 0 waits for 1, 2, 3 and 4 in all-reduce; "
                "1, 3 and 4 have ended; 2 is at m.hlo:16:8: a (all-reduce)"
            ),
        ),
        (
            "pair, neither",
            (0, 1, 0, 0),
            "m.hlo:27:8: g: participant 0 waits for 1 in all-reduce; 1 has ended",
        ),
    ],
)
def test_waiting_without_end(
    run: Runner, branches: str, inputs: tuple[float, ...], message: str
) -> None:
    """The error names the instruction, its line, who waits for whom and where those are."""
    count = len(branches.split(","))
    text = module(
        f"""
  i = s32[] convert(p)
  ROOT r = f32[] conditional(i{", p" * count}), branch_computations={{{branches}}}""",
        BRANCHES,
    )
    with pytest.raises(EvaluationError) as error:
        run(text, column(*inputs), len(inputs))
    assert error.value.message == message


@RUNNERS
def test_loops_of_different_length(run: Runner) -> None:
    """Who needs more trips waits for those that have gone on."""
    text = module(
        """
  t = (f32[]) tuple(p)
  w = (f32[]) while(t), condition=small, body=step
  x = f32[] get-tuple-element(w), index=0
  ROOT r = f32[] all-reduce(x), replica_groups={}, to_apply=add""",
        ADD
        + """
small {
  t = (f32[]) parameter(0)
  x = f32[] get-tuple-element(t), index=0
  n = f32[] constant(3)
  ROOT c = pred[] compare(x, n), direction=LT
}
step {
  t = (f32[]) parameter(0)
  x = f32[] get-tuple-element(t), index=0
  z = f32[] constant(0)
  g = f32[] all-reduce(z), replica_groups={}, to_apply=add
  one = f32[] constant(1)
  y = f32[] add(x, one)
  ROOT r = (f32[]) tuple(y)
}
""",
    )
    with pytest.raises(EvaluationError) as error:
        run(text, column(0, 1), 2)
    assert error.value.message == (
        "m.hlo:19:3: g: participant 0 waits for 1 in all-reduce; 1 is at m.hlo:31:8: r (all-reduce)"
    )
