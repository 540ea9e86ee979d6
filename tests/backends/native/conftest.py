"""Nothing runs natively where there is no compiler."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from hloopt.backends.native import check_native, toolchain
from hloopt.errors import DeviceError


@pytest.fixture(scope="session", autouse=True)
def compiler() -> None:
    """Skip where the host has no C++ compiler."""
    try:
        check_native()
    except DeviceError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def quickly_compiled() -> Iterator[None]:
    """Large programs are compiled in half the time; the slow tests, and ``test_every_op``, have them as users do."""
    with pytest.MonkeyPatch.context() as patch:
        if not os.environ.get("HLOOPT_SLOW"):
            assert "-O3" in toolchain._FLAGS
            flags = tuple("-O1" if flag == "-O3" else flag for flag in toolchain._FLAGS)
            patch.setattr(toolchain, "_FLAGS", flags)
        yield
