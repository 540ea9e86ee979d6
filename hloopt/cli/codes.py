"""What ``hloopt help CODE`` prints: reasons of refusals, constraints, kinds of findings, errors, exit codes.

Every text is made from the table that has the code, so that each says what the program does.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping
from functools import partial
from textwrap import fill, indent
from typing import Any, cast

from hloopt import errors
from hloopt.errors import HlooptError
from hloopt.findings.kinds import KINDS, FindingKind, kind_examples
from hloopt.fusion import remedies
from hloopt.fusion.decision import REASONS
from hloopt.fusion.strategies import STRATEGIES
from hloopt.pipelines import PASSES
from hloopt.verifier import RULES

__all__ = ["codes", "exit_codes"]

_WIDTH = 79
_FIELDS = {
    "limit": "LIMIT",
    "actual": "ACTUAL",
    "words": "(what)",
    "fused:.3f": "FUSED",
    "unfused:.3f": "APART",
}
_EXITS = re.compile(r"^ *(\d+)  (\S.*)$", re.MULTILINE)


def codes(help_text: str) -> Mapping[str, Callable[[], str]]:
    """What makes the text of each code; ``help_text`` is the topic of the exit codes."""
    exits = exit_codes(help_text)
    found: dict[str, Callable[[], str]] = {}
    found |= {code: partial(_refusal, code) for code in REASONS}
    found |= {rule: partial(_constraint, rule) for rule in RULES}
    found |= {kind.name: partial(_finding, kind) for kind in KINDS}
    found |= {name: partial(_error, name, exits) for name in errors.__all__}
    found |= {code: partial(_page, f"Exit code {code}: {exits[code]}.") for code in exits}
    return found


def exit_codes(help_text: str) -> dict[str, str]:
    """What each exit code means."""
    return dict(_EXITS.findall(help_text))


def _refusal(code: str) -> str:
    reason = re.sub(r"\{([^}]*)\}", lambda field: _FIELDS[field[1]], REASONS[code])
    parts = [
        f"{code}: a reason why two instructions are not fused.",
        _sentence(reason),
        *_ways(code),
    ]
    parts.append("hloopt explain FILE A B has the figures for two instructions of a module.")
    return _page(*parts)


def _ways(code: str) -> list[str]:
    """What can be done about a refusal."""
    advice = remedies.loop_advice(code)
    found = [f"What a program can change: {advice}."] if advice else []
    options = [
        f"{name}{{{remedy.option}=N}}"
        for remedy in remedies.OPTIONS.get(code, ())
        for name in sorted(STRATEGIES)
        if any(
            field.name == remedy.option for field in dataclasses.fields(cast("Any", PASSES[name]))
        )
    ]
    if options:
        found.append("The pass that refused has an option for it: " + ", ".join(options))
    if code in remedies.HELD:
        found.append(f"Fusion rules and lock files do not change it: {remedies.why_held(code)}.")
    elif code != "advised":
        found.append(
            "A fusion rule (--fusion-rule) or a [[fuse]] line of a lock file can ask for the fusion all the "
            "same; hloopt explain FILE A B prints that line."
        )
    return found


def _constraint(rule: str) -> str:
    return _page(
        f"{rule}: a constraint that every module has to meet.",
        _sentence(RULES[rule]),
        f"A module that does not is refused with exit code 3 and [{rule}] in the message, which has the line "
        "and the column. hloopt check FILE lists all offences; hloopt check --rules lists all constraints.",
    )


def _finding(kind: FindingKind) -> str:
    name, example = kind.name, kind_examples()[kind.name]
    return "\n".join((
        _page(
            f"{name}: a kind of finding of hloopt why.",
            f"{_sentence(kind.title)} The change that is proposed makes less of: {kind.measure}.",
            f"hloopt why FILE --kind {name} looks for this kind only. A module in which it is found:",
        ),
        indent(example.example.strip(), "  ") + "\n",
        "One much like it, in which it is not:\n",
        indent(example.counterexample.strip(), "  ") + "\n",
    ))  # fmt: skip


def _error(name: str, exits: Mapping[str, str]) -> str:
    kind: type[HlooptError] = getattr(errors, name)
    about = inspect.getdoc(kind) or ""
    parts = [" ".join(part.replace("``", "").split()) for part in about.split("\n\n")]
    bases = [base.__name__ for base in kind.__mro__[1:] if issubclass(base, HlooptError)]
    if bases:
        code = kind.exit_code
        parts.append(
            f"Exit code {code}: {exits[str(code)]}. In Python it is a {', a '.join(bases)}."
        )
    else:
        parts.append(
            "All errors that hloopt raises on purpose are of this class, each kind with its exit code."
        )
    return _page(f"{name}: an error of hloopt.", *parts)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _page(*paragraphs: str) -> str:
    return "\n\n".join(fill(part, _WIDTH, break_on_hyphens=False) for part in paragraphs) + "\n"
