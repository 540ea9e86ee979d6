"""Kernels of a plan for CuPy's stand-in: each evaluates its instruction on the memory its pointers name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hloopt.analysis.region import region_of
from hloopt.kernels.plan import KernelStep, Plan, function_name, walk_steps
from hloopt.kernels.spec import Launch
from hloopt.runtime import library_numpy
from hloopt.runtime.device import array_of_bytes, bytes_of_array
from tests.backends.cuda.fake_cupy import FakeCupy, view

__all__ = ["evaluated", "slowed"]


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


def slowed(
    kernels: dict[str, Callable[..., None]], fake: FakeCupy
) -> dict[str, Callable[..., None]]:
    """Each kernel takes a millisecond of the stand-in's clock."""

    def slow(kernel: Callable[..., None]) -> Callable[..., None]:
        def run(*arguments: object) -> None:
            kernel(*arguments)
            fake.clock += 1.0

        return run

    return {name: slow(kernel) for name, kernel in kernels.items()}
