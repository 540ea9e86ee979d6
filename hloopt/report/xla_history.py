"""What ``hloopt explain --xla-dump`` prints: XLA's own decisions in words and tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console

from hloopt.numbers import byte_size, seconds
from hloopt.report.console import say, table
from hloopt.spelling import first_of

__all__ = ["last_word", "show_xla_instruction", "show_xla_pair", "show_xla_summary"]

_Facts = dict[str, Any]


def show_xla_pair(facts: _Facts, console: Console) -> None:
    """Whether two instructions share a kernel, since when and why, or what is between them."""
    first, second = f"%{facts['first']}", f"%{facts['second']}"
    if facts["together"]:
        say(
            console,
            (f"{first} and {second} are in one kernel: ", "bold"),
            _names(facts["together"]),
        )
        _show_kernels(facts["together"], console)
        if facts["joined"] is not None:
            console.print()
            _show_joined(facts["joined"], facts["price"], console)
    elif facts["path"]:
        say(console, (f"{first} and {second} are in different kernels", "bold"))
        if facts["reverse"]:
            say(console, f"{first} needs the result of {second}, not the other way round")
        _show_kernels(facts["path"], console)
        if facts["borders"]:
            console.print()
            _show_borders(facts["borders"], console)
    else:
        say(console, (f"{first} and {second} are in different kernels", "bold"))
        say(console, "neither needs the other's result: no producer and consumer to fuse")
    if facts["joined_later"]:
        names = ", ".join(f"%{name}" for name in facts["joined_later"])
        say(
            console,
            f"in the end both are in {names}: a pass behind priority fusion (multi-output fusion, "
            "copies) joined them, and keeps no log",
        )
    if facts["ours"] is not None:
        console.print()
        _show_verdict(facts["ours"], bool(facts["together"]), console)
    if not facts["known"]:
        say(console, f"\n{facts['unknown']}")


def _show_verdict(ours: _Facts, together: bool, console: Console) -> None:
    """What hloopt does with two instructions, beside what XLA did."""
    names = ", ".join(f"%{name}" for name in ours["together"])
    if ours["together"]:
        verdict = f"has both in one kernel{', too' if together else ''}: {names}"
    else:
        verdict = f"has them in different kernels{'' if together else ', too'}"
    gain = ours["gain_seconds"]
    if gain:
        verdict += (
            f"; its kernels {'save' if gain > 0 else 'cost'} {seconds(abs(gain))} by XLA's model"
        )
    say(console, f"hloopt's priority-fusion {verdict}")
    for reason in ours["reasons"]:
        say(console, f"  %{reason['producer']}: {reason['reason']} [{reason['code']}]")


def _names(kernels: Iterable[_Facts]) -> str:
    return ", ".join(f"%{kernel['name']}" for kernel in kernels)


def _show_kernels(kernels: Sequence[_Facts], console: Console) -> None:
    made = table("kernel", "computes", "from", "in the end", left=4, optional=("computes",))
    for kernel in kernels:
        made.add_row(kernel["name"], kernel["computes"], kernel["line"], _after(kernel))
    console.print(made)


def _after(kernel: _Facts) -> str:
    """What a kernel is called in the module XLA ended with: of several the first."""
    return first_of(kernel["after"], 1) or "-"


def _show_joined(joined: _Facts, price: _Facts | None, console: Console) -> None:
    (consumer,) = joined["consumers"]
    say(
        console,
        f"since step {joined['step']} ({joined['place']}): %{joined['producer']} was fused into "
        f"%{consumer}, which is %{joined['fusion']} from then on",
    )
    if price is None:
        say(console, "XLA computed no price: bitcasts and small constants are fused without one")
    else:
        say(
            console,
            f"because, with {_users(price)}, that {_price(price)} (XLA's model, step {price['step']})",
        )


def _users(price: _Facts) -> str:
    names = [f"%{name}" for name in price["consumers"]]
    return f"{'its only user' if len(names) == 1 else 'all its users'} {first_of(names)}"


def _price(word: _Facts) -> str:
    gain = word["gain_us"]
    verdict = f"saves {_us(gain)}" if gain >= 0 else f"costs {_us(-gain)}"
    if word["unfused_us"] is None:
        return verdict
    return f"{verdict}: {_us(word['unfused_us'])} apart, {_us(word['fused_us'])} fused"


def _us(value: float) -> str:
    return f"{value:.3f} us"


def last_word(word: _Facts | None) -> str:
    """XLA's last word in short: its own words with our code, or the price it did not pay."""
    if word is None:
        return "never considered"
    if word["action"] == "priced":
        return _price(word)
    code = f" [{word['code']}]" if word["code"] else ""
    return f"{word['words']}{code}"


