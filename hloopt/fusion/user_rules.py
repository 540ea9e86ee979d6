"""Functions of a user that say what is fused with what.

A rule gets the producer and the consumer, each an op or a fusion (``Instruction``), and answers true, false,
None where it leaves the pair to others, or a pair of true or false and the reason::

    def keep_softmax_apart(producer, consumer):
        if producer.opcode == "exponential":
            return False, "softmax is measured on its own"

For whether a loop becomes one kernel it is called with the ``while`` as producer and as consumer.

It is named on the command line (``--fusion-rule module:function`` or ``FILE.py:function``), or comes from an
installed distribution (entry point group ``hloopt.fusion``), whose rules are called last, in the order of
their names.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.fusion.decision import Decision
from hloopt.ir import Instruction
from hloopt.rewrite.plugins import entry_points_of
from hloopt.user_code import error_text, load_function, user_line

__all__ = [
    "GROUP",
    "FusionRule",
    "UserRule",
    "installed_rules",
    "load_rule",
    "rule_names",
    "rule_of",
]

GROUP = "hloopt.fusion"
"""The entry point group: each entry point is named as lists show its rule."""

FusionRule: TypeAlias = Callable[[Instruction, Instruction], Any]


@dataclass(frozen=True)
class UserRule:
    """A function with the name that messages call it by."""

    label: str
    function: FusionRule

    def advise(self, producer: Instruction, consumer: Instruction) -> Decision | None:
        """The function's answer about a pair.

        Raises ``UsageError`` when it fails, naming its line, or answers something else.
        """
        try:
            answer = self.function(producer, consumer)
        except Exception as error:
            raise UsageError(
                f"{self.label} failed on %{producer.name} into %{consumer.name}{user_line(error)}: "
                f"{error_text(error)}"
            ) from error
        if answer is None:
            return None
        wanted, reason = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, "")
        if not isinstance(wanted, bool) or not isinstance(reason, str):
            raise UsageError(
                f"{self.label} answers {answer!r} for %{producer.name} into %{consumer.name}: "
                "True, False, None or a pair (True, 'reason') is wanted"
            )
        words = f"{reason} ({self.label})" if reason else self.label
        return Decision(wanted, "advised", words=words)


def load_rule(text: str) -> UserRule:
    """The rule that ``module:function`` or ``FILE.py:function`` names.  Raises ``UsageError``."""
    return UserRule(text, load_function(text, "--fusion-rule"))


def rule_of(function: FusionRule) -> UserRule:
    """The rule of a function object, under its name.  Raises ``UsageError`` for other objects."""
    if not callable(function):
        raise UsageError(f"a fusion rule is a function, not {function!r}")
    module = getattr(function, "__module__", "")
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return UserRule(f"{module}:{name}" if module else name, function)


def rule_names() -> tuple[str, ...]:
    """The names of the installed rules; nothing is imported."""
    return tuple(sorted({entry.name for entry in entry_points_of(GROUP)}))


@cache
def installed_rules() -> tuple[UserRule, ...]:
    """All installed rules.  Raises ``UsageError`` for one that cannot be loaded, or is not a function."""
    found = []
    for entry in sorted(entry_points_of(GROUP), key=lambda entry: entry.name):
        where = f"the entry point '{entry.name}' of {GROUP}"
        try:
            loaded = entry.load()
        except (Exception, SystemExit) as error:
            raise UsageError(
                f"{where} cannot be loaded{user_line(error)}: {error_text(error)}"
            ) from error
        if not callable(loaded):
            raise UsageError(f"{where} is not a function")
        found.append(UserRule(entry.name, loaded))
    return tuple(found)
