"""Random loops whose elements mix, by blocks of any number of threads, against the interpreter."""

from __future__ import annotations

import os
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.analysis.parallel_loop.block_mapping import block_mapping
from hloopt.analysis.region import region_of
from hloopt.backends import check_device
from hloopt.backends.emulator import EmulatorDevice
from hloopt.codegen.program import render
from hloopt.errors import DeviceError
from hloopt.fusion.loop_wrap import wrap_loop
from hloopt.ir import Instruction
from hloopt.kernels.kernel import Kernel, Site
from hloopt.kernels.limits import Limits
from hloopt.kernels.planning import plan_program
from hloopt.kernels.registry import find_kernel
from hloopt.kernels.spec import KernelSpec
from hloopt.runtime.device_program import DeviceProgram
from hloopt.runtime.judge import Tolerance, compare_all
from hloopt.targets import find_target
from tests.helpers.mixing_loops import mixing_loop
from tests.helpers.rarely import examples

EXPLORES = os.environ.get("HYPOTHESIS_PROFILE") == "explore"
TARGET = find_target("h200")


@pytest.fixture(scope="module", autouse=True)
def _compiler() -> None:
    try:
        check_device("emulator")
    except DeviceError as error:
        pytest.skip(str(error))


@settings(
    max_examples=examples(300) if EXPLORES else 4,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(
    chooser=st.randoms(use_true_random=False),
    threads=st.sampled_from([0, 32, 96, 256, 1024]),
    seed=st.integers(0, 100),
    units=st.sampled_from([0, 3, 20]),
)
def test_mixing_loops_by_blocks(chooser: Random, threads: int, seed: int, units: int) -> None:
    """Every access is checked: a barrier too few is a race."""
    module = hloopt.parse(mixing_loop(chooser, units))
    source = np.random.default_rng(seed)
    arrays = [
        source.uniform(-1, 1, one.array.dims).astype(np.float32) for one in module.entry.parameters
    ]
    wanted = hloopt.evaluate(module, arrays)
    mapping = block_mapping(next(one for one in module.entry if one.opcode == "while"), TARGET)
    assert not mapping.problem, mapping.problem
    wrap_loop(mapping.parallel, "loop_fusion", 64)

    def choose(instruction: Instruction) -> tuple[Kernel, KernelSpec]:
        site = Site(region_of(instruction), TARGET, Limits())
        names = ("while-per-block", "copy", "loop")
        kernel = next(found for found in map(find_kernel, names) if found.fits(site))
        given = {"threads": threads} if threads and kernel.name == names[0] else {}
        return kernel, kernel.spec(site, {**kernel.tile(site), **given})

    plan = plan_program(module, choose)
    program = DeviceProgram(module, plan, EmulatorDevice(mode="check", seed=seed), render(plan))
    try:
        found = program.run(arrays)
    finally:
        program.close()
    for comparison in compare_all(found, wanted, Tolerance(rtol=1e-3, atol=1e-3)):
        assert comparison.passed, str(comparison)
