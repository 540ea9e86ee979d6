"""From a module to a native program: made ready, kernels chosen, planned, written, compiled."""

from __future__ import annotations

from hloopt.ir import Instruction, Module
from hloopt.kernels.kernel import Kernel
from hloopt.kernels.limits import Limits
from hloopt.kernels.lowering import NATIVE, make_ready
from hloopt.kernels.plan import Plan
from hloopt.kernels.planning import plan_program
from hloopt.kernels.selection import choose
from hloopt.kernels.spec import KernelSpec
from hloopt.runtime.native.program import NativeProgram
from hloopt.runtime.native.toolchain import check_native
from hloopt.runtime.native.whole_loops import with_whole_loops
from hloopt.targets.host import HOST

__all__ = ["compile_native", "plan_native"]


def plan_native(module: Module) -> tuple[Module, Plan]:
    """The module made ready, and its plan.  Raises ``UnsupportedError`` for what cannot be run."""
    ready = make_ready(with_whole_loops(module), NATIVE)
    limits = Limits()

    def chosen(instruction: Instruction) -> tuple[Kernel, KernelSpec]:
        return choose(instruction, HOST, limits, device="native")

    return ready, plan_program(ready, chosen, allow_host=True, results_apart=True)


def compile_native(module: Module, *, threads: int | None = None) -> NativeProgram:
    """A program for the host's processor; the given module is unchanged.

    Raises ``DeviceError`` where there is no C++ compiler, before anything is planned.
    """
    check_native()
    return NativeProgram(*plan_native(module), threads=threads)
