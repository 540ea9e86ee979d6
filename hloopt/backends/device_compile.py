"""From a module to a program on a device: made ready, kernels chosen, planned, written, compiled."""

from __future__ import annotations

from collections.abc import Iterable

from hloopt.codegen.program import KernelProgram, render, text_of
from hloopt.dataclass import dataclass
from hloopt.ir import Module
from hloopt.ir.build import clone_module
from hloopt.kernels.drop_kernels import DropKernels
from hloopt.kernels.lock import LockEntry, entry_of
from hloopt.kernels.plan import Plan
from hloopt.kernels.planning import plan_program
from hloopt.kernels.selection import Choice, KernelSelection
from hloopt.kernels.user import verify_with
from hloopt.pipelines import parse_pipeline
from hloopt.rewrite import Pipeline, PipelineReport
from hloopt.runtime.device import Device, Lending
from hloopt.runtime.device_program import DeviceProgram
from hloopt.runtime.program import DeviceOptions

__all__ = [
    "CompiledProgram",
    "Prepared",
    "choices_of",
    "compile_for_device",
    "lock_entries",
    "lower",
    "notes_of",
    "open_device",
    "prepare",
]


@dataclass(frozen=True)
class Prepared:
    """Everything up to the device: ``module`` is the one that is planned, with its kernels chosen.

    ``report`` is that of the device's pipeline.
    """

    module: Module
    plan: Plan
    program: KernelProgram | str
    report: PipelineReport

    @property
    def source(self) -> str:
        """The text of the program: CUDA C, or C++ for the host."""
        return text_of(self.program)

    @property
    def notes(self) -> list[str]:
        """The notes of kernel selection."""
        return notes_of(self.report)


def lower(module: Module, selection: KernelSelection) -> tuple[Module, PipelineReport]:
    """A copy of a module after the pipeline ``device-gpu`` or ``device-native``, as the selection says.

    Raises ``UsageError`` for requests that cannot be granted.
    """
    pipeline = parse_pipeline(f"device-{selection.device}")
    copy = clone_module(module)
    return copy, Pipeline((*pipeline.entries[:-1], selection)).run(copy)


def choices_of(report: PipelineReport) -> list[Choice]:
    """What the last run of kernel selection chose."""
    for run in reversed(report.runs):
        found = [record for record in run.records if isinstance(record, Choice)]
        if found or run.instance.name == "kernel-selection":
            return found
    return []


def lock_entries(choices: Iterable[Choice]) -> list[LockEntry]:
    """The entries of a lock file for choices about instructions that are still there."""
    return [
        entry_of(instruction, choice.kernel, choice.tile)
        for choice in choices
        if choice.kernel
        for instruction in [choice.alternatives.instruction]
        if instruction.computation is not None
    ]


def notes_of(report: PipelineReport) -> list[str]:
    """The notes of the passes that choose kernels, or drop them."""
    return [
        f"{run.instance.name}: {note}"
        for run in report.runs
        if isinstance(run.instance, DropKernels | KernelSelection)
        for note in run.notes
    ]


def prepare(
    module: Module, options: DeviceOptions | None = None, *, results_apart: bool = False
) -> Prepared:
    """Plan a module and write its CUDA C; the given one is unchanged.

    ``results_apart`` is as of ``plan_program``.
    Raises ``UnsupportedError`` for what no kernel can run, all of it in one error; ``UsageError`` for requests
    that cannot be granted.
    """
    from hloopt.backends.trial import try_kernel

    options = options or DeviceOptions()
    verify_with(try_kernel)
    selection = options.selection or KernelSelection()
    ready, report = lower(module, selection)
    chosen = selection.kernel_of(choices_of(report))
    plan = plan_program(ready, chosen, allow_host=options.allow_host, results_apart=results_apart)
    program = render(plan, selection.described, selection.limits())
    return Prepared(ready, plan, program, report)


class CompiledProgram(DeviceProgram):
    """A program with what it was made from."""

    def __init__(self, prepared: Prepared, device: Device) -> None:
        super().__init__(prepared.module, prepared.plan, device, prepared.program)
        self.prepared = prepared


def compile_for_device(
    module: Module, device: str, options: DeviceOptions | None = None
) -> CompiledProgram:
    """A program on ``emulator`` or ``gpu``.

    Raises ``DeviceError`` where the device, its driver or a compiler is missing, before anything is planned;
    ``UnsupportedError`` and ``UsageError`` as ``prepare``.
    """
    options = options or DeviceOptions()
    opened = open_device(device, options)
    try:
        return CompiledProgram(prepare(module, options), opened)
    except BaseException:
        opened.close()
        raise


def open_device(device: str, options: DeviceOptions, number: int = 0) -> Lending:
    """The device ``emulator`` or ``gpu``, that GPU of several.

    Raises ``DeviceError`` where it or a compiler is missing.
    """
    return _emulator(options) if device == "emulator" else _gpu(options, number)


def _emulator(options: DeviceOptions) -> Lending:
    from hloopt.backends.emulator import EmulatorDevice

    return EmulatorDevice(mode=options.mode, seed=options.seed)


def _gpu(options: DeviceOptions, number: int) -> Lending:
    from hloopt.backends.cuda import CudaDevice
    from hloopt.backends.nvrtc import FLAGS

    return CudaDevice(number, FLAGS[options.flags])
