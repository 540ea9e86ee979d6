"""hloopt: parse, verify, optimise, print and run HLO text.

The names here are public, and so is what ``docs/api`` describes of other modules, such as ``hloopt.ir``,
``hloopt.rewrite``, ``hloopt.jax`` and ``hloopt.torch``; the rest is private.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hloopt import display as _display
from hloopt.errors import (
    DeviceError,
    EvaluationError,
    HlooptError,
    ParseError,
    ShapeError,
    UnsupportedError,
    UsageError,
    VerifyError,
)

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from hloopt.driver.bisecting import BisectOptions
    from hloopt.driver.building import BuiltLibrary, build
    from hloopt.driver.compare import diff
    from hloopt.driver.explaining import ModuleExplained, explain
    from hloopt.driver.exporting import ExportedFile, export
    from hloopt.driver.gating import gate
    from hloopt.driver.kernels import ModuleKernels, select_kernels, stats
    from hloopt.driver.options import RunOptions
    from hloopt.driver.page import ModulePage, page
    from hloopt.driver.reducing import ReduceOptions, Reduction, reduce
    from hloopt.driver.why import why
    from hloopt.findings import Finding, Findings
    from hloopt.fusion.user_rules import FusionRule
    from hloopt.interpret import Host
    from hloopt.ir import Module
    from hloopt.pipelines import Given
    from hloopt.prover.bisection import Bisection
    from hloopt.prover.compare import ModulesCompared
    from hloopt.prover.equivalence import Equivalence
    from hloopt.prover.reduction.search import SearchLimits
    from hloopt.reading import from_jax
    from hloopt.report.gated import GateReport
    from hloopt.report.run import RunReport
    from hloopt.report.stats import ModuleStats
    from hloopt.rewrite import Fix, Pass, PassLog, Pipeline
    from hloopt.runtime.program import Program

__version__ = "0.1.0"

__all__ = [
    "BisectOptions",
    "Bisection",
    "BuiltLibrary",
    "DeviceError",
    "Equivalence",
    "EvaluationError",
    "ExportedFile",
    "Finding",
    "Findings",
    "Fix",
    "GateReport",
    "HlooptError",
    "Host",
    "Module",
    "ModuleExplained",
    "ModuleKernels",
    "ModulePage",
    "ModuleStats",
    "ParseError",
    "Pass",
    "PassLog",
    "Pipeline",
    "ReduceOptions",
    "Reduction",
    "RunOptions",
    "RunReport",
    "SearchLimits",
    "ShapeError",
    "UnsupportedError",
    "UsageError",
    "VerifyError",
    "bisect",
    "build",
    "compare",
    "compile",
    "diff",
    "equivalent",
    "evaluate",
    "evaluate_participants",
    "explain",
    "export",
    "from_jax",
    "gate",
    "optimize",
    "page",
    "parse",
    "parse_pipeline",
    "read",
    "reduce",
    "run",
    "select_kernels",
    "stats",
    "verify",
    "why",
]


def parse(text: str, name: str = "<text>", *, strict: bool = False) -> Module:
    """Read HLO text.  Raises ``ParseError`` with line, column and what was expected.

    Opcodes and attributes that are not known are kept and printed back, and ``module.warnings`` names
    them; ``strict`` makes them errors.  Raises ``UsageError`` for what is not a text: ``read`` takes files.
    """
    from hloopt.text.parser import parse_module

    if not isinstance(text, str):
        kind = type(text).__name__
        raise UsageError(
            f"parse takes the text of a module, not {kind}; read takes files and bytes"
        )
    return parse_module(text, name, strict=strict)


def read(
    source: str | Path | bytes,
    *,
    name: str | None = None,
    shapes: Mapping[str, str] | None = None,
    module: str | None = None,
    stage: str | None = None,
    strict: bool = False,
) -> Module:
    """Read a module of any form: HLO text, a protocol buffer, a snapshot, StableHLO (text, bytecode, portable
    artifact, a file of ``jax.export``), each perhaps gzipped; or one of a dump directory.

    ``source`` is a path, or the content itself: bytes, or a string of several lines.  ``name`` is what messages
    call it.  ``shapes`` has shapes for arguments of StableHLO whose sizes are open, by name or number:
    ``{"x": "f32[8,16]"}``.  Of a dump directory ``module`` and ``stage`` pick, as ``--module`` and ``--stage``
    do.  ``strict`` is as for ``parse``.

    The module is not verified.  StableHLO is converted by jaxlib in another process, and the result is kept in
    the cache.  Raises ``ParseError`` with the place of a mistake, ``DeviceError`` for StableHLO where no jaxlib
    is installed, ``UsageError`` for a path that is not there and for shapes that do not fit.
    """
    from hloopt.reading import read as read_module

    return read_module(source, name=name, shapes=shapes, module=module, stage=stage, strict=strict)


def verify(module: Module) -> None:
    """Check shapes, operands, attributes and calls.  Raises ``VerifyError`` at the first offence."""
    from hloopt.verifier import verify_module

    verify_module(module)


def optimize(
    module: Module,
    pipeline: Given = "O2",
    target: str | None = None,
    *,
    fusion_rules: Sequence[FusionRule] = (),
    lock: str | Path | None = None,
) -> Module:
    """Run a pipeline over a copy of the module.

    ``pipeline`` is a name (``O0``..``O3``, ``xla-gpu-2026`` ...), a text like ``simplify,fix(cse,dce)``, the
    ``Path`` of a TOML file, a ``Pass``, a ``Fix``, a ``Pipeline``, or a list of all these in order.
    ``target`` names a device description; passes that do not ask for one ignore it.
    ``fusion_rules`` are functions of a producer and a consumer that answer whether they are to be fused: true,
    false, None, or a pair of true or false and the reason; the first answer counts.  ``lock`` is a lock file
    that says what is fused.
    Raises ``UsageError`` for an unknown pass, option or target, and for a rule that fails.
    """
    from hloopt.pipelines import optimize_module

    return optimize_module(module, pipeline, target, fusion_rules=fusion_rules, lock=lock)


def parse_pipeline(text: str) -> Pipeline:
    """The pipeline of a text: its ``entries`` are passes and groups, ``run(module)`` changes a module in place.

    Raises ``UsageError`` for an unknown pass or option.
    """
    from hloopt.pipelines import parse_pipeline as read

    return read(text)


def compile(
    module: Module,
    device: str = "cpu",
    *,
    excess_precision: bool = False,
    replicas: int = 1,
    partitions: int = 1,
    exact: bool = False,
    threads: int | None = None,
    target: str | None = None,
) -> Program:
    """Make a module executable.  Raises ``UnsupportedError`` before anything runs, ``DeviceError``
    when there is no such device, ``UsageError`` for options that the device does not take.

    ``device`` is ``cpu``, ``native`` (the CPU, by its C++ compiler), ``gpu`` (CUDA) or ``emulator`` (kernels
    of a GPU run on the CPU, each access of memory checked); on the last two ``target`` names the device
    description that kernels are chosen for.
    ``exact`` has ``cpu`` compute functions such as ``tanh`` of f32 in f64 and round once, as the interpreter
    does, where they else err by up to 4 units in the last place and take a third of the time.
    ``threads`` of ``cpu`` and ``native`` share large work: by default as many as ``HLOOPT_THREADS`` says, or as
    cores; results are the same for any number.
    A program of several participants is run by ``program.run_participants`` with a list of inputs for each.
    """
    from hloopt.backends import check_device, compile_module, options_for
    from hloopt.runtime.program import NumpyOptions

    check_device(device)
    selection = None
    if target is not None and device != "cpu":
        from hloopt.kernels.selection import KernelSelection

        if device == "native":
            raise UsageError("device 'native' is this processor: it takes no target")
        selection = KernelSelection(target=target)
    given = NumpyOptions(excess_precision, replicas, partitions, exact, threads)
    return compile_module(module, device, options_for(device, given, selection))


def evaluate(
    module: Module,
    inputs: Sequence[np.ndarray[Any, Any]],
    *,
    excess_precision: bool = False,
    host: Host | None = None,
) -> list[np.ndarray[Any, Any]]:
    """Run the reference interpreter: arrays in parameter order in, flat list of result arrays out.

    ``host`` is where infeed, outfeed and transfers with the host lead to, and what ``rng`` draws from.
    """
    from hloopt.interpret import evaluate_module

    return evaluate_module(module, inputs, excess_precision=excess_precision, host=host)


def evaluate_participants(
    module: Module,
    inputs: Sequence[Sequence[np.ndarray[Any, Any]]],
    replicas: int | None = None,
    partitions: int | None = None,
    *,
    excess_precision: bool = False,
) -> list[list[np.ndarray[Any, Any]]]:
    """Run the reference interpreter once for each participant, in lock step; collectives exchange data.

    Participant ``replica * partitions + partition`` takes ``inputs[number]``; the results come in the same
    order.  Counts that are not given are the module's ``replica_count`` and ``num_partitions``.
    """
    from hloopt.interpret import evaluate_participants as evaluate_all

    return evaluate_all(module, inputs, replicas, partitions, excess_precision=excess_precision)


def run(
    module: Module | str | Path,
    device: str = "cpu",
    *,
    pipeline: Given | None = None,
    inputs: Sequence[np.ndarray[Any, Any]] | None = None,
    expected: Sequence[np.ndarray[Any, Any]] | None = None,
    options: RunOptions | None = None,
    **changes: Any,
) -> RunReport:
    """What ``hloopt run`` does: execute a module as given and optimised, compare the results, time both.

    ``module`` is a module, or the path of a text, a protocol buffer or a snapshot.  The interpreter evaluates
    it, and ``device`` executes it as it is and after the passes of ``pipeline`` (as ``optimize`` takes it; O2
    by default).  ``inputs`` are arrays in parameter order; without them, those of the snapshot, or made from a
    seed.  ``expected`` are results to compare with as well.

    ``changes`` are fields of ``RunOptions``, each the option of its name: ``seed``, ``repeat``, ``rtol``,
    ``atol``, ``threads``, ``exact``, ``no_reference`` ...; ``options`` has those that are not given.

    The report has ``verdict`` and ``passed``; ``rows`` with times, memory and comparisons, one for the
    interpreter and one for each program; ``outputs``, the results of the optimised program for each
    participant; and ``to_json()``, the JSON that the command prints.

    Raises ``UsageError`` for options that cannot be, ``DeviceError`` for a device that is not there,
    ``UnsupportedError`` for what cannot be run, ``EvaluationError`` for inputs that do not fit.
    """
    from hloopt.driver.run import run_module

    changes = {"device": device, **changes}
    return run_module(module, pipeline, inputs, expected, options, changes)


def equivalent(before: Module, after: Module, *, solver_steps: int | None = None) -> Equivalence:
    """Whether two modules give the same results for all inputs: what ``hloopt check --equivalent`` says.

    The record's ``verdict`` is ``proved``, ``refuted`` or ``not known``, ``how`` and ``reason`` say why, and
    ``counterexample`` has the inputs, the element and both values of modules that differ.  Bits count, but for
    which NaN a NaN is, and for the order of additions that HLO leaves open.  ``solver_steps`` is how much z3
    may do, by its own count.

    Raises ``UsageError`` where parameters or results are not alike, ``DeviceError`` where only z3 can decide
    and it is not installed.
    """
    from hloopt.prover.equivalence import STEPS, decide

    return decide(before, after, steps=STEPS if solver_steps is None else solver_steps)


def bisect(
    module: Module | str | Path,
    device: str = "interpreter",
    *,
    pipeline: Given | None = None,
    options: BisectOptions | None = None,
    **changes: Any,
) -> Bisection:
    """What ``hloopt bisect`` does: find the pass, the rewrite or the kernel that makes a module wrong.

    ``module`` is a module, or the path of one, or of a dump directory, whose stages are run; ``dumped`` names
    the module of it where there are several.  ``pipeline`` is as ``optimize`` takes it; O2 by default.  After
    each run that changed the module its results are compared with the given module's, by the interpreter;
    where all are right and ``device`` has kernels, these are.  ``changes`` are fields of ``BisectOptions``
    (``check``, ``tolerance`` ...); ``options`` has those that are not given.

    The record has ``culprits``, none where all is right, ``summary`` and ``to_json()``.

    Raises ``UsageError`` for options that cannot be and for a module that fails as given, ``DeviceError`` for a
    device that is not there, ``UnsupportedError`` for what cannot be run.
    """
    from hloopt.driver.bisecting import bisect_module

    return bisect_module(module, pipeline, device, options, changes)


def compare(
    before: Module | str | Path,
    after: Module | str | Path,
    device: str = "interpreter",
    *,
    seed: int | None = None,
    trials: int | None = None,
    special: Sequence[str] = (),
    inputs: str | Path | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    ulp: int | None = None,
    bitwise: bool = False,
) -> ModulesCompared:
    """What ``hloopt compare`` does: run two modules on the same inputs, and find the first value that differs.

    ``before`` and ``after`` are modules, or paths of texts, protocol buffers or snapshots.  Other arguments are
    the options of their names; ``device`` runs both, ``inputs`` is the path of a file or folder of arrays.
    ``rtol`` is relative to the expected value, ``atol`` absolute, ``ulp`` counts units in the last place.
    Without ``inputs``, ``trials`` and ``special`` each class of special values is tried after one random input,
    for 30 seconds at most; ``untried`` has those left out.

    The record has ``equal`` and ``verdict``; ``trials`` with the comparison of each result; ``first``, the
    first value that differs, with both instructions, the operands and the cause; ``given``, the inputs of the
    last trial, which shows the difference; ``reordered``, where results or parameters are in another order; and
    ``to_json()``, the JSON that the command prints.

    Raises ``UsageError`` for modules that take other inputs or give other results, and what ``run`` raises.
    """
    from hloopt.driver.compare import compare_given

    path = None if inputs is None else str(inputs)
    return compare_given(
        before, after, device, (path, seed, trials, tuple(special)), (rtol, atol, ulp, bitwise)
    )


_display.report.load = lambda: import_module("hloopt.report.notebook")


def __dir__() -> list[str]:
    return [*__all__, "__all__", "__doc__", "__version__"]


def __getattr__(name: str) -> Any:
    # NumPy is loaded with the graph; a command that only prints its help must not wait for that.
    if name in _HOMES:
        return getattr(import_module(f"hloopt.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_HOMES = {
    "BisectOptions": "driver.bisecting",
    "Bisection": "prover.bisection",
    "BuiltLibrary": "driver.building",
    "build": "driver.building",
    "Equivalence": "prover.equivalence",
    "Fix": "rewrite",
    "Host": "interpret",
    "Module": "ir",
    "Pass": "rewrite",
    "PassLog": "rewrite",
    "Pipeline": "rewrite",
    "ExportedFile": "driver.exporting",
    "GateReport": "report.gated",
    "ModuleExplained": "driver.explaining",
    "ModuleKernels": "driver.kernels",
    "ModulePage": "driver.page",
    "ModuleStats": "report.stats",
    "ReduceOptions": "driver.reducing",
    "Reduction": "driver.reducing",
    "RunOptions": "driver.options",
    "RunReport": "report.run",
    "SearchLimits": "prover.reduction.search",
    "diff": "driver.compare",
    "explain": "driver.explaining",
    "from_jax": "reading",
    "select_kernels": "driver.kernels",
    "page": "driver.page",
    "stats": "driver.kernels",
    "export": "driver.exporting",
    "gate": "driver.gating",
    "reduce": "driver.reducing",
    "why": "driver.why",
    "Finding": "findings",
    "Findings": "findings",
}
