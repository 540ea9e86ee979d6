"""What is known of XLA's own fusion decisions, as JSON values."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Final

from hloopt.fusion.decision import REASONS
from hloopt.fusion.xla_history import Border, XlaDecision, readers
from hloopt.ir import Instruction
from hloopt.kernels.costs import kernel_costs
from hloopt.report.fusion_diff import computes
from hloopt.report.xla_dump import XlaDump, kernel_facts

__all__ = ["instruction_facts", "moment_facts", "pair_facts", "summary_facts", "unknown"]

MOST: Final = 10
"""Refusals and differences that a summary lists, the most costly ones."""

_FIGURE = re.compile(r"\{[^}]*\}")

_GPU: Final = (
    "why XLA decided so is not in this text: that is in priority_fusion_dump.txt, which XLA writes with "
    "--xla_dump_to=DIR --xla_dump_hlo_pass_re=priority-fusion"
)

_CPU: Final = (
    "XLA's CPU compiler fuses by fixed rules: it uses no cost model and keeps no log, so this shows what "
    "is in one kernel, and not why; --xla_dump_hlo_pass_re=.* writes the module after each pass, and "
    "hloopt ls DIR lists them"
)


def unknown(dump: XlaDump) -> str:
    """What the text does not show, and where that is; empty where there is a log."""
    if dump.history is not None:
        return ""
    return _CPU if dump.is_cpu else _GPU


def _meaning(code: str) -> str:
    """A reason in our words; XLA's log does not have its figures."""
    return _FIGURE.sub("…", REASONS.get(code, ""))


def moment_facts(moment: XlaDecision | None) -> dict[str, Any] | None:
    """A step of XLA's as JSON values."""
    if moment is None:
        return None
    times = moment.times
    return {
        "step": moment.number,
        "place": moment.place,
        "action": moment.action,
        "producer": moment.producer,
        "consumers": list(moment.consumers),
        "fusion": moment.fusion or None,
        "unfused_us": times.unfused_us if times is not None else None,
        "fused_us": times.fused_us if times is not None else None,
        "gain_us": moment.gain_us,
        "words": moment.words,
        "code": moment.code,
        "meaning": _meaning(moment.code),
    }


def _border_facts(dump: XlaDump, border: Border) -> dict[str, Any]:
    """A result between kernels: what going through memory costs at most, and XLA's last word on it."""
    target = dump.predictor.target
    passes = 1 + len(border.readers)
    cost = dump.predictor.launch_seconds + passes * border.bytes / target.memory_bandwidth
    last = border.last
    if last is not None and last.gain_us is not None:
        cost = max(0.0, last.gain_us * 1e-6)
    return {
        "producer": kernel_facts(dump, border.producer),
        "readers": [reader.name for reader in border.readers],
        "bytes": border.bytes,
        "at_most_seconds": cost,
        "last": moment_facts(last),
    }


def instruction_facts(dump: XlaDump, name: str) -> dict[str, Any]:
    """Where an instruction is computed, and every step that names it.

    Raises ``UsageError`` for a name that nothing had.
    """
    history = dump.history
    if history is None:
        homes = dump.names_after.named(name)
        return {
            "name": name,
            "kernels": [kernel_facts(dump, one) for one in homes],
            "steps": None,
            "unknown": unknown(dump),
        }
    kernels = history.kernels
    homes = [kernels[home] for home in history.kernels_of(name) if home in kernels]
    names = dict.fromkeys((name, *(home.name for home in homes)))
    steps = sorted(
        {moment.number: moment for one in names for moment in history.about(one)}.values(),
        key=lambda moment: moment.number,
    )
    return {
        "name": name,
        "kernels": [kernel_facts(dump, home) for home in homes],
        "steps": [moment_facts(step) for step in steps],
        "last": [moment_facts(history.last_word(home.name)) for home in homes],
    }


def pair_facts(dump: XlaDump, first: str, second: str) -> dict[str, Any]:
    """Whether two instructions are in one kernel; since when, or what stands between them.

    Raises ``UsageError`` for a name that nothing had.
    """
    history = dump.history
    if history is None:
        return _pair_after(dump, first, second)
    relation = history.relation(first, second)
    kernels = history.kernels
    borders = {border.producer.name: border for border in history.borders()}
    later = [] if relation.together else _joined_later(dump, first, second)
    return {
        "first": first,
        "second": second,
        "together": [kernel_facts(dump, kernels[name]) for name in relation.together],
        "joined": moment_facts(relation.joined),
        "price": moment_facts(relation.price),
        "path": [kernel_facts(dump, kernels[name]) for name in relation.path],
        "reverse": relation.reverse,
        "borders": [_border_facts(dump, borders[name]) for name in relation.path[:-1]],
        "joined_later": [kernel.name for kernel in later],
        "ours": _our_verdict(dump, first, second),
        "known": True,
    }


