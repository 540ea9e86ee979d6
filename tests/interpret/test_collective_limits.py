"""What is refused before several participants run, and what only running shows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.errors import EvaluationError, UnsupportedError, UsageError
from hloopt.interpret import participant_counts, plugins, tells_participants_apart
from tests.interpret.lockstep import RUNNERS, Array, Runner, column, module, scalars

# ---- refused before anything runs ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "counts", "message"),
    [
        (
            "f32[] all-reduce(p), replica_groups={{0,1},{2,4}}, to_apply=add",
            (4, 1),
            "all-reduce names replica 4; 4 replicas are run",
        ),
        (
            "f32[] all-reduce(p), replica_groups={{0,1}}, to_apply=add",
            (4, 1),
            "all-reduce has no group with replica 2",
        ),
        (
            (
                "f32[] all-reduce(p), replica_groups=[2,2]<=[4], channel_id=1, "
                "use_global_device_ids=true, to_apply=add"
            ),
            (2, 4),
            "all-reduce has no group with participant 4",
        ),
        (
            "f32[4] all-gather(q), replica_groups={}, dimensions={0}",
            (3, 1),
            "all-gather among 3 participants of f32[1] to f32[4]",
        ),
        (
            "f32[3] all-to-all(q3), replica_groups={}, dimensions={0}",
            (2, 1),
            "all-to-all among 2 participants of f32[3]",
        ),
        (
            "(f32[], f32[]) all-to-all(p, p), replica_groups={}",
            (3, 1),
            "all-to-all among 3 participants of 2 operands",
        ),
        (
            "f32[] collective-permute(p), source_target_pairs={{0,1}}, channel_id=1",
            (2, 1),
            "collective-permute names partition 1; only one partition is run",
        ),
        (
            "(f32[], u32[], token[]) send(p, k), channel_id=0",
            (2, 1),
            "send has neither source-target pairs nor a channel_id",
        ),
    ],
)
def test_what_does_not_fit_so_many_is_refused(
    line: str, counts: tuple[int, int], message: str
) -> None:
    """With the instruction's line, before anything runs."""
    lines = (
        "  k = token[] after-all()\n  q = f32[1] reshape(p)\n  q3 = f32[3] broadcast(p), dimensions={}\n"
        f"  x = {line}\n  ROOT r = f32[] negate(p)"
    )
    parsed = hloopt.parse(module(lines), "m.hlo")
    with pytest.raises(UnsupportedError) as error:
        hloopt.evaluate_participants(parsed, column(*range(8)), *counts)
    assert (error.value.message, error.value.line) == (f"x: {message}", 14)
    with pytest.raises(UnsupportedError) as error:
        hloopt.compile(parsed, replicas=counts[0], partitions=counts[1])
    assert error.value.message == f"x: {message}"


def test_inputs_for_each_participant() -> None:
    """As many lists as participants; a program of several is not run by one."""
    parsed = hloopt.parse(module("  ROOT r = f32[] negate(p)"))
    with pytest.raises(EvaluationError, match="2 lists of inputs for 4 participants"):
        hloopt.evaluate_participants(parsed, column(1, 2), 2, 2)
    program = hloopt.compile(parsed, replicas=2, partitions=2)
    with pytest.raises(EvaluationError, match="2 lists of inputs for 4 participants"):
        program.run_participants(column(1, 2))
    with pytest.raises(EvaluationError, match="this program has 4 participants"):
        program.run([np.array(1, np.float32)])
    assert scalars(hloopt.compile(parsed).run_participants(column(1))) == [[-1]]
    assert scalars(hloopt.evaluate_participants(parsed, column(1))) == [[-1]]


def test_counts_come_from_the_module() -> None:
    """Where they are not given; nothing is run by less than one."""
    parsed = hloopt.parse(
        module("  ROOT r = f32[] negate(p)", header=", replica_count=2, num_partitions=3")
    )
    assert participant_counts(parsed) == (2, 3)
    assert participant_counts(parsed, partitions=1) == (2, 1)
    assert len(hloopt.evaluate_participants(parsed, column(*range(6)))) == 6
    with pytest.raises(UsageError):
        participant_counts(parsed, 0)
    assert participant_counts(parsed, 256, 256) == (256, 256)
    with pytest.raises(UsageError, match="65537 participants cannot be run, at most 65536"):
        participant_counts(parsed, 65537, 1)


@pytest.mark.parametrize(
    ("line", "apart"),
    [
        ("f32[] negate(p)", False),
        ("u32[] replica-id()", True),
        ("f32[] all-reduce(p), replica_groups={}, to_apply=add", True),
        ("(f32[], u32[], token[]) send(p, k), channel_id=1", True),
        ("(f32[], u32[], token[]) send(p, k), channel_id=1, is_host_transfer=true", False),
    ],
)
def test_what_tells_participants_apart(line: str, apart: bool) -> None:
    """Collectives, numbers and transfers do; everything else is the same for all."""
    lines = f"  k = token[] after-all()\n  x = {line}\n  ROOT r = f32[] negate(p)"
    assert tells_participants_apart(hloopt.parse(module(lines))) is apart


