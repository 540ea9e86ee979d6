"""Regions for one device in programs about whole arrays: in, out, and what cannot be crossed."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.errors import UnsupportedError
from hloopt.interpret import tells_participants_apart
from hloopt.runtime.inputs import generate_all
from tests.interpret.lockstep import RUNNERS, Runner

MESH = 'xla.sdy.meshes={mesh = #sdy.mesh<["x"=2, "y"=3]>}'
TURNED = 'xla.sdy.meshes={mesh = #sdy.mesh<["x"=2, "y"=3], device_ids=[5, 4, 3, 2, 1, 0]>}'


def value(dims: str) -> str:
    """A sharding as JAX writes it, quoted."""
    escaped = dims.replace('"', '\\"')
    return f'"#sdy.sharding_per_value<[<@mesh, [{escaped}]>]>"'


def sdy(inward: str, outward: str, part: str, result: str, mesh: str = MESH) -> str:
    """In, multiplied by the number of the partition plus one, and out."""
    return f"""HloModule m, num_partitions=6, frontend_attributes={{{mesh}}}
ENTRY e {{
  p = s32[6,4] parameter(0)
  l = {part} custom-call(p), custom_call_target="xla.sdy.GlobalToLocalShape", frontend_attributes={{xla.sdy.in_shardings={value(inward)}}}
  i = u32[] partition-id()
  j = s32[] convert(i)
  one = s32[] constant(1)
  k = s32[] add(j, one)
  f = {part} broadcast(k), dimensions={{}}
  m = {part} multiply(l, f)
  ROOT g = {result} custom-call(m), custom_call_target="xla.sdy.LocalToGlobalShape", frontend_attributes={{xla.sdy.out_shardings={value(outward)}}}
}}
"""


WHOLE = np.arange(24, dtype=np.int32).reshape(6, 4) + 1


def factors(devices: list[list[int]]) -> np.ndarray:
    """Which partition has which part, as factors of all elements of the whole."""
    table = np.array(devices, np.int32) + 1
    rows, columns = WHOLE.shape[0] // table.shape[0], WHOLE.shape[1] // table.shape[1]
    return np.repeat(np.repeat(table, rows, 0), columns, 1)


@RUNNERS
@pytest.mark.parametrize(
    ("mesh", "dims", "part", "devices"),
    [
        (MESH, '{"y"}, {"x"}', "s32[2,2]", [[0, 3], [1, 4], [2, 5]]),
        (MESH, '{"x", "y"}, {}', "s32[1,4]", [[0], [1], [2], [3], [4], [5]]),
        (MESH, '{"y", "x"}, {}', "s32[1,4]", [[0], [3], [1], [4], [2], [5]]),
        (MESH, '{"y", ?}, {"x", ?}', "s32[2,2]", [[0, 3], [1, 4], [2, 5]]),
        (TURNED, '{"y"}, {"x"}', "s32[2,2]", [[5, 2], [4, 1], [3, 0]]),
    ],
)
def test_parts_of_a_mesh(
    run: Runner, mesh: str, dims: str, part: str, devices: list[list[int]]
) -> None:
    """Each partition works on its part, and all have the whole again behind it."""
    found = run(sdy(dims, dims, part, "s32[6,4]", mesh), [[WHOLE]] * 6, 1, 6)
    for (result,) in found:
        assert result.tolist() == (WHOLE * factors(devices)).tolist()


@RUNNERS
def test_an_axis_that_cuts_nothing_keeps_its_parts_apart(run: Runner) -> None:
    """Partitions put together what those with their own place on the other axes have."""
    found = run(sdy('{"y"}, {}', '{"y"}, {}', "s32[2,4]", "s32[6,4]"), [[WHOLE]] * 6, 1, 6)
    for partition, (result,) in enumerate(found):
        own = [[0], [1], [2]] if partition < 3 else [[3], [4], [5]]
        assert result.tolist() == (WHOLE * factors(own)).tolist()


@RUNNERS
def test_out_as_another_array_than_in(run: Runner) -> None:
    """A sharding of its own on either side; replicas do not meet."""
    text = sdy('{"y"}, {"x"}', '{}, {"y", "x"}', "s32[2,2]", "s32[2,12]")
    other = WHOLE + 100
    found = run(text, [[WHOLE]] * 6 + [[other]] * 6, 2, 6)
    for number, (result,) in enumerate(found):
        whole = WHOLE if number < 6 else other
        parts = []
        for partition in (0, 3, 1, 4, 2, 5):
            row, column = partition % 3 * 2, partition // 3 * 2
            parts.append(whole[row : row + 2, column : column + 2] * (partition + 1))
        assert result.tolist() == np.hstack(parts).tolist()


@RUNNERS
def test_several_arrays_at_once(run: Runner) -> None:
    """Each has a sharding, the results are a tuple."""
    both = '"#sdy.sharding_per_value<[<@mesh, [{\\"x\\"}]>, <@mesh, [{}]>]>"'
    text = f"""HloModule m, num_partitions=2, frontend_attributes={{xla.sdy.meshes={{mesh = #sdy.mesh<["x"=2]>}}}}
ENTRY e {{
  p = f32[4] parameter(0)
  q = f32[2] parameter(1)
  l = (f32[2], f32[2]) custom-call(p, q), custom_call_target="xla.sdy.GlobalToLocalShape", frontend_attributes={{xla.sdy.in_shardings={both}}}
  a = f32[2] get-tuple-element(l), index=0
  b = f32[2] get-tuple-element(l), index=1
  s = f32[2] add(a, b)
  ROOT g = (f32[4], f32[2]) custom-call(s, b), custom_call_target="xla.sdy.LocalToGlobalShape", frontend_attributes={{xla.sdy.out_shardings={both}}}
}}
"""
    inputs = [[np.float32([1, 2, 3, 4]), np.float32([10, 20])]] * 2
    for first, second in run(text, inputs, 1, 2):
        assert first.tolist() == [11, 22, 13, 24]
        assert second.tolist() == [10, 20]


TILES = """HloModule m, num_partitions=4
ENTRY e {
  p = s32[4,2] parameter(0)
  c = s32[4,2] custom-call(p), custom_call_target="Sharding", sharding=INWARD
  l = PART custom-call(c), custom_call_target="SPMDFullToShardShape", sharding={manual}
  i = u32[] partition-id()
  j = s32[] convert(i)
  f = PART broadcast(j), dimensions={}
  m = PART add(l, f)
  ROOT g = WHOLE custom-call(m), custom_call_target="SPMDShardToFullShape", sharding=OUTWARD
}
"""


def tiles(inward: str, part: str, whole: str, outward: str) -> str:
    text = TILES.replace("INWARD", inward).replace("OUTWARD", outward)
    return text.replace("PART", part).replace("WHOLE", whole)


@RUNNERS
@pytest.mark.parametrize(
    ("inward", "part", "whole", "outward", "wanted"),
    [
        (
            "{devices=[2,2]<=[4]}",
            "s32[2,1]",
            "s32[4,2]",
            "{devices=[2,2]<=[2,2]T(1,0)}",
            # Parts 0 and 2, in the first column of the whole, lie beside each other.
            [[[10, 14 + 2], [12, 16 + 2], [11 + 1, 15 + 3], [13 + 1, 17 + 3]]] * 4,
        ),
        (
            "{devices=[4,1]3,2,1,0}",
            "s32[1,2]",
            "s32[4,2]",
            "{devices=[4,1]<=[4]}",
            [[[16, 17], [14 + 1, 15 + 1], [12 + 2, 13 + 2], [10 + 3, 11 + 3]]] * 4,
        ),
        (
            "{devices=[2,1,2]<=[4] last_tile_dim_replicate}",
            "s32[2,2]",
            "s32[2,2]",
            "{replicated}",
            [
                [[10, 11], [12, 13]],
                [[11, 12], [13, 14]],
                [[16, 17], [18, 19]],
                [[17, 18], [19, 20]],
            ],
        ),
    ],
)
def test_tiles(
    run: Runner, inward: str, part: str, whole: str, outward: str, wanted: list[list[list[int]]]
) -> None:
    """The older form: the annotation before says how to cut, that of the way out how to put together."""
    text = tiles(inward, part, whole, outward)
    inputs = [[np.arange(10, 18, dtype=np.int32).reshape(4, 2)]] * 4
    assert [result.tolist() for (result,) in run(text, inputs, 1, 4)] == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            tiles("{manual}", "s32[2,1]", "s32[4,2]", "{devices=[2,2]<=[4]}"),
            "l: SPMDFullToShardShape: sharding={manual} of c does not say how it is cut",
        ),
        (
            tiles("{devices=[4]<=[4]}", "s32[2,1]", "s32[4,2]", "{devices=[2,2]<=[4]}"),
            "l: SPMDFullToShardShape: sharding={devices=[4]<=[4]} of c is not one of 2 dimensions",
        ),
        (
            tiles("{devices=[4,1]<=[4]}", "s32[2,1]", "s32[4,2]", "{devices=[2,2]<=[4]}"),
            "l: SPMDFullToShardShape of s32[4,2] to s32[2,1], in [4, 1] parts",
        ),
        (
            tiles("{devices=[2,1]<=[2]}", "s32[2,2]", "s32[4,2]", "{devices=[2,1]<=[2]}"),
            "l: SPMDFullToShardShape among 2 partitions; 4 are run",
        ),
        (
            sdy('{"z"}, {}', "{}, {}", "s32[3,4]", "s32[3,4]"),
            "l: xla.sdy.GlobalToLocalShape: the mesh has no axis 'z'",
        ),
        (
            sdy('{"x":(0)2}, {}', "{}, {}", "s32[3,4]", "s32[3,4]"),
            "l: xla.sdy.GlobalToLocalShape: axis 'x' of 2 cannot be cut at [0, 1, 2]",
        ),
        (
            sdy('{"x":(4)8}, {}', "{}, {}", "s32[3,4]", "s32[3,4]"),
            "l: xla.sdy.GlobalToLocalShape: axis 'x' of 2 cannot be cut at [1, 2, 4, 32]",
        ),
        (
            sdy("{}, {}", "{}, {}", "s32[6,4]", "s32[6,4]", MESH.replace("=2", "=0")),
            "l: xla.sdy.GlobalToLocalShape: axis 'x' of 0 cannot be cut at [0, 1]",
        ),
        (
            sdy("{}, {}", "{}, {}", "s32[6,4]", "s32[6,4]").replace("@mesh", "@other"),
            "l: xla.sdy.GlobalToLocalShape: the module has no mesh 'other'",
        ),
        (
            sdy("{}", "{}, {}", "s32[6,4]", "s32[6,4]"),
            "l: xla.sdy.GlobalToLocalShape: a sharding of 1 dimensions for an array of 2",
        ),
    ],
)
def test_what_cannot_be_cut_is_refused(text: str, message: str) -> None:
    """With the instruction, before anything runs."""
    module = hloopt.parse(text)
    count = 4 if "SPMD" in text else 6
    with pytest.raises(UnsupportedError) as error:
        hloopt.evaluate_participants(module, [[WHOLE]] * count, 1, count)
    assert error.value.message == message


def test_inputs_are_whole_arrays() -> None:
    """All partitions of a replica have the same ones."""
    module = hloopt.parse(sdy('{"y"}, {"x"}', '{"y"}, {"x"}', "s32[2,2]", "s32[6,4]"))
    assert tells_participants_apart(module)
    found = [arrays[0].tolist() for arrays in generate_all(module, 1, 2, 6)]
    assert found == [found[0]] * 6 + [found[6]] * 6
    assert found[0] != found[6]


@RUNNERS
def test_a_scalar_comes_out_as_it_is(run: Runner) -> None:
    """A loss that all partitions have, beside an array that is cut."""
    out = '"#sdy.sharding_per_value<[<@mesh, []>, <@mesh, [{\\"x\\"}]>]>"'
    text = f"""HloModule m, num_partitions=2, frontend_attributes={{xla.sdy.meshes={{mesh = #sdy.mesh<["x"=2]>}}}}
ENTRY e {{
  a = s32[] parameter(0)
  b = s32[2] parameter(1)
  ROOT g = (s32[], s32[4]) custom-call(a, b), custom_call_target="xla.sdy.LocalToGlobalShape", frontend_attributes={{xla.sdy.out_shardings={out}}}
}}
"""
    loss, parts = np.int32(7), np.array([1, 2], np.int32)
    for scalar, whole in run(text, [[loss, parts], [loss, parts + 2]], 1, 2):
        assert scalar == 7
        assert whole.tolist() == [1, 2, 3, 4]
