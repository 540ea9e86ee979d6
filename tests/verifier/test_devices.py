"""Groups and pairs of devices: each constraint broken, and its valid neighbour."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.types import IotaList
from hloopt.verifier import violations
from tests.helpers.neighbours import Pair, check_pair

SUM = """
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
"""


def reduced(attributes: str, header: str = "") -> str:
    """An all-reduce in line 9 of a module."""
    return (
        f"HloModule m{header}{SUM}ENTRY e {{\n  p = f32[4] parameter(0)\n"
        f"  ROOT r = f32[4] all-reduce(p), {attributes}, to_apply=sum\n}}"
    )


def one(line: str, header: str = "", parameter: str = "f32[4]") -> str:
    """An instruction in line 4 of a module."""
    return f"HloModule m{header}\nENTRY e {{\n  p = {parameter} parameter(0)\n  ROOT {line}\n}}"


INPLACE = """
HloModule m
ENTRY e {
  p = f32[4,8] parameter(0)
  q = f32[4,8] parameter(1)
  i = s32[] parameter(2)
  x = (s32[], s32[]) tuple(i, i)
  y = <>
  ROOT r = f32[4,8] collective-permute(p, q, x, y), source_target_pairs={{0,1}}, slice_sizes={{1,8}}
}
"""
TWICE = """
HloModule m
ENTRY e {
  p = f32[4,8] parameter(0)
  q = f32[4,8] parameter(1)
  i = s32[] parameter(2)
  x = (s32[], s32[]) tuple(i, i)
  xs = ((s32[], s32[]), (s32[], s32[])) tuple(x, x)
  ROOT r = f32[4,8] collective-permute(p, q, xs, xs), source_target_pairs={{0,1},{0,2}<>}, slice_sizes={{1,8},{1,8}}
}
"""

PAIRS = [
    Pair(
        "a group has members",
        "replica-groups",
        reduced("replica_groups={{0,1},{<>}}"),
        "2,3",
        "",
        9,
        "%r: replica_groups= have an empty group",
    ),
    Pair(
        "a device is in one group",
        "replica-groups",
        reduced("replica_groups={{0,1},{<>}}"),
        "2",
        "1",
        9,
        "%r: replica_groups= name device 1 twice",
    ),
    Pair(
        "all devices are in a group",
        "replica-groups",
        reduced("replica_groups={{0,1},{<>}}"),
        "2",
        "3",
        9,
        "%r: replica_groups= name 3 devices, but not device 2",
    ),
    Pair(
        "groups name the replicas of the module",
        "replica-groups",
        reduced("replica_groups={{0,1},{2,3}}", ", replica_count=<>"),
        "4",
        "8",
        9,
        "%r: replica_groups= name 4 devices, the module has 8 in mode cross_replica",
    ),
    Pair(
        "with global ids groups name replicas times partitions",
        "replica-groups",
        reduced(
            "replica_groups={{0,1},{2,3}}, channel_id=1, use_global_device_ids=true",
            ", replica_count=2, num_partitions=<>",
        ),
        "2",
        "4",
        9,
        "%r: replica_groups= name 4 devices, the module has 8 in mode flattened_id",
    ),
    Pair(
        "with a channel an all-to-all names partitions",
        "replica-groups",
        one(
            "r = f32[4] all-to-all(p), dimensions={0}, channel_id=1, replica_groups={{0,1}}",
            ", num_partitions=<>",
        ),
        "2",
        "4",
        4,
        "%r: replica_groups= name 2 devices, the module has 4 in mode cross_partition",
    ),
    Pair(
        "global ids need a channel",
        "replica-groups",
        reduced("replica_groups={{0,1}}, use_global_device_ids=true<>"),
        ", channel_id=1",
        "",
        9,
        "%r: use_global_device_ids=true needs a channel_id=",
    ),
    Pair(
        "global ids are listed",
        "replica-groups",
        reduced("replica_groups={<>}, channel_id=1, use_global_device_ids=true"),
        "{0,1}",
        "",
        9,
        "%r: replica_groups= must list the devices where use_global_device_ids=true",
    ),
    Pair(
        "groups of an all-gather have one size",
        "replica-groups",
        one("r = f32[8] all-gather(p), dimensions={0}, replica_groups={{0,1},{<>}}"),
        "2,3",
        "2,3,4",
        4,
        "%r: replica_groups= have 2 and 3 members, not one size",
    ),
    Pair(
        "without groups all replicas gather",
        "replica-groups",
        one("r = f32[8] all-gather(p), dimensions={0}, replica_groups={}", ", replica_count=<>"),
        "2",
        "4",
        4,
        "%r: dimension 0 is 4 in a part and 8 in the whole, in groups of 4",
    ),
    Pair(
        "a channel without global ids spans all partitions",
        "replica-groups",
        one(
            "r = f32[16] all-gather(p), dimensions={0}, replica_groups={{0,1}}, channel_id=1",
            ", replica_count=2, num_partitions=<>",
        ),
        "2",
        "4",
        4,
        "%r: dimension 0 is 4 in a part and 16 in the whole, in groups of 8",
    ),
    Pair(
        "an all-to-all without a dimension has an operand for each device",
        "replica-groups",
        one("r = (f32[4], f32[4]) all-to-all(p, p), replica_groups={}", ", replica_count=<>"),
        "2",
        "3",
        4,
        "%r: 2 operands are exchanged in groups of 3",
    ),
    Pair(
        "an iota regroups as many devices as it counts",
        "replica-groups",
        reduced("replica_groups=[2,4]<=[<>]"),
        "8",
        "9",
        9,
        "%r: replica_groups=[2,4]<=[9] regroup 9 devices",
    ),
    Pair(
        "a mesh has the devices of the module",
        "replica-groups",
        reduced("replica_groups=mesh['x'=2,'y'=<>] {'x'}", ", replica_count=4"),
        "2",
        "3",
        9,
        "%r: replica_groups= name 6 devices, the module has 4 in mode cross_replica",
    ),
    Pair(
        "the channel of an all-reduce is positive",
        "channel",
        reduced("channel_id=<>"),
        "1",
        "0",
        9,
        "%r: channel_id=0 is not positive",
    ),
    Pair(
        "all or no all-reduces constrain their layout",
        "constrain-layout",
        f"HloModule m{SUM}ENTRY e {{\n  p = f32[4] parameter(0)\n"
        "  q = f32[4] all-reduce(p), to_apply=sum\n"
        "  ROOT r = f32[4] all-reduce(q), to_apply=sum, constrain_layout=<>\n}",
        "false",
        "true",
        10,
        "%r: constrain_layout=true, %q has false; all must agree",
    ),
    Pair(
        "a device is a source once",
        "collective-pairs",
        one("r = f32[4] collective-permute(p), source_target_pairs={{0,1},{<>,2}}"),
        "1",
        "0",
        4,
        "%r: source_target_pairs=: device 0 is a source 2 times",
    ),
    Pair(
        "a device is a target once",
        "collective-pairs",
        one("r = f32[4] collective-permute(p), source_target_pairs={{0,1},{1,<>}}"),
        "0",
        "1",
        4,
        "%r: source_target_pairs=: device 1 is a target 2 times",
    ),
    Pair(
        "devices are not negative",
        "collective-pairs",
        one("r = f32[4] collective-permute(p), source_target_pairs={{0,<>}}"),
        "1",
        "-1",
        4,
        "%r: source_target_pairs=: target -1 is none of 1 devices",
    ),
    Pair(
        "devices are replicas",
        "collective-pairs",
        one("r = f32[4] collective-permute(p), source_target_pairs={{0,<>}}", ", replica_count=4"),
        "3",
        "4",
        4,
        "%r: source_target_pairs=: target 4 is none of 4 devices",
    ),
    Pair(
        "with a channel devices are partitions",
        "collective-pairs",
        one(
            "r = f32[4] collective-permute(p), channel_id=1, source_target_pairs={{<>,0}}",
            ", replica_count=9, num_partitions=4",
        ),
        "3",
        "4",
        4,
        "%r: source_target_pairs=: source 4 is none of 4 devices",
    ),
    Pair(
        "an in-place permutation has a start for each dimension",
        "shape",
        INPLACE,
        "(s32[], s32[]) tuple(i, i)",
        "(s32[], s32[], s32[]) tuple(i, i, i)",
        8,
        "%r: starts (s32[], s32[], s32[]) do not have one index for each dimension of f32[4,8]",
    ),
    Pair(
        "the starts of an in-place permutation are a tuple",
        "shape",
        INPLACE,
        "(s32[], s32[]) tuple(i, i)",
        "s32[2] broadcast(i), dimensions={}",
        8,
        "%r: starts s32[2] are not a tuple",
    ),
    Pair(
        "an in-place permutation uses a device once for each slice",
        "collective-pairs",
        TWICE,
        ",{1,2}",
        ",{0,3}",
        8,
        "%r: source_target_pairs=: device 0 is a source 3 times",
    ),
]


@pytest.mark.parametrize("pair", PAIRS, ids=[pair.name for pair in PAIRS])
def test_devices(pair: Pair) -> None:
    """The neighbour passes, the broken text is refused by name and line."""
    check_pair(pair)


def test_an_in_place_permutation_has_input_output_and_starts() -> None:
    """With fewer operands it is refused, and nothing fails on the way."""
    line = "r = f32[4] collective-permute(p), source_target_pairs={{0,1}}, slice_sizes={{4}}"
    (error,) = violations(hloopt.parse(one(line)))
    said = "%r: collective-permute: with slice_sizes= it takes 4 operands, not 1"
    assert (error.message, error.line) == (said, 4)


def test_an_iota_permutes_its_dimensions() -> None:
    """What the parser refuses, a module made by hand may have."""
    module = hloopt.parse(reduced("replica_groups=[2,4]<=[4,2]T(1,0)"))
    assert list(violations(module)) == []
    module.entry.root.attributes["replica_groups"] = IotaList((2, 4), (4, 2), (1, 1))
    (error,) = violations(module)
    assert error.rule == "replica-groups"
    assert error.message == "%r: replica_groups=[2,4]<=[4,2] do not permute all dimensions"


def test_an_iota_of_many_devices_is_not_listed() -> None:
    """A million million devices are counted, not made."""
    count = 10**12
    text = reduced(f"replica_groups=[1,{count}]<=[<>]")
    message = f"%r: replica_groups=[1,{count}]<=[7] regroup 7 devices"
    check_pair(Pair("many", "replica-groups", text, str(count), "7", 9, message))
