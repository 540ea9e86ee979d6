"""Which arrays a shape holds."""

from __future__ import annotations

import pytest

from hloopt.types import UNBOUNDED, ArrayShape, BufferShape, TupleShape, array, dtype


def shape(dims, dynamic=()):
    return ArrayShape(dtype("f32"), tuple(dims), None, tuple(dynamic))


@pytest.mark.parametrize(
    ("held", "sizes", "expected"),
    [
        (shape((2, 3)), (2, 3), True),
        (shape((2, 3)), (2, 2), False),
        (shape((2, 3)), (3, 2), False),
        (shape((2, 3)), (2,), False),
        (shape(()), (), True),
        (shape((2, 3), (True, False)), (0, 3), True),
        (shape((2, 3), (True, False)), (2, 3), True),
        (shape((2, 3), (True, False)), (3, 3), False),
        (shape((2, 3), (True, False)), (2, 2), False),
        (shape((2, 3), (True, False)), (2,), False),
        (shape((UNBOUNDED, 3), (True, False)), (100, 3), True),
        (shape((UNBOUNDED, 3), (True, False)), (100, 4), False),
    ],
)
def test_dynamic_dimensions_take_sizes_up_to_the_bound(held, sizes, expected):
    """Static dimensions take their size alone."""
    assert held.holds(sizes) is expected


def test_a_shape_is_dynamic_when_a_leaf_is():
    """Marks that are all false are those of a static shape."""
    static, dynamic = shape((2, 3), (False, False)), shape((2, 3), (False, True))
    assert not static.is_dynamic
    assert dynamic.is_dynamic
    assert not TupleShape((static, TupleShape(()))).is_dynamic
    assert TupleShape((static, TupleShape((array("s32"), dynamic)))).is_dynamic
    assert BufferShape(dynamic).is_dynamic


def test_sizes_are_told_with_their_bounds():
    """For people: the size, or at most the bound."""
    assert shape((2, 3), (False, True)).sizes_text == "[2, at most 3]"
    assert shape((2, 3)).sizes_text == "[2, 3]"
    assert shape(()).sizes_text == "[]"
