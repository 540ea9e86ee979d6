"""A broken constraint and its valid neighbour: two texts that differ in one place."""

from __future__ import annotations

from dataclasses import dataclass

import hloopt
from hloopt.verifier import RULES, violations

__all__ = ["Pair", "check_pair"]


@dataclass(frozen=True)
class Pair:
    """``text`` holds ``<>`` (once or more) where ``good`` is valid and ``bad`` breaks ``rule``.

    ``message`` is all that is said, ``line`` where (of ``text`` without the newlines around it; 0 for the
    module itself, whose errors stand at its beginning).
    """

    name: str
    rule: str
    text: str
    good: str
    bad: str
    line: int
    message: str


def check_pair(pair: Pair) -> None:
    """The neighbour is valid, and the broken text has this one offence at this place."""
    assert pair.rule in RULES
    text = pair.text.strip("\n")
    assert "<>" in text
    assert pair.good != pair.bad
    good = hloopt.parse(text.replace("<>", pair.good), "good")
    said = [str(error) for error in violations(good)]
    assert said == [], said
    bad = hloopt.parse(text.replace("<>", pair.bad), "bad")
    errors = list(violations(bad))
    wanted = [(pair.message, pair.rule, max(pair.line, 1))]
    found = [(error.message, error.rule, error.line) for error in errors]
    assert found == wanted, found
    first = str(errors[0]).splitlines()[0]
    place = f"bad:{errors[0].line}:{errors[0].column}"
    assert first == f"{place}: error: {pair.message} [{pair.rule}]", first
