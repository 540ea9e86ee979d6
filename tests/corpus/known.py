"""What is known not to hold, as rules: an opcode, type or form with its reason.

The corpus tier counts a file under ``excused`` when a rule covers its failure.  No rule names a file.
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


RUNS = ("evaluated", "excess", "ran", "ran_o2")

RULES: tuple[Rule, ...] = (
    Rule(RUNS, "elided", "the text does not hold the constant's value: refused by name and line"),
    Rule(RUNS, "__cublas", "library calls of GPU dumps are not evaluated"),
    Rule(
        RUNS,
        "not so with reciprocals",
        "XLA multiplies by the reciprocal of a constant divisor, which rounds twice; in a loop that compares "
        "what it carries, one ULP chooses another branch",
    ),
    Rule(RUNS, "__cudnn", "library calls of GPU dumps are not evaluated"),
)


def excuse(stage: str, message: str) -> str:
    """The reason of the rule that covers a failure, or an empty string."""
    for rule in RULES:
        if stage in rule.stages and rule.message in message:
            return rule.reason
    return ""
