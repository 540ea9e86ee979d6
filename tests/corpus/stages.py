"""What is asked of one file of the corpus: each stage names the step that must hold.

parsed      the text is read
printed     printing and reading again gives the same module and the same text
verified    the verifier finds nothing
optimised   O2 gives a valid module (and text that reads back)
evaluated   the interpreter gives the recorded outputs, rounding after every op
excess      ... and in the mode in which bf16/f16 chains keep f32
ran         the executor gives the recorded outputs
evaluated_o2, ran_o2    ... and the interpreter and the executor do so from the module O2 made
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from graphs import graph_difference

import hloopt
from hloopt.errors import HlooptError, UnsupportedError
from hloopt.ir import build, edit, fingerprint
from support import Recorded, mismatch, recorded

TEXT_STAGES = ("parsed", "printed", "verified", "optimised")
RESULT_STAGES = ("evaluated", "excess", "ran", "evaluated_o2", "ran_o2")

Outcome = dict[str, str]
"""Stage -> ``ok``, ``refused: message`` or ``failed: message``."""


def examine(path: Path, stages: tuple[str, ...]) -> Outcome:
    """Go through the stages of a file; later ones are skipped when it cannot be read."""
    outcome: Outcome = {}
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
    if "printed" in stages:
        attempt("printed", lambda: _round_trip(module))
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


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]


def _round_trip(module: Any) -> None:
    text = module.to_text()
    again = hloopt.parse(text, module.name)
    difference = graph_difference(module, again)
    if difference:
        raise AssertionError(f"the printed text reads as another module: {difference}")
    if again.to_text() != text:
        raise AssertionError("printing again gives another text")
    canonical = module.to_text(canonical=True)
    again = hloopt.parse(canonical, module.name)
    if fingerprint(again) != fingerprint(module) or again.to_text(canonical=True) != canonical:
        raise AssertionError("the canonical text reads as another module")


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
