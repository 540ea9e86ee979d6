"""Forcing kernels finds the one that is wrong, and says where."""

from __future__ import annotations

from dataclasses import replace

import pytest

import hloopt
from hloopt.backends import check_device
from hloopt.errors import DeviceError
from hloopt.kernels import registry
from hloopt.kernels.kernel import Kernel, Site
from hloopt.kernels.spec import KernelSpec, Tile
from tests.corpus.force_kernels import Outcome, force

TEXT = """HloModule m

ENTRY main {
  x = f32[40] parameter(0)
  y = f32[40] negate(x)
  z = f32[40] negate(y)
  ROOT both = (f32[40], f32[40]) tuple(y, z)
}
"""


@pytest.fixture(scope="module", autouse=True)
def _compiler() -> None:
    try:
        check_device("emulator")
    except DeviceError as error:
        pytest.skip(str(error))


def planted(body: str) -> Kernel:
    """The loop kernel with a source of its own."""

    def source(_: Site, spec: KernelSpec, function: str) -> str:
        assert spec.steps
        return (
            f'extern "C" __global__ void {function}(const float* __restrict__ x, '
            f"float* __restrict__ y) {{ int i = blockIdx.x * blockDim.x + threadIdx.x; {body} }}\n"
        )

    loop = registry.find_kernel("loop")

    def spec(site: Site, tile: Tile) -> KernelSpec:
        return replace(loop.spec(site, tile), kernel="planted")

    return replace(loop, name="planted", spec=spec, source=source, owner="a test")


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("if (i < 40) y[i] = -x[i];", ""),
        ("if (i < 40) y[i] = x[i];", "result 0["),
        ("if (i < 41) y[i] = -x[i];", "on the emulator: "),
        ("if (i < 39) y[i] = -x[i];", "on the emulator: "),
    ],
)
def test_what_is_wrong_is_found(body: str, problem: str) -> None:
    """Another result, an access outside, an element left out; what is alike is tried once."""
    outcome = Outcome()
    with registry.registered([planted(body)]):
        force("m", hloopt.parse(TEXT), outcome, only=("planted",))
    assert outcome.tried == {"planted": 1}
    assert "loop" in outcome.beside["planted"]
    if not problem:
        assert not outcome.wrong
        return
    ((name, instruction, kernel, told),) = outcome.wrong
    assert (name, instruction, kernel) == ("m", "y", "planted")
    assert told.startswith(problem)


def test_what_is_too_large_is_counted() -> None:
    """And not tried."""
    outcome = Outcome()
    force("m", hloopt.parse(TEXT), outcome, flops=10)
    assert outcome.left_out == 2
    assert not outcome.tried
