"""Deltas that leave fewer: participants, operands of variadic ops, tuples."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.driver.options import PassOptions
from hloopt.driver.reducing import ReduceOptions
from hloopt.interpret import evaluate_participants
from hloopt.ir import Module
from hloopt.prover.reduction.case import Case
from hloopt.prover.reduction.deltas import participants, tuples, values, variadic
from hloopt.types import Array, Sharding
from tests.prover.test_deltas import BROKEN, applied, case_of, opcodes, run

ADD = """
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
"""

PARTITIONED = f"""
HloModule partitioned, num_partitions=8
{ADD}
ENTRY main {{
  x = f32[4,8] parameter(0)
  t = f32[4,8] tanh(x)
  g = f32[32,8] all-gather(t), channel_id=1, replica_groups=[1,8]<=[8], dimensions={{0}}, use_global_device_ids=true
  e = f32[32,8] exponential(g)
  s = f32[4,8] reduce-scatter(e), channel_id=2, replica_groups={{{{0,1,2,3,4,5,6,7}}}}, dimensions={{0}}, use_global_device_ids=true, to_apply=add
  p = f32[4,8] collective-permute(s), channel_id=3, source_target_pairs={{{{0,1}},{{1,4}},{{4,0}},{{5,6}}}}
  r = f32[4,8] all-reduce(p), channel_id=5, replica_groups=[4,2]<=[2,4]T(1,0), use_global_device_ids=true, to_apply=add
  q = u32[] partition-id()
  ROOT o = (f32[4,8], u32[]) tuple(r, q)
}}
"""


def results(case: Case) -> list[list[Array]]:
    return evaluate_participants(case.module, case.inputs.arrays, *case.inputs.counts)


def test_groups_pairs_and_shapes_follow_fewer_participants() -> None:
    case = case_of(PARTITIONED)
    found = applied(participants.PARTICIPANTS, case, (range(1), range(0, 8, 4)))
    assert found.inputs.counts == (1, 2)
    assert found.module.attributes["num_partitions"] == 2
    entry = found.module.entry.by_name
    assert entry["g"].array.dims == (8, 8)
    assert entry["s"].array.dims == (4, 8)
    assert entry["g"].attributes["replica_groups"] == ((0, 1),)
    assert entry["r"].attributes["replica_groups"] == ((0, 1),)
    assert entry["p"].attributes["source_target_pairs"] == ((1, 0),)
    for kept, was in zip(found.inputs.arrays, (0, 4), strict=True):
        np.testing.assert_array_equal(kept[0], case.inputs.arrays[was][0])
    # Participant 1 of the two sends to participant 0, and both add up what the two have then.
    first, second = results(found)
    np.testing.assert_array_equal(first[0], second[0])
    assert [int(one[1]) for one in (first, second)] == [0, 1]


def test_one_participant_needs_no_header() -> None:
    found = applied(participants.PARTICIPANTS, case_of(PARTITIONED), (range(1), range(7, 8)))
    assert found.inputs.counts == (1, 1)
    assert "num_partitions" not in found.module.attributes
    assert found.module.entry.by_name["e"].array.dims == (4, 8)
    assert len(results(found)) == 1


def test_replicas_and_partitions_of_a_grid() -> None:
    text = f"""
HloModule grid, replica_count=4, num_partitions=2
{ADD}
ENTRY main {{
  x = f32[6] parameter(0)
  a = f32[6] all-reduce(x), replica_groups={{{{0,2}},{{1,3}}}}, to_apply=add
  b = f32[6] all-reduce(a), channel_id=1, replica_groups={{{{0,1}},{{2,3}}}}, to_apply=add
  ROOT c = f32[6] all-reduce(b), channel_id=2, replica_groups={{{{0,7}},{{1,6}},{{2,5}},{{3,4}}}}, use_global_device_ids=true, to_apply=add
}}
"""
    case = case_of(text)
    found = applied(participants.PARTICIPANTS, case, (range(0, 4, 2), range(2)))
    entry = found.module.entry.by_name
    assert entry["a"].attributes["replica_groups"] == ((0, 1),)
    assert entry["b"].attributes["replica_groups"] == ((0,), (1,))
    assert entry["c"].attributes["replica_groups"] == ((0,), (1,), (3,), (2,))
    assert len(results(found)) == 4


def test_what_is_exchanged_with_nobody_goes() -> None:
    text = """
