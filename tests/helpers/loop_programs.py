"""Programs of ``samples/cartpole`` and ``samples/loops``, also at other sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import hloopt
from hloopt.backends.device_compile import prepare
from hloopt.backends.emulator import EmulatorDevice
from hloopt.kernels.plan import KernelStep, PlanStep
from hloopt.runtime.device_program import DeviceProgram
from hloopt.runtime.program import DeviceOptions

Array = np.ndarray[Any, Any]

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


@cache
def text_of(name: str) -> str:
    """The dump ``samples/NAME.hlo``."""
    return (SAMPLES / f"{name}.hlo").read_text()


def resized(
    name: str, sizes: Mapping[int, int], iterations: Mapping[int, int] | None = None
) -> str:
    """The dump with other numbers in place of whole numbers: another count of elements or of trips.

    ``trips`` are for constants alone, so that a loop may run fewer times than its arrays have room for.  It is
    another program, right by itself; only its own evaluation says what it computes.
    """

    def other(number: re.Match[str]) -> str:
        return str(sizes.get(int(number[0]), number[0]))

    text = text_of(name)
    for count, wanted in (iterations or {}).items():
        text = text.replace(f"s32[] constant({count})", f"s32[] constant({wanted})")
    # A word of a name or a decimal fraction is no size.
    return re.sub(r"(?<![\w.%-])\d+(?![\w.])", other, text)


@dataclass(frozen=True)
class Ran:
    """What a run on the emulator gave: results, kernels in the order of the plan, launches."""

    results: list[Array]
    kernels: tuple[str, ...]
    launches: int

    @property
    def loops(self) -> tuple[str, ...]:
        """The kernels that are whole loops."""
        return tuple(name for name in self.kernels if name.startswith("while-"))


def kernel_of(step: PlanStep) -> str:
    """The kernel of a step of a plan; of what is no kernel the kind of step."""
    return step.spec.kernel if isinstance(step, KernelStep) else type(step).__name__


def emulated(module: hloopt.Module, inputs: Sequence[Array], mode: str = "check") -> Ran:
    """Run a module as it is; with ``check`` each access is looked at, and blocks run in another order."""
    prepared = prepare(module, DeviceOptions())
    device = EmulatorDevice(mode=mode, seed=1, time_limit=600.0)
    program = DeviceProgram(prepared.module, prepared.plan, device, prepared.program)
    with closing(program):
        results = program.run(inputs)
        launches = program.launches
    return Ran(results, tuple(map(kernel_of, prepared.plan.steps)), launches)
