"""Selectors, which pick one of several candidates.

A selector is a function of the instruction, the candidates in order of preference (``hloopt kernels --list``)
and the target.  It returns the name of a kernel, a pair of name and tile, or ``"default"``, which leaves it to
the rules.  ``rules`` and ``cost`` are hloopt's own; ``--kernel module:function`` loads one of the user's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from hloopt.errors import UsageError
from hloopt.ir import Instruction
from hloopt.kernels.selection.candidate import Candidate
from hloopt.kernels.spec import Tile
from hloopt.rewrite.spec import did_you_mean
from hloopt.targets import Target
from hloopt.user_code import error_text, load_function, user_line

__all__ = ["Answer", "Selector", "ask", "find_selector", "load_rule", "pick"]

Answer: TypeAlias = "str | tuple[str, Tile]"
Selector: TypeAlias = Callable[[Instruction, Sequence[Candidate], Target], Any]


def pick(able: Sequence[Candidate]) -> tuple[Candidate, str]:
    """What the rules pick of candidates that all fit, and why."""
    for candidate in able:
        if candidate.wanted:
            return candidate, candidate.wanted.reason or "the first that fits and is wanted"
    if len(able) == 1:
        return able[0], "the only one that fits"
    return _cheapest(able), "none is wanted; the cheapest that fits, by estimate"


def _rules(instruction: Instruction, found: Sequence[Candidate], target: Target) -> Answer:
    """The first in order of preference that fits and is wanted, else the cheapest that fits."""
    return "default"


def _cost(instruction: Instruction, found: Sequence[Candidate], target: Target) -> Answer:
    """The cheapest that fits, by estimate."""
    return _cheapest([candidate for candidate in found if candidate.ok]).name


def _cheapest(able: Sequence[Candidate]) -> Candidate:
    return min(able, key=lambda candidate: candidate.estimate.seconds)


_OWN: Final[Mapping[str, Selector]] = {"rules": _rules, "cost": _cost}
_LOADED: dict[str, Selector] = {}


def find_selector(name: str) -> Selector:
    """The selector of a name.

    Raises ``UsageError`` where there is none: a name of the form ``module:function`` is known once
    ``load_rule`` has loaded it.
    """
    found = _OWN.get(name) or _LOADED.get(name)
    if found is not None:
        return found
    if ":" in name:
        raise UsageError(f"'{name}' is not loaded: the option --kernel {name} does that")
    raise UsageError(f"no selector is called '{name}'" + did_you_mean(name, _OWN))


def load_rule(text: str) -> str:
    """Import what ``module:function`` or ``FILE.py:function`` names and make it known by that text.

    Raises ``UsageError``.
    """
    _LOADED[text] = load_function(text, "--kernel")
    return text


def ask(
    name: str, instruction: Instruction, found: Sequence[Candidate], target: Target
) -> tuple[str, Tile] | None:
    """What a selector returns: a kernel and its choice of tile; None for the default.

    Raises ``UsageError`` when it fails, naming its line, or returns something else.
    """
    selector = find_selector(name)
    try:
        answer: Any = selector(instruction, found, target)
    except Exception as error:
        raise UsageError(
            f"{name} failed on %{instruction.name}{user_line(error)}: {error_text(error)}"
        ) from error
    kernel, tile = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, {})
    if (
        not isinstance(kernel, str)
        or not isinstance(tile, Mapping)
        or not all(isinstance(key, str) and type(value) is int for key, value in tile.items())
    ):
        raise UsageError(
            f"{name} answers {answer!r} for %{instruction.name}: "
            "a name, a pair (name, {'parameter': integer}) or 'default' is wanted"
        )
    return None if kernel == "default" else (kernel, tile)
