"""The paragraphs of ``hloopt why BEFORE AFTER``: where modules lose time, and what was decided otherwise."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from textwrap import fill
from typing import Any, Final

from rich.console import Console

from hloopt.analysis.decision_kind import DecisionKind
from hloopt.analysis.differences import Difference
from hloopt.analysis.parting import Parting, PassResult
from hloopt.fusion.log_differences import StepPair
from hloopt.ir import Instruction
from hloopt.numbers import seconds
from hloopt.report.console import paragraph, say
from hloopt.report.diff_dumps import lost_seconds, where_lost
from hloopt.report.parted import FirstDecision, FusedPair, PairParted, PlansParted
from hloopt.report.xla_facts import moment_facts
from hloopt.report.xla_history import last_word
from hloopt.spelling import first_of

__all__ = ["show_parted"]

_WIDTH: Final = 80
_INDENT: Final = "   "
_MOST: Final = 3
"""Changes of one pass that are told."""
_LONGEST: Final = 160
"""Characters of a text of HLO that are told."""
_CAUSES: Final[dict[DecisionKind, str]] = {
    "program": "the programs differ before any pass",
    "rewriting": "a rewriting",
    "layout": "a layout",
    "library call": "a library call",
    "copy": "a copy",
    "fusion": "a fusion",
    "kernel": "how a kernel is configured",
    "order": "the order of instructions",
}


def show_parted(found: PlansParted, console: Console) -> None:
    """Print the whole, then a paragraph for each pair of modules that differs."""
    width = min(console.width, _WIDTH)
    sums = found.modules.sums
    if len(found.modules.pairs) > 1:
        times = _times(sums[0].get("time", 0.0), sums[1].get("time", 0.0))
        paragraph(console, f"all {len(found.modules.pairs)} modules: {times}", width)
    paragraph(console, f"predicted on {found.target} by {found.cost_model}", width)
    for number, row in enumerate(found.rows, 1):
        console.print()
        _show(number, row, console, width)
    equal = sum(pair[2].equal for pair in found.modules.pairs)
    if not found.modules.pairs:
        paragraph(console, "no module of one side belongs to one of the other", width)
    elif equal == len(found.modules.pairs):
        paragraph(console, "the modules are equal", width)
    elif equal:
        paragraph(
            console, f"- {equal} other {'modules are' if equal > 1 else 'module is'} equal", width
        )
    if found.left:
        paragraph(console, f"- {found.left} more differ and lose less (-n looks into more)", width)
    for side, alone in (("before", found.modules.before), ("after", found.modules.after)):
        for one in alone:
            say(console, f"- only {side}: {one.module.name}, {one.file}")


def _show(number: int, row: PairParted, console: Console, width: int) -> None:
    before, after = row.difference.totals
    times = _times(before.seconds or 0.0, after.seconds or 0.0)
    kernels = f"{before.kernels} -> {after.kernels} kernels"
    head = fill(
        f"{number}. {row.before.module.name}: {times}, {kernels}",
        width,
        subsequent_indent=_INDENT,
        break_on_hyphens=False,
    )
    say(console, (head, "bold"))
    if lost_seconds(row.difference) > 0:
        paragraph(console, where_lost(row.difference), width, _INDENT)
    for text in _sentences(row):
        paragraph(console, text, width, _INDENT)


def _times(before: float, after: float) -> str:
    change = after - before
    if abs(change) <= 1e-3 * max(before, after):
        return f"{seconds(before)} -> {seconds(after)}"
    share = f", {change / before:+.1%}" if before else ""
    word = "longer" if change > 0 else "less"
    return f"{seconds(before)} -> {seconds(after)} ({seconds(abs(change))} {word}{share})"


def _sentences(row: PairParted) -> Iterator[str]:
    for flag in row.flags[:_MOST]:
        yield f"flag {flag.subject}: {flag.old or 'not set'} before, {flag.new or 'not set'} after"
    if len(row.flags) > _MOST:
        yield f"and {len(row.flags) - _MOST} other flags"
    first = row.first
    if first is None:
        yield "no decision differs: the kernels are the same, or differ in names alone"
        return
    if first.parting is not None:
        yield from _parting_text(first, first.parting)
    else:
        yield f"first decision that differs, by the final modules: {_CAUSES[first.kind]}"
        yield from _changes(first.changes, ("before", "after"))
    if first.log is not None:
        yield from _log_text(first.log)
    if first.pair is not None:
        yield from _pair_text(first.pair)


def _parting_text(first: FirstDecision, parting: Parting) -> Iterator[str]:
    made = parting.before or parting.after
    assert made is not None, "one of the sides goes on"
    if parting.common is None:
        yield f"no decision comes first: {_CAUSES['program']}"
        yield from _changes(made.changes, ("before", "after"))
        return
    stage = (
        f"both are the same for {parting.common[0] + 1} of {parting.stages[0]} stages before and "
        f"{parting.common[1] + 1} of {parting.stages[1]} after"
    )
    yield f"first decision that differs: {_CAUSES[first.kind]}, by {_pass(made)}; {stage}"
    if parting.same_pass:
        told = first.log is not None or (first.kind == "fusion" and first.pair is not None)
        yield f"both run this pass, with different results{'' if told else ':'}"
        yield from () if told else _changes(made.changes, ("before", "after"))
    else:
        for side, one in (("before", parting.before), ("after", parting.after)):
            if one is not None:
                yield f"only {side}, {_pass(one)} makes:"
                yield from _changes(one.changes, ("from", "to"))
    for side, names in zip(("before", "after"), parting.alone, strict=True):
        own = {one.pass_name for one in (parting.before, parting.after) if one}
        rest = [name for name in names if name not in own]
        if rest:
            yield f"later, these passes change something {side} only: {first_of(rest, 5)}"
    if not parting.complete:
        yield "later stages were not read: the two may meet again there"


def _pass(made: PassResult) -> str:
    if not made.pass_name:
        return f"what happens before the pipeline {made.pipeline}"
    return f"{made.pass_name} (pipeline {made.pipeline})"


def _changes(changes: Sequence[Difference], sides: tuple[str, str]) -> Iterator[str]:
    """The first few differences: what a pass did, or what either side has."""
    ordered = sorted(changes, key=lambda one: (one.what in _LESS, not _line(one)))
    for one in ordered[:_MOST]:
        yield f"- {_change(one, sides)}"
    if len(changes) > _MOST:
        yield f"- and {len(changes) - _MOST} more differences"


_LESS: Final = frozenset({"computation", "operands", "root", "order", "backend_config"})
"""What differs in consequence of something else, mostly."""


def _change(one: Difference, sides: tuple[str, str]) -> str:
    entry = one.before or one.after
    place = f" at {_line(one)}" if _line(one) else ""
    name = f"%{entry.name}" if entry is not None else one.computation or "header"
    if one.what in {"instruction", "computation"}:
        text = _short(one.old or one.new)
        if sides[0] == "from":
            return f"{'removes' if one.old else 'makes'} {name} = {text}{place}"
        return f"only {sides[0] if one.old else sides[1]}: {name} = {text}{place}"
    if one.what == "backend_config":
        return f"{name}: {_config_change(one, sides)}{place}"
    old, new = _short(one.old or "none"), _short(one.new or "none")
    if sides[0] == "from":
        return f"{name}: {one.what} {old} -> {new}{place}"
    return f"{name}: {one.what} {old} {sides[0]}, {new} {sides[1]}{place}"


def _config_change(one: Difference, sides: tuple[str, str]) -> str:
    """What two configurations of one instruction have otherwise, key by key."""
    old, new = (_leaves(entry) for entry in (one.before, one.after))
    changed = [key for key in dict.fromkeys([*old, *new]) if old.get(key) != new.get(key)]
    words = "{} -> {}" if sides[0] == "from" else f"{{}} {sides[0]}, {{}} {sides[1]}"
    texts = [
        f"{key.rpartition('config.')[2]} {words.format(old.get(key, 'none'), new.get(key, 'none'))}"
        for key in changed[:_MOST]
    ]
    more = f" and {len(changed) - _MOST} more" if len(changed) > _MOST else ""
    return _short("; ".join(texts)) + more if texts else "backend_config"


def _leaves(entry: Instruction | None) -> dict[str, str]:
    """The values of a configuration, by their keys; its whole text where it is no JSON."""
    text = str(entry.attributes.get("backend_config", "")) if entry is not None else ""
    try:
        pending: list[tuple[str, Any]] = [("", json.loads(text))] if text else []
    except json.JSONDecodeError:
        return {"backend_config": _short(text)}
    found: dict[str, str] = {}
    while pending:
        key, value = pending.pop(0)
        if isinstance(value, dict):
            pending += [(f"{key}.{name}".strip("."), one) for name, one in value.items()]
        else:
            found[key] = json.dumps(value)
    return found


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _line(one: Difference) -> str:
    for entry in (one.before, one.after):
        module = entry.computation.module if entry and entry.computation is not None else None
        if entry is not None and module is not None and module.user_line(entry.metadata):
            return module.user_line(entry.metadata).rpartition("/")[2]
    return ""


def _log_text(log: StepPair) -> Iterator[str]:
    for side, step, price in (
        ("before", log.before, log.price_before),
        ("after", log.after, log.price_after),
    ):
        if step is None:
            yield f"XLA's log {side} does not fuse it: {last_word(moment_facts(price))}"
            continue
        readers = (
            f" into {first_of([f'%{name}' for name in step.consumers])}" if step.consumers else ""
        )
        word = last_word(moment_facts(price))
        yield f"XLA's log {side}, step {step.number}: {step.action} %{step.producer}{readers}; {word}"


def _pair_text(pair: FusedPair) -> Iterator[str]:
    sides = [first_of([f"%{name}" for name in names]) for names in pair.kernels]
    apart = len(pair.kernels[1]) > 1
    line = f" at {pair.line}" if pair.line else ""
    others = f" ({pair.others} other pairs, too)" if pair.others else ""
    yield (
        f"%{pair.names[0]} and %{pair.names[1]}{line} are in one kernel {'before' if apart else 'after'} only: "
        f"{sides[0]} {seconds(pair.seconds[0])} before, {sides[1]} {seconds(pair.seconds[1])} after{others}"
    )
    if pair.own:
        yield f"hloopt's priority-fusion on this target {pair.own}"