HloModule exchange, replica_count=4
ENTRY main {
  a = f32[3] parameter(0)
  b = f32[3] negate(a)
  x = (f32[3], f32[3], f32[3], f32[3]) all-to-all(a, b, a, b), replica_groups={{0,1,2,3}}
  p = f32[3] get-tuple-element(x), index=1
  q = f32[3] get-tuple-element(x), index=3
  ROOT r = f32[3] add(p, q)
}
"""
    found = applied(participants.PARTICIPANTS, case_of(text), (range(2, 4), range(1)))
    entry = found.module.entry.by_name
    assert [one.name for one in entry["x"].operands] == ["a", "b"]
    assert [one.name for one in entry["r"].operands] == ["b", "q"]
    assert entry["q"].tuple_index == 1
    assert len(results(found)) == 2


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{devices=[4,2]<=[8]}", "{devices=[2,2]0,1,2,3}"),
        ("{devices=[4,2]<=[2,4]T(1,0)}", "{devices=[4,1]0,1,2,3}"),
        ("{devices=[2,1,4]<=[8] last_tile_dim_replicate}", "{devices=[1,1,4]0,1,2,3 last_tile_dim_replicate}"),
        ("{devices=[8,1]0,2,4,6,1,3,5,7}", "{devices=[4,1]0,2,1,3}"),
        ("{devices=[2,4]0,1,2,4,3,5,6,7}", "{replicated}"),
        ("{replicated}", "{replicated}"),
        ("{maximal device=3}", "{maximal device=3}"),
        ("{maximal device=6}", "{maximal device=0}"),
        ("{mesh['x'=2,'y'=4], [{'x'}, {'y'}]}", "{mesh['x'=1,'y'=4], device_ids=(0,1,2,3), [{'x'}, {'y'}]}"),
    ],
)  # fmt: skip
def test_shardings_speak_of_those_that_stay(before: str, after: str) -> None:
    text = f"""
HloModule sharded, num_partitions=8
ENTRY main {{
  x = f32[8,8] parameter(0), sharding={before}
  ROOT r = f32[8,8] negate(x), sharding={{replicated}}
}}
"""
    found = applied(participants.PARTICIPANTS, case_of(text), (range(1), range(4)))
    (parameter,) = found.module.entry.parameters
    assert str(Sharding.of(parameter.attributes)) == after


def test_a_failure_on_eight_becomes_one_on_two() -> None:
    options = ReduceOptions(PassOptions(passes="broken{kind=alone}", pass_file=(str(BROKEN),)))
    found = hloopt.reduce(hloopt.parse(PARTITIONED), options=options, workers=1)
    assert found.case.inputs.counts == (1, 2)
    assert [one.opcode for one in found.module.entry] == ["parameter", "all-reduce"]


def test_collectives_that_nobody_reads_go() -> None:
    text = PARTITIONED.replace("tuple(r, q)", "tuple(x, q)")
    found = applied(values.EFFECTS, case_of(text), ("main", "r"))
    assert "all-reduce" not in opcodes(found)
    found = applied(values.EFFECTS, found, ("main", "p"))
    assert not {"collective-permute", "all-reduce"} & set(opcodes(found))


# ---- operands ---------------------------------------------------------------------------------------

VARIADIC = """
HloModule variadic

best {
  v = f32[] parameter(0)
  i = s32[] parameter(1)
  w = f32[] parameter(2)
  j = s32[] parameter(3)
  c = pred[] compare(v, w), direction=GE
  a = f32[] select(c, v, w)
  b = s32[] select(c, i, j)
  ROOT t = (f32[], s32[]) tuple(a, b)
}

lt {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ROOT l = pred[] compare(c, d), direction=LT
}

sums {
  a = f32[] parameter(0)
  b = s32[] parameter(1)
  c = f32[] parameter(2)
  d = s32[] parameter(3)
  x = f32[] add(a, c)
  y = s32[] add(b, d)
  ROOT t = (f32[], s32[]) tuple(x, y)
}

three {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] parameter(2)
  d = f32[] multiply(a, b)
  ROOT e = f32[] add(d, c)
}

