"""Collectives of one participant; anything that needs a second one is refused by name and line."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.errors import UnsupportedError

ADD = """
add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y)
}
"""

X = np.arange(4, dtype=np.float32)


def run(body: str, header: str = "") -> list[np.ndarray]:
    text = f"HloModule m{header}\n{ADD}\nENTRY e {{\n  p = f32[4] parameter(0)\n{body}\n}}\n"
    return hloopt.evaluate(hloopt.parse(text), [X])


IDENTITIES = [
    "ROOT r = f32[4] all-reduce(p), replica_groups={{0}}, to_apply=add",
    "ROOT r = f32[4] all-reduce(p), replica_groups={}, to_apply=add",
    "ROOT r = f32[4] all-reduce(p), replica_groups=[1,1]<=[1], to_apply=add",
    "ROOT r = f32[4] all-gather(p), replica_groups={{0}}, dimensions={0}",
    "ROOT r = f32[4] reduce-scatter(p), replica_groups={{0}}, dimensions={0}, to_apply=add",
    "ROOT r = f32[4] all-to-all(p), replica_groups={{0}}, dimensions={0}",
    "t = (f32[4]) all-to-all(p), replica_groups={{0}}\n  ROOT r = f32[4] get-tuple-element(t), index=0",
    "ROOT r = f32[4] collective-permute(p), source_target_pairs={{0,0}}",
    "ROOT r = f32[4] collective-broadcast(p), replica_groups={{0}}",
    (
        "s = f32[4] all-reduce-start(p), replica_groups={{0}}, to_apply=add\n"
        "  ROOT r = f32[4] all-reduce-done(s)"
    ),
    (
        "s = (f32[4], f32[4]) all-gather-start(p), replica_groups={{0}}, dimensions={0}\n"
        "  ROOT r = f32[4] all-gather-done(s)"
    ),
    (
        "s = (f32[4], f32[4], u32[], u32[]) collective-permute-start(p), source_target_pairs={{0,0}}\n"
        "  ROOT r = f32[4] collective-permute-done(s)"
    ),
]


@pytest.mark.parametrize("body", IDENTITIES)
def test_one_participant_keeps_what_it_has(body: str) -> None:
    (found,) = run(f"  {body}")
    assert found.tolist() == X.tolist()


def test_a_collective_may_be_an_asynchronous_call() -> None:
    text = f"""HloModule m
{ADD}
scattered {{
  x = f32[4] parameter(0)
  ROOT y = f32[4] reduce-scatter(x), replica_groups={{{{0}}}}, dimensions={{0}}, to_apply=add
}}

ENTRY e {{
  p = f32[4] parameter(0)
  s = ((f32[4]), f32[4], u32[]) async-start(p), calls=scattered
  ROOT d = f32[4] async-done(s)
}}
"""
    (found,) = hloopt.evaluate(hloopt.parse(text), [X])
    assert found.tolist() == X.tolist()


def test_several_operands_stay_in_their_places() -> None:
    found = run(
        "  q = f32[4] negate(p)\n"
        "  a = (f32[4], f32[4]) all-reduce(p, q), replica_groups={{0}}, to_apply=add\n"
        "  s = (f32[4], f32[4]) all-reduce-start(p, q), replica_groups={{0}}, to_apply=add\n"
        "  d = (f32[4], f32[4]) all-reduce-done(s)\n"
        "  g = ((f32[4], f32[4]), (f32[4], f32[4])) all-gather-start(p, q), replica_groups={{0}}, dimensions={0}\n"
        "  h = (f32[4], f32[4]) all-gather-done(g)\n"
        "  ROOT r = ((f32[4], f32[4]), (f32[4], f32[4]), (f32[4], f32[4])) tuple(a, d, h)"
    )
    assert [array.tolist() for array in found] == [X.tolist(), (-X).tolist()] * 3


def test_a_device_nobody_sends_to_has_zeros() -> None:
    (found,) = run("  ROOT r = f32[4] collective-permute(p), source_target_pairs={}")
    assert found.tolist() == [0, 0, 0, 0]


def test_the_only_device_is_number_0() -> None:
    found = run(
        "  a = u32[] partition-id()\n  b = u32[] replica-id()\n"
        "  ROOT r = (u32[], u32[]) tuple(a, b)"
    )
    assert [(array.dtype, int(array)) for array in found] == [(np.uint32, 0)] * 2


@pytest.mark.parametrize(
    ("body", "header", "message"),
    [
        (
            "ROOT r = f32[4] all-reduce(p), replica_groups={{0,1}}, to_apply=add",
            "",
            "r: all-reduce among 2 participants; only one is run",
        ),
        (
            "ROOT r = f32[16] all-gather(p), replica_groups=[2,4]<=[8], dimensions={0}",
            "",
            "r: all-gather among 4 participants; only one is run",
        ),
        (
            "ROOT r = f32[4] collective-permute(p), source_target_pairs={{0,1},{1,0}}",
            "",
            "r: collective-permute with participant 1; only number 0 is run",
        ),
        (
            "ROOT r = f32[4] all-reduce(p), replica_groups={}, to_apply=add",
            ", replica_count=8",
            "r: all-reduce in a module with replica_count=8; only one participant is run",
        ),
        (
            "ROOT r = f32[2] reduce-scatter(p), replica_groups={}, dimensions={0}, to_apply=add",
            "",
            "r: reduce-scatter of f32[4] to f32[2]; only one participant is run",
        ),
        (
            "ROOT r = u32[] partition-id()",
            ", num_partitions=2",
            "r: partition-id in a module with num_partitions=2; only one participant is run",
        ),
    ],
)
def test_more_than_one_participant_is_refused(body: str, header: str, message: str) -> None:
    with pytest.raises(UnsupportedError) as error:
        run(f"  {body}", header)
    assert error.value.message == f"{message} (--participants runs several)"
    assert error.value.line == 11


def test_a_reducer_of_another_type_converts() -> None:
    """To its type and back, as ``convert`` does: what no s32 holds becomes the nearest."""
    text = (
        f"HloModule m\n{ADD}\nENTRY e {{\n  p = s32[3] parameter(0)\n"
        "  ROOT r = s32[3] all-reduce(p), replica_groups={}, to_apply=add\n}\n"
    )
    given = np.array([2**31 - 1, -(2**31), 7], np.int32)
    assert hloopt.evaluate(hloopt.parse(text), [given])[0].tolist() == given.tolist()
