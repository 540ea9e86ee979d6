"""Where rules apply and where they must not: what documentation shows of them, and tests put them to."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from hloopt.dataclass import dataclass

__all__ = ["RuleExample", "rule_examples", "whole_module"]


@dataclass(frozen=True, slots=True)
class RuleExample:
    """Two texts for a rule, in which ``$T`` is each of ``types`` in turn, and ``$0`` its zero.

    example         instructions of an entry computation in which the rule applies.  A text that begins
                    with ``HloModule`` is a whole module
    counterexample  the same, where it must not apply
    """

    example: str
    counterexample: str
    types: tuple[str, ...] = ("f32",)


def whole_module(text: str, element: str) -> str:
    """An example or counterexample as the text of a module: ``$T`` is ``element``, ``$0`` its zero."""
    if not text.startswith("HloModule"):
        text = f"HloModule m\nENTRY e {{\n{text}\n}}\n"
    return text.replace("$T", element).replace("$0", "false" if element == "pred" else "0")


@cache
def rule_examples() -> Mapping[str, RuleExample]:
    """The examples of all rules of ``passes/``, by their equations."""
    return {
        name: RuleExample(row["example"], row["counterexample"], tuple(row.get("types", ("f32",))))
        for path in sorted(Path(__file__).parent.glob("*.toml"))
        for name, row in tomllib.loads(path.read_text()).items()
    }