def _joined_later(dump: XlaDump, first: str, second: str) -> list[Instruction]:
    """Kernels in the end that compute both, though priority fusion left them apart."""
    homes = [dump.names_after.of(dump.values(name)) for name in (first, second)]
    return [kernel for kernel in homes[0] if kernel in homes[1]]


def _our_verdict(dump: XlaDump, first: str, second: str) -> dict[str, Any] | None:
    """What our priority fusion does with two instructions; None for names it has never heard of.

    ``gain_seconds`` is that of our kernels over XLA's, where they are others.
    """
    ours = dump.ours
    assert ours is not None, "there is a log"
    homes = [ours.kernels.of(dump.values(name)) for name in (first, second)]
    if not all(homes):
        return None
    together = [kernel for kernel in homes[0] if kernel in homes[1]]
    touched = {kernel for home in homes for kernel in home}
    gain = sum(
        theirs - mine for group, theirs, mine in ours.groups if touched.intersection(group.after)
    )
    names = [{kernel.name for kernel in home} for home in homes]
    refusals = [
        refusal
        for refusal in ours.plan.refusals
        if not together
        and any(
            refusal.producer in names[side] and refusal.consumer in names[1 - side] | {""}
            for side in (0, 1)
        )
    ]
    return {
        "together": [kernel.name for kernel in together],
        "reasons": [
            {"producer": refusal.producer, "code": code, "reason": refusal.decision.reason}
            for refusal in refusals
            if (code := refusal.decision.code)
        ],
        "gain_seconds": gain,
    }


def _pair_after(dump: XlaDump, first: str, second: str) -> dict[str, Any]:
    """What the final module shows by itself."""
    homes = [dump.names_after.named(name) for name in (first, second)]
    together = [kernel for kernel in homes[0] if kernel in homes[1]]
    path: list[Instruction] = []
    reverse = False
    if not together:
        for reverse in (False, True):
            starts, ends = homes[::-1] if reverse else homes
            direct = ((one, reader) for one in starts for reader in readers(one) if reader in ends)
            path = list(next(direct, ()))
            if path:
                break
    return {
        "first": first,
        "second": second,
        "together": [kernel_facts(dump, kernel) for kernel in together],
        "joined": None,
        "price": None,
        "path": [kernel_facts(dump, kernel) for kernel in path],
        "reverse": reverse and bool(path),
        "borders": [],
        "joined_later": [],
        "ours": None,
        "known": False,
        "unknown": unknown(dump),
    }


def summary_facts(dump: XlaDump) -> dict[str, Any]:
    """What XLA did in all, its most costly refusals, and where hloopt would decide otherwise."""
    history = dump.history
    if history is None:
        assert dump.after is not None, "there is a log or a module"
        rows = kernel_costs(dump.after, dump.predictor)
        return {
            "known": False,
            "unknown": unknown(dump),
            "device": None if dump.is_cpu else dump.predictor.target.title,
            "kernels_after": len(rows),
            "seconds": None if dump.is_cpu else sum(row.seconds for row in rows),
        }
    actions = Counter(moment.action for moment in history.moments)
    borders = [_border_facts(dump, border) for border in history.borders()]
    borders.sort(key=lambda row: -row["at_most_seconds"])
    last = Counter(
        row["last"]["code"] or row["last"]["words"]
        for row in borders
        if row["last"] is not None and row["last"]["action"] == "refused"
    )
    assert dump.before is not None, "a log has the module before fusion"
    return {
        "known": True,
        "steps": dict(actions),
        "kernels_before": len(kernel_costs(dump.before)),
        "kernels_fused": len(kernel_costs(history.module)),
        "kernels_after": len(dump.names_after.kernels) if dump.after is not None else None,
        "reasons": [
            {"code": code, "count": count, "meaning": _meaning(code)}
            for code, count in last.most_common()
        ],
        "refusals": borders[:MOST],
        "ours": _ours(dump),
    }


def _ours(dump: XlaDump) -> dict[str, Any]:
    """The kernels that our priority fusion makes otherwise, with the times of the same model."""
    ours = dump.ours
    assert ours is not None, "there is a log"
    found = [
        {
            "status": group.status,
            "xla": [kernel_facts(dump, kernel) for kernel in group.before],
            "ours": [{"name": kernel.name, "computes": computes(kernel)} for kernel in group.after],
            "xla_seconds": theirs,
            "our_seconds": mine,
            "gain_seconds": theirs - mine,
        }
        for group, theirs, mine in sorted(ours.groups, key=lambda row: -abs(row[1] - row[2]))
    ]
    whole = ours.seconds()
    return {
        "xla_seconds": whole[0],
        "our_seconds": whole[1],
        "xla_kernels": len(ours.rows[0]),
        "our_kernels": len(ours.rows[1]),
        "differences": len(found),
        "largest": found[:MOST],
    }
