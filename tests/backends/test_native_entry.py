"""Native programs called by address."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.backends.native import check_native
from hloopt.backends.native.compile import compile_native
from hloopt.backends.native.entry import NativeEntry
from hloopt.errors import DeviceError, EvaluationError

try:
    check_native()
except DeviceError as error:
    pytest.skip(str(error), allow_module_level=True)


def called(text: str, *inputs: np.ndarray) -> list[np.ndarray]:
    """The results of a module by an entry, into arrays of another value before; inputs stay as they are."""
    module = hloopt.parse(text)
    entry = NativeEntry(compile_native(module))
    shapes = [buffer.shape for buffer in entry.program.plan.results]
    results = [np.full(shape.dims, 77, shape.dtype.numpy) for shape in shapes]
    before = [one.copy() for one in inputs]
    for _ in range(2):
        entry.call([one.ctypes.data for one in inputs], [one.ctypes.data for one in results])
    for one, other in zip(inputs, before, strict=True):
        assert (one == other).all()
    for one, expected in zip(results, hloopt.evaluate(module, list(inputs)), strict=True):
        np.testing.assert_allclose(one, expected, rtol=1e-5)
    return results


ARRAY = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_results_lie_where_the_caller_wants_them() -> None:
    """Computed, an input, a constant, the same twice, and one without elements."""
    made = called(
        "HloModule m\nENTRY e {\n p = f32[3,4] parameter(0)\n a = f32[3,4] add(p, p)\n"
        " c = s32[2] constant({5, 6})\n n = f32[0,4] slice(p), slice={[0:0], [0:4]}\n"
        " ROOT r = (f32[3,4], f32[3,4], s32[2], f32[3,4], f32[0,4]) tuple(a, p, c, a, n)\n}\n",
        ARRAY,
    )
    assert made[2].tolist() == [5, 6]


def test_inputs_that_are_updated_are_copied() -> None:
    """Whether the result lies in the copy, or only a part of it is read."""
    update = (
        "HloModule m\nENTRY e {\n p = f32[3,4] parameter(0)\n i = s32[] parameter(1)\n z = s32[] constant(0)\n"
        " u = f32[1,4] constant({{9, 9, 9, 9}})\n d = f32[3,4] dynamic-update-slice(p, u, i, z)\n"
    )
    one = np.array(1, np.int32)
    called(update + " ROOT t = f32[3,4] copy(d)\n}\n", ARRAY, one)
    called(update + " ROOT s = f32[2,4] slice(d), slice={[0:2], [0:4]}\n}\n", ARRAY, one)


def test_steps_of_numpy_get_the_same_memory() -> None:
    """A product by BLAS from an input into a result."""
    x = np.linspace(0, 1, 300 * 300, dtype=np.float32).reshape(300, 300)
    called(
        "HloModule m\nENTRY e {\n p = f32[300,300] parameter(0)\n"
        " ROOT d = f32[300,300] dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n",
        x,
    )


def test_what_fails_is_raised() -> None:
    """With the message of the loop."""
    text = (
        "HloModule m\nc {\n s = s32[] parameter(0)\n o = s32[] constant(9)\n ROOT l = pred[] compare(s, o), direction=LT\n}\n"
        "b {\n s = s32[] parameter(0)\n ROOT r = s32[] copy(s)\n}\n"
        "ENTRY e {\n p = s32[] parameter(0)\n ROOT w = s32[] while(p), condition=c, body=b\n}\n"
    )
    with pytest.raises(EvaluationError, match="the loop does not end"):
        called(text, np.array(1, np.int32))


@pytest.mark.parametrize("is_given_up", [False, True])
def test_results_may_lie_in_their_inputs(is_given_up) -> None:
    """What ``input_output_alias`` pairs may be at one address, or at two."""
    module = hloopt.parse(
        "HloModule m, input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) }\n"
        "ENTRY e {\n p = f32[3,4] parameter(0)\n q = f32[3,4] parameter(1)\n"
        " d = f32[3,3] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n"
        " s = f32[3,4] dot(d, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        " ROOT r = (f32[3,4], f32[3,4], f32[3,3]) tuple(s, q, d)\n}\n"
    )
    inputs = [ARRAY.copy(), ARRAY + 1]
    expected = hloopt.evaluate(module, inputs)
    places = [*inputs, np.empty((3, 3), np.float32)]
    if not is_given_up:
        places = [np.empty_like(one) for one in places]
    NativeEntry(compile_native(module)).call(
        [one.ctypes.data for one in inputs], [one.ctypes.data for one in places]
    )
    for one, other in zip(places, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    assert (inputs[0] == ARRAY).all() != is_given_up
