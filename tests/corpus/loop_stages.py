"""Loops as one kernel each, what is asked of one program: the part ``loops`` of the scoreboard.

kernels     of the loops that O3 leaves outside of kernels or makes kernels of, those that are one kernel
by_WAY      how many of them run so (``while-per-thread``, ``while-per-block``); refused_CODE: why others do not
alone       programs that are one launch in all
evaluated   the interpreter gives the recorded results for the module O3 made, or those it gives for it as it was
executed    ... and so does the NumPy executor; blocked: by blocks of few units each
planned, clean, ordered, agrees     of the kernels on the emulator (``emulated.py``)

What is told by way and code is no aim: it may fall.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import hloopt
from hloopt.analysis.backend_config import custom_name
from hloopt.analysis.parallel_loop import fused_loop
from hloopt.backends.numpy.loop_plan import Blocking
from hloopt.backends.numpy.program import NumpyProgram
from hloopt.errors import HlooptError
from hloopt.fusion.loop_verdict import judge
from hloopt.ir import Instruction, Module
from hloopt.ir.walk import top_level_computations
from hloopt.kernels import module_kernels
from hloopt.targets import find_target
from tests.corpus.emulated import agrees, examined
from tests.corpus.records import record_of

__all__ = ["LOOP_STAGES", "examine_loops", "has_loop"]

LOOP_STAGES = ("kernels", "alone", "evaluated", "executed", "blocked", "emulated")
_UNITS = 7
_TARGET = "h200"

Outcome = dict[str, str]


def has_loop(path: Path) -> bool:
    """Whether there is a loop in a text, as far as a look at it tells."""
    return " while(" in path.read_text()


def examine_loops(path: Path) -> Outcome:
    """Stage -> ``ok``, ``ok: 2 of 3``, ``told: 2``, ``refused: message`` or ``failed: message``."""
    outcome: Outcome = {}
    stage = "kernels"
    try:
        given = hloopt.parse(path.read_text(), path.name)
        module = hloopt.optimize(given, "O3")
        outcome |= _verdicts(module)
        outcome["alone"] = f"ok: {int(module_kernels(module) == 1)} of 1"
        record = record_of(path)
        if record is None:
            return outcome
        for stage, results in (
            ("evaluated", lambda: hloopt.evaluate(module, record.inputs)),
            ("executed", lambda: NumpyProgram(module).run(record.inputs)),
            ("blocked", lambda: _by_blocks(module, record.inputs)),
        ):
            agrees(given, record, results())
            outcome[stage] = "ok"
    except (HlooptError, AssertionError) as error:
        return {**outcome, stage: f"failed: {_first_line(error)}"}
    except Exception as error:  # noqa: BLE001 - a crash is what this tier looks for
        return {**outcome, stage: f"failed: {type(error).__name__}: {_first_line(error)}"}
    return outcome | dict(examined(given, module, record))


def _by_blocks(module: Module, inputs: list[Any]) -> list[Any]:
    return NumpyProgram(module, blocking=Blocking(work_items=_UNITS)).run(inputs)


def _verdicts(module: Module) -> Outcome:
    """What became of each loop that is in no other kernel."""
    fused: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    target = find_target(_TARGET)
    for computation in top_level_computations(module):
        for instruction in computation:
            if fused_loop(instruction) is not None:
                fused[_way(instruction)] += 1
            elif instruction.opcode == "while":
                refused[judge(instruction, target).decision.code or "not-worth-it"] += 1
    total = fused.total() + refused.total()
    told = {f"by_{way}": f"told: {count}" for way, count in sorted(fused.items())}
    told |= {f"refused_{code}": f"told: {count}" for code, count in sorted(refused.items())}
    return {"kernels": f"ok: {fused.total()} of {total}", **told}


def _way(fusion: Instruction) -> str:
    return custom_name(fusion) or "chosen-later"


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
