"""What ``hloopt run`` does with a module: the given and the optimised form, executed, compared and timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import field, replace
from functools import partial
from math import inf, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hloopt.backends import check_device_takes, compile_module
from hloopt.backends.numpy.threads import thread_count
from hloopt.dataclass import dataclass
from hloopt.driver.notes import (
    bytes_alive,
    check_memory,
    on_amended,
    on_differences,
    on_host,
    on_not_finite,
    on_selection,
    on_untried,
    open_numbers,
)
from hloopt.driver.options import RunOptions
from hloopt.driver.passes import Chosen, choose_passes
from hloopt.driver.reference import Outputs, Reference, TimedRun
from hloopt.driver.writing import write_bytes
from hloopt.errors import UsageError
from hloopt.interpret import participant_counts, supported, tells_participants_apart
from hloopt.ir import Module, build
from hloopt.proto import write_snapshot
from hloopt.reading import read_file
from hloopt.report.run import RunReport, RunRow
from hloopt.runtime.amended import fill_constants, ignore_callbacks
from hloopt.runtime.blas import blas_threads
from hloopt.runtime.inputs import (
    generate_all,
    has_inputs,
    load_all_expected,
    load_all_inputs,
    load_host,
    named_arrays,
    npz,
    origin_of,
)
from hloopt.runtime.program import NumpyOptions
from hloopt.runtime.timing import measure_in_turn
from hloopt.spelling import first_of
from hloopt.verifier import verify_module

if TYPE_CHECKING:
    from hloopt.driver.on_devices import OnDevices
    from hloopt.driver.spmd import World
    from hloopt.interpret import Host
    from hloopt.interpret.progress import Progress
    from hloopt.pipelines import Given
    from hloopt.proto.snapshot import Snapshot
    from hloopt.rewrite import Watcher
    from hloopt.runtime.program import Program

__all__ = ["Activity", "Runner", "Task", "read_task", "run_module"]

_INTERPRETER_SECONDS = 1.0  # it defines the results; how long it takes matters less
_REPEAT = 5
_PROGRAM_SECONDS = 10.0  # unless the options say how many runs there are


@dataclass
class Activity:
    """What is being done just now, and how far it has come; read by another thread."""

    name: str = ""
    progress: Progress | None = None

    def enter(self, name: str, progress: Progress | None = None) -> None:
        """Begin with something else."""
        self.name, self.progress = name, progress

    @property
    def part(self) -> float | None:
        """What is done of one run, from 0 to 1; None if unknown."""
        progress = self.progress
        return None if progress is None else progress.part

    def __str__(self) -> str:
        progress = self.progress
        return self.name if progress is None else f"{self.name}, {progress}"


@dataclass(frozen=True)
class Task:
    """A module to run; ``name`` is the file's, ``snapshot`` what it was read from.

    ``inputs`` and ``expected`` are arrays, the same for each participant, where no options name files of them.
    """

    module: Module
    name: str
    snapshot: Snapshot | None = None
    inputs: Sequence[Any] | None = None
    expected: Sequence[Any] | None = None


@dataclass(frozen=True)
class _Form:
    """A form of the module, what a table calls it, and the program that was made of it."""

    label: str
    module: Module
    program: Program


@dataclass(frozen=True)
class Runner:
    """Runs modules as ``options`` say, one after the other; ``stage`` is what it is at.

    ``watchers`` look on while passes run.  ``world`` are the processes that participants run on, if several.
    """

    options: RunOptions
    chosen: Chosen
    on_devices: OnDevices | None = None
    watchers: list[Watcher] = field(default_factory=list)
    stage: Activity = field(default_factory=Activity)
    world: World | None = None

    @classmethod
    def of(
        cls, options: RunOptions, enter: Callable[[AbstractContextManager[None]], object]
    ) -> Runner:
        """``enter`` enters a context that lasts as long as the runner is used.

        Raises ``UsageError`` and ``DeviceError`` for options that cannot be.
        """
        aim = "host" if options.device == "native" else None
        choice = choose_passes(options.passes, options.kernels, aim)
        if options.device == "cpu" and not options.kernels.needed_by(choice.pipeline):
            options.check_host()
            return cls(options, choice)
        from hloopt.driver.on_devices import OnDevices

        return cls(options, choice, OnDevices.of(options, enter))

    @property
    def notes(self) -> list[str]:
        """The notes on options, before anything runs."""
        kernels = [] if self.on_devices is None else self.on_devices.selecting.notes
        return [*self.chosen.notes, *kernels]

    def finish(self) -> None:
        """Write the lock file, if one is wanted."""
        if self.on_devices is not None:
            self.on_devices.selecting.finish(self.chosen.watcher)

    def run(self, task: Task) -> RunReport:
        """Run one module in all its forms.

        Raises what reading arrays, passes, compilers and programs raise.
        """
        options, module = self.options, task.module
        filled, dropped = self._amend(module)
        counts = self._participants(module)
        supported(module, *counts)
        alive = check_memory(module, task.name, prod(counts))
        notes, given, best = self._forms(module, counts)
        self.stage.enter("inputs")
        arrays, origin = self._inputs(task, counts)
        # Each run begins at the start of the same streams.
        host = load_host(Path(options.inputs) if options.inputs else None, options.seed or 0)
        wanted, against, done = self._expected(task, counts, arrays, host)
        reference = Reference(
            self.chosen.meant(module), arrays, host, options, counts, self.stage.enter
        )
        first = self._interpreted(reference, arrays)
        report = RunReport(
            task.name,
            "excess precision" if options.excess_precision else "strict rounding",
            origin,
            given.label,
            pipeline=self.chosen.text,
            replicas=counts[0],
            partitions=counts[1],
            skipped=reference.skipped,
            invented=filled,
        )
        if first is not None and reference.results is not None:
            compared = reference.against(reference.results, wanted, against)
            report.rows.append(replace(first, alive=alive, **compared))
        report.outputs = self._run_forms((given, best), reference, report, arrays, host)
        if wanted is not None:
            compared = reference.against(report.outputs, wanted, against)
            report.rows.append(RunRow(best.label, **compared))
        assert reference.results is not None, "some program has run"
        report.notes += [
            *on_not_finite(reference.results, reference.first_not_finite),
            *on_amended(filled, dropped),
            *done,
            *on_untried(report, options),
            *notes,
            *open_numbers(module, wanted),
            *on_selection(best.program),
            *on_host(best.program),
        ]
        self._save(report, reference.heard)
        _close(given.program, best.program)
        if options.device == "gpu":
            self._profile(report, best.program, arrays)
        elif options.profiling.is_wanted:
            self._time_kernels(report, best, arrays, host)
        report.notes += on_differences(module, report, options, is_fast=self._is_fast)
        return report

    def _save(self, report: RunReport, heard: Host) -> None:
        """Write results and what the module has sent to the host, and warn of what it has not read."""
        path = self.options.inputs
        if path is not None and heard.unread:
            report.warnings.append((path, f"never read: {first_of(heard.unread, 5)}"))
        for path in self.options.saved(".npz"):
            arrays = {**named_arrays("out", report.outputs), **heard.written}
            write_bytes(path, npz(arrays), path)

    def _forms(self, module: Module, counts: tuple[int, int]) -> tuple[list[str], _Form, _Form]:
        """What passes note, and the programs of the module as it is and of a copy after the passes."""
        self.stage.enter("passes")
        better, device = build.clone_module(module), self.options.device
        report = self.chosen.run(better, self.watchers, verify_each=self.options.verify_each)
        self.stage.enter("compilation")
        return (
            report.notes,
            _Form(f"given, {device}", module, self._compiled(module, counts, is_given=True)),
            _Form(
                f"{self.chosen.label}, {device}",
                better,
                self._compiled(better, counts, is_given=False),
            ),
        )

    def _profile(self, report: RunReport, program: Program, arrays: Outputs) -> None:
        from hloopt.driver.gpu_profile import timed_kernels

        self.stage.enter("timing of kernels")
        found = timed_kernels(self.options, program, arrays[0], fast_math=self._is_fast)
        report.profile = found

    def _time_kernels(self, report: RunReport, form: _Form, arrays: Outputs, host: Host) -> None:
        from hloopt.driver.host_profile import timed_kernels

        self.stage.enter("timing of kernels")
        (plain,) = (row.timing for row in report.rows if row.name == form.label and row.timing)
        run = TimedRun(form.label, partial(form.program.run_participants, arrays), host)
        report.kernel_times = timed_kernels(self.options, form.program, arrays, run, plain)

    def _amend(self, module: Module) -> tuple[int, list[str]]:
        """Leave out what does not count, and invent what options allow: how many constants, and which calls."""
        seed = self.options.fill_constants
        filled = 0 if seed is None else fill_constants(module, seed)
        return filled, ignore_callbacks(module)

    def _participants(self, module: Module) -> tuple[int, int]:
        """Replicas and partitions to run; the module's own counts only where they make a difference."""
        replicas, partitions = self.options.replicas, self.options.partitions
        if not tells_participants_apart(module):
            replicas, partitions = replicas or 1, partitions or 1
        found = participant_counts(module, replicas, partitions)
        if prod(found) > 1 and self.options.saved(".pb"):
            raise UsageError(
                f"a snapshot has what one participant has; {module.name} is run by {prod(found)}"
            )
        return found

    def _compiled(self, module: Module, counts: tuple[int, int], *, is_given: bool) -> Program:
        options = self.options
        if options.device == "cpu":
            rounds, exact = options.excess_precision, options.exact
            given = NumpyOptions(rounds, *counts, exact, options.threads)
            program = compile_module(module, options=given)
            return program if self.world is None else self.world.share(program, module, given)
        check_device_takes(options.device, prod(counts), excess_precision=options.excess_precision)
        assert self.on_devices is not None
        compiled = self.on_devices.given if is_given else self.on_devices.optimised
        return compiled(module, counts, self.world)

    def _inputs(self, task: Task, counts: tuple[int, int]) -> tuple[Outputs, str]:
        """The inputs of each participant and where they come from."""
        path, seed = self.options.inputs, self.options.seed
        if path and has_inputs(Path(path)):
            arrays = load_all_inputs(Path(path), task.module, prod(counts))
            return arrays, path
        if task.inputs is not None:
            return [list(task.inputs) for _ in range(prod(counts))], "given"
        if task.snapshot is None or seed is not None:
            made = generate_all(task.module, seed or 0, *counts)
            return made, origin_of(task.module, f"seed {seed or 0}")
        if prod(counts) > 1:
            raise UsageError(
                f"{task.name}: the snapshot has inputs of one participant, {prod(counts)} are "
                "run; give --inputs or --seed"
            )
        return [list(task.snapshot.inputs)], "snapshot"

    def _expected(
        self, task: Task, counts: tuple[int, int], arrays: Outputs, host: Host
    ) -> tuple[Outputs | None, str, tuple[str, ...]]:
        """The results of each participant to compare with, if any, what they are called, and what was done for
        them.

        Those of a snapshot belong to its own inputs.
        """
        options, snapshot = self.options, task.snapshot
        if options.expect:
            return (
                load_all_expected(Path(options.expect), task.module, prod(counts)),
                "expected",
                (),
            )
        if options.against:
            from hloopt.driver.compare import results_of

            self.stage.enter(options.against)
            excess = options.excess_precision
            given = (arrays, counts, host)
            found, done = results_of(
                options.against, task.module, task.name, given, excess_precision=excess
            )
            return found, options.against, done
        if task.expected is not None:
            return [list(task.expected) for _ in range(prod(counts))], "expected", ()
        others = options.inputs or task.inputs is not None or options.seed is not None
        if snapshot is None or others or not snapshot.results:
            return None, "", ()
        return [list(snapshot.results)], "snapshot", ()

    def _interpreted(self, reference: Reference, arrays: Outputs) -> RunRow | None:
        """The interpreter's row, or none; a snapshot where it is wanted."""

        def measure(run: TimedRun) -> RunRow:
            return self._measured([run], arrays, warm_up=False, seconds=_INTERPRETER_SECONDS)[0]

        module = reference.module
        with blas_threads(module, thread_count(self.options.threads)):
            row = reference.interpret(measure)
        for path in self.options.saved(".pb"):
            assert reference.results is not None, "the options were checked"
            content = write_snapshot(module, arrays[0], reference.results[0])
            write_bytes(path, content, module.name)
        return row

    def _run_forms(
        self,
        forms: Sequence[_Form],
        reference: Reference,
        report: RunReport,
        arrays: Outputs,
        host: Host,
    ) -> Outputs:
        """Rows of programs that are timed in turn; the results of the last."""

        def timed(form: _Form) -> TimedRun:
            run = partial(form.program.run_participants, arrays)
            begin = partial(self.stage.enter, form.label, form.program.progress)
            return TimedRun(form.label, run, host, begin)

        runs = [timed(form) for form in forms]
        seconds = _PROGRAM_SECONDS if self.options.repeat is None else inf
        rows = self._measured(runs, arrays, warm_up=True, seconds=seconds)
        for form, run, row in zip(forms, runs, rows, strict=True):
            report.rows.append(
                replace(
                    row,
                    kernels=form.program.kernels,
                    launches=form.program.launches,
                    alive=bytes_alive(form.module, report.participants),
                    **reference.compared(run),
                )
            )
            reference.stand_in(run, form.program)
        return runs[-1].outputs

    def _measured(
        self, runs: Sequence[TimedRun], arrays: Outputs, *, warm_up: bool, seconds: float
    ) -> list[RunRow]:
        """Rows with times and peak memory, inputs among it."""
        repeat = self.options.repeat or _REPEAT
        timings = measure_in_turn(runs, repeat, warm_up=warm_up, seconds=seconds)
        held = sum(array.nbytes for given in arrays for array in given)
        return [
            RunRow(run.name, timing=timing, memory=None if run.peak is None else run.peak + held)
            for run, timing in zip(runs, timings, strict=True)
        ]

    @property
    def _is_fast(self) -> bool:
        return any(
            getattr(one, "fast_math", False) or getattr(one, "floats_are_real", False)
            for one in self.chosen.pipeline.passes()
        )


