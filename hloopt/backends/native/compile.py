"""From a module to a native program: made ready, kernels chosen, planned, written, compiled."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Final

from hloopt.backends.device_compile import Prepared, choices_of, lower
from hloopt.backends.native.codegen import render
from hloopt.backends.native.participants import NativeParticipants
from hloopt.backends.native.program import NativeProgram
from hloopt.backends.native.toolchain import check_native
from hloopt.errors import UsageError
from hloopt.interpret import supported
from hloopt.ir import Instruction, Module, build
from hloopt.kernels.kernel import ChooseKernel, Kernel, unsupported
from hloopt.kernels.plan import Plan
from hloopt.kernels.planning import plan_program
from hloopt.kernels.registry import kernels
from hloopt.kernels.selection import KernelSelection
from hloopt.kernels.selection.candidate import packing_problem
from hloopt.kernels.selection.choice import Alternatives
from hloopt.kernels.selection.selectors import pick
from hloopt.kernels.spec import KernelSpec
from hloopt.runtime.program import NativeOptions
from hloopt.types import ArrayShape, leaves

__all__ = [
    "CompiledNative",
    "compile_for_participants",
    "compile_native",
    "plan_native",
    "plan_ready",
    "prepare_library",
    "prepare_native",
]


_COUNTS: Final = ("replica_count", "num_partitions")


class CompiledNative(NativeProgram):
    """A program with what it was made from."""

    def __init__(self, prepared: Prepared, *, threads: int | None = None) -> None:
        super().__init__(prepared.module, prepared.plan, threads=threads, source=prepared.source)
        self.prepared = prepared


def prepare_native(
    module: Module, selection: KernelSelection | None = None, counts: tuple[int, int] = (1, 1)
) -> Prepared:
    """Everything up to the compiler; the given module is unchanged.

    ``selection`` has the user's choice of kernels; without one the rules choose.  ``counts`` are the replicas
    and partitions that run it.  Raises
    ``UnsupportedError`` for what cannot be run, ``UsageError`` for requests that cannot be granted.
    """
    _check_types(module)
    if counts != _given(module):
        module = build.clone_module(module)
        module.attributes |= dict(zip(_COUNTS, counts, strict=True))
    wanted = replace(selection or KernelSelection(), device="native")
    ready, report = lower(module, wanted)
    plan = plan_ready(ready, wanted.kernel_of(choices_of(report)))
    supported(ready, *counts)
    return Prepared(ready, plan, render(plan), report)


def prepare_library(
    module: Module, selection: KernelSelection, entry: str
) -> tuple[Prepared, list[str]]:
    """As ``prepare_native``, for a program without Python, whose symbols begin with ``entry``; and notes.

    What the NumPy executor would run has another kernel.  Raises ``UnsupportedError`` where there is none,
    ``UsageError`` for programs of several participants.
    """
    _check_types(module)
    if (count := prod(_given(module))) > 1:
        raise UsageError(f"{module.name} is for {count} participants, and a library runs one")
    wanted = replace(selection, device="native")
    ready, report = lower(module, wanted)
    chosen = wanted.kernel_of(choices_of(report))
    notes: list[str] = []

    def without_python(instruction: Instruction) -> tuple[Kernel, KernelSpec]:
        kernel, spec = chosen(instruction)
        if not spec.library:
            return kernel, spec
        known = [one for one in kernels("native") if one.name != kernel.name]
        able = Alternatives.of(instruction, wanted.described, wanted.limits(), known).able
        if not able:
            why = f"is run by {spec.library} on the device native, and a library has no Python"
            raise unsupported(instruction, why)
        best, _ = pick(able)
        notes.append(
            f"%{instruction.name}: {best.name} runs it, where the device native calls {spec.library}: time and "
            "last bits of results may differ"
        )
        return best.kernel, best.spec

    plan = plan_program(ready, without_python, allow_host=None, results_apart=True)
    supported(ready)
    return Prepared(ready, plan, render(plan, entry=entry), report), notes


def _given(module: Module) -> tuple[int, ...]:
    return tuple(module.attributes.get(name, 1) for name in _COUNTS)


def plan_ready(ready: Module, chosen: ChooseKernel) -> Plan:
    """The plan of a module after the pipeline ``device-native``.  Raises ``UnsupportedError``."""
    return plan_program(ready, chosen, allow_host=True, results_apart=True, is_shared=True)


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


def compile_native(module: Module, options: NativeOptions | None = None) -> CompiledNative:
    """A program of one participant for the host's processor; the given module is unchanged.

    Raises ``DeviceError`` where there is no C++ compiler, before anything is planned, and as
    ``prepare_native``.
    """
    check_native()
    options = options or NativeOptions()
    return CompiledNative(prepare_native(module, options.selection), threads=options.threads)


def compile_for_participants(
    module: Module, options: NativeOptions
) -> CompiledNative | NativeParticipants:
    """As ``compile_native``, for as many participants as the options say."""
    counts = options.replicas, options.partitions
    if counts == (1, 1):
        return compile_native(module, options)
    check_native()
    return NativeParticipants(prepare_native(module, options.selection, counts), options)
