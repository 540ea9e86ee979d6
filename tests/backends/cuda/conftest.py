"""A GPU that is not one: CuPy's stand-in, and a device on it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hloopt.backends import nvrtc
from hloopt.backends.cuda import CudaDevice
from hloopt.errors import DeviceError
from tests.backends.cuda.fake_cupy import FakeCupy


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCupy:
    """What ``import cupy`` gives in this test; not the real CuPy."""
    stand_in = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", stand_in)  # type: ignore[arg-type]
    return stand_in


@pytest.fixture
def device(fake: FakeCupy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaDevice]:
    """A device on the stand-in; machine code is real."""
    monkeypatch.setenv("HLOOPT_CACHE_DIR", str(tmp_path / "cache"))
    try:
        nvrtc.nvrtc_for("sm_90")
    except DeviceError as error:
        pytest.skip(str(error))
    made = CudaDevice()
    yield made
    made.close()