@RUNNERS
def test_a_function_of_the_user_runs_for_each(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """And its failure is told as ever."""
    seen: list[float] = []

    def probe(call: Any, x: Array) -> Array:
        seen.append(float(x))
        if x > 2:
            raise ValueError("too large")
        return x

    monkeypatch.setattr(plugins, "_GIVEN", {"probe": probe})
    text = module(
        '  c = f32[] custom-call(p), custom_call_target="probe"\n'
        "  ROOT r = f32[] all-reduce(c), replica_groups={}, to_apply=add"
    )
    assert scalars(run(text, column(1, 2), 2)) == [[3], [3]]
    with pytest.raises(EvaluationError, match="the function for probe failed: ValueError"):
        run(text, column(1, 3), 2)
    assert seen == [1, 2, 1, 3]


# ---- what cannot be said before -----------------------------------------------------------------


@RUNNERS
def test_ragged_sizes_must_agree(run: Runner) -> None:
    """Rows that are not there, and a receiver that expects another number of them."""
    text = """HloModule m
ENTRY e {
  a = s32[4] parameter(0)
  b = s32[4] parameter(1)
  c = s32[2] parameter(2)
  d = s32[2] parameter(3)
  f = s32[2] parameter(4)
  g = s32[2] parameter(5)
  ROOT r = s32[4] ragged-all-to-all(a, b, c, d, f, g), replica_groups={{0,1}}
}
"""

    def inputs(**changed: list[int]) -> list[list[Array]]:
        tables = {"starts": [0, 1], "sizes": [1, 1], "targets": [0, 0], "received": [1, 1]}
        first = [np.arange(4), np.zeros(4), *({**tables, **changed}).values()]
        second = [np.arange(4), np.zeros(4), [0, 1], [1, 1], [1, 1], [1, 1]]
        return [[np.array(x, np.int32) for x in arrays] for arrays in (first, second)]

    assert [x[0].tolist() for x in run(text, inputs(), 2)] == [[0, 0, 0, 0], [1, 1, 0, 0]]
    place = "m.hlo:9:8: r: "
    for changed, message in (
        ({"sizes": [1, 2]}, "member 0 sends 2 rows to member 1, which receives 1"),
        ({"received": [1, 0]}, "member 1 sends 1 rows to member 0, which receives 0"),
        ({"starts": [0, 4]}, "rows 4 to 5 of the input of member 0, which has 4"),
        ({"targets": [0, -1]}, "rows -1 to 0 of the output of member 1, which has 4"),
    ):
        with pytest.raises(EvaluationError) as error:
            run(text, inputs(**changed), 2)
        assert error.value.message == place + message


@RUNNERS
def test_slices_in_place_that_are_not_defined(run: Runner) -> None:
    """Source and target must agree where the slice goes, and it must be inside."""
    text = """HloModule m
ENTRY e {
  p = s32[4] parameter(0)
  q = s32[4] parameter(1)
  a = s32[] parameter(2)
  b = s32[] parameter(3)
  s = (s32[]) tuple(a)
  t = (s32[]) tuple(b)
  ROOT r = s32[4] collective-permute(p, q, s, t), source_target_pairs={{0,1}}, slice_sizes={{2}}
}
"""

    def inputs(first: tuple[int, int], second: tuple[int, int]) -> list[list[Array]]:
        return [
            [np.arange(4, dtype=np.int32), np.full(4, 9, np.int32), *map(np.int32, starts)]
            for starts in (first, second)
        ]

    found = run(text, inputs((1, 2), (0, 2)), 2)
    assert [x[0].tolist() for x in found] == [[9, 9, 9, 9], [9, 9, 1, 2]]
    place = "m.hlo:9:8: r: "
    for first, second, message in (
        (
            (0, 1),
            (0, 2),
            (
                "the source writes at [1], the target expects it at [2]; "
                "HLO does not say whose starts count"
            ),
        ),
        ((3, 0), (0, 0), "a slice of [2] at [3] is not inside the input of [4]"),
        ((0, -1), (0, -1), "a slice of [2] at [-1] is not inside the output of [4]"),
    ):
        with pytest.raises(EvaluationError) as error:
            run(text, inputs(first, second), 2)
        assert error.value.message == place + message
    for sizes, message in (
        ("{{-1}}", "a slice of [-1] at [1] is not inside the input of [4]"),
        ("{}", "participant 0 sends 1 times, 0 slices are given"),
    ):
        with pytest.raises(EvaluationError) as error:
            run(text.replace("{{2}}", sizes), inputs((1, 2), (0, 2)), 2)
        assert error.value.message == place + message


@RUNNERS
def test_slices_of_several_buffers(run: Runner) -> None:
    """The k-th pair of a source moves the k-th slice of every buffer."""
    text = """HloModule m
ENTRY e {
  p = (s32[4], s32[2]) parameter(0)
  q = (s32[4], s32[2]) parameter(1)
  zero = s32[] constant(0)
  one = s32[] constant(1)
  two = s32[] constant(2)
  z = (s32[]) tuple(zero)
  o = (s32[]) tuple(one)
  t = (s32[]) tuple(two)
  a1 = ((s32[]), (s32[])) tuple(z, t)
  a2 = ((s32[]), (s32[])) tuple(z, o)
  a = (((s32[]), (s32[])), ((s32[]), (s32[]))) tuple(a1, a2)
  b1 = ((s32[]), (s32[])) tuple(t, z)
  b = (((s32[]), (s32[])), ((s32[]), (s32[]))) tuple(b1, a2)
  ROOT r = (s32[4], s32[2]) collective-permute(p, q, a, b), source_target_pairs={{0,1},{1,2},{2,0},{0,2},{2,1},{1,0}}, slice_sizes={{2},{2},{1},{1}}
}
"""
    inputs = [
        [
            np.arange(4, dtype=np.int32) + 10 * n,
            np.arange(2, dtype=np.int32) + 10 * n + 4,
            np.full(4, -1, np.int32),
            np.full(2, -1, np.int32),
        ]
        for n in range(3)
    ]
    found = run(text, inputs, 3)
    # First half of the one before to the second half; second half of the one after to the first.
    for number, (large, small) in enumerate(found):
        before, after = (number - 1) % 3 * 10, (number + 1) % 3 * 10
        assert large.tolist() == [after + 2, after + 3, before, before + 1]
        assert small.tolist() == [before + 4, after + 5]
