"""``hloopt run``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import click
from click.core import ParameterSource

from hloopt.cli.files import Input, each_input, one_text, open_texts
from hloopt.cli.options import (
    files_argument,
    json_option,
    pipeline_options,
    pipeline_text,
    strict_option,
)
from hloopt.cli.outputs import is_folder, write_bytes
from hloopt.cli.waiting import patience
from hloopt.errors import UnsupportedError, UsageError
from hloopt.ir import Module

if TYPE_CHECKING:
    from hloopt.report.run import RunReport

__all__ = ["command"]

_INTERPRETER_SECONDS = 1.0  # it defines the results; how long it takes matters less


class _Tolerance(click.FloatRange):
    """A number from 0 to infinity; nothing is nearer than NaN or farther."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        return self.fail("nan is no tolerance", param, ctx) if isnan(number) else number


_TOLERANCE = _Tolerance(0)


class Tolerances(TypedDict):
    """What the user says about tolerances; None leaves it to the element type."""

    rtol: float | None
    atol: float | None


@click.command("run")
@files_argument
@strict_option()
@click.option("--device", default="cpu", show_default=True, help="Where the optimised module runs.")
@click.option("--inputs", metavar="PATH", help="in_0, in_1, ... in an .npz or a folder of .npy.")
@click.option(
    "--seed",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    help="Makes inputs where none are given.",
)
@click.option("--expect", metavar="PATH", help="out_0, out_1, ... to compare with as well.")
@click.option(
    "--save-snapshot",
    metavar="FILE",
    help="Write module, inputs and the interpreter's results as XLA's HloSnapshot.",
)
@click.option(
    "--rtol", type=_TOLERANCE, help="Relative tolerance; the default depends on the type."
)
@click.option(
    "--atol", type=_TOLERANCE, help="Absolute tolerance; the default depends on the type."
)
@click.option(
    "--repeat",
    default=5,
    show_default=True,
    type=click.IntRange(1),
    help="Timed runs of each program.",
)
@pipeline_options
@click.option(
    "--excess-precision",
    is_flag=True,
    help="Let bf16 and f16 chains keep f32, as XLA's CPU compiler does.",
)
@click.option(
    "--custom-call",
    "custom_calls",
    metavar="[TARGET=]MODULE:FUNCTION",
    multiple=True,
    help="Evaluate the custom calls of a target by a Python function (may be repeated).",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[str, ...],
    device: str,
    inputs: str | None,
    seed: int,
    expect: str | None,
    save_snapshot: str | None,
    rtol: float | None,
    atol: float | None,
    repeat: int,
    level: str | None,
    passes: str | None,
    excess_precision: bool,
    custom_calls: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run a module as given and optimised, compare the results and time both.

    The module as given is evaluated by the reference interpreter and executed on the device; the optimised
    one is executed on the device and compared, by element type, with the interpreter (and with --expect).
    Exits with 1 when results differ.

    Inputs made from a seed suit the module: indices, labels and positions are in range, weights are scaled by
    their fan-in so that results stay finite through any number of layers, variances are positive, matrices to
    be factored are positive definite, keys of generators are random bits; all other floats are standard
    normal, integers -4 to 4. The same module and seed give the same inputs.

    A snapshot of XLA (--xla_dump_hlo_snapshots) brings inputs and results of its own; --inputs, --expect and
    --seed take their place.

    The function of --custom-call gets a description of the call and the operands as arrays, and gives the
    results; its name is the target where none is written. Installed packages supply such functions by the
    entry point group hloopt.custom_calls.

    \b
    Example:
      hloopt run dump.txt --inputs inputs.npz --expect outputs.npz -O2 --repeat 20
    """
    from hloopt.interpret.plugins import load
    from hloopt.report.console import product, write_json

    for text in custom_calls:
        load(text)
    given = ctx.get_parameter_source("seed") is not ParameterSource.DEFAULT
    runner = _Runner(
        device,
        pipeline_text(level, passes),
        "passes" if level is None and passes is not None else pipeline_text(level, passes),
        inputs,
        seed if given else None,
        expect,
        save_snapshot,
        {"rtol": rtol, "atol": atol},
        repeat,
        excess_precision,
    )
    texts = open_texts(files)
    if inputs or expect or save_snapshot:
        one_text(texts, "--inputs, --expect and --save-snapshot belong")
    runner.check()

    def step(found: Input) -> dict[str, Any]:
        with patience(f"running {found.name}", alone=len(texts) == 1):
            report = runner.run(found)
        if not as_json:
            report.show(product())
        return report.json()

    rows, code = each_input(texts, step)
    if as_json:
        write_json("run", {"modules": rows})
    ctx.exit(max([code, *(1 for row in rows if not row.get("passed", True))]))


@dataclass(frozen=True)
class _Runner:
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

    def check(self) -> None:
        """Raise ``UsageError`` or ``DeviceError`` for what is wrong whatever the module."""
        from hloopt.pipelines import parse_pipeline
        from hloopt.runtime import check_device

        parse_pipeline(self.pipeline)
        check_device(self.device)
        if self.save_snapshot is not None and (
            self.save_snapshot in {"", "-"} or is_folder(self.save_snapshot)
        ):
            raise UsageError(f"--save-snapshot needs a file, not '{self.save_snapshot}'")

    def run(self, found: Input) -> RunReport:
        """Run one module in all its forms."""
        from hloopt.interpret import evaluate_module, supported
        from hloopt.ir import build
        from hloopt.pipelines import parse_pipeline
        from hloopt.report.run import Row, RunReport
        from hloopt.runtime import compile_module
        from hloopt.runtime.compare import compare_all
        from hloopt.runtime.timing import measure

        module, name = found.module, found.name
        supported(module)
        _check_memory(module, name)
        better = build.clone_module(module)
        parse_pipeline(self.pipeline).run(better)
        excess = self.excess_precision
        given = compile_module(module, self.device, excess_precision=excess)
        optimised = compile_module(better, self.device, excess_precision=excess)
        arrays, origin = self._inputs(found)
        reference: list[Any] = []

        def interpret() -> None:
            reference[:] = evaluate_module(module, arrays, excess_precision=excess)

        timing = measure(interpret, self.repeat, warm_up=False, seconds=_INTERPRETER_SECONDS)
        if self.save_snapshot is not None:
            self._save(module, arrays, reference)
        expected, against = self._expected(found)
        baseline = f"given, {self.device}"
        report = RunReport(
            name,
            "excess precision" if self.excess_precision else "strict rounding",
            origin,
            baseline,
            pipeline=self.pipeline,
        )
        compared = self._against(reference, expected, against)
        report.rows.append(Row("interpreter", timing=timing, **compared))
        for label, program in ((baseline, given), (f"{self.label}, {self.device}", optimised)):
            outputs = program.run(arrays)
            launches = program.launches
            row = Row(
                label,
                program.kernels,
                launches,
                measure(partial(program.run, arrays), self.repeat, warm_up=False),
                "interpreter",
                tuple(compare_all(outputs, reference, **self.tolerance)),
            )
            report.rows.append(row)
        if expected is not None:
            compared = self._against(outputs, expected, against)
            report.rows.append(Row(f"{self.label}, {self.device}", **compared))
        return report

    def _inputs(self, found: Input) -> tuple[list[Any], str]:
        """The inputs and where they come from."""
        from hloopt.runtime.inputs import generate, load_inputs

        if self.inputs:
            return load_inputs(Path(self.inputs), found.module), self.inputs
        if found.snapshot is not None and self.seed is None:
            return list(found.snapshot.inputs), "snapshot"
        return generate(found.module, self.seed or 0), f"seed {self.seed or 0}"

    def _expected(self, found: Input) -> tuple[list[Any] | None, str]:
        """The results to compare with, if any, and what they are called.

        Those of a snapshot belong to its own inputs.
        """
        from hloopt.runtime.inputs import load_expected

        if self.expect:
            return load_expected(Path(self.expect), found.module), "expected"
        if found.snapshot is None or self.inputs or self.seed is not None:
            return None, ""
        return list(found.snapshot.results) or None, "snapshot"

    def _save(self, module: Module, inputs: list[Any], results: list[Any]) -> None:
        from hloopt.proto import write_snapshot

        write_bytes(self.save_snapshot, write_snapshot(module, inputs, results), module.name)

    def _against(
        self, outputs: Sequence[Any], expected: Sequence[Any] | None, against: str
    ) -> dict[str, Any]:
        from hloopt.runtime.compare import compare_all

        if expected is None:
            return {}
        found = compare_all(outputs, expected, **self.tolerance)
        return {"against": against, "comparisons": tuple(found)}


def _check_memory(module: Module, name: str) -> None:
    """Raise ``UnsupportedError`` for what cannot fit: the system would end the process without a word."""
    from hloopt.analysis.liveness import peak
    from hloopt.report.numbers import byte_size

    memory, needed = physical_memory(), peak(module.entry).byte_size
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
