"""What is asked of the kernels of one file, on the emulator: ``make emulate``.

planned   every instruction has a kernel or a library call, of the module as it is
clean     no kernel reads or writes what it should not, no threads race, nothing is left unwritten, and each
          kernel gives what the interpreter gives for the same operands
ordered   blocks in another order give the same bits, unless a kernel says that it is atomic
agrees    the results are the recorded ones, or those of the interpreter where that explains its own
planned_o2, clean_o2, ordered_o2, agrees_o2     ... and so of the module that O2 made

The first ``LOOKED_AT`` launches are compared one by one; a loop's kernels are many.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import hloopt
from hloopt.backends.device_compile import Prepared, prepare
from hloopt.backends.emulator import EmulatorDevice
from hloopt.backends.kernel_check import CheckedProgram, WrongResult
from hloopt.codegen.program import kernel_steps
from hloopt.errors import HlooptError, UnsupportedError
from hloopt.runtime import library_numpy
from hloopt.runtime.inputs import generate
from tests.corpus.records import record_of, spread
from tests.helpers.planned import same_bits
from tests.helpers.support import Recorded, mismatch

__all__ = ["EMULATED_STAGES", "LOOKED_AT", "agrees", "examine_kernels", "examined"]

EMULATED_STAGES = tuple(
    f"{stage}{suffix}"
    for suffix in ("", "_o2")
    for stage in ("planned", "clean", "ordered", "agrees")
)
LOOKED_AT = 400
_LAUNCH_SECONDS = 30.0

Outcome = dict[str, str]


def examine_kernels(path: Path, stages: tuple[str, ...]) -> Outcome:
    """Stage -> ``ok``, ``refused: message`` or ``failed: message``; a stage that fails ends its half."""
    module = hloopt.parse(path.read_text(), path.name)
    record = record_of(path)
    outcome: Outcome = {}
    for suffix in ("", "_o2"):
        if f"planned{suffix}" in stages:
            subject = hloopt.optimize(module, "O2") if suffix else module
            for stage, answer in examined(module, subject, record):
                outcome[f"{stage}{suffix}"] = answer
    return outcome


def examined(given: Any, module: Any, record: Recorded | None) -> Any:
    stage = "planned"
    try:
        prepared = prepare(module)
        yield stage, "ok"
        stage = "clean"
        inputs = record.inputs if record is not None else generate(given)
        # What has no record is a benchmark: too large for a look at every access.
        mode = "check" if record is not None else "fast"
        with closing(_program(prepared, mode, 1)) as program:
            results = program.run(inputs)
        _explain(program.findings)
        yield stage, "ok"
        if record is None:
            return
        stage = "ordered"
        if not any(step.spec.is_atomic for step in kernel_steps(prepared.plan.steps)):
            _ordered(prepared, inputs, results)
        yield stage, "ok"
        stage = "agrees"
        agrees(given, record, results)
        yield stage, "ok"
    except UnsupportedError as error:
        yield stage, f"refused: {_first_line(error)}; {'; '.join(error.notes)}"
    except (HlooptError, AssertionError) as error:
        yield stage, f"failed: {_first_line(error)}"
    except Exception as error:  # noqa: BLE001 - a crash is what this tier looks for
        yield stage, f"failed: {type(error).__name__}: {_first_line(error)}"


def _program(prepared: Prepared, mode: Any, seed: int) -> CheckedProgram:
    device = EmulatorDevice(mode=mode, seed=seed, time_limit=_LAUNCH_SECONDS)
    program = CheckedProgram(prepared.module, prepared.plan, device, prepared.program)
    program.most = LOOKED_AT
    return program


def _ordered(prepared: Prepared, inputs: list[Any], results: list[Any]) -> None:
    # Checked again: another build of the program would take longer than the checks do.
    with closing(_program(prepared, "check", 2)) as program:
        program.most = 0
        for number, (one, other) in enumerate(zip(results, program.run(inputs), strict=True)):
            if not same_bits(one, other):
                raise AssertionError(f"out_{number} depends on the order of blocks")


def _explain(findings: list[WrongResult]) -> None:
    """Raise for the first finding that moving the operands by a few ULPs does not explain."""
    for finding in findings:
        instruction = finding.step.instruction

        def run(
            operands: list[Any], instruction: Any = instruction, at: int = finding.result
        ) -> list[Any]:
            return [library_numpy.call(instruction, operands)[at]]

        spec: dict[str, Any] = {}
        record = Recorded(list(finding.operands), [finding.want], [spec])
        if mismatch([finding.got], spread(run, record)):
            raise AssertionError(str(finding))


def agrees(given: Any, record: Recorded, results: list[Any]) -> None:
    difference = mismatch(results, record)
    if not difference:
        return
    # What explains the interpreter's results, ``evaluated`` of the same file says.
    wanted = replace(record, outputs=hloopt.evaluate(given, record.inputs))
    if not mismatch(results, wanted):
        return

    def run(inputs: list[Any]) -> list[Any]:
        return hloopt.evaluate(given, inputs)

    if mismatch(results, spread(run, wanted)):
        raise AssertionError(difference)


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
