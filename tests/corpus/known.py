"""What is known not to hold, as rules: an opcode, type or form with its reason.

The corpus tier counts a file under ``excused`` when a rule covers its failure.  No rule names a file, and
none can match one: rules are held against what is said after ``file:line:col: error:``.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RULES", "Rule", "excuse"]


@dataclass(frozen=True)
class Rule:
    """A failure of one of ``stages`` whose message contains ``message`` is known, for ``reason``."""

    stages: tuple[str, ...]
    message: str
    reason: str


RUNS = ("evaluated", "excess", "ran", "evaluated_o2", "ran_o2")

RULES: tuple[Rule, ...] = (
    Rule(
        RUNS,
        "the value of this constant is left out of the text",
        "the constant was elided when the text was dumped: refused by name and line",
    ),
    Rule(RUNS, "custom call to __cublas", "library calls of GPU dumps are not evaluated"),
    Rule(RUNS, "custom call to __cudnn", "library calls of GPU dumps are not evaluated"),
    Rule(
        RUNS,
        "not so with reciprocals",
        "XLA multiplies by the reciprocal of a constant divisor, which rounds twice; in a loop that compares "
        "what it carries, one ULP chooses another branch",
    ),
)


def excuse(stage: str, message: str) -> str:
    """The reason of the rule that covers a failure, or an empty string."""
    _, located, said = message.partition(": error: ")
    said = said if located else message
    for rule in RULES:
        if stage in rule.stages and rule.message in said:
            return rule.reason
    return ""
