"""What rules about control flow, collectives and products leave alone for what it is made of."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.rewrite import PassLog
from hloopt.simplify import Simplify
from tests.passes.proof import check


def test_tokens_are_not_selected() -> None:
    """A conditional that chooses between tokens stays: only numbers can be selected."""
    text = (
        "HloModule m\none { ROOT t = (token[]) parameter(0) }\n"
        "two { ROOT t = (token[]) parameter(0) }\n"
        "ENTRY e { p = pred[] parameter(0)\n a = token[] after-all()\n b = token[] after-all()\n"
        "x = (token[]) tuple(a)\n y = (token[]) tuple(b)\n"
        "ROOT c = (token[]) conditional(p, x, y), true_computation=one, false_computation=two }\n"
    )
    module = hloopt.parse(text, "text")
    assert not Simplify().run(module, PassLog())


def test_branches_of_tuples_of_scalars_are_selected_part_by_part() -> None:
    """An index out of range takes the last branch, as before."""
    text = (
        "HloModule m\none { t = (s32[], f32[]) parameter(0)\n"
        "a = s32[] get-tuple-element(t), index=0\n b = f32[] get-tuple-element(t), index=1\n"
        "n = s32[] negate(a)\n ROOT r = (s32[], f32[]) tuple(n, b) }\n"
        "two { t = (s32[], f32[]) parameter(0)\n a = s32[] constant(4)\n"
        "b = f32[] get-tuple-element(t), index=1\n e = f32[] exponential(b)\n"
        "ROOT r = (s32[], f32[]) tuple(a, e) }\n"
        "three { ROOT t = (s32[], f32[]) parameter(0) }\n"
        "ENTRY e { i = s32[] parameter(0)\n t = (s32[], f32[]) parameter(1)\n"
        "ROOT c = (s32[], f32[]) conditional(i, t, t, t), branch_computations={one, two, three} }\n"
    )
    better, log = check(text, Simplify(), draws=12)
    assert log.hits["conditional(I, A, B) of scalars => select(I, A, B)"] == 1
    assert better.entry.root.opcode == "tuple"


@pytest.mark.parametrize(
    ("groups", "changes"),
    [
        ("replica_groups={{0},{1}}", True),
        ("replica_groups={{0,1}}", False),
        ("replica_groups={}", False),
        ("replica_groups={{0},{1}}, channel_id=1", False),
        ("replica_groups={{0},{1}}, channel_id=1, use_global_device_ids=true", True),
        ("replica_groups=[2,1]<=[2]", True),
    ],
)
def test_groups_of_one_device(groups: str, changes: bool) -> None:
    """Groups of replicas with a channel span all partitions, however many these are."""
    text = (
        "HloModule m, replica_count=2\nadd { a = f32[] parameter(0)\n b = f32[] parameter(1)\n"
        "ROOT s = f32[] add(a, b) }\nENTRY e { x = f32[4] parameter(0)\n y = f32[4] negate(x)\n"
        f"ROOT r = f32[4] all-reduce(y), {groups}, to_apply=add }}\n"
    )
    assert Simplify().run(hloopt.parse(text, "text"), PassLog()) is changes


def test_a_variadic_collective_becomes_a_tuple() -> None:
    """Each operand is what its participant keeps."""
    text = (
        "HloModule m\nadd { a = f32[] parameter(0)\n b = f32[] parameter(1)\n"
        "ROOT s = f32[] add(a, b) }\nENTRY e { x = f32[4] parameter(0)\n y = f32[3] parameter(1)\n"
        "ROOT r = (f32[4], f32[3]) all-reduce(x, y), replica_groups={{0}}, to_apply=add }\n"
    )
    better, _ = check(text, Simplify())
    assert better.entry.root.opcode == "tuple"


def test_a_barrier_of_several_read_elements() -> None:
    """What is read stays behind one barrier."""
    text = (
        "HloModule m\nENTRY e { x = f32[4] parameter(0)\n y = s32[] parameter(1)\n"
        "z = f32[2] parameter(2)\n t = (f32[4], s32[], f32[2]) tuple(x, y, z)\n"
        "b = (f32[4], s32[], f32[2]) opt-barrier(t)\n c = f32[4] get-tuple-element(b), index=0\n"
        "d = f32[2] get-tuple-element(b), index=2\n ROOT r = (f32[4], f32[2]) tuple(c, d) }\n"
    )
    better, _ = check(text, Simplify())
    barriers = [entry for entry in better.instructions() if entry.opcode == "opt-barrier"]
    assert [len(entry.operands[0].operands) for entry in barriers] == [2]
