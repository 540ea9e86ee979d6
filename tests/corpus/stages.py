"""What is asked of one file of the corpus: each stage names the step that must hold.

parsed      the text is read
printed     printing and reading again gives the same module and the same text
verified    the verifier finds nothing
optimised   O2 gives a valid module (and text that reads back)
evaluated   the interpreter gives the recorded outputs, rounding after every op
excess      ... and in the mode in which bf16/f16 chains keep f32
ran         the executor gives the recorded outputs
ran_o2      ... and does so from the module O2 made
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hloopt
from hloopt.errors import HlooptError, UnsupportedError
from hloopt.ir import fingerprint
from support import Recorded, mismatch, recorded

TEXT_STAGES = ("parsed", "printed", "verified", "optimised")
RESULT_STAGES = ("evaluated", "excess", "ran", "ran_o2")

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
        attempt("evaluated", lambda: _agree(hloopt.evaluate(module, record.inputs), record))
        attempt(
            "excess",
            lambda: _agree(hloopt.evaluate(module, record.inputs, excess_precision=True), record),
        )
        attempt("ran", lambda: _agree(hloopt.compile(module).run(record.inputs), record))
        if better is not None:
            attempt("ran_o2", lambda: _agree(hloopt.compile(better).run(record.inputs), record))
    return outcome


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]


def _round_trip(module: Any) -> None:
    text = module.to_text()
    again = hloopt.parse(text, module.name)
    if fingerprint(again) != fingerprint(module):
        raise AssertionError("the printed text reads as another module")
    if again.to_text() != text:
        raise AssertionError("printing again gives another text")


def _optimised(module: Any) -> Any:
    better = hloopt.optimize(module, "O2")
    hloopt.verify(better)
    hloopt.parse(better.to_text(), "optimised")
    return better


def _agree(got: list[Any], record: Recorded) -> None:
    difference = mismatch(got, record)
    if difference:
        raise AssertionError(difference)
