"""What is asked of one file of the corpus: each stage names the step that must hold.

parsed      the text is read
strict      ... and so strictly, as XLA's parser would
printed     printing and reading again gives the same graph, names and all, and the same text
verified    the verifier finds nothing
optimised   O2 gives a valid module of a valid one (and text that reads back)
evaluated   the interpreter gives the recorded outputs, rounding after every op
excess      ... and in the mode in which bf16/f16 chains keep f32
ran         the executor gives the recorded outputs
evaluated_o2, ran_o2    ... and the interpreter and the executor do so from the module O2 made
settled     O2 changes nothing of what O2 made
alone       every pass, alone, leaves the module valid and what the interpreter makes of it as it was
compiled    XLA compiles what O2 made, fusions taken apart, and runs it to the recorded outputs
flops, bytes, count     O2 without fusion leaves no more than XLA does before its fusion passes, see beside.py
memory      reading takes at most so many times the file's size, see memory.py
reread, same    XLA reads the printed text, and reads the same module from it, see reread.py

Of fusion, beside what XLA fused: see fusion_stages.py.

Of the kernels, see emulated.py: planned, clean, ordered, agrees, and the same with _o2.

Of what is compiled for the host's processor, see native_stages.py.

Of a text that XLA's parser refuses for its syntax:

answered    nothing but a mistake with a place in the text comes of reading it, strictly or not
refused     it is refused, strictly
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import hloopt
from hloopt.errors import HlooptError, ParseError, UnsupportedError
from hloopt.ir.build import clone_module
from hloopt.ir.canonical import fingerprint
from hloopt.pipelines import PASSES, parse_pipeline
from hloopt.verifier import violations
from tests.corpus.beside import FIGURES, MOST, ratios
from tests.corpus.emulated import examine_kernels
from tests.corpus.explanations import rewritten
from tests.corpus.fusion_stages import (
    PARTITION_STAGES,
    PIPELINE_STAGES,
    REFUSED_STAGES,
    TIMES_STAGES,
    examine_fusion,
)
from tests.corpus.judge import check_place, round_trip
from tests.corpus.loop_stages import LOOP_STAGES, examine_loops
from tests.corpus.native_stages import NATIVE_STAGES, examine_natively
from tests.corpus.records import record_of, spread
from tests.helpers.support import Recorded, mismatch

READING_STAGES = ("parsed", "strict", "printed", "verified")
TEXT_STAGES = (*READING_STAGES, "optimised", "settled")
RESULT_STAGES = ("evaluated", "excess", "ran", "evaluated_o2", "ran_o2")
GOLDEN_STAGES = ("evaluated", "ran", "evaluated_o2", "ran_o2", "settled", "alone")
REFUSAL_STAGES = ("answered", "refused")
FUSION_STAGES = (TIMES_STAGES, REFUSED_STAGES, PARTITION_STAGES, PIPELINE_STAGES)

WITHIN_SPREAD = "moving the inputs by a few ULPs changes as much"
ORDER_OPEN = "a sort that is not stable leaves the order of equal keys open"

Outcome = dict[str, str]
"""Stage -> ``ok``, ``refused: message`` or ``failed: message``; figures are ``ok: 0.98`` where they are."""


def examine(
    path: Path,
    stages: tuple[str, ...],
    printed: Path | None = None,
    emitted: Path | None = None,
) -> Outcome:
    """Go through the stages of a file; later ones are skipped when it cannot be read.

    ``printed`` is where the printed text goes, and ``emitted`` what O2 made as XLA compiles it, for those that
    ask XLA about them.
    """
    outcome: Outcome = {}
    if "planned" in stages:
        return examine_kernels(path, stages)
    if set(stages) <= set(NATIVE_STAGES):
        return examine_natively(path, stages)
    if stages == LOOP_STAGES:
        return examine_loops(path)
    if stages in FUSION_STAGES:
        return examine_fusion(path, stages)
    if "answered" in stages:
        return _refusal(path.read_text())
    module: Any = None

    def attempt(stage: str, step: Any) -> Any:
        try:
            value = step()
        except UnsupportedError as error:
            outcome[stage] = f"refused: {_first_line(error)}"
        except HlooptError as error:
            outcome[stage] = f"failed: {_first_line(error)}"
        except Exception as error:  # noqa: BLE001 - a crash is what this tier looks for
            outcome[stage] = f"failed: {type(error).__name__}: {_first_line(error)}"
        else:
            outcome[stage] = "ok"
            return value
        return None

    module = attempt("parsed", lambda: hloopt.parse(path.read_text(), path.name))
    if module is None:
        return outcome
    if "strict" in stages:
        attempt("strict", lambda: hloopt.parse(path.read_text(), path.name, strict=True))
    if "printed" in stages:
        attempt("printed", lambda: round_trip(module))
    if printed is not None:
        printed.write_text(module.to_text())
    if "verified" in stages:
        attempt("verified", lambda: hloopt.verify(module))
    better = None
    if "optimised" in stages or "ran_o2" in stages:
        better = attempt("optimised", lambda: _optimised(module))
    if "settled" in stages and better is not None:
        attempt("settled", lambda: _settled(better))
    if emitted is not None and better is not None:
        attempt("compiled", lambda: _emit(better, emitted))
    if FIGURES[0] in stages:
        outcome |= _beside(path)
    record = record_of(path) if "evaluated" in stages else None
    if record is not None:
        for stage, evaluate in _WAYS.items():
            subject = better if stage.endswith("_o2") else module
            if stage in stages and subject is not None:
                attempt(stage, partial(_agree, evaluate, subject, record, module))
    if "alone" in stages:
        attempt("alone", lambda: _alone(module, record))
    return outcome


def _refusal(text: str) -> Outcome:
    """What reading comes to, at ease and strictly."""
    outcome = {"answered": "ok", "refused": "failed: it is read"}
    for strict in (False, True):
        try:
            hloopt.parse(text, "text", strict=strict)
        except ParseError as error:
            if strict:
                outcome["refused"] = "ok"
            for one in (error, *error.others):
                try:
                    check_place(text, one)
                except AssertionError as wrong:
                    outcome["answered"] = f"failed: {wrong}"
        except Exception as error:  # noqa: BLE001 - a crash is what this tier looks for
            outcome["answered"] = f"failed: {type(error).__name__}: {_first_line(error)}"
    return outcome


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]


def _optimised(module: Any) -> Any:
    better = hloopt.optimize(module, "O2")
    if not violations(module):
        hloopt.verify(better)
    hloopt.parse(better.to_text(), "optimised")
    return better


def _settled(better: Any) -> None:
    copy = clone_module(better)
    report = parse_pipeline("O2").run(copy)
    changing = [run.instance.name for run in report.runs if run.changed]
    if changing:
        raise AssertionError(f"O2 changes it again, first by {changing[0]}")


def _emit(better: Any, emitted: Path) -> None:
    elided = [entry for entry in better.instructions() if entry.literal and entry.literal.elided]
    if elided:
        raise UnsupportedError("XLA makes up values for constants left out of the text")
    emitted.write_text(hloopt.optimize(better, "defuse").to_text())


def _alone(module: Any, record: Recorded | None) -> None:
    """Passes of default options, one at a time; what several make alike is evaluated once."""
    if violations(module):
        return
    seen = {fingerprint(module)}
    want: Recorded | None = None
    for name in PASSES:
        copy = clone_module(module)
        parse_pipeline(name).run(copy, verify_each=True)
        mark = fingerprint(copy)
        if mark in seen or record is None:
            continue
        seen.add(mark)
        if want is None:
            want = replace(record, outputs=hloopt.evaluate(module, record.inputs))
        difference = mismatch(hloopt.evaluate(copy, record.inputs), want)
        if difference:
            raise AssertionError(f"{name}: {difference}")


def _beside(path: Path) -> Outcome:
    found = {}
    for figure, ratio in ratios(path).items():
        word = "ok" if ratio <= MOST else "failed"
        found[figure] = f"{word}: {ratio:.4f} times XLA's"
    return found


def _executed(module: Any, inputs: list[Any]) -> list[Any]:
    return hloopt.compile(module).run(inputs)


def _evaluate_wide(module: Any, inputs: list[Any]) -> list[Any]:
    return hloopt.evaluate(module, inputs, excess_precision=True)


_Evaluate = Callable[[Any, list[Any]], list[Any]]
_WAYS: dict[str, _Evaluate] = {
    "evaluated": hloopt.evaluate,
    "excess": _evaluate_wide,
    "ran": _executed,
    "evaluated_o2": hloopt.evaluate,
    "ran_o2": _executed,
}


def _agree(evaluate: _Evaluate, module: Any, record: Recorded, given: Any) -> None:
    """Raise where the results are not the recorded ones; the message says what explains it, if anything does.

    What explains the results of the module as ``given`` explains those of one made from it that has the same.
    """
    run = partial(evaluate, module)
    results = run(record.inputs)
    difference = mismatch(results, record)
    if not difference:
        return
    if module is not given:
        expected = replace(record, outputs=evaluate(given, record.inputs))
        if not mismatch(results, expected):
            _agree(evaluate, given, record, given)
    wider = spread(run, record)
    if not mismatch(run(record.inputs), wider):
        raise AssertionError(f"{difference}; {WITHIN_SPREAD}")
    for name, copy in rewritten(module):
        if not mismatch(evaluate(copy, record.inputs), wider):
            raise AssertionError(f"{difference}; not so with {name}")
    if any(_leaves_order_open(instruction) for instruction in module.instructions()):
        raise AssertionError(f"{difference}; {ORDER_OPEN}")
    raise AssertionError(difference)


def _leaves_order_open(instruction: Any) -> bool:
    return instruction.opcode == "sort" and not instruction.attributes.get("is_stable")
