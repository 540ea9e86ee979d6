"""Scatters of one element a row: which are comparisons, and that every bit stays."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.types import Array

TEXT = """HloModule m
add {{ a = {k}[] parameter(0) b = {k}[] parameter(1) ROOT c = {k}[] {op}(a, b) }}
ENTRY e {{
  {body}
}}
"""
BATCHED = """zero = {k}[] constant({start})
  x = {k}[5,7] broadcast(zero), dimensions={{}}
  i = {index}[5,1] parameter(0)
  u = {k}[5] parameter(1)
  ROOT r = {k}[5,7] scatter(x, i, u), update_window_dims={{}}, inserted_window_dims={{1}},
    scatter_dims_to_operand_dims={{1}}, input_batching_dims={{0}}, scatter_indices_batching_dims={{0}},
    index_vector_dim=1, to_apply=add"""
COUNTED = """zero = f32[] constant(0)
  x = f32[3,5,7] broadcast(zero), dimensions={}
  rows = s32[3,5,1] iota(), iota_dimension=1
  planes = s32[3,5,1] iota(), iota_dimension=0
  i = s32[3,5,1] parameter(0)
  starts = s32[3,5,3] concatenate(planes, i, rows), dimensions={2}
  u = f32[3,5] parameter(1)
  ROOT r = f32[3,5,7] scatter(x, starts, u), update_window_dims={}, inserted_window_dims={0,1,2},
    scatter_dims_to_operand_dims={0,2,1}, index_vector_dim=2, to_apply=add"""


def _module(body: str, op: str = "add", kind: str = "f32") -> hloopt.Module:
    return hloopt.parse(TEXT.format(body=body, op=op, k=kind))


def _opcodes(module: hloopt.Module) -> list[str]:
    return [one.opcode for one in module.entry]


def _indices(dtype: str, *dims: int) -> Array:
    """Some of them outside."""
    info = np.iinfo(dtype)
    values = np.random.default_rng(1).integers(-2 if info.min else 0, 9, dims)
    values.flat[:2] = info.max, info.min
    return values.astype(dtype)


@pytest.mark.parametrize("index", ["s32", "u32", "s64", "s8", "u8"])
@pytest.mark.parametrize(("op", "start"), [("add", "-0"), ("maximum", "-1"), ("multiply", "2")])
def test_every_bit_stays(index: str, op: str, start: str) -> None:
    """Zeros of both signs, NaN and infinity; indices that are outside on both sides."""
    before = _module(BATCHED.format(k="f32", start=start, index=index), op)
    after = hloopt.optimize(before, "scatter-to-select")
    assert "scatter" not in _opcodes(after)
    hloopt.verify(after)
    kind = index.replace("s", "int").replace("u", "uint")
    updates = np.array([-0.0, np.nan, np.inf, 2.5, -1.0], np.float32)
    inputs = [_indices(kind, 5, 1), updates]
    (one,), (other,) = hloopt.evaluate(before, inputs), hloopt.evaluate(after, inputs)
    np.testing.assert_array_equal(one.view(np.uint32), other.view(np.uint32))


def test_rows_that_are_counted() -> None:
    """Indices joined with iotas, in any order of the columns, over two batch dimensions."""
    before = _module(COUNTED)
    after = hloopt.optimize(before, "scatter-to-select")
    assert "scatter" not in _opcodes(after)
    inputs = [_indices("int32", 3, 5, 1), np.arange(15, dtype=np.float32).reshape(3, 5) - 7]
    (one,), (other,) = hloopt.evaluate(before, inputs), hloopt.evaluate(after, inputs)
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x = f32[3,5,7] broadcast(zero), dimensions={}", "x = f32[3,5,7] parameter(2)"),
        ("rows = s32[3,5,1] iota(), iota_dimension=1", "rows = s32[3,5,1] parameter(2)"),
        ("iota_dimension=1", "iota_dimension=0"),
        (
            "rows = s32[3,5,1] iota(), iota_dimension=1",
            """one = s32[] constant(1)
  ones = s32[3,5,1] broadcast(one), dimensions={}
  count = s32[3,5,1] iota(), iota_dimension=1
  rows = s32[3,5,1] add(count, ones)""",
        ),
    ],
    ids=["an array", "any rows", "one row several times", "rows from the second on"],
)
def test_what_stays_a_scatter(old: str, new: str) -> None:
    """Where a row may get several elements, where it is not one value, where rows are not all."""
    assert old in COUNTED
    module = _module(COUNTED.replace(old, new))
    assert "scatter" in _opcodes(hloopt.optimize(module, "scatter-to-select"))


def test_a_window_of_several_elements_stays() -> None:
    """A whole row at an index is no element of each row."""
    body = """zero = f32[] constant(0)
  x = f32[5,7] broadcast(zero), dimensions={}
  i = s32[5,1] parameter(0)
  u = f32[5,7] parameter(1)
  ROOT r = f32[5,7] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add"""
    assert "scatter" in _opcodes(hloopt.optimize(_module(body), "scatter-to-select"))


def test_whole_takes_arrays_of_several_values() -> None:
    """Each row keeps what it had but at its index; without the option such a scatter stays."""
    batched = BATCHED.format(k="f32", start="0", index="s32")
    _, _, rest = batched.partition("\n")
    given = rest.replace("x = f32[5,7] broadcast(zero), dimensions={}", "x = f32[5,7] parameter(2)")
    before = _module(given)
    assert "scatter" in _opcodes(hloopt.optimize(before, "scatter-to-select"))
    after = hloopt.optimize(before, "scatter-to-select{whole=true}")
    assert "scatter" not in _opcodes(after)
    hloopt.verify(after)
    draws = np.random.default_rng(2).standard_normal(40).astype(np.float32)
    inputs = [_indices("int32", 5, 1), draws[:5], draws[5:].reshape(5, 7)]
    (one,), (other,) = hloopt.evaluate(before, inputs), hloopt.evaluate(after, inputs)
    np.testing.assert_array_equal(one.view(np.uint32), other.view(np.uint32))
