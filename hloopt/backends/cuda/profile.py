"""The profile of a program on the GPU: each kernel's times, rates and share of the roofline, a trace.

The program runs as a whole, its inputs on the device, to time a run; and with an event before
and after each launch, copy and library call.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from statistics import median

from hloopt.analysis.region import region_of
from hloopt.backends.cuda.device import CudaDevice
from hloopt.backends.cuda.recorder import RecordedEvent, Recorder
from hloopt.backends.cuda.timing import KernelTime, Stopwatch
from hloopt.backends.device_compile import Prepared
from hloopt.backends.nvrtc import CompilerFlags, Resources
from hloopt.dataclass import dataclass
from hloopt.ir import Module
from hloopt.kernels.estimate import estimate
from hloopt.kernels.kernel import Site
from hloopt.kernels.limits import Limits
from hloopt.kernels.plan import KernelStep, Plan, function_name, walk_steps
from hloopt.kernels.registry import find_kernel
from hloopt.kernels.spec import Launch
from hloopt.profiles.trace_events import (
    PROGRAM_ID,
    TraceEvent,
    TraceMetadata,
    chrome_trace,
    held_module,
)
from hloopt.runtime.device_program import DeviceProgram
from hloopt.runtime.timing import Timing
from hloopt.targets import Target
from hloopt.types import Array

__all__ = [
    "Profile",
    "profile",
]

_WARM_UP = 3


@dataclass(frozen=True)
class Profile:
    """A program's times.

    module   the one that was planned, with its kernels chosen
    plan     its plan
    kernels  one for each instruction that ran, what takes longest in a run first; copies and fills as one each
    whole    the program as one piece, graphs and what the host does between them included
    busy     seconds of a run in which anything of ``kernels`` ran
    entries  the last of the runs in which each thing was timed
    target   the device the rates are of
    flags    what the kernels were compiled with
    is_cold  whether the second-level cache was emptied before each kernel
    """

    module: Module
    plan: Plan
    kernels: tuple[KernelTime, ...]
    whole: Timing
    busy: float
    entries: tuple[RecordedEvent, ...]
    target: Target
    flags: CompilerFlags
    is_cold: bool

    def trace(self) -> dict[str, object]:
        """The last run for Perfetto: the JSON of Chrome's trace events."""
        timed = {kernel.instruction: kernel for kernel in self.kernels}
        known = {
            name: timed[step.instruction.name]
            for step in _steps(self.plan)
            if step.instruction.name in timed
            for name in _names(step)
        }
        bars = [_bar(entry, known.get(entry.name), self.module.name) for entry in self.entries]
        metadata = TraceMetadata(self.module.name, PROGRAM_ID, held_module(self.module))
        return chrome_trace(bars, f"{self.target.title}, {self.flags.name}", metadata)


def profile(
    prepared: Prepared,
    inputs: Sequence[Array],
    device: CudaDevice,
    target: Target,
    *,
    repeat: int = 20,
    cold: bool = False,
) -> Profile:
    """Run a program ``repeat`` times after a warm-up, as one piece and then kernel by kernel.

    The device must be a fresh one; it stays open.  Raises as ``DeviceProgram``.
    """
    watch = Stopwatch(device, cold=cold)
    recorder = Recorder(device, watch.ready)
    program = DeviceProgram(prepared.module, prepared.plan, recorder, prepared.program)
    for _ in range(_WARM_UP):
        program.run(inputs)

    def upload() -> None:
        program.upload_inputs(inputs)

    whole = Stopwatch(device).whole(program.walk, repeat, warm_up=0, before=upload)
    recorder.is_recording = True
    runs: list[list[RecordedEvent]] = []
    for _ in range(repeat):
        program.run(inputs)
        runs.append(recorder.take())
    assert device.compiled is not None, "the program has loaded its code"
    kernels = _kernels(prepared.plan, runs, target, device.compiled.resources)
    busy = median(sum(entry.seconds for entry in run) for run in runs)
    entries = tuple(runs[-1])
    return Profile(
        prepared.module,
        prepared.plan,
        kernels,
        whole,
        busy,
        entries,
        target,
        device.flags,
        cold,
    )


