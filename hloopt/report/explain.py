"""Why an instruction has the kernel it has: the candidates, the limits that ruled them out, what each costs."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from hloopt.kernels.costs import KernelCost, KernelCosts
from hloopt.kernels.kernel import Verdict
from hloopt.kernels.limits import Limits
from hloopt.kernels.selection import Choice
from hloopt.kernels.selection.candidate import Candidate
from hloopt.kernels.selection.requests import tile_text
from hloopt.numbers import amount, byte_size, seconds
from hloopt.report.console import say, table
from hloopt.report.kernels import choice_json, estimate_json, launch_text

__all__ = ["explanation_json", "options_that_matter", "show_explanation", "show_summary", "summary"]

_FIGURE = re.compile(r"\b\d{2,}|[=x]\d")
_WORD = re.compile(r"[a-z][a-z0-9_]*")


def options_that_matter(verdict: Verdict) -> tuple[str, ...]:
    """The options of kernel-selection that would change a verdict: those it names, in words too."""
    names = {field.name for field in dataclasses.fields(Limits)}
    said = [verdict.option, *_WORD.findall(verdict.reason)]
    return tuple(dict.fromkeys(name for name in said if name in names))


def explanation_json(choice: Choice, cost: KernelCost | None, limits: Limits) -> dict[str, Any]:
    """A choice with its candidates, as JSON values."""
    return {
        **choice_json(choice, cost),
        "candidates": [_candidate_json(candidate, limits) for candidate in choice.candidates],
    }


def _candidate_json(candidate: Candidate, limits: Limits) -> dict[str, Any]:
    wanted = candidate.wanted if candidate.ok else None
    options = dict.fromkeys(
        (*options_that_matter(candidate.fits), *(options_that_matter(wanted) if wanted else ()))
    )
    return {
        "kernel": candidate.name,
        "fits": candidate.fits.ok,
        "reason": candidate.fits.reason,
        "wanted": wanted.ok if wanted is not None else None,
        "wanted_reason": wanted.reason if wanted is not None else "",
        "tile": dict(candidate.tile) if candidate.ok else {},
        "estimate": estimate_json(candidate.estimate if candidate.ok else None),
        "options": {name: getattr(limits, name) for name in options},
    }


def show_explanation(
    choice: Choice,
    cost: KernelCost | None,
    limits: Limits,
    console: Console,
    *,
    every: bool = False,
) -> None:
    """Everything about one instruction's kernel; ``every`` candidate, those for other opcodes included."""
    kernel = choice.kernel + tile_text(choice.tile) if choice.kernel else "no kernel fits"
    say(console, (f"%{choice.instruction}", "bold"), f" = {choice.shape} {choice.opcode}")
    facts = table("", "", left=2)
    facts.show_header = False
    facts.columns[0].no_wrap = True
    for name, value in _facts(choice, cost, kernel):
        facts.add_row(name, value)
    console.print(facts)
    console.print()
    made = table("candidate", "verdict", "bytes", "flops", "estimate", left=2, below="verdict")
    for candidate in choice.candidates:
        if candidate.fits:
            made.add_row(*_row(candidate, choice))
    others: list[str] = []
    for names, reason in _refused(choice):
        if every or not choice.kernel or _has_figure(reason, choice):
            made.add_row(names, f"does not fit: {reason}", "", "", "")
        else:
            others.append(names)
    console.print(made)
    if others:
        console.print(Text(f"for other instructions (--all says why): {', '.join(others)}"))
    hints = list(_hints(choice, limits))
    if hints:
        console.print()
        for hint in hints:
            say(console, hint)


def _facts(choice: Choice, cost: KernelCost | None, kernel: str) -> Iterator[tuple[str, str]]:
    yield "where", f"{choice.place}, in {choice.computation}"
    if choice.lines:
        yield "from", ", ".join(choice.lines)
    yield "kernel", kernel
    if choice.source:
        yield "decided by", choice.source
    yield "because", choice.reason
    if choice.spec is not None:
        yield "launch", launch_text(choice.spec)
    if choice.kernel and cost is not None and cost.prediction is not None:
        moved = (
            f"{byte_size(cost.cost.bytes_read)} read, {byte_size(cost.cost.bytes_written)} written"
        )
        found = cost.prediction
        many = f" a launch, {cost.launches_text} launches" if cost.launches != 1 else ""
        figures = f"{moved}, {amount(cost.cost.flops)} flops, by {found.by}"
        yield "predicted", f"{seconds(found.seconds)}{many}: {figures}"
    if choice.estimate is not None:
        own = "of this kernel and tile, to compare the candidates below"
        yield "estimate", f"{seconds(choice.estimate.seconds)} {own}"
        if choice.estimate.note:
            yield "assumed", choice.estimate.note


