"""The notes below the findings of ``hloopt why``: facts about the plan that no change goes with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hloopt.findings import (
    ContendedScatter,
    Findings,
    Gain,
    GainlessChange,
    LinkedCollectives,
    LoopBuffer,
    ReducedDot,
    RefusedArray,
)
from hloopt.findings.both_arms import RowChoice
from hloopt.findings.full_sorts import MAY_CALL_CUB
from hloopt.findings.peak import WrittenArrays
from hloopt.findings.planning import CpuLowering
from hloopt.findings.whole_sorts import WholeSort
from hloopt.numbers import amount, byte_size, seconds

__all__ = ["figure", "notes"]

_MUCH: Final = 1 << 20
"""The least peak, in bytes, for which a note lists the live arrays."""
_LINKS: Final = 6
_GAINLESS: Final = 3
"""Changes without gain that are named, those of time that come nearest to one."""


def figure(gain: Gain | GainlessChange, value: float) -> str:
    """A value of what a change makes less of, in its unit."""
    if gain.measure == "time":
        return seconds(value)
    if gain.measure == "memory":
        return byte_size(round(value))
    return f"{amount(round(value))} {gain.unit}"


def notes(found: Findings) -> Iterator[str]:
    """Each a paragraph, with a dash before it."""
    if found.lowering is not None:
        yield f"- {_lowering_text(found.lowering)}"
    if found.peak_bytes >= _MUCH:
        yield f"- {_peak_text(found)}"
    if found.peak.written is not None:
        yield f"- {_written_text(found.peak.written)}"
    said = {row.instruction for row in found.rows if row.kind == "loop-copy"}
    for one in found.loops:
        if one.loop not in said:
            yield f"- {_loop_text(one)}"
    for array in found.arrays:
        if array.name not in said:
            yield f"- {_array_text(array)}"
    if found.reduced is not None:
        yield f"- {_reduced_text(found.reduced)}"
    for scatter in found.scatters:
        if scatter.name not in said:
            yield f"- {_scatter_text(scatter)}"
    for sort in found.sorts:
        yield f"- {_sort_text(sort)}"
    for choice in found.choices:
        yield f"- {_choice_text(choice)}"
    for linked in found.links[:_LINKS]:
        yield f"- {_link_text(linked)}"
    nearest = sorted((row for row in found.useless if row.measure == "time"), key=_part_left)
    for change in nearest[:_GAINLESS]:
        yield f"- {_gainless_text(change)}"
    left = len(found.useless) - len(nearest[:_GAINLESS])
    if left and (found.rows or nearest):
        yield f"- {left} other change{'' if left == 1 else 's'} tried without gain"
    if found.untried:
        left = sum(found.untried.values())
        yield f"- {left} smaller candidates were not tried: a larger -n tries more"


def _part_left(row: GainlessChange) -> float:
    return row.after / row.before if row.before else 1.0


def _gainless_text(row: GainlessChange) -> str:
    """``thin-product for %dot at m.py:7: 2.6 ms -> 2.7 ms, no gain (write it as ...)``."""
    place = f" at {row.line}" if row.line else ""
    change = f"{figure(row, row.before)} -> {figure(row, row.after)}"
    return f"{row.kind} for %{row.instruction}{place}: {change}, {row.reason} ({row.remedy})"


def _peak_text(found: Findings) -> str:
    use = found.peak
    place = f" at {use.line}" if use.line else ""
    rows = []
    for row in use.arrays:
        kinds = "temporaries" if row.kind == "temporary" else f"{row.kind}s"
        count = f"{len(row.names)} {kinds}" if len(row.names) > 1 else f"the {row.kind}"
        named = f" %{row.names[0]}" if len(row.names) == 1 else ""
        line = f" from {row.line}" if row.line else ""
        rows.append(f"{count}{named} {row.shape}{line}, {byte_size(row.byte_size)}")
    if use.others:
        several = "s" if use.others > 1 else ""
        rows.append(f"{use.others:,} other array{several}, {byte_size(use.other_bytes)}")
    return f"most memory is needed by %{use.at}{place}, where these are alive: {'; '.join(rows)}"


def _written_text(row: WrittenArrays) -> str:
    one = len(row.names) == 1
    what = f"one array {row.shape}" if one else f"{len(row.names)} arrays {row.shape}"
    names = ", ".join(f"%{name}" for name in row.names[:4])
    more = f" and {len(row.names) - 4} more" if len(row.names) > 4 else ""
    lines = f" at {', '.join(row.lines[:4])}" if row.lines else ""
    return (
        f"the program has {what} of {byte_size(row.byte_size)}{'' if one else ' each'}{lines} ({names}{more}), "
        "which no kernel of this plan writes to memory: what keeps them apart (another version of XLA, a "
        "result, a gradient) needs the bytes; jax.lax.map(f, xs, batch_size=...) over a dimension of theirs "
        "does without"
    )


def _lowering_text(row: CpuLowering) -> str:
    said, instead = [], []
    for names, one, several, there in (
        (row.calls, "calls LAPACK", "call LAPACK", "calls of cuSOLVER"),
        (row.loops, "is Threefry in a loop", "are Threefry in loops", "Threefry without a loop"),
    ):
        if names:
            listed = ", ".join(f"%{name}" for name in names)
            said.append(f"{listed} {one if len(names) == 1 else several}")
            instead.append(there)
    left = row.count - len(row.calls) - len(row.loops)
    more = f" (and {left} more)" if left else ""
    return (
        f"{' and '.join(said)}{more}: JAX lowered the module for a CPU. For a GPU it writes "
        f"{' and '.join(instead)}, so that their prices here, and those of loops beside them, say little of a "
        "run; jax.jit(f).trace(*args).lower(lowering_platforms=('cuda',)) lowers for a GPU, which need not be "
        "there"
    )


def _choice_text(row: RowChoice) -> str:
    place = f" at {row.line}" if row.line else ""
    return (
        f"%{row.name}{place} chooses {row.rows:,} rows one by one between %{row.arm} and %{row.other}, and "
        "both are computed for all of them, which is what jax.vmap makes of jax.lax.cond: a run takes "
        f"{seconds(row.seconds)}, and {seconds(row.without)} without %{row.arm}. Where few rows need it, "
        "compute it for these alone (rows = jnp.nonzero(p, size=k)[0], then y.at[rows].set(f(x[rows]))); "
        "where often none does, jax.lax.cond(p.any(), ...) around the vmap; jax.lax.map runs one row after "
        "another, each with its own branch"
    )


def _loop_text(row: LoopBuffer) -> str:
    place = f" at {row.line}" if row.line else ""
    often = f"{row.iterations:,}{'' if row.exact else '+'} times"
    text = f"%{row.loop}{place} runs {often} and updates element {row.element} of its state, {row.shape}"
    readers, several = " and ".join(row.readers), len(row.readers) > 1
    if row.copies:
        text += f", which each iteration copies: {row.writer} writes it"
        text += f" while {readers} still {'read' if several else 'reads'} it" if readers else ""
        verbs = "takes", "and moves"
    else:
        order = f"after {readers} {'have' if several else 'has'} read it"
        text += f", in place: no copy is needed, as {row.writer} "
        text += f"writes {order}" if readers else "alone reads the old value"
        verbs = "would take", "and move"
    total = row.seconds * row.iterations
    moved = byte_size(2 * row.byte_size * row.iterations)
    return f"{text}; a copy in each iteration {verbs[0]} {seconds(total)} {verbs[1]} {moved} in all"


def _reduced_text(row: ReducedDot) -> str:
    place = f" at {row.line}" if row.line else ""
    others = f" with {row.others} other dot{'' if row.others == 1 else 's'}" if row.others else ""
    widened = "" if row.shape.startswith(row.summed) else ", to which factors are converted"
    now, kept = (seconds(one) for one in row.seconds)
    return (
        f"%{row.name}{place}, a dot {row.shape}, becomes multiply and reduce{others}: "
        f"dot-strength-reduction takes it, since {row.reason}; the sum is made in {row.summed}"
        f"{widened}; the module takes {now} so and {kept} with dots "
        "(--xla_gpu_enable_dot_strength_reduction=false keeps them)"
    )


def _scatter_text(row: ContendedScatter) -> str:
    place = f" at {row.line}" if row.line else ""
    text = (
        f"%{row.name}{place} combines {row.windows:,} windows in {row.places:,} places, and those that "
        f"meet wait for each other (contention): it takes {seconds(row.seconds)} with {row.least:,} a "
        f"place, spread evenly, and {seconds(row.worst)} with all in one"
    )
    if row.native:
        text += (
            f" ({seconds(row.swapped)} where the compiler has no atomic {row.native} but compares and swaps, "
            "as jaxlib 0.10.2 to 0.11.0)"
        )
    return f"{text}; sorted by index, with indices_are_sorted=True, they are summed first and do not wait"


def _sort_text(row: WholeSort) -> str:
    place = f" at {row.line}" if row.line else ""
    kernel = f" in %{row.kernel}" if row.kernel != row.name else ""
    kernels = f" by {row.passes} kernels" if row.passes > 1 else ""
    text = (
        f"%{row.name}{place}{kernel} puts rows of {row.row:,} elements in order{kernels}: "
        f"{seconds(row.seconds)}, {row.share:.0%} of the whole, and more is read of them than a few elements "
        "at one end. XLA has no cheaper op that gives the same"
    )
    if row.top is not None:
        text += (
            f"; where 16 of each row are enough, which is another result, jax.lax.top_k(x, 16) takes "
            f"{seconds(row.top)}, and what follows has less to do"
        )
    return f"{text}. {MAY_CALL_CUB}" if row.passes > 1 else text


def _link_text(row: LinkedCollectives) -> str:
    place = f" at {row.line}" if row.line else ""
    several = "" if row.count == 1 else "s"
    return (
        f"{row.count:,}{'' if row.exact else '+'} {row.opcode}{several}{place} over {row.over}, "
        f"{byte_size(row.bytes)} in all: {seconds(row.seconds)}, an estimate by datasheets of links, without "
        "waiting for other devices"
    )


def _array_text(row: RefusedArray) -> str:
    place = f" at {row.line}" if row.line else ""
    readers = ", ".join(f"%{name}" for name in row.readers[:2])
    more = f" and {len(row.readers) - 2} more" if len(row.readers) > 2 else ""
    text = (
        f"%{row.name}{place}, {byte_size(row.byte_size)}, goes through memory from %{row.writer} to "
        f"{readers}{more}: {row.pass_name} does not fuse it into %{row.reader} ({row.code}): {row.reason}"
    )
    if row.fused is None or row.apart is None:
        return text
    if row.code not in ("slower", "triton-slower"):
        text += f"; fused {row.fused:.3g} us, apart {row.apart:.3g} us"
    if row.fused >= row.apart:
        return f"{text}; by these prices the refusal is right"
    return f"{text}; by these prices fused is faster" + (
        f": {' or '.join(row.changes)}" if row.changes else ", but no option lifts this refusal"
    )
