"""The hand-written kernel of ``samples/cartpole`` computes what the naive program computes."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.backends.emulator import EmulatorDevice
from tests.codegen.harness import compile_everywhere
from tests.helpers.loop_programs import resized

KEY = np.array([3, 14], np.uint32)


@pytest.fixture(scope="module")
def yardstick() -> dict[str, Any]:
    """What ``yardstick.py`` defines."""
    folder = Path(__file__).resolve().parent.parent / "samples" / "cartpole"
    return runpy.run_path(str(folder / "yardstick.py"))


@pytest.mark.parametrize(("environments", "steps"), [(1, 1), (31, 32), (33, 65), (200, 0)])
def test_yardstick_is_the_naive_program(
    yardstick: dict[str, Any], environments: int, steps: int
) -> None:
    """Each access is checked; warps that are not full and batches of steps that are not are right too."""
    make: Callable[..., Any] = yardstick["Yardstick"]
    with closing(EmulatorDevice(mode="check", seed=1)) as device:
        found = make(device, KEY, environments, steps)
        found.launch()
        got = found.read()
    module = hloopt.parse(
        resized("cartpole/naive", {2048: environments, 1000: max(steps, 1)}, {1000: steps})
    )
    hloopt.verify(module)
    want = hloopt.evaluate(module, [KEY])
    np.testing.assert_allclose(got[0], want[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(got[1], want[1])
    np.testing.assert_array_equal(got[2], want[2])


def test_yardstick_compiles_without_spills(yardstick: dict[str, Any]) -> None:
    """For the oldest and the usual architecture."""
    compile_everywhere(yardstick["SOURCE"])
