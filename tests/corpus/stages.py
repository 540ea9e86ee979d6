"""What is asked of one file of the corpus: each stage names the step that must hold.

parsed      the text is read
strict      ... and so strictly, as XLA's parser would
printed     printing and reading again gives the same graph, names and all, and the same text
verified    the verifier finds nothing
optimised   O2 gives a valid module (and text that reads back)
evaluated   the interpreter gives the recorded outputs, rounding after every op
excess      ... and in the mode in which bf16/f16 chains keep f32
ran         the executor gives the recorded outputs
evaluated_o2, ran_o2    ... and the interpreter and the executor do so from the module O2 made
memory      reading takes at most so many times the file's size, see memory.py
reread, same    XLA reads the printed text, and reads the same module from it, see reread.py

Of a text that XLA's parser refuses for its syntax:

answered    nothing but a mistake with a place in the text comes of reading it, strictly or not
refused     it is refused, strictly
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import hloopt
from hloopt.errors import HlooptError, ParseError, UnsupportedError
from hloopt.ir import build, edit
from judge import check_place, round_trip
from support import Recorded, mismatch, recorded

READING_STAGES = ("parsed", "strict", "printed", "verified")
TEXT_STAGES = (*READING_STAGES, "optimised")
RESULT_STAGES = ("evaluated", "excess", "ran", "evaluated_o2", "ran_o2")
REFUSAL_STAGES = ("answered", "refused")

Outcome = dict[str, str]
"""Stage -> ``ok``, ``refused: message`` or ``failed: message``."""


def examine(path: Path, stages: tuple[str, ...], printed: Path | None = None) -> Outcome:
    """Go through the stages of a file; later ones are skipped when it cannot be read.

    ``printed`` is where the printed text goes, for those that ask XLA about it.
    """
    outcome: Outcome = {}
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
    record = recorded(path.with_name(path.name.split(".")[0])) if "evaluated" in stages else None
    if record is not None:
        inputs = record.inputs
        attempt("evaluated", lambda: _agree(lambda m: hloopt.evaluate(m, inputs), module, record))
        attempt("excess", lambda: _agree(lambda m: _evaluate_wide(m, inputs), module, record))
        attempt("ran", lambda: _agree(lambda m: hloopt.compile(m).run(inputs), module, record))
        if better is not None:
            attempt(
                "evaluated_o2", lambda: _agree(lambda m: hloopt.evaluate(m, inputs), better, record)
            )
            attempt(
                "ran_o2", lambda: _agree(lambda m: hloopt.compile(m).run(inputs), better, record)
            )
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
    hloopt.verify(better)
    hloopt.parse(better.to_text(), "optimised")
    return better


def _evaluate_wide(module: Any, inputs: list[Any]) -> list[Any]:
    return hloopt.evaluate(module, inputs, excess_precision=True)


def _agree(run: Callable[[Any], list[Any]], module: Any, record: Recorded) -> None:
    """Raise where the results are not the recorded ones.

    Where they are not, the run is repeated as XLA compiles divisions by constants; the message says when
    that alone explains the difference.
    """
    difference = mismatch(run(module), record)
    if not difference:
        return
    rewritten = _with_reciprocals(module)
    if rewritten is not None and not mismatch(run(rewritten), record):
        raise AssertionError(f"{difference}; not so with reciprocals of constant divisors")
    raise AssertionError(difference)


def _with_reciprocals(module: Any) -> Any:
    """``x / c`` as ``x * (1 / c)``, which rounds twice: a rewrite that XLA makes and hloopt does not.

    None where the module has no such division.
    """
    copy = build.clone_module(module)
    found = False
    for instruction in list(copy.instructions()):
        if instruction.opcode != "divide" or not instruction.array.dtype.is_float:
            continue
        divisor = instruction.operands[1]
        source = divisor.operands[0] if divisor.opcode == "broadcast" else divisor
        if source.literal is not None and source.literal.is_scalar:
            one = instruction.array.dtype.numpy.type(1)
            reciprocal = build.splat(instruction, instruction.array, one / source.literal.array[()])
            product = build.make(instruction, "multiply", (instruction.operands[0], reciprocal))
            edit.replace_instruction(instruction, product)
            found = True
    return copy if found else None
