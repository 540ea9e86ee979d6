"""What ``hloopt run`` does with each module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from math import inf, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hloopt.backends import check_device_takes, compile_module
from hloopt.backends.numpy.threads import thread_count
from hloopt.cli.files import Input
from hloopt.cli.kernel_options import needs_kernels
from hloopt.cli.messages import show_silent, show_unread
from hloopt.cli.outputs import write_bytes
from hloopt.cli.pipeline_options import Chosen, chosen
from hloopt.cli.run_notes import (
    bytes_alive,
    check_memory,
    on_amended,
    on_functions,
    on_host,
    on_selection,
    open_numbers,
)
from hloopt.cli.run_reference import Reference, Results
from hloopt.cli.timed_run import TimedRun
from hloopt.cli.watching import Watching
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.interpret import participant_counts, supported, tells_participants_apart
from hloopt.ir import Module, build
from hloopt.proto import write_snapshot
from hloopt.report.run import Row, RunReport
from hloopt.runtime.amended import fill_constants, ignore_callbacks
from hloopt.runtime.blas import blas_threads
from hloopt.runtime.comparison import not_finite
from hloopt.runtime.inputs import generate_all, load_all_expected, load_all_inputs
from hloopt.runtime.streams import load_host, npz
from hloopt.runtime.timing import measure_in_turn

if TYPE_CHECKING:
    from hloopt.backends.cuda.profile import Profile
    from hloopt.cli.on_devices import OnDevices
    from hloopt.cli.run_options import RunOptions
    from hloopt.interpret import Host
    from hloopt.interpret.progress import Progress
    from hloopt.runtime.program import Program

__all__ = ["Runner", "Stage"]

_INTERPRETER_SECONDS = 1.0  # it defines the results; how long it takes matters less
_REPEAT = 5
_PROGRAM_SECONDS = 10.0  # unless somebody says how many runs there shall be


@dataclass
class Stage:
    """What is being done just now, and how far it has come; read by another thread."""

    name: str = ""
    progress: Progress | None = None

    def enter(self, name: str, progress: Progress | None = None) -> None:
        """Begin with something else."""
        self.name, self.progress = name, progress

    def __str__(self) -> str:
        progress = self.progress
        return self.name if progress is None else f"{self.name}, {progress}"


@dataclass(frozen=True)
class _Form:
    """A form of the module, what a table calls it, and the program that was made of it."""

    label: str
    module: Module
    program: Program


@dataclass(frozen=True)
class Runner:
    """Runs modules as ``options`` say, in turn; ``stage`` is what it is at."""

    options: RunOptions
    chosen: Chosen
    watch: Watching
    on_devices: OnDevices | None = None
    stage: Stage = field(default_factory=Stage)

    @classmethod
    def of(cls, options: RunOptions, watch: Watching) -> Runner:
        """Raises ``UsageError`` and ``DeviceError`` for options that cannot be."""
        choice = chosen(
            options.passes, options.kernels, "host" if options.device == "native" else None
        )
        if options.device == "cpu" and not needs_kernels(options.kernels, choice.pipeline):
            options.check_host()
            return cls(options, choice, watch)
        from hloopt.cli.on_devices import OnDevices

        return cls(options, choice, watch, OnDevices.of(options))

    def finish(self) -> None:
        """Write the lock file, if one is wanted."""
        if self.on_devices is not None:
            self.on_devices.selecting.finish(self.chosen.watcher)

    def run(self, found: Input) -> RunReport:
        """Run one module in all its forms."""
        module = found.module
        filled, dropped = self._amend(module)
        counts = self._participants(module)
        supported(module, *counts)
        alive = check_memory(module, found.name, prod(counts))
        better, notes = self._optimised(found)
        self.stage.enter("compilation")
        given = self._compiled(module, counts, is_given=True)
        optimised = self._compiled(better, counts, is_given=False)
        self.stage.enter("inputs")
        arrays, origin = self._inputs(found, counts)
        # Each run begins at the start of the same streams.
        infeed, seed = self.options.infeed, self.options.seed
        host = load_host(Path(infeed) if infeed else None, seed or 0)
        reference = Reference(
            module, arrays, host, self.options, counts=counts, enter=self.stage.enter
        )
        rows = self._interpreted(reference, module, arrays, host)
        expected, against = self._expected(found, counts)
        report = self._report(found, origin, counts, reference)
        report.invented = filled
        report.notes += [
            *on_amended(filled, dropped),
            *notes,
            *open_numbers(module, expected),
            *on_selection(optimised),
            *on_host(optimised),
        ]
        for row in rows:
            assert reference.results is not None
            compared = reference.against(reference.results, expected, against)
            report.rows.append(replace(row, alive=alive, **compared))
        best = f"{self.chosen.label}, {self.options.device}"
        forms = (_Form(report.baseline, module, given), _Form(best, better, optimised))
        outputs = self._run_forms(forms, reference, report, arrays, host)
        if expected is not None:
            report.rows.append(Row(best, **reference.against(outputs, expected, against)))
        assert reference.results is not None
        assert reference.heard is not None
        self._hear(reference.heard)
        report.notes[:0] = _not_finite(reference.results)
        _close(given, optimised)
        if self.options.device == "gpu":
            self.stage.enter("timing of kernels")
            report.profile = self._profiled(optimised, arrays[0])
        report.notes.extend(self._blame(module, report))
        return report

    def _optimised(self, found: Input) -> tuple[Module, list[str]]:
        """A copy of the module after the passes, and what these note."""
        self.stage.enter("passes")
        better = build.clone_module(found.module)
        watchers = self.watch.watchers(found, self.chosen.label, heading=False)
        report = self.chosen.pipeline.run(
            better,
            controls=self.watch.controls(self.chosen.controls),
            watchers=(*self.chosen.watchers, *watchers),
        )
        return better, report.notes

    def _interpreted(
        self, reference: Reference, module: Module, arrays: Results, host: Host
    ) -> list[Row]:
        """The interpreter's row, or none; a snapshot where it is wanted."""

        def measure(row: Row, run: Callable[[Host], Results]) -> tuple[Row, Results, Host]:
            timed = [TimedRun(row, run, host)]
            return self._measured(timed, arrays, warm_up=False, seconds=_INTERPRETER_SECONDS)[0]

        with blas_threads(module, thread_count(self.options.threads)):
            rows = reference.interpret(measure)
        if self.options.save_snapshot is not None and reference.results is not None:
            content = write_snapshot(module, arrays[0], reference.results[0])
            write_bytes(self.options.save_snapshot, content, module.name)
        return rows

    def _report(
        self, found: Input, origin: str, counts: tuple[int, int], reference: Reference
    ) -> RunReport:
        return RunReport(
            found.name,
            "excess precision" if self.options.excess_precision else "strict rounding",
            origin,
            f"given, {self.options.device}",
            pipeline=self.chosen.text,
            replicas=counts[0],
            partitions=counts[1],
            skipped=reference.skipped,
        )

    def _run_forms(
        self,
        forms: Sequence[_Form],
        reference: Reference,
        report: RunReport,
        arrays: Results,
        host: Host,
    ) -> Results:
        """Rows of programs that are timed in turn; the results of the last."""
        outputs: Results = []
        executed = self._executed(forms, arrays, host)
        for form, (row, outputs, own) in zip(forms, executed, strict=True):
            alive = bytes_alive(form.module, report.replicas * report.partitions)
            report.rows.append(replace(row, alive=alive, **reference.compared(outputs, own)))
            reference.stand_in(form.label, form.program, outputs, own)
        return outputs

    def _amend(self, module: Module) -> tuple[int, list[str]]:
        """Change what options say may be changed: how many constants are invented, which calls are left out."""
        seed = self.options.fill_constants
        filled = 0 if seed is None else fill_constants(module, seed)
        return filled, ignore_callbacks(module) if self.options.ignore_callbacks else []

    def _blame(self, module: Module, report: RunReport) -> list[str]:
        """What else than a wrong pass may have made results differ."""
        given, optimised = (
            any(not entry.passed for _, entry in report.compared(row))
            for row in [row for row in report.rows if row.timing is not None][-2:]
        )
        if given:
            return on_functions(module, self.options.device, exact=self.options.exact)
        if optimised and self._is_fast():
            changes = "fast_math lets passes change roundings, which an ill-conditioned module makes large"
            return [f"{changes}: without it every bit is kept"]
        return []

    def _profiled(self, program: Program, inputs: list[Any]) -> Profile:
        from hloopt.cli.gpu_profile import timed_kernels

        return timed_kernels(self.options, program, inputs, fast_math=self._is_fast())

    def _is_fast(self) -> bool:
        return any(
            getattr(one, "fast_math", False) or getattr(one, "floats_are_real", False)
            for one in self.chosen.pipeline.passes()
        )

    def _participants(self, module: Module) -> tuple[int, int]:
        """Replicas and partitions to run; the module's own counts only where they make a difference."""
        replicas, partitions = self.options.replicas, self.options.partitions
        if not tells_participants_apart(module):
            replicas, partitions = replicas or 1, partitions or 1
        found = participant_counts(module, replicas, partitions)
        if prod(found) > 1 and self.options.save_snapshot is not None:
            raise UsageError(
                f"--save-snapshot writes what one participant has; {module.name} is run by {prod(found)}"
            )
        return found

    def _inputs(self, found: Input, counts: tuple[int, int]) -> tuple[Results, str]:
        """The inputs of each participant and where they come from."""
        if self.options.inputs:
            return load_all_inputs(
                Path(self.options.inputs), found.module, prod(counts)
            ), self.options.inputs
        if found.snapshot is not None and self.options.seed is None:
            if prod(counts) > 1:
                raise UsageError(
                    f"{found.name}: the snapshot has inputs of one participant, {prod(counts)} are "
                    "run; give --inputs or --seed"
                )
            return [list(found.snapshot.inputs)], "snapshot"
        seed = self.options.seed or 0
        return generate_all(found.module, seed, *counts), f"seed {seed}"

    def _expected(self, found: Input, counts: tuple[int, int]) -> tuple[Results | None, str]:
        """The results of each participant to compare with, if any, and what they are called.

        Those of a snapshot belong to its own inputs.
        """
        if self.options.expect:
            loaded = load_all_expected(Path(self.options.expect), found.module, prod(counts))
            return loaded, "expected"
        if found.snapshot is None or self.options.inputs or self.options.seed is not None:
            return None, ""
        return [list(found.snapshot.results)] if found.snapshot.results else None, "snapshot"

    def _compiled(self, module: Module, counts: tuple[int, int], *, is_given: bool) -> Program:
        if self.options.device == "cpu":
            return compile_module(
                module,
                excess_precision=self.options.excess_precision,
                replicas=counts[0],
                partitions=counts[1],
                exact=self.options.exact,
                threads=self.options.threads,
            )
        check_device_takes(
            self.options.device, prod(counts), excess_precision=self.options.excess_precision
        )
        assert self.on_devices is not None
        if is_given:
            return self.on_devices.given(module)
        return self.on_devices.optimised(module)

    def _executed(
        self, forms: Sequence[_Form], arrays: Results, host: Host
    ) -> list[tuple[Row, Results, Host]]:
        """The rows of programs that are timed in turn, their results, and what they have said to the host."""
        seconds = _PROGRAM_SECONDS if self.options.repeat is None else inf
        runs = []
        for form in forms:

            def run(own: Host, program: Program = form.program) -> Results:
                return program.run_participants(arrays, own)

            def enter(form: _Form = form) -> None:
                self.stage.enter(form.label, form.program.progress)

            runs.append(TimedRun(Row(form.label), run, host, enter))
        found = self._measured(runs, arrays, warm_up=True, seconds=seconds)
        programs = [form.program for form in forms]
        return [
            (replace(row, kernels=program.kernels, launches=program.launches), outputs, own)
            for program, (row, outputs, own) in zip(programs, found, strict=True)
        ]

    def _measured(
        self, runs: Sequence[TimedRun], arrays: Results, **how: Any
    ) -> list[tuple[Row, Results, Host]]:
        """Rows with times and peak memory, the results of the last runs and their hosts."""
        timings = measure_in_turn(runs, self.options.repeat or _REPEAT, **how)
        held = sum(array.nbytes for given in arrays for array in given)
        return [run.found(timing, held) for run, timing in zip(runs, timings, strict=True)]

    def _hear(self, host: Host) -> None:
        """Write what a module has sent to the host, and tell what of its streams it has not read."""
        if self.options.outfeed is not None:
            write_bytes(self.options.outfeed, npz(host.written), self.options.outfeed)
            if not host.written:
                show_silent(self.options.outfeed)
        if self.options.infeed is not None:
            show_unread(self.options.infeed, host.unread)


def _not_finite(results: Results) -> list[str]:
    """What a reader should know who sees that all results agree."""
    counts = [not_finite(array) for arrays in results for array in arrays]
    broken = [number for number, count in enumerate(counts) if count]
    if not broken:
        return []
    first, each = broken[0], max(1, len(results[0]))
    participant = f".{first // each}" if len(results) > 1 else ""
    size = results[first // each][first % each].size
    place = f"{counts[first]} of {size} elements of out_{first % each}{participant}"
    return [f"{len(broken)} of {len(counts)} results hold NaN or infinity: {place}"]


def _close(*programs: Program) -> None:
    """Give a device's memory back; what programs were made from stays."""
    for program in programs:
        close = getattr(program, "close", None)
        if close is not None:
            close()