def run_module(
    source: Module | str | Path,
    pipeline: Given | None,
    inputs: Sequence[Any] | None,
    expected: Sequence[Any] | None,
    options: RunOptions | None,
    changes: Mapping[str, Any],
) -> RunReport:
    """The whole of a run, from options to the report; see ``hloopt.run``."""
    options = replace(options or RunOptions(), **changes)
    if isinstance(pipeline, str) and pipeline in ("O0", "O1", "O2", "O3"):
        options = replace(options, passes=replace(options.passes, level=pipeline[1:], passes=None))
    elif pipeline is not None:
        options = replace(options, passes=replace(options.passes, level=None, passes=pipeline))
    options.check()
    task = read_task(source)
    with ExitStack() as stack:
        runner = Runner.of(options, stack.enter_context)
        report = runner.run(replace(task, inputs=inputs, expected=expected))
        runner.finish()
    report.notes[:0] = runner.notes
    return report


def read_task(source: Module | str | Path) -> Task:
    """A module, or that in a file of any form; with the arrays of one run where it is a snapshot.

    Raises ``UsageError`` where it cannot be read, ``ParseError`` and ``VerifyError`` for what it is not.
    """
    if isinstance(source, Module):
        return Task(source, source.name)
    found = read_file(Path(source))
    verify_module(found.module)
    return Task(found.module, found.name, found.snapshot)


def _close(*programs: Any) -> None:
    """Give a device's memory back; what programs were made from stays."""
    for program in programs:
        close = getattr(program, "close", None)
        if close is not None:
            close()
