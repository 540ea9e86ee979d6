"""Dumps of programs that XLA's SPMD partitioner has cut."""

from __future__ import annotations

from pathlib import Path

import pytest

import hloopt
from hloopt.dumps import read_dump
from hloopt.prover.bisection import Bisection
from hloopt.prover.dump_bisect import DumpBisect
from hloopt.prover.dumped_stages import stages_of

WHOLE = """HloModule f, num_partitions=4
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
ENTRY main {
  x = f32[8,6] parameter(0), sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}
  w = f32[6,4] parameter(1), sharding={replicated}
  d = f32[8,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  zero = f32[] constant(0)
  r = f32[4] reduce(d, zero), dimensions={0}, to_apply=sum
  t = f32[8,4] tanh(d)
  ROOT out = (f32[4], f32[8,4]) tuple(r, t), sharding={{replicated}, {devices=[2,1,2]<=[4] last_tile_dim_replicate}}
}
"""
PARTS = """HloModule f, num_partitions=4
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
ENTRY main_spmd {
  x = f32[4,6] parameter(0), sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}
  w = f32[6,4] parameter(1), sharding={replicated}
  d = f32[4,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  zero = f32[] constant(0)
  r = f32[4] reduce(d, zero), dimensions={0}, to_apply=sum
  all = f32[4] all-reduce(r), channel_id=1, replica_groups={{0,2},{1,3}}, use_global_device_ids=true, to_apply=sum
  t = f32[4,4] tanh(d)
  ROOT out = (f32[4], f32[4,4]) tuple(all, t)
}
"""
PARTITIONING = "0001.spmd-partitioner.after_spmd-partitioning.before_x"


def bisected(folder: Path, *stages: tuple[str, str], first: str = WHOLE) -> Bisection:
    for label, text in (("before_optimizations", first), *stages):
        (folder / f"module_0001.jit_f.{label}.txt").write_text(text)
    (module,) = read_dump(folder).modules
    return DumpBisect(module.label, str(folder), stages_of(module)).run()


def test_parts_are_run_on_parts_of_the_same_inputs(tmp_path: Path) -> None:
    found = bisected(
        tmp_path,
        (PARTITIONING, PARTS),
        ("0002.a.after_dce.before_y", PARTS.replace("ROOT out", "ROOT o")),
    )
    assert [one.outcome for one in found.examined] == ["first", "within", "equal"]
    assert not found.culprits


@pytest.mark.parametrize(
    ("old", "new", "wrong", "named"),
    [
        (
            "{{0,2},{1,3}}",
            "{{0,1},{2,3}}",
            "participants 0 and 2 have to agree, and do not",
            ["all"],
        ),
        ("tanh(d)", "negate(d)", "", ["t", "t"]),
        (
            "tuple(all, t)",
            "tuple(r, t)",
            "participants 0 and 2 have to agree, and do not",
            ["r", "r"],
        ),
        ("dimensions={0}, to_apply=sum\n", "dimensions={0}, to_apply=wrong\n", "", ["r", "r"]),
        ("dot(x, w)", "dot(y, w)", "", ["d", "d"]),
    ],
)
def test_a_wrong_partitioner_is_named(
    tmp_path: Path, old: str, new: str, wrong: str, named: list[str]
) -> None:
    """With the instruction: sums of parts that were not added up yet are no difference."""
    parts = PARTS.replace(
        "sum {",
        "wrong {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n"
        "  ROOT s = f32[] subtract(a, b)\n}\nsum {",
    )
    parts = parts.replace("  d = ", "  y = f32[4,6] multiply(x, x)\n  d = ")
    found = bisected(tmp_path, (PARTITIONING, parts.replace(old, new)))
    (culprit,) = found.culprits
    assert culprit.name == "spmd-partitioning"
    (_, result), *_ = culprit.results
    assert result.problem == wrong
    assert [one.name for one in culprit.rewritten] == named
    assert all(one.is_first for one in culprit.rewritten)


def test_a_wrong_pass_over_parts_is_named_with_its_instruction(tmp_path: Path) -> None:
    wrong = PARTS.replace("tanh(d)", "negate(d)")
    found = bisected(tmp_path, (PARTITIONING, PARTS), ("0002.a.after_algsimp.before_y", wrong))
    (culprit,) = found.culprits
    assert culprit.name == "algsimp"
    assert "t" in {one.name for one in culprit.rewritten if one.is_first}


def test_without_the_partitioners_stage_shapes_say_what_is_whole(tmp_path: Path) -> None:
    """As in a dump of the first and the last stage; what is not cut needs no annotation."""
    bare = WHOLE.replace(
        "(r, t), sharding={{replicated}, {devices=[2,1,2]<=[4] last_tile_dim_replicate}}", "(r, t)"
    )
    found = bisected(tmp_path, ("cpu_after_optimizations", PARTS), first=bare)
    assert [one.outcome for one in found.examined] == ["first", "within"]


def test_a_parameter_that_nothing_places_is_named(tmp_path: Path) -> None:
    sharding = ", sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}"
    bare, parts = WHOLE.replace(sharding, "", 1), PARTS.replace(sharding, "")
    found = bisected(tmp_path, (PARTITIONING, parts), first=bare)
    (_, stage) = found.examined
    assert stage.outcome == "not run"
    assert stage.note == (
        "no annotation says how parameter x, f32[8, 6], is cut into f32[4, 6] for 4 partitions"
    )


def test_a_program_whose_arrays_stay_whole_gets_the_same_ones_everywhere(tmp_path: Path) -> None:
    whole = "HloModule f, num_partitions=2\nENTRY e {\n  x = f32[3] parameter(0)\n  ROOT n = f32[3] add(x, x)\n}\n"
    parts = """HloModule f, num_partitions=2
s {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
ENTRY e {
  x = f32[3] parameter(0), sharding={replicated}
  ROOT n = f32[3] all-reduce(x), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=s
}
"""
    found = bisected(tmp_path, (PARTITIONING, parts), first=whole)
    assert [one.outcome for one in found.examined] == ["first", "equal"]


def test_a_program_and_its_parts_are_compared() -> None:
    whole, parts = hloopt.parse(WHOLE), hloopt.parse(PARTS)
    for found in (hloopt.compare(whole, parts), hloopt.compare(parts, whole)):
        assert found.equal
        assert len(found.trials) > 1
        assert found.counts == (1, 1)
        said = (
            "f is for parts of the arrays on 4 partitions: whole arrays are compared",
            "nothing says how the parts of result 1 lie: as they agree best",
        )
        assert set(found.notes) <= set(said)
        assert said[0] in found.notes


def test_parts_that_differ_are_found_in_the_whole_arrays() -> None:
    wrong = hloopt.parse(PARTS.replace("tanh(d)", "negate(d)"))
    found = hloopt.compare(hloopt.parse(WHOLE), wrong)
    assert found.verdict == "differ"
    assert [one.passed for one in found.trials[-1].results] == [True, False]
    assert found.trials[-1].results[1].elements == 8 * 4
    assert found.first is None
    assert not found.reordered
