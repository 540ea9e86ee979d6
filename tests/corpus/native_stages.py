"""What is asked of the programs that a file becomes on the host's processor: ``score.py --native``.

native      compiled as it is and run, it gives the recorded results, or those of the interpreter where that explains
            its own
native_o1, native_o2, native_o3     ... and so does what ``-O1`` to ``-O3`` make of it

Where nothing is recorded, inputs are drawn and the results are the interpreter's.  ``skipped: reason`` is said of
what would show nothing, or take too long; what neither the interpreter nor the device runs is ``refused``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hloopt
from hloopt.analysis.cost import module_cost
from hloopt.backends.native.compile import prepare_native
from hloopt.backends.native.program import NativeProgram
from hloopt.errors import DeviceError, HlooptError
from hloopt.interpret import supported
from hloopt.ir import Module
from hloopt.runtime.inputs import generate
from hloopt.types import of_numpy
from hloopt.verifier import violations
from tests.corpus.emulated import agrees
from tests.corpus.records import record_of, tolerance_of
from tests.helpers.support import Recorded

__all__ = ["MOST_SOURCE", "MOST_WORK", "NATIVE_STAGES", "examine_natively"]

NATIVE_STAGES = ("native", "native_o1", "native_o2", "native_o3")
MOST_SOURCE = 500_000
"""Characters of C++ that a compiler on one core takes a minute for, or less."""
MOST_WORK = 200_000_000
"""Bytes and flops above which the interpreter takes minutes."""

Outcome = dict[str, str]


class _TooLarge(Exception):  # noqa: N818 - what is not examined is no error
    pass


def examine_natively(path: Path, stages: tuple[str, ...]) -> Outcome:
    """Stage -> ``ok``, ``refused: message``, ``skipped: reason`` or ``failed: message``."""
    try:
        module = hloopt.parse(path.read_text(), path.name)
    except HlooptError as error:
        return dict.fromkeys(stages, f"refused: {_first_line(error)}")
    record = record_of(path)
    if record is None:
        reason = _unfit(module)
        if reason:
            return dict.fromkeys(stages, f"skipped: {reason}")
    try:
        record = record or _interpreted(module)
    except HlooptError as error:
        return dict.fromkeys(stages, _without_results(module, error))
    return {stage: _outcome(module, stage, record) for stage in stages}


def _unfit(module: Module) -> str:
    """Why a module without recorded results shows nothing."""
    if found := next(violations(module), None):
        return f"not valid: {_first_line(found)}"
    cost = module_cost(module)
    if cost.flops + cost.bytes_accessed > MOST_WORK:
        return f"{cost.flops + cost.bytes_accessed:.1e} flops and bytes are too many for the interpreter"
    return ""


def _interpreted(module: Module) -> Recorded:
    supported(module)
    inputs = generate(module)
    outputs = hloopt.evaluate(module, inputs)
    specs = [tolerance_of(output, of_numpy(output.dtype).name) for output in outputs]
    return Recorded(inputs, outputs, specs)


def _without_results(module: Module, said: HlooptError) -> str:
    """What the interpreter does not run: the device refuses it, too, or there is nothing to hold it against."""
    try:
        prepare_native(module)
    except HlooptError as error:
        return f"refused: {_first_line(error)}"
    except Exception as error:  # noqa: BLE001 - a crash is what this tier looks for
        return f"failed: {type(error).__name__}: {_first_line(error)}"
    return f"skipped: the interpreter says: {_first_line(said)}"


def _outcome(given: Module, stage: str, record: Recorded) -> str:
    level = stage.removeprefix("native").removeprefix("_").upper()
    try:
        module = hloopt.optimize(given, level) if level else given
        agrees(given, record, _program(module).run(record.inputs))
    except _TooLarge as reason:
        return f"skipped: {reason}"
    except (AssertionError, DeviceError) as error:  # our own C++ is refused
        return f"failed: {_first_line(error)}"
    except HlooptError as error:
        return f"refused: {'; '.join([_first_line(error), *getattr(error, 'notes', ())])}"
    except Exception as error:  # noqa: BLE001 - a crash is what this tier looks for
        return f"failed: {type(error).__name__}: {_first_line(error)}"
    return "ok"


def _program(module: Module) -> NativeProgram:
    prepared = prepare_native(module)
    size = len(prepared.source)
    if size > MOST_SOURCE:
        raise _TooLarge(f"{size} characters of C++ take the compiler minutes")
    return NativeProgram(prepared.module, prepared.plan, source=prepared.source)


def _first_line(error: Any) -> str:
    return str(error).split("\n", 1)[0]
