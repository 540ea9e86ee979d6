"""Groups of participants: every way to write them, and what the four modes make of ids."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.interpret.groups import check_groups, groups_of, links
from hloopt.ir import Instruction

ADD = "add {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT s = f32[] add(x, y)\n}"


def collective(attributes: str, opcode: str = "all-reduce") -> Instruction:
    """A collective of one scalar."""
    apply = ", to_apply=add" if opcode == "all-reduce" else ""
    text = (
        f"HloModule m\n{ADD}\nENTRY e {{\n  p = f32[] parameter(0)\n"
        f"  ROOT r = f32[] {opcode}(p), {attributes}{apply}\n}}\n"
    )
    return hloopt.parse(text).entry.root


@pytest.mark.parametrize(
    ("written", "groups"),
    [
        ("{}", ((0, 1, 2, 3, 4, 5, 6, 7),)),
        ("{{3,1},{0,2},{4,5,6,7}}", ((3, 1), (0, 2), (4, 5, 6, 7))),
        ("[2,4]<=[8]", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("[2,4]<=[4,2]T(1,0)", ((0, 2, 4, 6), (1, 3, 5, 7))),
        ("[4,2]<=[2,2,2]T(0,2,1)", ((0, 2), (1, 3), (4, 6), (5, 7))),
        ("[2,4]<=[2,2,2]T(1,0,2)", ((0, 1, 4, 5), (2, 3, 6, 7))),
        ("mesh['a'=2,'b'=4] {'b'}", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("mesh['a'=2,'b'=4] {'a'}", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("mesh['a'=2,'b'=4] {'a','b'}", ((0, 1, 2, 3, 4, 5, 6, 7),)),
        ("mesh['a'=2,'b'=4] {'b','a'}", ((0, 4, 1, 5, 2, 6, 3, 7),)),
        ("mesh['a'=2,'b'=4] {'b':(1)2}", ((0, 2), (1, 3), (4, 6), (5, 7))),
        ("mesh['a'=2,'b'=4] {'b':(2)2}", ((0, 1), (2, 3), (4, 5), (6, 7))),
        ("mesh['a'=2,'b'=4] {'a','b':(2)2}", ((0, 1, 4, 5), (2, 3, 6, 7))),
        (
            "mesh['a'=2,'b'=4, device_ids=(7,6,5,4,3,2,1,0)] {'b'}",
            ((7, 6, 5, 4), (3, 2, 1, 0)),
        ),
        (
            "mesh['a'=4,'b'=2, device_ids=([8]<=[2,4]T(1,0))] {'b'}",
            ((0, 4), (1, 5), (2, 6), (3, 7)),
        ),
        ("mesh['a'=4,'b'=2, device_ids=([8]<=[8])] {'a'}", ((0, 2, 4, 6), (1, 3, 5, 7))),
        (
            "mesh['a'=4,'b'=2, device_ids=([2,4]T(1,0))] {'b'}",
            ((0, 4), (1, 5), (2, 6), (3, 7)),
        ),
        ("mesh['a'=2,'b'=2] {'1'}", ((0, 1), (2, 3))),
    ],
)
def test_groups_as_they_are_written(written: str, groups: tuple[tuple[int, ...], ...]) -> None:
    """Members keep the order that the text gives them."""
    assert groups_of(collective(f"replica_groups={written}"), 8, 1) == groups


@pytest.mark.parametrize("part", ["(0)2", "(3)2", "(4)2"])
def test_parts_that_an_axis_does_not_have(part: str) -> None:
    """An axis is cut where its size divides, from 1 to the whole."""
    one = collective(f"replica_groups=mesh['a'=2,'b'=4] {{'b':{part}}}")
    with pytest.raises(ValueError, match="axis 'b' of 4 cannot be cut"):
        groups_of(one, 8, 1)


@pytest.mark.parametrize(
    ("opcode", "attributes", "groups"),
    [
        # Participants of 2 replicas and 3 partitions: 0 1 2 and 3 4 5.
        ("all-reduce", "replica_groups={{1,0}}", ((3, 0), (4, 1), (5, 2))),
        ("all-reduce", "replica_groups={}", ((0, 3), (1, 4), (2, 5))),
        ("all-reduce", "channel_id=1, replica_groups={{1,0}}", ((3, 4, 5, 0, 1, 2),)),
        ("all-reduce", "channel_id=1, replica_groups={{0},{1}}", ((0, 1, 2), (3, 4, 5))),
        ("all-reduce", "channel_id=1, replica_groups={}", ((0, 1, 2, 3, 4, 5),)),
        (
            "all-reduce",
            "channel_id=1, replica_groups={{5,0},{1,2},{3,4}}, use_global_device_ids=true",
            ((5, 0), (1, 2), (3, 4)),
        ),
        ("collective-broadcast", "replica_groups={{1,0}}", ((3, 0), (4, 1), (5, 2))),
        (
            "collective-broadcast",
            "channel_id=1, replica_groups={{2,0},{1}}",
            ((2, 0), (5, 3), (1,), (4,)),
        ),
        ("collective-broadcast", "channel_id=1, replica_groups={}", ((0, 1, 2), (3, 4, 5))),
    ],
)
def test_modes(opcode: str, attributes: str, groups: tuple[tuple[int, ...], ...]) -> None:
    """What ids are: replicas, partitions, replicas with all partitions, or participants."""
    assert groups_of(collective(attributes, opcode), 2, 3) == groups
    assert check_groups(collective(attributes, opcode), 2, 3) is None


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ("replica_groups={{0,1},{1}}", "all-reduce names replica 1 twice"),
        ("replica_groups={{0,2}}", "all-reduce names replica 2; 2 replicas are run"),
        ("replica_groups={{0}}", "all-reduce has no group with replica 1"),
        (
            "channel_id=1, use_global_device_ids=true, replica_groups={{0,1,2,3,4,6}}",
            "all-reduce names participant 6; 6 participants are run",
        ),
        (
            "channel_id=1, use_global_device_ids=true, replica_groups={}",
            "all-reduce with use_global_device_ids=true needs groups",
        ),
        ("use_global_device_ids=true", "replica_groups= of all-reduce are of no known form"),
    ],
)
def test_groups_that_do_not_fit(attributes: str, message: str) -> None:
    """Told for 2 replicas of 3 partitions."""
    assert check_groups(collective(attributes), 2, 3) == message


@pytest.mark.parametrize(
    ("attributes", "participant", "group", "pairs"),
    [
        ("source_target_pairs={{0,1},{1,0}}", 1, (1, 3), ((1, 3), (3, 1))),
        ("source_target_pairs={{0,1},{1,0}}", 4, (4,), ()),
        ("source_target_pairs={{0,1},{2,0}}", 5, (1, 3, 5), ((1, 3), (5, 1))),
        ("channel_id=1, source_target_pairs={{0,1}}", 5, (4, 5), ((4, 5),)),
        ("channel_id=1, source_target_pairs={{1,1}}", 2, (2,), ()),
    ],
)
def test_a_permutation_links_those_that_pairs_connect(
    attributes: str,
    participant: int,
    group: tuple[int, ...],
    pairs: tuple[tuple[int, int], ...],
) -> None:
    """Of 3 replicas and 2 partitions; nobody else is waited for."""
    instruction = collective(attributes, "collective-permute")
    written = instruction.attributes["source_target_pairs"]
    assert links(instruction, written, participant, 3, 2) == (group, pairs)
