"""How a loop could run as one kernel, for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from hloopt.fusion.explained import ExplainedRefusal
from hloopt.fusion.history import LoopFacts, MappingFacts
from hloopt.fusion.provenance import FusionNode
from hloopt.report.console import say, table

__all__ = ["show_loop", "show_loops"]


_MOST_LOOPS = 12


def show_loops(
    rows: Sequence[tuple[LoopFacts, tuple[ExplainedRefusal, ...]]], console: Console
) -> None:
    """For each loop that was examined: the one kernel it is, or why it is not."""
    made = table("loop", "iterations", "one kernel", left=3, below="one kernel")
    for loop, words in rows[:_MOST_LOOPS]:
        why = "; ".join(dict.fromkeys(str(word.decision) for word in words))
        verdict = loop.kernel or (f"no: {why}" if why else "no")
        made.add_row(f"%{loop.loop}", loop.iterations, verdict)
    console.print(made)
    if len(rows) > _MOST_LOOPS:
        say(console, f"and {len(rows) - _MOST_LOOPS} more loops")


def show_loop(loop: LoopFacts, node: FusionNode, console: Console) -> None:
    """The mappings that were considered; of what runs within a loop's kernel, whose that is."""
    if (node.computation, node.name) != (loop.computation, loop.loop):
        line = f"  it runs within %{loop.loop}, which is one kernel: {loop.kernel}"
        say(console, line)
        return
    taken = f"one kernel: {loop.kernel}" if loop.kernel else "no kernel: its body runs step by step"
    iterations = f" ({loop.iterations})" if loop.iterations else ""
    say(console, f"  the loop{iterations} is {taken}")
    made = table(
        "mapping", "fits", "work items", "threads", "registers", "shared bytes", "time", left=2
    )
    for mapping in loop.mappings:
        made.add_row(mapping.kernel, "no" if mapping.problem else "yes", *_figures(mapping))
    console.print(made)
    if loop.profit:
        say(console, loop.profit)
    for mapping in loop.mappings:
        if mapping.parts:
            say(console, f"{mapping.kernel}: {mapping.parts}")
        if mapping.problem:
            say(console, f"{mapping.kernel} does not fit: {mapping.problem}")


def _figures(mapping: MappingFacts) -> tuple[str, ...]:
    """The figures computed: for a mapping that does not fit, only those up to the first problem."""
    numbers = (mapping.units, mapping.threads, mapping.registers, mapping.shared_bytes)
    shown = tuple(f"{number:,}" if number else "" for number in numbers)
    return (*shown, f"{mapping.time_us:,.2f} us" if mapping.time_us is not None else "")
