"""A whole program on the device, on CuPy's stand-in: kernels are the interpreter's, all else is as on a GPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import hloopt
from fake_cupy import FakeCupy, view
from hloopt.analysis.region import region_of
from hloopt.kernels.plan import KernelStep, Plan, function_name, walk_steps
from hloopt.kernels.selection import KernelSelection
from hloopt.kernels.spec import Launch
from hloopt.runtime import library_numpy
from hloopt.runtime.borders import array_of_bytes, bytes_of_array
from hloopt.runtime.cuda import CudaDevice
from hloopt.runtime.device_compile import DeviceOptions, prepare
from hloopt.runtime.device_program import DeviceProgram

TEXT = """HloModule m

body {
  p = (s32[], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[8,8] get-tuple-element(p), index=1
  squared = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  half = f32[] constant(0.125)
  halves = f32[8,8] broadcast(half), dimensions={}
  scaled = f32[8,8] multiply(squared, halves)
  moved = f32[8,8] add(scaled, x)
  ROOT t = (s32[], f32[8,8]) tuple(next, moved)
}

condition {
  p = (s32[], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[8,8] get-tuple-element(p), index=1
  row = f32[1,1] slice(x), slice={[0:1], [0:1]}
  first = f32[] reshape(row)
  bound = f32[] constant(40)
  ROOT less = pred[] compare(first, bound), direction=LT
}

ENTRY e {
  a = f32[8,8] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[8,8]) tuple(zero, a)
  loop = (s32[], f32[8,8]) while(start), condition=condition, body=body
  x = f32[8,8] get-tuple-element(loop), index=1
  count = s32[] get-tuple-element(loop), index=0
  spectrum = c64[8,5] fft(x), fft_type=RFFT, fft_length={8}
  back = f32[8,8] fft(spectrum), fft_type=IRFFT, fft_length={8}
  negative = f32[8,8] negate(back)
  sum = f32[8,8] add(negative, x)
  ROOT r = (f32[8,8], s32[]) tuple(sum, count)
}
"""


def evaluated(plan: Plan) -> dict[str, Callable[..., None]]:
    """For each CUDA function one that evaluates its instruction on the memory its pointers name."""
    found: dict[str, Callable[..., None]] = {}
    for step in walk_steps(plan.steps):
        if isinstance(step, KernelStep):
            for part in step.spec.steps:
                if isinstance(part, Launch):
                    name = function_name(step, part)
                    assert name not in found
                    found[name] = kernel(step, part)
    return found


def kernel(step: KernelStep, launch: Launch) -> Callable[..., None]:
    """What a function does, in Python: pointers come in the order of the launch's arguments."""

    def run(grid: tuple, block: tuple, *values: np.generic) -> None:
        assert (grid, block) == (launch.grid, launch.block)
        assert [int(value) for value in values[len(launch.arguments) :]] == list(launch.scalars)
        places = {
            argument.place: int(value)
            for argument, value in zip(launch.arguments, values, strict=False)
        }
        addresses = {(place.kind, place.number): address for place, address in places.items()}
        region = region_of(step.instruction)
        operands = []
        for number, shape in enumerate(region.operands):
            constant = region.inlined(number)
            if constant is not None:
                operands.append(np.full(shape.dims, constant))
                continue
            address = addresses["operand", region.canonical(number)]
            operands.append(array_of_bytes(view(address, np.uint8, shape.byte_size).copy(), shape))
        results = library_numpy.call(step.instruction, operands)
        for number, result in enumerate(results):
            raw = bytes_of_array(result, step.results[number].shape)
            view(addresses["result", number], np.uint8, raw.nbytes)[:] = raw

    return run


@pytest.mark.parametrize("library_flops", [1, 1 << 40])
def test_a_program_runs_as_the_interpreter_says(
    library_flops: int, device: CudaDevice, fake: FakeCupy, rng: np.random.Generator
) -> None:
    """A loop of unknown count, graphs, products by cuBLAS or by a kernel, transforms; two runs, other inputs."""
    module = hloopt.parse(TEXT)
    options = DeviceOptions(selection=KernelSelection(dot_library_flops=library_flops))
    prepared = prepare(module, options)
    fake.kernels = evaluated(prepared.plan)
    program = DeviceProgram(prepared.module, prepared.plan, device, prepared.source)
    made = len([name for name in fake.names() if name == "alloc"])
    for scale in (1, 2):
        start = scale * rng.random((8, 8), np.float32)
        wanted = hloopt.evaluate(module, [start])
        got = program.run([start])
        assert got[1] == wanted[1]
        assert got[1] > 1, "the loop runs"
        np.testing.assert_allclose(got[0], wanted[0], atol=1e-4)
    names = fake.names()
    assert names.count("alloc") == made, "a run allocates nothing"
    assert ("gemmEx" in names) == (library_flops == 1)
    assert names.count("plan") == 2
    assert names.count("graph") > names.count("begin_capture") >= 1


def test_an_error_ends_a_capture(
    device: CudaDevice, fake: FakeCupy, rng: np.random.Generator
) -> None:
    """The next run is not swallowed by it."""
    module = hloopt.parse(TEXT)
    prepared = prepare(module)
    fake.kernels = evaluated(prepared.plan)
    program = DeviceProgram(prepared.module, prepared.plan, device, prepared.source)
    begin = device.begin_capture

    def interrupted() -> None:
        begin()
        raise KeyboardInterrupt

    device.begin_capture = interrupted  # type: ignore[method-assign]
    start = rng.random((8, 8), np.float32)
    with pytest.raises(KeyboardInterrupt):
        program.run([start])
    device.begin_capture = begin  # type: ignore[method-assign]
    got = program.run([start])
    np.testing.assert_allclose(got[0], hloopt.evaluate(module, [start])[0], atol=1e-4)
