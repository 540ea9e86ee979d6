"""A kernel on trial: one instruction on the emulator, beside the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hloopt.backends.emulator import EmulatorDevice, check_emulator
from hloopt.codegen.program import render
from hloopt.errors import DeviceError, EvaluationError, HlooptError, UnsupportedError
from hloopt.interpret import evaluate_module
from hloopt.ir import Instruction, Module
from hloopt.kernels.kernel import Kernel, Site
from hloopt.kernels.planning import plan_program
from hloopt.kernels.registry import kernels
from hloopt.kernels.selection.chooser import choose
from hloopt.kernels.spec import KernelSpec
from hloopt.kernels.standalone import standalone
from hloopt.pipelines import optimize_module
from hloopt.runtime.device_program import DeviceProgram
from hloopt.runtime.judge import judged
from hloopt.runtime.trial_inputs import TRIALS, trial_inputs
from hloopt.types import Array

__all__ = ["try_kernel"]


_SECONDS: Final = 20.0  # for one launch


def try_kernel(site: Site, kernel: Kernel, spec: KernelSpec) -> str:
    """What is wrong with a kernel at a site, empty where nothing was found.

    Inputs are those of ``trial_inputs.TRIALS``; the emulator checks every access to memory, and runs blocks in
    another order each time.
    """
    try:
        check_emulator()
    except DeviceError as error:
        return f"it cannot be verified: {error.message}"
    try:
        return _trial(site, kernel, spec)
    except EvaluationError as error:
        return f"on the emulator: {error.reason}"
    except (DeviceError, UnsupportedError) as error:
        return f"on the emulator: {error.message}"


def _trial(site: Site, kernel: Kernel, spec: KernelSpec) -> str:
    instruction = site.region.instruction
    module = standalone(instruction, keep_constants=True)
    ready = optimize_module(module, "device")
    own = tuple(entry for entry in kernels() if not entry.owner)

    def chosen(other: Instruction) -> tuple[Kernel, KernelSpec]:
        if other.name == instruction.name and other.opcode == instruction.opcode:
            return kernel, spec
        return choose(other, site.target, site.limits, known=own)

    plan = plan_program(ready, chosen)
    source = render(plan, site.target, site.limits)
    for seed, spread in enumerate(TRIALS):
        inputs = trial_inputs(module, seed, spread)
        device = EmulatorDevice(mode="check", seed=seed, time_limit=_SECONDS)
        program = DeviceProgram(ready, plan, device, source)
        try:
            problem = _difference(program.run(inputs), module, inputs, seed)
        finally:
            program.close()
        if problem:
            return problem
    return ""


def _difference(got: Sequence[Array], module: Module, inputs: list[Array], seed: int) -> str:
    """Where results differ from the interpreter's, in words."""
    try:
        want = evaluate_module(module, inputs)
    except HlooptError as error:
        return f"the interpreter cannot say what is right: {error.message}"
    for number, comparison in enumerate(judged(module, inputs, got, want)):
        if not comparison.passed:
            place = ",".join(map(str, comparison.where))
            wrong, right = got[number][comparison.where], want[number][comparison.where]
            return comparison.problem or (
                f"result {number}[{place}] is {wrong} where the interpreter has {right} "
                f"({comparison.mismatches} of {comparison.elements} differ, seed {seed})"
            )
    return ""
