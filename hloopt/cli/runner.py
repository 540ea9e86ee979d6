"""What ``hloopt run`` does with each module."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from hloopt.cli.files import Input
from hloopt.cli.outputs import is_folder, write_bytes
from hloopt.errors import UnsupportedError, UsageError
from hloopt.ir import Module

if TYPE_CHECKING:
    from hloopt.interpret import Host
    from hloopt.report.run import RunReport
    from hloopt.runtime import Program
    from hloopt.runtime.timing import Timing

__all__ = ["Runner", "Tolerances", "physical_memory"]

_INTERPRETER_SECONDS = 1.0  # it defines the results; how long it takes matters less


class Tolerances(TypedDict):
    """What the user says about tolerances; None leaves it to the element type."""

    rtol: float | None
    atol: float | None


@dataclass(frozen=True)
class Runner:
    """The options of one call."""

    device: str
    pipeline: str
    label: str
    inputs: str | None
    seed: int | None
    expect: str | None
    save_snapshot: str | None
    tolerance: Tolerances
    repeat: int
    excess_precision: bool
    counts: tuple[int | None, int | None]
    infeed: str | None = None
    outfeed: str | None = None

    def check(self) -> None:
        """Raise ``UsageError`` or ``DeviceError`` for what is wrong whatever the module."""
        from hloopt.pipelines import parse_pipeline
        from hloopt.runtime import check_device

        parse_pipeline(self.pipeline)
        check_device(self.device)
        for option, path in (
            ("--save-snapshot", self.save_snapshot),
            ("--outfeed", self.outfeed),
        ):
            if path is not None and (path in {"", "-"} or is_folder(path)):
                raise UsageError(f"{option} needs a file, not '{path}'")

    def run(self, found: Input) -> RunReport:
        """Run one module in all its forms."""
        from hloopt.interpret import evaluate_participants, supported
        from hloopt.ir import build
        from hloopt.pipelines import parse_pipeline
        from hloopt.report.run import Row, RunReport
        from hloopt.runtime import compile_module
        from hloopt.runtime.compare import compare_named
        from hloopt.runtime.streams import load_host
        from hloopt.runtime.timing import measure

        module, name = found.module, found.name
        counts = self._participants(module)
        supported(module, *counts)
        _check_memory(module, name, prod(counts))
        better = build.clone_module(module)
        parse_pipeline(self.pipeline).run(better)
        excess = self.excess_precision
        given, optimised = (
            compile_module(
                form,
                self.device,
                excess_precision=excess,
                replicas=counts[0],
                partitions=counts[1],
            )
            for form in (module, better)
        )
        arrays, origin = self._inputs(found, counts)
        # Each run begins at the start of the same streams.
        host = load_host(Path(self.infeed) if self.infeed else None, self.seed or 0)
        heard = host
        reference: list[list[Any]] = []

        def interpret() -> None:
            nonlocal heard
            heard = host.restarted()
            reference[:] = evaluate_participants(
                module, arrays, *counts, excess_precision=excess, host=heard
            )

        timing = measure(interpret, self.repeat, warm_up=False, seconds=_INTERPRETER_SECONDS)
        if self.save_snapshot is not None:
            self._save(module, arrays, reference)
        self._hear(heard)
        expected, against = self._expected(found, counts)
        baseline = f"given, {self.device}"
        report = RunReport(
            name,
            "excess precision" if self.excess_precision else "strict rounding",
            origin,
            baseline,
            pipeline=self.pipeline,
            replicas=counts[0],
            partitions=counts[1],
        )
        compared = self._against(reference, expected, against)
        report.rows.append(Row("interpreter", timing=timing, **compared))
        for label, program in ((baseline, given), (f"{self.label}, {self.device}", optimised)):
            own = host.restarted()
            outputs = program.run_participants(arrays, own)
            launches = program.launches
            row = Row(
                label,
                program.kernels,
                launches,
                self._measured(program, arrays, host),
                **self._against(outputs, reference, "interpreter"),
                written=tuple(compare_named(own.written, heard.written, **self.tolerance)),
            )
            report.rows.append(row)
        if expected is not None:
            compared = self._against(outputs, expected, against)
            report.rows.append(Row(f"{self.label}, {self.device}", **compared))
        return report

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

    def _measured(self, program: Program, arrays: list[list[Any]], host: Host) -> Timing:
        from hloopt.runtime.timing import measure

        def run() -> None:
            program.run_participants(arrays, host.restarted())

        return measure(run, self.repeat, warm_up=False)

    def _hear(self, host: Host) -> None:
        """Write what a module has sent to the host, and tell what of its streams it has not read."""
        from hloopt.cli.messages import show_unread
        from hloopt.runtime.streams import npz

        if self.outfeed is not None:
            write_bytes(self.outfeed, npz(host.written), self.outfeed)
        if self.infeed is not None:
            show_unread(self.infeed, host.unread)

    def _against(
        self,
        outputs: Sequence[Sequence[Any]],
        expected: Sequence[Sequence[Any]] | None,
        against: str,
    ) -> dict[str, Any]:
        """What a row says about the results of all participants."""
        from hloopt.runtime.compare import compare_all

        if expected is None:
            return {}
        found = [
            comparison
            for got, want in zip(outputs, expected, strict=True)
            for comparison in compare_all(got, want, **self.tolerance)
        ]
        return {"against": against, "comparisons": tuple(found)}


def _check_memory(module: Module, name: str, participants: int) -> None:
    """Raise ``UnsupportedError`` for what cannot fit: the system would end the process without a word."""
    from hloopt.analysis.liveness import peak
    from hloopt.report.numbers import byte_size

    memory, needed = physical_memory(), peak(module.entry).byte_size * participants
    if memory is not None and needed > memory:
        raise UnsupportedError(
            f"this needs {byte_size(needed)} of memory at once, the machine has {byte_size(memory)}",
            name=name,
        )


def physical_memory() -> int | None:
    """The machine's memory in bytes; None where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
