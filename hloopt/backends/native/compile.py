"""From a module to a native program: made ready, kernels chosen, planned, written, compiled."""

from __future__ import annotations

from dataclasses import replace

from hloopt.backends.device_compile import Prepared
from hloopt.backends.native.codegen import render
from hloopt.backends.native.lowering import NATIVE
from hloopt.backends.native.program import NativeProgram
from hloopt.backends.native.toolchain import check_native
from hloopt.backends.native.whole_loops import with_whole_loops
from hloopt.interpret import supported
from hloopt.ir import Instruction, Module
from hloopt.kernels.kernel import Kernel
from hloopt.kernels.limits import Limits
from hloopt.kernels.lowering import make_ready
from hloopt.kernels.plan import Plan
from hloopt.kernels.planning import plan_program
from hloopt.kernels.problem import unsupported
from hloopt.kernels.selection import KernelSelection, choose
from hloopt.kernels.selection.candidate import packing_problem
from hloopt.kernels.spec import KernelSpec
from hloopt.kernels.written import drop_others
from hloopt.rewrite import Pipeline
from hloopt.targets.host import HOST
from hloopt.types import ArrayShape, leaves

__all__ = ["CompiledNative", "compile_native", "plan_native", "plan_ready", "prepare_native"]


class CompiledNative(NativeProgram):
    """A program with what it was made from."""

    def __init__(self, prepared: Prepared, *, threads: int | None = None) -> None:
        super().__init__(prepared.module, prepared.plan, threads=threads, source=prepared.source)
        self.prepared = prepared


def prepare_native(module: Module, selection: KernelSelection | None = None) -> Prepared:
    """Everything up to the compiler; the given module is unchanged.

    ``selection`` says what the user wants of kernels; without one the rules choose.  Choices that were written
    for other devices count for nothing; the result's notes tell so.  Raises ``UnsupportedError`` for what
    cannot be run, ``UsageError`` for wishes that cannot be granted.
    """
    _check_types(module)
    copy = with_whole_loops(module)
    notes = drop_others(copy, "native")
    ready = make_ready(copy, NATIVE)
    wishes = () if selection is None else (replace(selection, device="native"),)
    report = Pipeline(wishes).run(ready)
    limits = Limits() if selection is None else selection.limits()

    plan = plan_ready(ready, limits)
    supported(ready)
    return Prepared(ready, plan, render(plan), report, tuple(notes))


def plan_ready(ready: Module, limits: Limits) -> Plan:
    """The plan of a module that ``NATIVE`` has made ready.  Raises ``UnsupportedError``."""

    def chosen(instruction: Instruction) -> tuple[Kernel, KernelSpec]:
        return choose(instruction, HOST, limits, device="native")

    return plan_program(ready, chosen, allow_host=True, results_apart=True)


def _check_types(module: Module) -> None:
    """Raise ``UnsupportedError`` for what goes in or out in a type that has no form in memory."""
    for instruction in (*module.entry.parameters, module.entry.root):
        for shape in leaves(instruction.shape):
            held = shape if isinstance(shape, ArrayShape) else shape.element
            if problem := packing_problem(held.dtype):
                raise unsupported(instruction, f"has no place in memory: {problem}")


def plan_native(module: Module) -> tuple[Module, Plan]:
    """The module made ready, and its plan.  Raises ``UnsupportedError`` for what cannot be run."""
    prepared = prepare_native(module)
    return prepared.module, prepared.plan


def compile_native(
    module: Module,
    *,
    threads: int | None = None,
    selection: KernelSelection | None = None,
) -> CompiledNative:
    """A program for the host's processor; the given module is unchanged.

    Raises ``DeviceError`` where there is no C++ compiler, before anything is planned, and as
    ``prepare_native``.
    """
    check_native()
    return CompiledNative(prepare_native(module, selection), threads=threads)
