"""The tables of ``hloopt compare``: the results of each trial, and the first value that differs."""

from __future__ import annotations

from math import prod
from typing import Final

from rich.console import Console

from hloopt.numbers import error
from hloopt.prover.compare import ModulesCompared, TrialCompared
from hloopt.prover.equivalence import Equivalence
from hloopt.prover.first_difference import FirstDifference, OperandPair, Site
from hloopt.report.console import say, table

__all__ = ["difference_lines", "show_compared"]

_VERDICTS: Final = {
    "differ": "the modules differ",
    "equal": "the modules give equal results",
    "within tolerance": "the modules give equal results within what is allowed",
    "not verified": "what rounding allows is not known",
    "nothing verified": "no result has a finite number: nothing is verified",
}
_MOST = 20
"""Results of a trial that are listed."""
_MOST_GIVEN: Final = 32
"""Elements of the inputs of a counterexample that are printed."""
_EQUIVALENT: Final = {
    "proved": "proved equal",
    "refuted": "not equal",
    "not known": "not known to be equal",
}


def show_compared(found: ModulesCompared, console: Console) -> None:
    """Print the results of the trial that differs, or how many are equal; and where modules begin to differ."""
    for word, name in zip(("before", "after "), found.names, strict=True):
        say(console, f"{word}  ", (name, "bold"))
    say(console, f"on {found.device}")
    *quiet, last = found.trials
    if quiet or last.verdict != "differ":
        shown = found.trials if last.verdict != "differ" else quiet
        origins = "; ".join(trial.inputs for trial in shown[:4])
        more = f" and {len(shown) - 4} more" if len(shown) > 4 else ""
        words = sorted({trial.verdict for trial in shown})
        say(console, f"{' or '.join(words)}: {origins}{more}")
    if last.verdict == "differ":
        _show_results(last, prod(found.counts), console)
    for note in found.notes:
        say(console, ("note", "yellow"), f" {note}")
    if found.first is not None:
        say(console, "")
        for line in difference_lines(found.first):
            say(console, line)
    colour = "green" if found.equal else "red"
    say(console, (_VERDICTS[found.verdict], colour), _on_trials(found))


def _on_trials(found: ModulesCompared) -> str:
    """Which of the trials differs, or how many there were and what was left out."""
    count = len(found.trials)
    if found.verdict == "differ":
        return f" on the last of {count} trials: {found.trials[-1].inputs}" if count > 1 else ""
    text = f" on {count} trial{'s' * (count > 1)}"
    if found.untried:
        text += f"; not tried: {', '.join(found.untried)} (--special all)"
    return text


def _show_results(trial: TrialCompared, participants: int, console: Console) -> None:
    say(console, f"inputs: {trial.inputs}")
    made = table("result", "type", "differ", "of", "worst at", "before", "after", "allowed", left=2)
    count = len(trial.results) // participants
    rows = [
        (f"{at % count}" + (f", participant {at // count}" if participants > 1 else ""), one)
        for at, one in enumerate(trial.results)
    ]
    rows += [(name, one) for name, one in trial.written]
    shown = [row for row in rows if not row[1].passed] if len(rows) > _MOST else rows
    for name, one in shown[:_MOST]:
        where = f"[{','.join(map(str, one.where))}]" if not one.passed and one.where else ""
        values = ("", "") if one.passed else (one.want, one.got)
        allowed = "" if one.passed else error(one.allowed)
        made.add_row(
            name, one.dtype, f"{one.mismatches:,}", f"{one.elements:,}", where, *values, allowed
        )
    console.print(made)
    if len(rows) > len(shown[:_MOST]):
        say(console, f"and {len(rows) - len(shown[:_MOST])} more results")


def difference_lines(first: FirstDifference) -> list[str]:
    """The first value that differs, as lines of text."""
    lines = ["first value that differs:"]
    for side, site in (("before", first.before), ("after", first.after)):
        lines.append(
            f"  {side:6}  {_site(site)}" if site else f"  {side:6}  nothing corresponds to it"
        )
        lines += [f"          {text}" for text in _about(site)] if site else []
    at = "" if first.index is None else f"[{','.join(map(str, first.index))}]"
    if first.want or first.got:
        what = f"element {at}" if at not in ("", "[]") else "value"
        count = f"; {first.mismatches:,} of {first.elements:,} differ" if first.elements > 1 else ""
        lines.append(f"  {what}: {first.want} before, {first.got} after{count}")
    if first.trips is not None:
        lines.append(
            f"  the loop runs {first.trips[0]:,} iterations before, {first.trips[1]:,} after"
        )
    for pair in first.operands:
        lines += _operand(pair)
    if first.alone:
        lines.append(f"  only computed after: {', '.join(_short(site) for site in first.alone)}")
    same = first.before is not None and first.before.opcode == first.after.opcode
    if first.missing and not (same and first.operands):
        lines.append(
            f"  read before and not after: {', '.join(_short(site) for site in first.missing)}"
        )
    elif first.lost and not same:
        lines.append(f"  only computed before: {', '.join(_short(site) for site in first.lost)}")
    if first.cause is None:
        lines += ["  no known rule explains it"] if first.operands else []
    else:
        cause = first.cause
        lines += [f"  explained by: {cause.name}", f"    {cause.sentence}", f"    {cause.evidence}"]
    return lines


def _site(site: Site) -> str:
    return f"%{site.name} = {site.shape} {site.opcode}"


def _short(site: Site) -> str:
    return f"%{site.name} ({site.opcode})"


def _about(site: Site) -> list[str]:
    """Where an instruction is: in the text, in the user's program, in which calls."""
    program = ", ".join(part for part in (site.user, site.op_name) if part)
    return [
        text for text in (site.place, program, f"in {site.inside}" if site.inside else "") if text
    ]


def _operand(pair: OperandPair) -> list[str]:
    head = f"  operand {pair.number}"
    left, right = (
        f"%{name}[{','.join(map(str, index))}]" if name and index else f"%{name}" if name else ""
        for name, index in ((pair.before, pair.index_before), (pair.after, pair.index))
    )
    if pair.agree and pair.want == pair.got:
        names = left if pair.before == pair.after else f"{left} and {right}"
        return [f"{head}: {names}: {pair.got}, agrees"]
    lines = [f"{head}" + ("" if pair.agree is None else ": agrees" if pair.agree else ": differs")]
    lines += [f"    before  {left}: {pair.want}"] if left else []
    lines += [f"    after   {right}: {pair.got}"] if right else []
    return lines


def show_equivalence(
    answer: Equivalence, console: Console, names: tuple[str, str] = ("before", "after")
) -> None:
    """Print the verdict; of a counterexample the element, both values, and inputs that are small."""
    why = answer.reason or answer.how
    say(console, f"{names[0]}, {names[1]}: {_EQUIVALENT[answer.verdict]}: {why}")
    found = answer.counterexample
    if found is None:
        return
    place = f"[{','.join(map(str, found.index))}]" if found.index else ""
    for name, value in zip(names, found.values, strict=True):
        say(console, f"  result {found.output}{place} of {name}: {value}")
    if found.rounding:
        say(console, "  The difference is within what rounding allows.")
    arrays = found.arrays()
    if sum(array.size for array in arrays.values()) <= _MOST_GIVEN:
        for name, array in arrays.items():
            say(console, f"  {name} = {array.tolist()}")
