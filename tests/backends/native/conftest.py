"""Nothing runs natively where there is no compiler."""

from __future__ import annotations

import pytest

from hloopt.backends.native import check_native
from hloopt.errors import DeviceError


@pytest.fixture(scope="session", autouse=True)
def compiler() -> None:
    """Skip where the host has no C++ compiler."""
    try:
        check_native()
    except DeviceError as error:
        pytest.skip(str(error))
