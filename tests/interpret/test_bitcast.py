"""bitcast and bitcast-convert: bytes by hand, struct as the independent statement, layouts."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hloopt
from hloopt.errors import UnsupportedError
from hloopt.interpret.bitcast import bitcast, bitcast_convert, from_physical, to_physical
from hloopt.types import ArrayShape, Layout, dtype


def shape(name: str, dims: tuple[int, ...], order: tuple[int, ...] | None = None) -> ArrayShape:
    return ArrayShape(dtype(name), dims, None if order is None else Layout(order))


def run(source: str, target: str, array: np.ndarray, op: str = "bitcast-convert") -> np.ndarray:
    text = (
        f"HloModule m\n\nENTRY e {{\n  p = {source} parameter(0)\n  ROOT r = {target} {op}(p)\n}}\n"
    )
    module = hloopt.parse(text)
    hloopt.verify(module)
    (result,) = hloopt.evaluate(module, [array])
    return result


def test_narrower_elements_add_a_last_dimension_lowest_bits_first() -> None:
    found = bitcast_convert(np.array([0x11223344, -2], np.int32), dtype("s32"), dtype("u8"))
    assert found.tolist() == [[0x44, 0x33, 0x22, 0x11], [0xFE, 0xFF, 0xFF, 0xFF]]
    back = bitcast_convert(found, dtype("u8"), dtype("s32"))
    assert back.tolist() == [0x11223344, -2]


def test_nibbles_are_what_xla_answers() -> None:
    """Recorded from XLA's CPU backend; s4 is stored one element a byte."""
    found = bitcast_convert(np.array([0x12, 0x7F, -2], np.int8), dtype("s8"), dtype("s4"))
    assert found.dtype == ml_dtypes.int4
    assert found.astype(np.int8).tolist() == [[2, 1], [-1, 7], [-2, -1]]
    packed = np.array([[1, 2], [-1, 7]], np.int8).astype(ml_dtypes.int4)
    assert bitcast_convert(packed, dtype("s4"), dtype("s8")).tolist() == [33, 127]
    wide = bitcast_convert(np.array([1.5, -3], np.float32), dtype("f32"), dtype("u4"))
    assert wide.astype(np.int8).tolist() == [[0, 0, 0, 0, 0, 12, 15, 3], [0, 0, 0, 0, 0, 4, 0, 12]]


def test_bitcast_to_pred_is_true_where_a_byte_is_not_zero() -> None:
    found = bitcast_convert(np.array([0, 1, 2], np.uint8), dtype("u8"), dtype("pred"))
    assert found.dtype == np.bool_
    assert found.tolist() == [False, True, True]


@given(st.permutations(range(3)), st.permutations(range(3)))
def test_physical_order_follows_minor_to_major(order: list[int], other: list[int]) -> None:
    dims = (2, 3, 4)
    array = np.arange(24, dtype=np.int32).reshape(dims)
    flat = to_physical(array, tuple(order))
    place = 0
    strides = [0, 0, 0]
    stride = 1
    for axis in order:
        strides[axis] = stride
        stride *= dims[axis]
    for index in np.ndindex(*dims):
        place = sum(i * step for i, step in zip(index, strides, strict=True))
        assert flat[place] == array[index]
    assert (from_physical(flat, dims, tuple(order)) == array).all()
    source, target = shape("s32", dims, tuple(order)), shape("s32", dims, tuple(other))
    moved = bitcast(array, source, target)
    assert to_physical(moved, tuple(other)).tolist() == flat.tolist()


def test_bitcast_with_another_layout_moves_elements() -> None:
    """f32[2,3]{0,1} holds columns one after the other: as f32[3,2]{1,0} it is the transpose."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = run("f32[2,3]{0,1}", "f32[3,2]{1,0}", array, "bitcast")
    assert found.tolist() == array.T.tolist()
    found = run("f32[2,3]{1,0}", "f32[3,2]{1,0}", array, "bitcast")
    assert found.tolist() == array.reshape(3, 2).tolist()
    found = run("f32[2,3]{1,0}", "f32[3,2]{0,1}", array, "bitcast")
    assert found.tolist() == array.reshape(2, 3).T.tolist()


def test_bitcast_to_another_element_width_reads_the_buffer() -> None:
    array = np.array([[1, 2], [3, 4]], np.int32)
    found = run("s32[2,2]{0,1}", "s64[2]{0}", array, "bitcast")
    assert found.tolist() == [1 + (3 << 32), 2 + (4 << 32)]
    found = run("s64[2]{0}", "s32[2,2]{1,0}", np.array([1 << 32, -1]), "bitcast")
    assert found.tolist() == [[0, 1], [-1, -1]]


def test_bitcast_may_see_the_beginning_of_a_larger_buffer() -> None:
    found = bitcast(np.arange(6, dtype=np.int32), shape("s32", (6,)), shape("s16", (4,)))
    assert found.tolist() == [0, 0, 1, 0]


def test_bitcast_of_nibbles_is_dense() -> None:
    nibbles = np.array([1, 2, -1, 7], np.int8).astype(ml_dtypes.int4)
    dense = bitcast(nibbles, shape("s4", (4,)), shape("s8", (2,)))
    assert dense.tolist() == [0x21, 0x7F]
    loose = bitcast(nibbles, shape("s4", (4,)), shape("u4", (2, 2)))
    assert loose.astype(np.int8).tolist() == [[1, 2], [15, 7]]
    with pytest.raises(UnsupportedError) as error:
        run("s4[4]", "s8[4]", nibbles, "bitcast")
    assert error.value.message == "r: bitcast of s4[4] to s8[4]: 16 bits are not 32"


def test_excess_precision_is_dropped_where_bits_are_seen() -> None:
    """A bf16 chain that is carried in float32 is rounded before its bits are looked at."""
    text = """HloModule m

ENTRY e {
  p = bf16[1] parameter(0)
  q = bf16[1] multiply(p, p)
  bits = u16[1] bitcast-convert(q)
  ROOT back = bf16[1] bitcast-convert(bits)
}
"""
    value = np.array([1.0078125], ml_dtypes.bfloat16)
    (found,) = hloopt.evaluate(hloopt.parse(text), [value], excess_precision=True)
    assert found.astype(np.float32).tolist() == [1.015625]
