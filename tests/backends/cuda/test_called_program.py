"""Programs called with addresses of the device and a stream, on CuPy's stand-in, whose memory is the host's."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.backends.called_program import CalledProgram
from hloopt.backends.cuda import CudaDevice
from hloopt.backends.device_compile import prepare
from hloopt.errors import UnsupportedError
from tests.backends.cuda.fake_cupy import FakeCupy
from tests.backends.cuda.plan_kernels import evaluated
from tests.backends.cuda.test_program import TEXT

STREAM, OTHER = 0x5EED, 0xABC
_DEVICE_TO_DEVICE = 3

KINDS = """HloModule m, input_output_alias={ {0}: (0, {}, may-alias) }

ENTRY e {
  p = f32[8,8] parameter(0)
  q = f32[8,8] parameter(1)
  unused = f32[3] parameter(2)
  s = f32[8,8] multiply(p, q)
  t = f32[8,8] sine(s)
  c = f32[2] constant({5, 6})
  n = f32[0,8] slice(q), slice={[0:0], [0:8]}
  ROOT r = (f32[8,8], f32[8,8], f32[2], f32[8,8], f32[0,8], f32[8,8]) tuple(t, q, c, t, n, s)
}
"""


def places(arrays: list[np.ndarray]) -> list[int]:
    """The addresses of arrays."""
    return [one.ctypes.data for one in arrays]


def called(
    text: str, device: CudaDevice, fake: FakeCupy, inputs: list[np.ndarray]
) -> tuple[CalledProgram, list[np.ndarray]]:
    """A program, and arrays for its results."""
    prepared = prepare(hloopt.parse(text), results_apart=True)
    fake.kernels = evaluated(prepared.plan)
    shapes = [buffer.shape for buffer in prepared.plan.results]
    results = [np.full(shape.dims, 77, shape.dtype.numpy) for shape in shapes]
    return CalledProgram(prepared, device), results


@pytest.mark.parametrize("is_given_up", [False, True])
def test_results_of_every_kind(
    is_given_up: bool, device: CudaDevice, fake: FakeCupy, rng: np.random.Generator
) -> None:
    """Computed, an input, a constant, the same twice, one without elements; in an input's memory, and apart."""
    inputs = [rng.random((8, 8), np.float32), rng.random((8, 8), np.float32), np.ones(3, "f")]
    wanted = hloopt.evaluate(hloopt.parse(KINDS), inputs)
    program, results = called(KINDS, device, fake, inputs)
    before = inputs[0].copy()
    results[0] = inputs[0] if is_given_up else results[0]
    fake.calls.clear()
    program.run_at(places(inputs), places(results), STREAM)
    for one, other in zip(results, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    assert (inputs[0] == before).all() != is_given_up
    copies = [kind for name, *_, kind in fake.calls if name == "memcpyAsync"]
    # The constant and what is twice among the results; q is one of them; p, where it is not given up.
    assert copies == [_DEVICE_TO_DEVICE] * (3 if is_given_up else 4)
    assert {"alloc", "synchronize"}.isdisjoint(fake.names())


def test_work_is_put_into_the_callers_stream(
    device: CudaDevice, fake: FakeCupy, rng: np.random.Generator
) -> None:
    """Graphs too, one for each place that memory is lent; another stream waits for the one before."""
    start = [rng.random((8, 8), np.float32) for _ in range(2)]
    module = hloopt.parse(TEXT)
    wanted = [hloopt.evaluate(module, [one]) for one in start]
    program, results = called(TEXT, device, fake, start)
    fake.streams.clear()
    for number, stream in ((0, STREAM), (1, STREAM), (1, STREAM), (0, OTHER), (0, OTHER)):
        results[0][:], results[1][...] = 77, 77
        program.run_at(places([start[number]]), places(results), stream)
        np.testing.assert_allclose(results[0], wanted[number][0], atol=1e-4)
        assert results[1] == wanted[number][1]
        assert set(fake.streams) == {stream}
        fake.streams.clear()
    waits = [call for call in fake.calls if call[0] == "wait_event"]
    assert waits == [("wait_event", device._own.ptr, STREAM), ("wait_event", STREAM, OTHER)]
    assert "graph" in fake.names()


def test_graphs_of_places_that_are_no_longer_used_are_freed(
    device: CudaDevice, fake: FakeCupy, rng: np.random.Generator
) -> None:
    """There are never more than a few, however often the memory moves, and results stay right."""
    text = "HloModule m\nENTRY e {\n p = f32[8,8] parameter(0)\n s = f32[8,8] sort(p), dimensions={1}, to_apply=c\n"
    text += " d = f32[8,8] dot(s, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    text += " ROOT n = f32[8,8] dot(d, s), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n"
    text = text.replace(
        "ENTRY", "c {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n"
        " ROOT l = pred[] compare(a, b), direction=LT\n}\nENTRY"
    )  # fmt: skip
    program, results = called(text, device, fake, [])
    inputs = [rng.random((8, 8), np.float32) for _ in range(20)]
    for one in inputs:
        for _ in range(3):
            program.run_at(places([one]), places(results), STREAM)
            wanted = hloopt.evaluate(hloopt.parse(text), [one])
            np.testing.assert_allclose(results[0], wanted[0], rtol=1e-5)
    assert fake.names().count("begin_capture") >= 20
    assert 0 < len(device._graphs) <= 16


def test_arrays_that_lie_otherwise_are_refused(device: CudaDevice, fake: FakeCupy) -> None:
    """Before anything is loaded."""
    turned = "HloModule m\nENTRY e {\n ROOT p = f32[8,4]{0,1} parameter(0)\n}\n"
    with pytest.raises(UnsupportedError, match="not a row-major array of whole bytes"):
        called(turned, device, fake, [])
