"""Running a module's instructions by named kernels on the emulator, and comparing with the interpreter."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from zlib import crc32

import numpy as np

import hloopt
from hloopt.analysis.region import region_of
from hloopt.backends.emulator import EmulatorDevice
from hloopt.backends.nvrtc import compile_cuda, nvrtc_for
from hloopt.codegen.program import KernelProgram, kernel_steps, render
from hloopt.errors import DeviceError
from hloopt.ir import Instruction, Module
from hloopt.kernels.kernel import Kernel, Site
from hloopt.kernels.limits import Limits
from hloopt.kernels.plan import Plan
from hloopt.kernels.planning import plan_program
from hloopt.kernels.registry import find_kernel
from hloopt.kernels.spec import KernelSpec
from hloopt.runtime.device_program import DeviceProgram
from hloopt.runtime.inputs import generate
from hloopt.runtime.judge import Judge, Tolerance
from hloopt.targets import find_target
from tests.helpers.planned import same_bits
from tests.helpers.verified import verify_program

__all__ = ["check_kernel", "compile_everywhere", "compile_somewhere", "planned", "ran"]

Array = np.ndarray[Any, Any]
Pick = Callable[[Instruction], "tuple[str, Mapping[str, int]] | None"]

TARGET = find_target("h200")
LIMITS = Limits()
_COMPILED: set[str | None] = set()
"""Kernels of which this process has compiled a source."""


def chooser(
    kernel: str | None, tile: Mapping[str, int] | None
) -> Callable[[Instruction], tuple[Kernel, KernelSpec]]:
    """The kernel of that name where it fits; elsewhere a copy of bytes, else the loop kernel.

    Of several names, with commas between them, the first that fits.
    """
    wanted = kernel.split(",") if kernel else []

    def choose(instruction: Instruction) -> tuple[Kernel, KernelSpec]:
        site = Site(region_of(instruction), TARGET, LIMITS)
        for name in (*wanted, "copy", "loop"):
            found = find_kernel(name)
            if found.fits(site):
                defaults = found.tile(site)
                given = tile if tile is not None and name in wanted else {}
                return found, found.spec(site, {**defaults, **given})
        raise AssertionError(f"no kernel fits {instruction}")

    return choose


def planned(
    text: str, kernel: str | None = None, tile: Mapping[str, int] | None = None
) -> tuple[Module, Plan, KernelProgram]:
    """A module, its plan and the program; every instruction that the kernel fits has it."""
    module = hloopt.parse(text)
    hloopt.verify(module)
    plan = plan_program(module, chooser(kernel, tile))
    return module, plan, render(plan)


def ran(
    module: Module,
    plan: Plan,
    kernels: KernelProgram | str,
    inputs: Sequence[Array],
    *,
    mode: str = "check",
    seed: int = 0,
) -> list[Array]:
    """The results of a plan on the emulator, for which most tests have too few threads to be optimised."""
    device = EmulatorDevice(mode=mode, seed=seed, is_optimized=False)
    program = DeviceProgram(module, plan, device, kernels)
    try:
        return program.run(inputs)
    finally:
        program.close()


def check_kernel(
    text: str,
    kernel: str | None = None,
    tile: Mapping[str, int] | None = None,
    *,
    inputs: Sequence[Array] | None = None,
    seed: int = 0,
    exact: bool = False,
    rtol: float | None = None,
    atol: float | None = None,
    everywhere: bool = True,
    used: bool = True,
    twice: bool = True,
) -> KernelProgram:
    """Run a module by a kernel and hold the results against the interpreter's; returns the program.

    The verifier checks every function.  The emulator checks every access and runs twice with blocks in
    different orders; the two results are the same bit for bit, but for those of NaN, unless a spec is atomic.  Without ``twice`` it runs once.  With ``used`` the kernel must
    have fitted somewhere; with ``everywhere`` NVRTC has to take the source (``compile_somewhere``).
    """
    module, plan, kernels = planned(text, kernel, tile)
    source = kernels.text
    verify_program(kernels)
    steps = list(kernel_steps(plan.steps))
    if used and kernel is not None:
        for name in kernel.split(","):
            assert any(step.spec.kernel == name for step in steps), f"{name} fits nowhere"
    given = generate(module, seed) if inputs is None else list(inputs)
    want = hloopt.evaluate(module, given)
    results = [ran(module, plan, kernels, given, mode="check", seed=1)]
    if twice:
        results.append(ran(module, plan, kernels, given, mode="check", seed=2))
    judge = Judge.of(
        module, [given], [want], tolerance=Tolerance(ulp=0) if exact else Tolerance(rtol, atol)
    )
    for got in results:
        for number, comparison in enumerate(judge.compare_all([got], [want])):
            assert comparison.passed, f"result {number}: {comparison}\n{source}"
    if not any(step.spec.is_atomic for step in steps):
        for one, other in zip(results[0], results[-1], strict=True):
            assert same_bits(one, other), f"the order of blocks matters\n{source}"
    if everywhere:
        compile_somewhere(source, kernel=kernel)
    return kernels


def compile_somewhere(
    source: str, architectures: Sequence[str] = ("sm_75", "sm_90"), kernel: str | None = None
) -> None:
    """NVRTC reads each source, and compiles the first of each kernel in a process and a third of the others.

    That is as ``compile_everywhere``, for one of the architectures, which the source decides; the slow tests
    have each source compiled for all of them.  The machine code takes five times as long as all else.
    """
    if os.environ.get("HLOOPT_SLOW"):
        compile_everywhere(source, architectures)
        return
    share, number = divmod(crc32(source.encode()), len(architectures))
    architecture = architectures[number]
    if share % 3 == 0 or kernel not in _COMPILED:
        _COMPILED.add(kernel)
        compile_everywhere(source, (architecture,))
    elif _has_nvrtc(architecture):
        compile_cuda(source, architecture.replace("sm_", "compute_"), options=("--device-debug",))


def compile_everywhere(source: str, architectures: Sequence[str] = ("sm_75", "sm_90")) -> None:
    """NVRTC compiles the source, and no function spills; nothing is done where NVRTC is not installed."""
    if not _has_nvrtc(architectures[0]):
        return
    for architecture in architectures:
        compiled = compile_cuda(source, architecture)
        for name, resources in compiled.resources.items():
            assert not resources.spill_stores, f"{name} spills on {architecture}\n{source}"


def _has_nvrtc(architecture: str) -> bool:
    try:
        nvrtc_for(architecture)
    except DeviceError:
        return False
    return True
