"""Running optimised modules on a device of this machine: results checked, times taken."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, Final

from hloopt.backends import compile_module, options_for
from hloopt.backends.device_compile import CompiledProgram, choices_of, lock_entries
from hloopt.dataclass import dataclass
from hloopt.ir import Module
from hloopt.kernels.lock import lock_text
from hloopt.kernels.selection import KernelSelection
from hloopt.runtime.program import NumpyOptions
from hloopt.runtime.timing import measure
from hloopt.study.cells import Checked, Measured
from hloopt.study.devices import EMULATOR, machine
from hloopt.study.reference import StudyReference, work

if TYPE_CHECKING:
    from hloopt.interpret import Host
    from hloopt.runtime.program import Program
    from hloopt.runtime.timing import Timing

__all__ = ["REPEAT", "Executed", "StudyLimits", "execute", "gpu_target", "too_much"]

REPEAT: Final = 5
GPU_REPEAT: Final = 20
_WARM_UP: Final = 3
_SECONDS: Final = 10.0  # unless the number of runs is given


@dataclass(frozen=True)
class StudyLimits:
    """How much work a cell may be.

    repeat         timed runs; None for five, or as many as begin within ten seconds; on a GPU twenty
    emulated_work  elements that the emulator computes: a thread at a time, each access checked, it is some
                   hundred times as slow as the interpreter
    """

    repeat: int | None = None
    emulated_work: int = 400_000_000


@dataclass(frozen=True)
class Executed:
    """What running gave; kernels and launches are the program's own, on ``cpu`` those of the module."""

    checked: Checked
    measured: Measured | None
    kernels: int
    launches: int
    kernel_lock: str = ""


def gpu_target() -> tuple[str, str | None]:
    """The name of this machine's GPU, and its target, None where hloopt has none.  Raises ``DeviceError``."""
    from hloopt.backends.cuda.description import this_gpu

    title, target = this_gpu()
    return title, None if target is None else target.name


def execute(
    module: Module,
    selection: KernelSelection,
    device: str,
    wanted: StudyReference,
    limits: StudyLimits,
    *,
    timed: bool,
) -> Executed:
    """Run an optimised module on ``cpu``, ``native``, ``gpu`` or ``emulator`` and compare its results.

    Untimed it runs once, on ``cpu`` with the interpreter's functions.  ``selection`` chooses the kernels; on a
    GPU that hloopt has a target of, for that one.
    Raises ``UnsupportedError`` for what the device cannot run, ``DeviceError`` where there is no such device.
    """
    where, target = gpu_target() if device == "gpu" else (machine(), None)
    selection = selection if target is None else replace(selection, target=target)
    program = _compiled(module, selection, device, wanted, exact=not timed)
    try:
        on_gpu = device == "gpu"
        results, host, timing = _run(program, wanted, limits, timed=timed and not on_gpu)
        if on_gpu and timed:
            timing = _time_on_gpu(program, wanted, limits)
        return Executed(
            wanted.check(device, results, host),
            Measured(timing, where) if timed else None,
            program.kernels,
            program.launches,
            _kernel_lock(program, selection),
        )
    finally:
        close = getattr(program, "close", None)
        if close is not None:
            close()


def too_much(module: Module, device: str, limits: StudyLimits) -> str:
    """Why a module is too much for the emulator; empty where it is not, and for other devices."""
    if device != EMULATOR:
        return ""
    needed, most = work(module), limits.emulated_work
    if needed <= most:
        return ""
    return f"the emulator would compute some {needed:.2g} elements, the limit is {most:.2g}"


def _compiled(
    module: Module, selection: KernelSelection, device: str, wanted: StudyReference, *, exact: bool
) -> Program:
    replicas, partitions = wanted.counts
    options = NumpyOptions(replicas=replicas, partitions=partitions, exact=exact)
    # Kernels that a strategy names are those of GPUs.
    chosen = None if device == "native" else selection
    return compile_module(module, device, options_for(device, options, chosen))


def _run(
    program: Program, wanted: StudyReference, limits: StudyLimits, *, timed: bool
) -> tuple[list[list[Any]], Host, Timing]:
    host = wanted.host
    results: list[list[Any]] = []

    def step() -> None:
        nonlocal host
        host = wanted.host.restarted()
        results[:] = program.run_participants(wanted.inputs, host)

    seconds = _SECONDS if limits.repeat is None else inf
    repeat = (limits.repeat or REPEAT) if timed else 1
    timing = measure(step, repeat, warm_up=timed, seconds=seconds)
    return results, host, timing


def _time_on_gpu(program: Program, wanted: StudyReference, limits: StudyLimits) -> Timing:
    """The program by the GPU's own clock, compiled for speed; inputs are there before each run."""
    from hloopt.backends.cuda import CudaDevice
    from hloopt.backends.cuda.timing import Stopwatch
    from hloopt.backends.nvrtc import TIMED
    from hloopt.runtime.device_program import DeviceProgram

    assert isinstance(program, CompiledProgram), "it was compiled for a GPU"
    prepared, inputs = program.prepared, wanted.inputs[0]
    device = CudaDevice(flags=TIMED)
    try:
        watch = Stopwatch(device)
        timed = DeviceProgram(prepared.module, prepared.plan, device, prepared.program)
        for _ in range(_WARM_UP):
            timed.run(inputs)

        def upload() -> None:
            timed.upload_inputs(inputs)

        return watch.whole(timed.walk, limits.repeat or GPU_REPEAT, warm_up=0, before=upload)
    finally:
        device.close()


def _kernel_lock(program: Program, selection: KernelSelection) -> str:
    """The kernels that were chosen for a GPU, as a lock file; empty for other devices."""
    if not isinstance(program, CompiledProgram):
        return ""
    entries = lock_entries(choices_of(program.prepared.report))
    return lock_text(entries, selection.target, selection.device) if entries else ""