def _row(candidate: Candidate, choice: Choice) -> tuple[str, ...]:
    cost = candidate.estimate
    figures = byte_size(cost.bytes_accessed), amount(cost.flops), seconds(cost.seconds)
    return candidate.name, _verdict(candidate, choice), *figures


def _verdict(candidate: Candidate, choice: Choice) -> str:
    """What came of a candidate that fits, in words."""
    wanted = candidate.wanted
    said = "chosen" if candidate.name == choice.kernel else "fits"
    word = "wanted" if wanted else "not wanted"
    return f"{said}; {word}: {wanted.reason}" if wanted.reason else f"{said}; {word}"


def _refused(choice: Choice) -> list[tuple[str, str]]:
    """Names of candidates that do not fit, those that say the same together, with the reason.

    First those whose reason has a figure: they came nearest.
    """
    found: dict[str, list[str]] = {}
    for candidate in choice.candidates:
        if not candidate.fits:
            found.setdefault(candidate.fits.reason, []).append(candidate.name)
    rows = [(", ".join(names), reason) for reason, names in found.items()]
    return sorted(rows, key=lambda row: not _has_figure(row[1], choice))


def _has_figure(reason: str, choice: Choice) -> bool:
    """Whether a candidate came so near that a figure ruled it out."""
    return _FIGURE.search(reason.replace(choice.instruction, "")) is not None


def _hints(choice: Choice, limits: Limits) -> Iterator[str]:
    """What a user can do about it."""
    for candidate in choice.candidates:
        if candidate.fits and candidate.name != choice.kernel:
            yield f"--kernel '{choice.instruction}={candidate.name}' runs it by {candidate.name}"
    shown: set[str] = set()
    for candidate in choice.candidates:
        verdict = candidate.wanted if candidate.ok else candidate.fits
        for name in () if verdict else options_that_matter(verdict):
            if name not in shown:
                shown.add(name)
                yield f"kernel-selection{{{name}=...}}, now {getattr(limits, name)}, would change it"


def summary(choices: Sequence[Choice], costs: KernelCosts) -> list[dict[str, Any]]:
    """How many instructions each kernel runs, and why, as JSON values; the most frequent first.

    ``seconds`` are predicted, of all launches.
    """
    counts: Counter[tuple[str, str, str, str]] = Counter()
    spent: Counter[tuple[str, str, str, str]] = Counter()
    first: dict[tuple[str, str, str, str], str] = {}
    for choice in choices:
        reason = choice.reason if choice.kernel else _refusals(choice)
        key = (choice.opcode, choice.kernel, choice.source, reason)
        counts[key] += 1
        cost = costs.get((choice.computation, choice.instruction))
        spent[key] += cost.seconds if cost is not None else 0  # type: ignore[assignment]
        first.setdefault(key, choice.instruction)
    return [
        {
            "opcode": key[0],
            "kernel": key[1] or None,
            "by": key[2],
            "reason": key[3],
            "count": count,
            "seconds": spent[key],
            "first": first[key],
        }
        for key, count in counts.most_common()
    ]


def _refusals(choice: Choice) -> str:
    reasons = Counter(candidate.fits.reason for candidate in choice.candidates)
    return "; ".join(reason for reason, _ in reasons.most_common(3)) or "no kernel"


def show_summary(choices: Sequence[Choice], costs: KernelCosts, console: Console) -> None:
    """A row for each opcode, kernel and reason."""
    made = table(
        *("opcode", "kernel", "because", "first", "count", "predicted"),
        left=4,
        below=("because", "first"),
    )
    for row in summary(choices, costs):
        kernel = row["kernel"] or "none fits"
        by = "" if row["by"] in ("", "rules") else f" ({row['by']})"
        spent = seconds(row["seconds"]) if row["kernel"] else ""
        made.add_row(
            row["opcode"], kernel, row["reason"] + by, row["first"], str(row["count"]), spent
        )
    console.print(made)
