"""From a module to a native program: made ready, kernels chosen, planned, written, compiled."""

from __future__ import annotations

from dataclasses import replace

from hloopt.analysis.region import region_of
from hloopt.codegen.native import render
from hloopt.errors import UsageError
from hloopt.interpret import supported
from hloopt.ir import Instruction, Module
from hloopt.kernels.kernel import Kernel, Site
from hloopt.kernels.limits import Limits
from hloopt.kernels.lowering import NATIVE, make_ready
from hloopt.kernels.plan import KernelStep, Plan, walk_steps
from hloopt.kernels.planning import plan_program
from hloopt.kernels.problem import unsupported
from hloopt.kernels.registry import find_kernel
from hloopt.kernels.selection import KernelSelection, choose
from hloopt.kernels.selection.candidate import candidates, packing_problem, with_tile
from hloopt.kernels.spec import KernelSpec
from hloopt.kernels.written import drop_others
from hloopt.rewrite import Pipeline
from hloopt.runtime.device_compile import Prepared
from hloopt.runtime.native.program import NativeProgram
from hloopt.runtime.native.toolchain import check_native
from hloopt.runtime.native.whole_loops import with_whole_loops
from hloopt.runtime.replay import Replay
from hloopt.targets.host import HOST
from hloopt.types import ArrayShape, leaves

__all__ = ["CompiledNative", "compile_native", "plan_native", "plan_ready", "prepare_native"]


class CompiledNative(NativeProgram):
    """A program with what it was made from."""

    def __init__(self, prepared: Prepared, *, threads: int | None = None) -> None:
        super().__init__(prepared.module, prepared.plan, threads=threads, source=prepared.source)
        self.prepared = prepared


def prepare_native(
    module: Module, selection: KernelSelection | None = None, replay: Replay | None = None
) -> Prepared:
    """Everything up to the compiler; the given module is unchanged.

    ``selection`` says what the user wants of kernels; without one the rules choose.  Choices that were written
    for other devices count for nothing; the result's notes tell so.  ``replay`` is a plan that was read, to be
    run instead of one that is made.  Raises ``UnsupportedError`` for what cannot be run, ``UsageError`` for
    wishes that cannot be granted and for a plan of another device.
    """
    _check_types(module)
    if replay is not None:
        return _replayed(replay)
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


def _replayed(replay: Replay) -> Prepared:
    if replay.target != HOST.name:
        raise UsageError(
            f"the plan is for {replay.target}; --device native runs those of "
            f"hloopt kernels --target {HOST.name} --plan --json"
        )
    for step in walk_steps(replay.plan.steps):
        if isinstance(step, KernelStep):
            _check_step(step)
    report = Pipeline(()).run(replay.module)
    return Prepared(replay.module, replay.plan, render(replay.plan), report)


def _check_step(step: KernelStep) -> None:
    """Raise ``UsageError`` for launches that are not those of the kernel: nothing watches over its accesses."""
    spec, name = step.spec, step.instruction.name
    kernel = find_kernel(spec.kernel, "native")
    site = Site(region_of(step.instruction), HOST, Limits())
    (candidate,) = candidates(site, (kernel,))
    if not candidate.ok:
        raise UsageError(f"the plan runs %{name} by {spec.kernel}: {candidate.reason}")
    if with_tile(kernel, site, spec.tile)[1] != spec:
        raise UsageError(f"the plan has steps for %{name} that are not those of {spec.kernel}")


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
    replay: Replay | None = None,
) -> CompiledNative:
    """A program for the host's processor; the given module is unchanged.

    Raises ``DeviceError`` where there is no C++ compiler, before anything is planned, and as
    ``prepare_native``.
    """
    check_native()
    return CompiledNative(prepare_native(module, selection, replay), threads=threads)
