"""Random modules on the emulator, as they are and after -O2, every kernel beside the interpreter."""

from __future__ import annotations

import os
from contextlib import closing
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.backends import check_device
from hloopt.backends.device_compile import prepare
from hloopt.backends.emulator import EmulatorDevice
from hloopt.backends.kernel_check import CheckedProgram
from hloopt.errors import DeviceError
from tests.helpers.rarely import examples
from tests.properties.random_modules import module_text
from tests.properties.special_inputs import special_inputs

EXPLORES = os.environ.get("HYPOTHESIS_PROFILE") == "explore"
MOST = 100  # kernels of a run that are looked at


@pytest.fixture(scope="module", autouse=True)
def _compiler() -> None:
    try:
        check_device("emulator")
    except DeviceError as error:
        pytest.skip(str(error))


def check(seed: int) -> None:
    """Kernels of a module, and of what O2 makes of it, touch only what is theirs and compute what they should."""
    module = hloopt.parse(module_text(Random(seed)))
    hloopt.verify(module)
    inputs = special_inputs(module, seed)
    for level in ("O0", "O2"):
        prepared = prepare(hloopt.optimize(module, level))
        device = EmulatorDevice(mode="check", seed=seed % 5)
        program = CheckedProgram(prepared.module, prepared.plan, device, prepared.program)
        with closing(program):
            program.most = MOST
            program.run(inputs)
        assert not program.findings, f"{level}: {program.findings[0]}\n{prepared.source}"


@settings(
    max_examples=examples(1000) if EXPLORES else 4,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(seed=st.integers(0, 2**32))
def test_kernels_of_random_modules(seed: int) -> None:
    """Whatever stands in a module, its kernels compute it and race, overrun and forget nothing."""
    check(seed)
