"""Where two of XLA's fusion logs part: the tables and the JSON of ``hloopt diff LOG LOG``."""

from __future__ import annotations

from typing import Any, Final

from rich.console import Console

from hloopt.dataclass import dataclass
from hloopt.display import Displayed
from hloopt.fusion.log_differences import LogDifference, StepPair
from hloopt.report.console import TableColumn, records_table, say
from hloopt.report.xla_facts import moment_facts
from hloopt.report.xla_history import last_word
from hloopt.spelling import first_of

__all__ = ["LogsCompared", "show_logs"]

_MOST: Final = 12


@dataclass(frozen=True)
class LogsCompared(Displayed):
    """Two logs by their names, and where they part."""

    names: tuple[str, str]
    difference: LogDifference

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return self.difference.equal

    def to_json(self) -> dict[str, Any]:
        """JSON values; times are in microseconds."""
        return {"logs": list(self.names), **_log_json(self.difference)}


def _log_json(found: LogDifference) -> dict[str, Any]:
    return {
        "equal": found.equal,
        "steps_before": found.steps[0],
        "steps_after": found.steps[1],
        "same_module": found.same_module,
        "devices": [
            {"figure": name, "before": old or None, "after": new or None}
            for name, old, new in found.devices
        ],
        "first": _pair_json(found.first),
        "first_decision": _pair_json(found.decision),
        "only_before": found.only[0],
        "only_after": found.only[1],
        "repriced": found.repriced,
        "fused_otherwise": [_pair_json(one) for one in found.fused],
    }


def _pair_json(pair: StepPair | None) -> dict[str, Any] | None:
    if pair is None:
        return None
    return {
        "before": moment_facts(pair.before),
        "after": moment_facts(pair.after),
        "last_word_before": moment_facts(pair.price_before),
        "last_word_after": moment_facts(pair.price_after),
    }


def show_logs(compared: LogsCompared, console: Console) -> None:
    """Print the first step that differs, the first decision, and what was fused otherwise in the end."""
    found = compared.difference
    if found.equal:
        say(console, f"the logs are the same: {found.steps[0]} steps")
        return
    for name, old, new in found.devices[:_MOST]:
        say(console, f"device: {name} {old or 'not given'} before, {new or 'not given'} after")
    if not found.same_module:
        say(console, "XLA began with different modules")
    if found.first is None:
        say(console, f"all {found.steps[0]} steps are the same")
        return
    say(console, ("the first step that differs", "bold"))
    console.print(_sides(found.first))
    if found.decision is None:
        say(console, "all fusions and refusals are the same, in the same order")
    elif found.decision != found.first:
        say(console, ("\nthe first decision that differs", "bold"))
        console.print(_sides(found.decision))
    say(
        console,
        f"\n{found.steps[0]} steps before, {found.steps[1]} after: {found.only[0]} only before, "
        f"{found.only[1]} only after, {found.repriced} at other prices or with other words",
    )
    if found.fused:
        records = [_fused_record(one) for one in found.fused]
        title = "\nfused on one side only"
        console.print(records_table(_FUSED, records[:_MOST], left=len(_FUSED), title=title))
        if len(records) > _MOST:
            say(console, f"and {len(records) - _MOST} more (--json)")


def _sides(pair: StepPair) -> Any:
    facts = _pair_json(pair)
    assert facts is not None, "a pair has facts"
    records = [
        {"side": side, "step": facts[side], "word": facts[f"last_word_{side}"]}
        for side in ("before", "after")
    ]
    return records_table(_STEP, records, left=len(_STEP))


def _fused_record(pair: StepPair) -> dict[str, Any]:
    facts = _pair_json(pair)
    assert facts is not None, "a pair has facts"
    step = facts["before"] or facts["after"]
    return {
        "side": "before" if facts["before"] else "after",
        "producer": step["producer"],
        "consumer": first_of(step["consumers"]),
        "word_before": facts["last_word_before"],
        "word_after": facts["last_word_after"],
    }


def _step(step: dict[str, Any] | None) -> str:
    return "no more steps" if step is None else f"{step['step']}: {step['action']}"


def _about(step: dict[str, Any] | None) -> str:
    if step is None:
        return ""
    readers = f" into {first_of(step['consumers'])}" if step["consumers"] else ""
    return f"{step['producer']}{readers}"


_STEP: Final = (
    TableColumn("", "side"),
    TableColumn("step", "step", _step),
    TableColumn("producer", "step", _about),
    TableColumn("XLA's word", "word", last_word),
)
_FUSED: Final = (
    TableColumn("side", "side"),
    TableColumn("producer", "producer"),
    TableColumn("consumer", "consumer"),
    TableColumn("XLA's word before", "word_before", last_word),
    TableColumn("after", "word_after", last_word),
)