ENTRY main {
  x = f32[6,8] parameter(0)
  i = s32[6,8] parameter(1)
  least = f32[] constant(-inf)
  zero = s32[] constant(0)
  r = (f32[8], s32[8]) reduce(x, i, least, zero), dimensions={0}, to_apply=best
  v = f32[8] get-tuple-element(r), index=0
  n = s32[8] get-tuple-element(r), index=1
  s = (f32[8], s32[8]) sort(v, n), dimensions={0}, to_apply=lt
  sv = f32[8] get-tuple-element(s), index=0
  sn = s32[8] get-tuple-element(s), index=1
  at = s32[2,1] constant({{1},{3}})
  u = f32[2] constant({5,6})
  k = s32[2] constant({7,8})
  c = (f32[8], s32[8]) scatter(sv, sn, at, u, k), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sums
  cv = f32[8] get-tuple-element(c), index=0
  cn = s32[8] get-tuple-element(c), index=1
  w = (f32[7], s32[7]) reduce-window(cv, cn, least, zero), window={size=2}, to_apply=sums
  wv = f32[7] get-tuple-element(w), index=0
  wn = s32[7] get-tuple-element(w), index=1
  m = f32[7] map(wv, wv, wv), dimensions={0}, to_apply=three
  j = f32[22] concatenate(m, cv, wv), dimensions={0}
  ROOT out = (f32[22], s32[7]) tuple(j, wn)
}
"""


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("r", ["x", "least"]),
        ("s", ["v"]),
        ("c", ["sv", "at", "u"]),
        ("w", ["cv", "least"]),
        ("m", ["wv", "wv"]),
        ("j", ["m", "wv"]),
    ],
)
def test_an_operand_goes_with_its_result(name: str, left: list[str]) -> None:
    case = case_of(VARIADIC)
    found = applied(variadic.VARIADIC, case, ("main", name, 1))
    one = found.module.entry.by_name[name]
    assert [operand.name for operand in one.operands] == left
    assert one.is_array
    assert run(found)


def test_the_first_operand_goes_and_the_rest_stays_as_it_was() -> None:
    case = case_of(VARIADIC)
    found = applied(variadic.VARIADIC, case, ("main", "w", 0))
    np.testing.assert_array_equal(run(found)[1], run(case)[1])
    found = applied(variadic.VARIADIC, case, ("main", "s", 0))
    np.testing.assert_array_equal(run(found)[1], run(case)[1])


def test_the_last_operand_stays() -> None:
    case = case_of(VARIADIC)
    every = [site for site in variadic.VARIADIC.sites(case) if site[1] == "r"]
    assert len(every) == 2
    found = applied(variadic.VARIADIC, case, *every)
    assert len(found.module.entry.by_name["r"].operands) == 2


def test_a_branch_of_three_goes() -> None:
    found = applied(variadic.VARIADIC, case_of(BRANCHES), ("main", "k", 1))
    assert "sine" not in [one.opcode for one in found.module.instructions()]
    assert len(found.module.entry.by_name["k"].operands) == 3
    assert not variadic.VARIADIC.sites(found)


# ---- tuples -----------------------------------------------------------------------------------------

BRANCHES = """
HloModule branches

inner { p = (f32[8]) parameter(0)
  x = f32[8] get-tuple-element(p), index=0
  y = f32[8] cosine(x)
  ROOT t = (f32[8]) tuple(y) }

left { p = (f32[8]) parameter(0)
  x = f32[8] get-tuple-element(p), index=0
  y = f32[8] tanh(x)
  ROOT t = (f32[8]) tuple(y) }

middle { p = f32[8] parameter(0)
  y = f32[8] sine(p)
  ROOT t = (f32[8]) tuple(y) }

right { p = (f32[8]) parameter(0)
  ROOT c = (f32[8]) call(p), to_apply=inner }

ENTRY main {
  g = (s32[], (f32[8], f32[8])) parameter(0)
  n = s32[] get-tuple-element(g), index=0
  h = (f32[8], f32[8]) get-tuple-element(g), index=1
  x = f32[8] get-tuple-element(h), index=1
  a = (f32[8]) tuple(x)
  k = (f32[8]) conditional(n, a, x, a), branch_computations={left, middle, right}
  e = f32[8] get-tuple-element(k), index=0
  ROOT o = (f32[8], (f32[8])) tuple(e, k)
}
"""


def test_single_arguments_and_results_are_bare() -> None:
    case = case_of(BRANCHES)
    sites = [site for site in tuples.TUPLES.sites(case) if site[0] != "entry"]
    assert {site[:2] for site in sites} >= {("result", "left"), ("argument", "inner")}
    found = applied(tuples.TUPLES, case, *sites)
    entry = found.module.entry.by_name
    assert entry["k"].is_array
    assert all(one.parameters[0].is_array for one in found.module if one is not found.module.entry)
    assert not [site for site in tuples.TUPLES.sites(found) if site[0] != "entry"]
    for one, other in zip(run(found), run(case), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_tuple_that_the_entry_gets_becomes_its_arrays() -> None:
    case = case_of(BRANCHES)
    found = applied(tuples.TUPLES, case, ("entry", "g", 0))
    assert all(one.is_array for one in found.module.entry.parameters)
    assert len(found.inputs.arrays[0]) == 2, "what nothing reads is gone"
    for one, other in zip(run(found), run(case), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("opcode", ["reduce", "sort", "scatter", "reduce-window", "map"])
def test_little_is_left_around_a_variadic_op(opcode: str) -> None:
    def interesting(module: Module, _: list[Array]) -> bool:
        return opcode in [one.opcode for one in module.entry]

    found = hloopt.reduce(hloopt.parse(VARIADIC), interesting)
    assert found.module.entry.root.opcode == opcode
    assert found.module.entry.root.is_array
    assert found.module.instruction_count() <= 6, found.text
