"""Why instructions are or are not in one kernel, for people (``fusion_json.py`` has it for scripts)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from shlex import quote
from types import MappingProxyType

from rich.console import Console

from hloopt.cost_models.model import Comparison
from hloopt.fusion.barriers import FusionBarrier
from hloopt.fusion.explained import (
    Around,
    Edge,
    ExplainedRefusal,
    ExplainedStep,
    KernelFacts,
    Lost,
    Pair,
)
from hloopt.fusion.fusible import UNCOMPUTED
from hloopt.fusion.provenance import FusionNode, GivenInstruction, TracedRewrite
from hloopt.fusion.remedies import MERGES_ALL, loop_advice, why_held
from hloopt.report.console import say, table
from hloopt.report.fusion_loop import show_loop
from hloopt.report.rewritten import brief_shape, show_rewrites
from hloopt.spelling import first_of

__all__ = ["show_around", "show_barriers", "show_lost", "show_pair", "times_text", "why_apart"]

Origins = Mapping[str, tuple[GivenInstruction | None, Sequence[TracedRewrite]]]
_MOST_MEMBERS = 12
_MOST_ROWS = 12
_MOST_JOINED = 4
_MOST_BARRIERS = 3
_LONGEST_SOURCE = 48
_WITHOUT_TIMES = frozenset({"loop-slower", "not-into-all", "slower", "triton-slower"})
"""Reasons that name times themselves, or follow from one that has them."""


def show_pair(
    pair: Pair,
    console: Console,
    *,
    origins: Origins = MappingProxyType({}),
    passes: Sequence[str] = (),
) -> None:
    """Whether two instructions are in one kernel, what keeps them apart, and what would change it.

    ``origins`` has, by name, what an instruction was in the file and what touched it; ``passes`` are pipelines
    that make one kernel of both.
    """
    verdict = "are in one kernel" if pair.common else "are not in one kernel"
    say(console, _named(pair.first), " and ", _named(pair.second), f" {verdict}")
    for node in (pair.first, pair.second):
        say(console, f"  {_where(node)}")
        show_rewrites(node, *origins.get(node.name, (None, ())), console)
    for kernel in pair.common:
        say(console, f"  both: {_kernel(kernel)}")
    if pair.common:
        for edge in pair.edges:
            _show_joined(edge.joined, console)
        return
    if pair.relation == "path":
        _show_path(pair, console)
        words = [word for edge in pair.edges for word in edge.words]
    else:
        say(console, f"  {_no_path(pair)}")
        words = list(pair.words)
        for line in dict.fromkeys(f"  {word.pass_name}: {word.decision}" for word in words):
            say(console, line)
    _show_ways(words, _between(pair), console, passes)


def _no_path(pair: Pair) -> str:
    if pair.first.computation != pair.second.computation:
        return (
            f"they are in different computations, %{pair.first.computation} and "
            f"%{pair.second.computation}: a kernel stays within one computation"
        )
    if pair.relation == "siblings":
        shared = ", ".join(f"%{name}" for name in pair.shared)
        relation = f"neither needs the other; both read {shared}"
    else:
        relation = "neither needs the other, and they read nothing in common"
    return relation if pair.words else f"{relation}: no strategy of the pipeline considered them"


def _show_path(pair: Pair, console: Console) -> None:
    say(console, "")
    made = table("result", "used by", "kernels", "why", left=4, below="why")
    for edge in pair.edges:
        made.add_row(
            f"%{edge.producer.name}", f"%{edge.consumer.name}", _kernels(edge), why_apart(edge)
        )
    console.print(made)


def _kernels(edge: Edge) -> str:
    if edge.common:
        return f"both in {', '.join(_called(kernel) for kernel in edge.common)}"
    first, second = (
        ", ".join(map(_called, kernels)) or "none"
        for kernels in (edge.producer_kernels, edge.consumer_kernels)
    )
    return f"{first} | {second}"


def why_apart(edge: Edge) -> str:
    """The reason why one use of a result is not fused."""
    if edge.common:
        names = dict.fromkeys(step.pass_name for step in edge.joined)
        return f"fused by {', '.join(names)}" if names else "one kernel as it was given"
    if edge.words:
        return _said(edge.words)
    if edge.is_plumbing:
        node = edge.producer if edge.producer.opcode in UNCOMPUTED else edge.consumer
        return f"a {node.opcode} runs no kernel"
    for node in (edge.producer, edge.consumer):
        if not node.fusible:
            return f"a {node.opcode} is never part of a fusion"
    return "no strategy of the pipeline considered them"


def _said(words: Sequence[ExplainedRefusal]) -> str:
    """The verdicts of passes in order; times once, where they are the same."""
    times = {word.comparison for word in words if word.comparison is not None}
    if len(times) > 1:
        return "; ".join(dict.fromkeys(map(_word, words)))
    reasons = "; ".join(dict.fromkeys(f"{word.pass_name}: {word.decision}" for word in words))
    last = [word for word in words if _has_times(word)]
    return f"{reasons}{_times(last[-1])}" if last else reasons


def _word(word: ExplainedRefusal) -> str:
    return f"{word.pass_name}: {word.decision}{_times(word)}"


def _has_times(word: ExplainedRefusal) -> bool:
    return word.comparison is not None and word.decision.code not in _WITHOUT_TIMES


def _times(word: ExplainedRefusal) -> str:
    if word.comparison is None or not _has_times(word):
        return ""
    return f" ({times_text(word.comparison)})"


def times_text(comparison: Comparison) -> str:
    """``3.21 us apart, 2.10 us fused: fusing would save 1.11 us``."""
    gain, least = comparison.gain_us, "at least " if comparison.at_least else ""
    times = f"{least}{comparison.unfused_us:.2f} us apart, {comparison.fused_us:.2f} us fused"
    return f"{times}: fusing would {'save' if gain > 0 else 'cost'} {least}{abs(gain):.2f} us"


def _between(pair: Pair) -> tuple[str, str]:
    """The names for a line of a lock file: those of the edge that keeps the two apart.

    For a strategy that merges into all users or none they name all users.
    """
    for edge in pair.edges:
        heard = [word for word in edge.words if word.advisable]
        if heard:
            is_whole = len(edge.producer.users) > 1 and heard[-1].pass_name == MERGES_ALL
            return edge.producer.name, "*" if is_whole else edge.consumer.name
    return pair.first.name, pair.second.name


def _show_ways(
    words: Sequence[ExplainedRefusal],
    names: tuple[str, str],
    console: Console,
    passes: Sequence[str] = (),
) -> None:
    """What a user can do about it."""
    ways = [
        *_ways(words, names),
        *(f"--passes {quote(text)} makes one kernel of both" for text in passes),
    ]
    if ways:
        say(console, "")
    for way in ways:
        say(console, way)


def _help_of(codes: Iterable[str]) -> str:
    """The command that explains a reason by its code; of several reasons the first."""
    first, *others = dict.fromkeys(codes)
    return f"hloopt help {first} explains that reason" + (
        ", and so on for the other codes" if others else ""
    )


def _ways(words: Sequence[ExplainedRefusal], names: tuple[str, str]) -> Iterator[str]:
    for option in dict.fromkeys(option for word in words for option in word.options):
        yield f"{option} would let it through"
    models = dict.fromkeys(word.model for word in words if word.model)
    codes = dict.fromkeys(word.decision.code for word in words)
    if models:
        yield f"times are those of {', '.join(models)}"
    if codes:
        yield _help_of(codes)
    if any(word.decision.code == "advised" for word in words):
        yield "without that rule or line of a lock file the strategies decide"
    elif any(word.advisable for word in words):
        yield "a rule (--fusion-rule) or these lines in a file for --lock ask for it all the same:"
        yield f'  [[fuse]]\n  producer = "{names[0]}"\n  consumer = "{names[1]}"'
    elif words:
        yield from filter(None, (loop_advice(code) for code in codes))
        why = ", ".join(dict.fromkeys(map(why_held, codes)))
        yield f"no rule and no [[fuse]] of a lock file changes that: {why}"


def show_around(
    around: Around,
    console: Console,
    *,
    given: str = "",
    origin: GivenInstruction | None = None,
    touched: Sequence[TracedRewrite] = (),
) -> None:
    """One instruction: what passes made of it, its kernels, what joined them, and its neighbours in none."""
    node = around.node
    say(console, _named(node), f" = {brief_shape(node.shape)} {node.opcode}")
    if given and given != node.name:
        say(console, f"  %{given} of the file is called %{node.name} before fusion")
    say(console, f"  {_where(node)}")
    show_rewrites(node, origin, touched, console)
    if not around.kernels:
        line = (
            f"a {node.opcode} runs no kernel" if node.opcode in UNCOMPUTED else "it is in no kernel"
        )
        say(console, f"  {line}")
    for kernel in around.kernels:
        say(console, f"  kernel: {_kernel(kernel)}")
    if len(around.kernels) > 1:
        say(console, f"  it is computed {len(around.kernels)} times, once in each of these kernels")
    if around.loop is not None:
        show_loop(around.loop, node, console)
    _show_joined(around.joined, console)
    for word in around.words:
        say(console, f"  {_word(word)}")
    if around.loop is not None and around.words:
        _show_ways(around.words, (node.name, node.name), console)
    if around.apart:
        say(console, "")
        made = table("not with", "kernel", "why", left=3, below="why")
        for edge in around.apart[:_MOST_ROWS]:
            other, kernels = _other(edge, node)
            made.add_row(
                f"%{other.name}", ", ".join(map(_called, kernels)) or "none", why_apart(edge)
            )
        console.print(made)
        if len(around.apart) > _MOST_ROWS:
            say(console, f"and {len(around.apart) - _MOST_ROWS} more neighbours")
    words = [word for edge in around.apart for word in edge.words]
    for option in dict.fromkeys(option for word in words for option in word.options):
        say(console, f"{option} would let one of them through")


def _other(edge: Edge, node: FusionNode) -> tuple[FusionNode, tuple[KernelFacts, ...]]:
    if edge.producer is node:
        return edge.consumer, edge.consumer_kernels
    return edge.producer, edge.producer_kernels


def _show_joined(joined: Sequence[ExplainedStep], console: Console) -> None:
    rows = list(dict.fromkeys(joined))
    if not rows:
        return
    groups: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        times = times_text(row.comparison).partition(":")[0] if row.comparison else ""
        copied = ", a copy" if row.step.duplicated else ""
        copied = ", with its results" if row.step.multi_output else copied
        group = groups.setdefault((f"%{row.names[1]}", row.pass_name, times), [])
        group.append(f"%{row.names[0]}{copied}")
    made = table("joined", "into", "by", "times", left=4)
    for (into, by, times), members in list(groups.items())[:_MOST_ROWS]:
        shown = members[: len(members) if len(members) <= _MOST_JOINED + 1 else _MOST_JOINED]
        more = len(members) - len(shown)
        names = ", ".join(shown) if not any("," in one for one in shown) else "; ".join(shown)
        made.add_row(f"{names} and {more} more" if more else names, into, by, times)
    console.print(made)
    hidden = sum(len(members) for members in list(groups.values())[_MOST_ROWS:])
    if hidden:
        say(console, f"and {hidden} more steps")


def show_lost(rows: Sequence[Lost], console: Console) -> None:
    """The refusals that cost most."""
    if not rows:
        say(console, "no refusal of a fusion costs time, by the cost model")
        return
    made = table("not fused", "into", "why", "from", "lost", left=4, below=("why", "from"))
    for row in rows:
        word = row.word
        consumer = f"%{word.names[1]}" if word.consumer else "its users"
        consumer += f" and {row.others} more" if row.others else ""
        times = f", in each of {row.runs:,} runs" if row.runs != 1 else ""
        why = f"{word.pass_name}: {word.decision}{times}"
        producer = f"%{word.names[0]}"
        where = _tail(row.source or row.place)
        made.add_row(producer, consumer, why, where, f"{row.lost_us:.2f} us")
    console.print(made)
    total = sum(row.lost_us for row in rows)
    models = ", ".join(dict.fromkeys(row.word.model for row in rows if row.word.model))
    say(console, f"lost by these: {total:.2f} us, each by itself, by {models}")
    say(console, _help_of(row.word.decision.code for row in rows))


def show_barriers(rows: Sequence[FusionBarrier], console: Console) -> None:
    """The barriers that no kernel spans."""
    made = table("no kernel across", "why", left=2, below="why")
    for row in rows:
        shown = first_of((f"%{name}" for name in row.names), _MOST_BARRIERS)
        made.add_row(shown, f"{row.code}: {row.reason}")
    console.print(made)


def _named(node: FusionNode) -> tuple[str, str]:
    return f"%{node.name}", "bold"


def _where(node: FusionNode) -> str:
    source = f", from {', '.join(node.sources)}" if node.sources else ""
    op_name = f" ({node.op_name})" if node.op_name else ""
    return f"%{node.name}: {node.opcode} at {node.place}{source}{op_name}"


def _kernel(kernel: KernelFacts) -> str:
    if not kernel.kind:
        return f"{_called(kernel)}, by itself"
    shown = first_of((f"%{name}" for name in kernel.members), _MOST_MEMBERS)
    return f"{_called(kernel)} ({kernel.kind}) of {shown}"


def _called(kernel: KernelFacts) -> str:
    """A kernel by its name in the output; one that no longer exists by what it computes last."""
    return f"%{kernel.now or (kernel.outputs or (kernel.name,))[-1]}"


def _tail(source: str) -> str:
    """A line of the program by the end of its path, where the whole would fill a column's height."""
    parts = source.split("/")
    while len("/".join(parts)) > _LONGEST_SOURCE and len(parts) > 1:
        parts.pop(0)
    kept = "/".join(parts)
    return kept if kept == source else f".../{kept}"
