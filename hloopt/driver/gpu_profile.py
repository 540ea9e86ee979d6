"""What ``hloopt run --device gpu`` reads from the GPU itself: its name, and how long kernels take."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hloopt.backends.cuda import CudaDevice
from hloopt.backends.cuda.description import describe_gpu, this_gpu
from hloopt.backends.cuda.profile import Profile, profile
from hloopt.backends.device_compile import CompiledProgram
from hloopt.backends.nvrtc import FAST_MATH, TIMED
from hloopt.driver.writing import write_text

if TYPE_CHECKING:
    from hloopt.driver.options import RunOptions
    from hloopt.driver.selecting import Selecting
    from hloopt.runtime.program import Program

__all__ = ["choose_for_this_gpu", "timed_kernels"]

_REPEAT = 20


def timed_kernels(
    options: RunOptions, program: Program, inputs: Sequence[Any], *, fast_math: bool
) -> Profile:
    """Time a program on a GPU in a separate session, compiled for speed; write the trace."""
    assert isinstance(program, CompiledProgram)
    prepared, wanted = program.prepared, options.profiling
    device = CudaDevice(flags=FAST_MATH if fast_math else TIMED)
    try:
        target, repeat = describe_gpu(device), options.repeat or _REPEAT
        found = profile(prepared, inputs, device, target, repeat=repeat, cold=wanted.cold_l2)
    finally:
        device.close()
    if wanted.trace is not None:
        write_text(wanted.trace, json.dumps(found.trace()), prepared.module.name)
    return found


def choose_for_this_gpu(selecting: Selecting) -> None:
    """Without ``--target`` kernels are chosen for the GPU that runs them.

    A note says so where hloopt has no target for it.  Raises ``DeviceError`` without a GPU.
    """
    if "target" in selecting.options:
        return
    title, target = this_gpu()
    if target is not None:
        selecting.made = replace(selecting.instance, target=target.name)
        return
    selecting.notes.append(
        f"hloopt has no target for {title}: kernels are chosen for {selecting.instance.target}; --target takes "
        "another device, or a description"
    )
