"""Collectives among several participants give each what XLA gives it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hloopt
from tests.oracle.oracle import ask, available

pytestmark = [
    pytest.mark.xla,
    pytest.mark.skipif(not available(), reason="jaxlib is not there; see HLOOPT_XLA_PYTHON"),
]

REGIONS = "\n".join(
    f"{name} {{\n  x = {kind}[] parameter(0)\n  y = {kind}[] parameter(1)\n"
    f"  ROOT s = {kind}[] {opcode}(x, y)\n}}"
    for name, kind, opcode in (
        ("sum", "f32", "add"),
        ("product", "s32", "multiply"),
        ("largest", "f32", "maximum"),
        ("least", "s32", "minimum"),
    )
)

# Of 2 replicas and 4 partitions, and of 8 replicas, where ids of partitions would be none.
BY_REPLICAS = (
    "f32[8] all-reduce(p), replica_groups={{1,0}}, to_apply=sum",
    "s32[8,2] all-reduce(q), replica_groups={}, to_apply=product",
    "f32[16] all-gather(p), replica_groups={{1,0}}, dimensions={0}",
    "f32[4] reduce-scatter(p), replica_groups={{1,0}}, dimensions={0}, to_apply=sum",
    "f32[8] all-to-all(p), replica_groups={{1,0}}, dimensions={0}",
    "(f32[8], f32[8]) all-to-all(p, n), replica_groups={{1,0}}",
    "f32[8] collective-permute(p), source_target_pairs={{0,1}}",
    "u32[] replica-id()",
)
BY_PARTITIONS = (
    "f32[8] all-reduce(p), replica_groups={{0},{1}}, to_apply=sum, channel_id=1",
    "f32[8] all-reduce(p), replica_groups={{1,0}}, to_apply=largest, channel_id=1",
    (
        "f32[8] all-reduce(p), replica_groups=[2,4]<=[4,2]T(1,0), to_apply=sum, channel_id=1, "
        "use_global_device_ids=true"
    ),
    (
        "s32[8,2] all-reduce(q), replica_groups={{7,0,3},{1,2,4,5,6}}, to_apply=least, channel_id=1, "
        "use_global_device_ids=true"
    ),
    (
        "s32[8,8] all-gather(q), replica_groups=[2,4]<=[2,2,2]T(1,0,2), dimensions={1}, channel_id=1, "
        "use_global_device_ids=true"
    ),
    "s32[64,2] all-gather(q), replica_groups={{1,0}}, dimensions={0}, channel_id=1",
    (
        "s32[4,2] reduce-scatter(q), replica_groups={{0,7},{1,6},{2,5},{3,4}}, dimensions={0}, "
        "channel_id=1, use_global_device_ids=true, to_apply=product"
    ),
    "f32[8] all-to-all(p), replica_groups={{3,1,2,0}}, dimensions={0}, channel_id=1",
    "s32[8,2] all-to-all(q), replica_groups={{3,1},{2,0}}, dimensions={0}, channel_id=1",
    "f32[8] collective-permute(p), source_target_pairs={{0,1},{1,0},{2,3}}, channel_id=1",
    "u32[] partition-id()",
)


def of_numbers(replicas: int) -> tuple[str, ...]:
    """For as many replicas and no partitions."""
    return (
        "f32[8] all-reduce(p), replica_groups=[4,2]<=[8], to_apply=largest",
        "s32[8,2] all-reduce(q), replica_groups=[2,4]<=[4,2]T(1,0), to_apply=least",
        "f32[16] all-gather(p), replica_groups={{0,7},{6,1},{2,5},{4,3}}, dimensions={0}",
        (
            f"f32[1] reduce-scatter(p), replica_groups=[1,{replicas}]<=[{replicas}], dimensions={{0}}, "
            "to_apply=sum"
        ),
        "s32[8,2] all-to-all(q), replica_groups=[2,4]<=[8], dimensions={0}",
        "s32[8,2] collective-permute(q), source_target_pairs={{0,3},{3,7},{7,0},{1,1}}",
    )


def text(lines: tuple[str, ...], replicas: int, partitions: int) -> str:
    """A module with these instructions as results, none of which is left to XLA's partitioner."""

    def manual(shape: str) -> str:
        if partitions == 1:
            return ""
        if not shape.startswith("("):
            return ", sharding={manual}"
        return f", sharding={{{', '.join(['{manual}'] * shape.count('['))}}}"

    shapes = [line[: line.index(")") + 1] if line[0] == "(" else line.split()[0] for line in lines]
    whole = f"({', '.join(shapes)})"
    names = ", ".join(f"r{at}" for at in range(len(lines)))
    body = [
        ("p", "f32[8] parameter(0)", "f32[8]"),
        ("q", "s32[8,2] parameter(1)", "s32[8,2]"),
        ("n", "f32[8] negate(p)", "f32[8]"),
        *((f"r{at}", line, shapes[at]) for at, line in enumerate(lines)),
        ("ROOT t", f"{whole} tuple({names})", whole),
    ]
    made = "\n".join(f"  {name} = {line}{manual(shape)}" for name, line, shape in body)
    header = f"HloModule m, replica_count={replicas}, num_partitions={partitions}"
    return f"{header}\n{REGIONS}\nENTRY e {{\n{made}\n}}\n"


@pytest.mark.parametrize(
    ("lines", "replicas", "partitions"),
    [
        (BY_REPLICAS, 2, 1),
        (BY_REPLICAS, 2, 4),
        (BY_PARTITIONS, 2, 4),
        (of_numbers(8), 8, 1),
    ],
    ids=["replicas", "replicas of partitions", "partitions", "many replicas"],
)
def test_each_gets_what_xla_gives(
    tmp_path: Path, lines: tuple[str, ...], replicas: int, partitions: int
) -> None:
    """Sums of small integers, so that no order of them tells; all else is exact."""
    module_text = text(lines, replicas, partitions)
    module = hloopt.parse(module_text)
    hloopt.verify(module)
    rng = np.random.default_rng(3)
    inputs = [
        [
            rng.integers(-9, 10, 8).astype(np.float32),
            rng.integers(-9, 10, (8, 2)).astype(np.int32),
        ]
        for _ in range(replicas * partitions)
    ]
    (tmp_path / "m.hlo").write_text(module_text)
    named = {
        f"in_{at}.{who}": array
        for who, arrays in enumerate(inputs)
        for at, array in enumerate(arrays)
    }
    np.savez(tmp_path / "in.npz", **named)
    ask(
        "participants",
        *(str(tmp_path / name) for name in ("m.hlo", "in.npz", "out.npz")),
        str(replicas),
        str(partitions),
    )
    found = hloopt.evaluate_participants(module, inputs)
    with np.load(tmp_path / "out.npz") as wanted:
        assert len(wanted.files) == sum(map(len, found))
        for who, arrays in enumerate(found):
            for at, array in enumerate(arrays):
                expected = wanted[f"out_{at}.{who}"]
                assert array.dtype == expected.dtype
                assert array.tolist() == expected.tolist(), (who, at)
