"""The device the emitters are asked about."""

from __future__ import annotations

import pytest

from hloopt.targets import Target, target


@pytest.fixture
def h200() -> Target:
    """132 cores of 2048 threads."""
    return target("h200")
