"""What ``check_kernel`` asks of NVRTC."""

from __future__ import annotations

import pytest

from hloopt.backends.nvrtc import CompilationError, nvrtc_for
from hloopt.errors import DeviceError
from tests.codegen.harness import compile_somewhere


def test_nvrtc_reads_each_source_whether_or_not_it_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An error is found in all of them."""
    monkeypatch.delenv("HLOOPT_SLOW", raising=False)
    try:
        nvrtc_for("sm_90")
    except DeviceError as error:
        pytest.skip(str(error))
    for number in range(6):
        right = f'extern "C" __global__ void k{number}(int* x) {{ x[0] = 1; }}\n'
        compile_somewhere(right, kernel="right")
        with pytest.raises(CompilationError, match="missing"):
            compile_somewhere(right.replace("1;", "missing;"), kernel="wrong")