def _show_borders(borders: Sequence[_Facts], console: Console) -> None:
    made = table(
        "producer",
        "read by",
        "XLA's last word",
        "step",
        "bytes",
        "at most",
        left=3,
        below="XLA's last word",
    )
    for border in borders:
        last = border["last"]
        made.add_row(
            border["producer"]["name"],
            first_of(border["readers"], 2),
            last_word(last),
            str(last["step"]) if last is not None else "",
            byte_size(border["bytes"]),
            seconds(border["at_most_seconds"]),
        )
    console.print(made)
    say(
        console,
        "at most: what a kernel less would save, its launch and its results through memory; "
        "where XLA named a price, what that saves",
    )


def show_xla_instruction(facts: _Facts, console: Console) -> None:
    """Where an instruction is computed, and all that XLA's log says of it."""
    say(
        console,
        (f"%{facts['name']} is computed in ", "bold"),
        _names(facts["kernels"]) or "no kernel",
    )
    if facts["kernels"]:
        _show_kernels(facts["kernels"], console)
    if facts["steps"] is None:
        say(console, f"\n{facts['unknown']}")
        return
    console.print()
    if not facts["steps"]:
        say(console, "XLA's log does not name it")
        return
    made = table("steps", "producer", "", "consumers", "says", left=5)
    for first, count, step in _runs(facts["steps"]):
        steps = f"{first}-{step['step']} ({count})" if count > 1 else str(first)
        made.add_row(
            steps,
            step["producer"],
            step["action"],
            first_of(step["consumers"], 2),
            f"now {step['fusion']}" if step["action"] == "fused" else last_word(step),
        )
    console.print(made)
    if any(step["action"] == "priced" and step["unfused_us"] is None for step in facts["steps"]):
        say(console, "where no times stand, the log has only what changed, which is added up here")


def _runs(steps: Sequence[_Facts]) -> list[tuple[int, int, _Facts]]:
    """The steps, what XLA said of a producer again and again as one: its first number, how often, the last."""
    runs: list[tuple[int, int, _Facts]] = []
    open_runs: dict[str, int] = {}
    for step in steps:
        producer = step["producer"]
        at = open_runs.get(producer)
        before = runs[at][2] if at is not None else None
        if at is not None and before is not None and _kind(before) == _kind(step):
            runs[at] = (runs[at][0], runs[at][1] + 1, step)
        else:
            runs.append((step["step"], 1, step))
            open_runs[producer] = len(runs) - 1
        if step["action"] == "fused":
            open_runs.clear()
    return runs


def _kind(step: _Facts) -> tuple[object, ...]:
    """The key by which two verdicts on a producer are the same; every fusion has its own."""
    if step["action"] == "fused":
        return ("fused", step["step"])
    return (step["action"], step["words"], (step["gain_us"] or 0.0) >= 0)


def show_xla_summary(facts: _Facts, console: Console) -> None:
    """What XLA did in all, its most costly refusals, and what hloopt would do otherwise."""
    if not facts["known"]:
        line = f"{facts['kernels_after']} kernels"
        if facts["seconds"] is not None:
            line += f", predicted to take {seconds(facts['seconds'])} on {facts['device']}"
        say(console, f"{line}\n{facts['unknown']}")
        return
    steps = facts["steps"]
    after = facts["kernels_after"]
    say(
        console,
        f"{facts['kernels_before']} kernels before fusion, {facts['kernels_fused']} after priority fusion"
        + (f", {after} in the end" if after is not None else ""),
    )
    say(
        console,
        f"{steps.get('priced', 0)} prices, {steps.get('refused', 0)} refusals, "
        f"{steps.get('fused', 0)} fusions in XLA's log",
    )
    if facts["reasons"]:
        reasons = table("last word", "producers", title="\nwhy results still go through memory")
        for row in facts["reasons"]:
            reasons.add_row(
                f"{row['code']}: {row['meaning']}" if row["meaning"] else row["code"],
                str(row["count"]),
            )
        console.print(reasons)
    if facts["refusals"]:
        say(console, ("\nthe most costly refusals", "italic"))
        _show_borders(facts["refusals"], console)
    _show_ours(facts["ours"], console)


def _show_ours(ours: _Facts, console: Console) -> None:
    console.print()
    if not ours["differences"]:
        say(console, "hloopt's priority-fusion makes the same kernels")
        return
    say(
        console,
        f"hloopt's priority-fusion makes {ours['our_kernels']} kernels of {seconds(ours['our_seconds'])} where "
        f"XLA's are {ours['xla_kernels']} of {seconds(ours['xla_seconds'])}, by the same model",
    )
    made = table("XLA's", "ours", "from", "XLA", "ours", "gain", left=3)
    for row in ours["largest"]:
        lines = [kernel["line"] for kernel in row["xla"] if kernel["line"]]
        made.add_row(
            ", ".join(kernel["name"] for kernel in row["xla"]) or "-",
            ", ".join(kernel["name"] for kernel in row["ours"]) or "-",
            lines[0] if lines else "",
            seconds(row["xla_seconds"]),
            seconds(row["our_seconds"]),
            f"{'-' if row['gain_seconds'] < 0 else ''}{seconds(abs(row['gain_seconds']))}",
        )
    console.print(made)
    rest = ours["differences"] - len(ours["largest"])
    if rest > 0:
        say(console, f"and {rest} smaller differences")