def _kernels(
    plan: Plan,
    runs: Sequence[Sequence[RecordedEvent]],
    target: Target,
    resources: Mapping[str, Resources],
) -> tuple[KernelTime, ...]:
    """One for each instruction, from all entries of all runs."""
    steps = {name: step for step in _steps(plan) for name in _names(step)}
    of_steps: dict[int, list[float]] = defaultdict(list)
    others: dict[str, list[RecordedEvent]] = defaultdict(list)
    for run in runs:
        for entry in run:
            step = steps.get(entry.name)
            if step is not None:
                of_steps[id(step)].append(entry.seconds)
            else:
                others[entry.kind].append(entry)
    found = [
        _kernel(step, of_steps[id(step)], len(runs), target, resources)
        for step in _steps(plan)
        if of_steps[id(step)]
    ]
    found += [_moved(kind, entries, len(runs)) for kind, entries in others.items()]
    return tuple(sorted(found, key=lambda kernel: -kernel.timing.median * kernel.launches))


def _steps(plan: Plan) -> Iterator[KernelStep]:
    for step in walk_steps(plan.steps):
        if isinstance(step, KernelStep):
            yield step


def _names(step: KernelStep) -> list[str]:
    """What a step's entries are called."""
    if step.spec.library:
        return [step.instruction.name]
    launches = (part for part in step.spec.steps if isinstance(part, Launch))
    return list(dict.fromkeys(function_name(step, launch) for launch in launches))


def _kernel(
    step: KernelStep,
    seconds: Sequence[float],
    runs: int,
    target: Target,
    resources: Mapping[str, Resources],
) -> KernelTime:
    """The launches of one execution are one time."""
    launches = [part for part in step.spec.steps if isinstance(part, Launch)]
    lot = max(1, len(launches))
    times = [sum(seconds[at : at + lot]) for at in range(0, len(seconds), lot)]
    names = _names(step)
    taken = [resources[name] for name in names if name in resources]
    site = Site(region_of(step.instruction), target, Limits())
    cost = estimate(site, find_kernel(step.spec.kernel), step.spec)
    operand = site.region.operands[0] if step.spec.library else site.region.results[0].shape
    largest = max((prod(launch.block) for launch in launches), default=0)
    return KernelTime(
        function=step.spec.library or names[0],
        instruction=step.instruction.name,
        timing=Timing(tuple(times)),
        bytes=cost.bytes_accessed,
        flops=cost.flops,
        dtype=operand.dtype.name,
        unit="matrix" if step.spec.library == "cublas" else "scalar",
        threads=largest,
        resources=_largest(taken) if taken else None,
        launches=len(times) // runs,
    )


def _largest(taken: Sequence[Resources]) -> Resources:
    """The resources of the function with most registers, with the most shared memory of any."""
    most = max(taken, key=lambda resources: resources.registers)
    return replace(most, shared=max(resources.shared for resources in taken))


def _moved(kind: str, entries: Sequence[RecordedEvent], runs: int) -> KernelTime:
    """Copies, or fills: those of instructions and those a loop needs."""
    touched = 2 if kind == "copy" else 1
    mean = touched * sum(entry.bytes for entry in entries) // len(entries)
    timing = Timing(tuple(entry.seconds for entry in entries))
    return KernelTime(kind, "", timing, mean, 0, launches=len(entries) // runs)


def _bar(entry: RecordedEvent, kernel: KernelTime | None, program: str) -> TraceEvent:
    arguments: dict[str, str | int | float] = {}
    if kernel is not None:
        arguments = {
            "instruction": kernel.instruction,
            "hlo_op": kernel.instruction,  # by which profiles.chrome reads it back
            "hlo_module": program,
            "program_id": PROGRAM_ID,
            "bytes": kernel.bytes,
            "flops": kernel.flops,
        }
        if kernel.resources is not None:
            arguments["registers"] = kernel.resources.registers
    elif entry.bytes:
        arguments = {"bytes": entry.bytes}
    return TraceEvent(entry.name, entry.start, entry.seconds, entry.kind, arguments=arguments)
