"""What ``hloopt run`` does with each module."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from math import inf, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hloopt.cli.files import Input
from hloopt.cli.gpu_options import Profiling
from hloopt.cli.outputs import is_folder, write_bytes
from hloopt.cli.pipeline_options import Chosen
from hloopt.cli.run_notes import (
    bytes_alive,
    check_memory,
    on_amended,
    on_functions,
    on_host,
    on_selection,
    open_numbers,
)
from hloopt.cli.run_reference import Reference, Tolerances
from hloopt.cli.timed_run import TimedRun
from hloopt.cli.watching import Watching
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Module

if TYPE_CHECKING:
    from hloopt.cli.on_devices import OnDevices
    from hloopt.interpret import Host
    from hloopt.interpret.progress import Progress
    from hloopt.report.run import Row, RunReport
    from hloopt.runtime import Program
    from hloopt.runtime.cuda.profile import Profile

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
class Runner:
    """The options of one call; ``repeat`` is None where none is given.  ``stage`` is what it is at."""

    device: str
    chosen: Chosen
    watch: Watching
    inputs: str | None
    seed: int | None
    expect: str | None
    save_snapshot: str | None
    tolerance: Tolerances
    repeat: int | None
    excess_precision: bool
    counts: tuple[int | None, int | None]
    infeed: str | None = None
    outfeed: str | None = None
    on_devices: OnDevices | None = None
    profiling: Profiling = field(default_factory=Profiling)
    threads: int | None = None
    exact: bool = False
    reference_seconds: float | None = None
    fill_constants: int | None = None
    ignore_callbacks: bool = False
    stage: Stage = field(default_factory=Stage)

    def check(self) -> None:
        """Raise ``UsageError`` or ``DeviceError`` for what is wrong whatever the module."""
        from hloopt.runtime import check_device

        self.profiling.check(self.device)
        check_device(self.device)
        if self.threads is not None and self.device not in ("cpu", "native"):
            raise UsageError(f"--threads is for --device cpu and native, not {self.device}")
        if self.exact and self.device != "cpu":
            raise UsageError(f"--exact is for --device cpu: {self.device} has functions of its own")
        for option, path in (
            ("--save-snapshot", self.save_snapshot),
            ("--outfeed", self.outfeed),
        ):
            if path is not None and (path in {"", "-"} or is_folder(path)):
                raise UsageError(f"{option} needs a file, not '{path}'")
        if self.save_snapshot is not None and self.reference_seconds is not None:
            raise UsageError(
                "--save-snapshot writes the interpreter's results: it goes with neither --no-reference nor "
                "--reference-seconds"
            )
        if self.outfeed is not None and not self.outfeed.endswith(".npz"):
            raise UsageError(f"--outfeed writes arrays: {self.outfeed} has to end in .npz")

    def run(self, found: Input) -> RunReport:
        """Run one module in all its forms."""
        from hloopt.interpret import supported
        from hloopt.ir import build
        from hloopt.report.run import Row, RunReport
        from hloopt.runtime.blas import blas_threads
        from hloopt.runtime.numpy.threads import thread_count
        from hloopt.runtime.streams import load_host

        module, name = found.module, found.name
        filled, dropped = self._amend(module)
        counts = self._participants(module)
        supported(module, *counts)
        alive = check_memory(module, name, prod(counts))
        self.stage.enter("passes")
        better = build.clone_module(module)
        label = self.chosen.label
        passes = self.chosen.pipeline.run(
            better,
            controls=self.watch.controls(self.chosen.controls),
            watchers=(
                *self.chosen.watchers,
                *self.watch.watchers(found, label, heading=False),
            ),
        )
        self.stage.enter("compilation")
        given, optimised = (
            self._compiled(form, counts, is_given=form is module) for form in (module, better)
        )
        self.stage.enter("inputs")
        arrays, origin = self._inputs(found, counts)
        # Each run begins at the start of the same streams.
        host = load_host(Path(self.infeed) if self.infeed else None, self.seed or 0)
        reference = Reference(
            module,
            arrays,
            host,
            counts=counts,
            excess_precision=self.excess_precision,
            seconds=self.reference_seconds,
            tolerance=self.tolerance,
            enter=self.stage.enter,
        )
        with blas_threads(module, thread_count(self.threads)):
            rows = reference.interpret(
                lambda row, run: self._measured(
                    [TimedRun(row, run, host)],
                    arrays,
                    warm_up=False,
                    seconds=_INTERPRETER_SECONDS,
                )[0]
            )
        if self.save_snapshot is not None and reference.results is not None:
            self._save(module, arrays, reference.results)
        expected, against = self._expected(found, counts)
        baseline = f"given, {self.device}"
        report = RunReport(
            name,
            "excess precision" if self.excess_precision else "strict rounding",
            origin,
            baseline,
            pipeline=self.chosen.text,
            replicas=counts[0],
            partitions=counts[1],
            skipped=reference.skipped,
            invented=filled,
            notes=[
                *on_amended(filled, dropped),
                *passes.notes,
                *open_numbers(module, expected),
                *on_selection(optimised),
                *on_host(optimised),
            ],
        )
        for row in rows:
            assert reference.results is not None
            compared = reference.against(reference.results, expected, against)
            report.rows.append(replace(row, alive=alive, **compared))
        best = f"{label}, {self.device}"
        forms = ((baseline, module, given), (best, better, optimised))
        executed = self._executed(((baseline, given), (best, optimised)), arrays, host)
        for (title, form, program), (row, outputs, own) in zip(forms, executed, strict=True):
            report.rows.append(
                replace(
                    row,
                    alive=bytes_alive(form, prod(counts)),
                    **reference.compared(outputs, own),
                )
            )
            reference.stand_in(title, program, outputs, own)
        if expected is not None:
            report.rows.append(Row(best, **reference.against(outputs, expected, against)))
        assert reference.results is not None
        assert reference.heard is not None
        self._hear(reference.heard)
        report.notes[:0] = self._notes(reference.results)
        _close(given, optimised)
        if self.device == "gpu":
            self.stage.enter("timing of kernels")
            report.profile = self._profiled(optimised, arrays[0])
        report.notes.extend(self._blame(module, report))
        return report

    def _amend(self, module: Module) -> tuple[int, list[str]]:
        """Change what options say may be changed: how many constants are invented, which calls are left out."""
        from hloopt.runtime.amended import fill_constants, ignore_callbacks

        filled = 0 if self.fill_constants is None else fill_constants(module, self.fill_constants)
        return filled, ignore_callbacks(module) if self.ignore_callbacks else []

    def _blame(self, module: Module, report: RunReport) -> list[str]:
        """What else than a wrong pass may have made results differ."""
        given, optimised = (
            any(not entry.passed for _, entry in report.compared(row))
            for row in [row for row in report.rows if row.timing is not None][-2:]
        )
        if given:
            return on_functions(module, self.device, exact=self.exact)
        if optimised and self._is_fast():
            changes = "fast_math lets passes change roundings, which an ill-conditioned module makes large"
            return [f"{changes}: without it every bit is kept"]
        return []

    def _profiled(self, program: Program, inputs: list[Any]) -> Profile:
        from hloopt.runtime.device_compile import CompiledProgram

        assert isinstance(program, CompiledProgram)
        fast = self._is_fast()
        return self.profiling.profile(program.prepared, inputs, self.repeat, fast_math=fast)

    def _is_fast(self) -> bool:
        return any(
            getattr(one, "fast_math", False) or getattr(one, "floats_are_real", False)
            for one in self.chosen.pipeline.passes()
        )

    def _participants(self, module: Module) -> tuple[int, int]:
        """Replicas and partitions to run; the module's own counts only where they make a difference."""
        from hloopt.interpret import participant_counts, tells_participants_apart

        replicas, partitions = self.counts
        if not tells_participants_apart(module):
            replicas, partitions = replicas or 1, partitions or 1
        found = participant_counts(module, replicas, partitions)
        if prod(found) > 1 and self.save_snapshot is not None:
            raise UsageError(
                f"--save-snapshot writes what one participant has; {module.name} is run by {prod(found)}"
            )
        return found

    def _inputs(self, found: Input, counts: tuple[int, int]) -> tuple[list[list[Any]], str]:
        """The inputs of each participant and where they come from."""
        from hloopt.runtime.inputs import generate_all, load_all_inputs

        if self.inputs:
            return load_all_inputs(Path(self.inputs), found.module, prod(counts)), self.inputs
        if found.snapshot is not None and self.seed is None:
            if prod(counts) > 1:
                raise UsageError(
                    f"{found.name}: the snapshot has inputs of one participant, {prod(counts)} are "
                    "run; give --inputs or --seed"
                )
            return [list(found.snapshot.inputs)], "snapshot"
        seed = self.seed or 0
        return generate_all(found.module, seed, *counts), f"seed {seed}"

    def _expected(
        self, found: Input, counts: tuple[int, int]
    ) -> tuple[list[list[Any]] | None, str]:
        """The results of each participant to compare with, if any, and what they are called.

        Those of a snapshot belong to its own inputs.
        """
        from hloopt.runtime.inputs import load_all_expected

        if self.expect:
            loaded = load_all_expected(Path(self.expect), found.module, prod(counts))
            return loaded, "expected"
        if found.snapshot is None or self.inputs or self.seed is not None:
            return None, ""
        return [list(found.snapshot.results)] if found.snapshot.results else None, "snapshot"

    def _save(self, module: Module, inputs: list[list[Any]], results: list[list[Any]]) -> None:
        from hloopt.proto import write_snapshot

        write_bytes(self.save_snapshot, write_snapshot(module, inputs[0], results[0]), module.name)

    def _compiled(self, module: Module, counts: tuple[int, int], *, is_given: bool) -> Program:
        from hloopt.runtime import check_device_takes, compile_module

        if self.device == "cpu":
            return compile_module(
                module,
                excess_precision=self.excess_precision,
                replicas=counts[0],
                partitions=counts[1],
                exact=self.exact,
                threads=self.threads,
            )
        check_device_takes(self.device, prod(counts), excess_precision=self.excess_precision)
        assert self.on_devices is not None
        if is_given:
            return self.on_devices.given(self.device, module, self.threads)
        return self.on_devices.optimised(self.device, module, self.threads)

    def _executed(
        self,
        programs: Sequence[tuple[str, Program]],
        arrays: list[list[Any]],
        host: Host,
    ) -> list[tuple[Row, list[list[Any]], Host]]:
        """The rows of programs that are timed in turn, their results, and what they have said to the host."""
        from hloopt.report.run import Row

        seconds = _PROGRAM_SECONDS if self.repeat is None else inf
        runs = []
        for label, program in programs:

            def run(own: Host, program: Program = program) -> list[list[Any]]:
                return program.run_participants(arrays, own)

            def enter(label: str = label, program: Program = program) -> None:
                self.stage.enter(label, program.progress)

            runs.append(TimedRun(Row(label), run, host, enter))
        found = self._measured(runs, arrays, warm_up=True, seconds=seconds)
        return [
            (replace(row, kernels=program.kernels, launches=program.launches), outputs, own)
            for (_, program), (row, outputs, own) in zip(programs, found, strict=True)
        ]

    def _measured(
        self, runs: Sequence[TimedRun], arrays: list[list[Any]], **how: Any
    ) -> list[tuple[Row, list[list[Any]], Host]]:
        """Rows with times and peak memory, the results of the last runs and their hosts."""
        from hloopt.runtime.timing import measure_in_turn

        timings = measure_in_turn(runs, self.repeat or _REPEAT, **how)
        held = sum(array.nbytes for given in arrays for array in given)
        return [run.found(timing, held) for run, timing in zip(runs, timings, strict=True)]

    def _notes(self, results: list[list[Any]]) -> list[str]:
        """What a reader should know who sees that all results agree."""
        from hloopt.runtime.comparison import not_finite

        counts = [not_finite(array) for arrays in results for array in arrays]
        broken = [number for number, count in enumerate(counts) if count]
        if not broken:
            return []
        first, each = broken[0], max(1, len(results[0]))
        participant = f".{first // each}" if len(results) > 1 else ""
        size = results[first // each][first % each].size
        place = f"{counts[first]} of {size} elements of out_{first % each}{participant}"
        return [f"{len(broken)} of {len(counts)} results hold NaN or infinity: {place}"]

    def _hear(self, host: Host) -> None:
        """Write what a module has sent to the host, and tell what of its streams it has not read."""
        from hloopt.cli.messages import show_silent, show_unread
        from hloopt.runtime.streams import npz

        if self.outfeed is not None:
            write_bytes(self.outfeed, npz(host.written), self.outfeed)
            if not host.written:
                show_silent(self.outfeed)
        if self.infeed is not None:
            show_unread(self.infeed, host.unread)


def _close(*programs: Program) -> None:
    """Give a device's memory back; what programs were made from stays."""
    for program in programs:
        close = getattr(program, "close", None)
        if close is not None:
            close()
