"""Values that several kernels compute, or one computes several times, where one could write them to memory.

Fusion copies a producer into each of its users where that is faster for each pair.  What is behind a chain of
copies it does not see: all kernels compute the whole chain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.findings.finding import FindingRemedy
from hloopt.findings.planning import is_planned
from hloopt.findings.products import is_sure_on_host
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.fusion.fusible import UNCOMPUTED
from hloopt.ir import Instruction, Module, build, edit
from hloopt.ir.walk import open_computations
from hloopt.numbers import byte_size
from hloopt.ops.traits import MOVING, SOURCES
from hloopt.rewrite.site import is_replaceable

__all__ = ["values"]

_LEAST: Final = 1 << 16
"""Bytes of a value that is worth a kernel."""
_AGAIN: Final = 1.5
"""How often a value is computed, an element on average, from which on that is more than rounding."""
_WORTH: Final = 0.5
"""The part of the time of writing and reading a value that computing it once must save by a first estimate."""
_MOST: Final = 6
"""Values that are tried, those that save most by that estimate."""


@dataclass(frozen=True)
class _Repeated:
    """A value: the kernels that compute it, how often in all, and the nanoseconds of each time.

    Those are of all that is computed for it, and of reading what that is computed from.
    """

    value: Instruction
    kernels: tuple[Instruction, ...]
    times: float
    compute_ns: float
    read_ns: float

    def saved_ns(self, subject: Subject) -> float:
        """By a first estimate: what computing it once saves, less writing it once and reading it each time."""
        target = subject.planner.predictor.target
        size = self.value.shape.byte_size / target.memory_bandwidth * 1e9
        moved = (1 + self.times) * size + subject.planner.predictor.launch_seconds * 1e9
        often, kernels = self.times - 1, len(self.kernels) - 1
        return often * self.compute_ns + kernels * self.read_ns - _WORTH * moved


def values(subject: Subject) -> Iterator[FindingCandidate]:
    """Those that would be computed once behind a barrier, the most promising first."""
    if is_planned(subject.module):
        return  # one value is several instructions there
    found = []
    for computation in open_computations(subject.module):
        repeated = {one: row for one in computation if (row := _repeated(subject, one)) is not None}
        found += [
            _with_chain(subject, row, repeated)
            for row in repeated.values()
            if row.value.shape.byte_size >= _LEAST
            and any(
                user not in repeated or repeated[user].kernels != row.kernels
                for user in row.value.users
            )
        ]
    worth = [(saved, row) for row in found if (saved := row.saved_ns(subject)) > 0]
    worth.sort(key=lambda pair: -pair[0])
    for _, row in worth[:_MOST]:
        yield _candidate(row, on_host=subject.planner.predictor.target.kind == "cpu")


def _repeated(subject: Subject, one: Instruction) -> _Repeated | None:
    """None for what is computed once, or is not an array that a barrier can follow."""
    if (
        not one.is_array
        or one.opcode in SOURCES
        or one.opcode in UNCOMPUTED
        or not is_replaceable(one)
    ):
        return None
    if not (one.op.is_elementwise or one.opcode in MOVING or one.opcode == "reduce"):
        return None
    kernels = subject.kernels_of([one])
    times = sum(_times(subject, kernel, one) for kernel in kernels)
    if times < _AGAIN:
        return None
    return _Repeated(one, kernels, times, 0.0, 0.0)


def _times(subject: Subject, kernel: Instruction, one: Instruction) -> float:
    """How often a kernel computes an element of a value."""
    if kernel.opcode != "fusion":
        return 1.0
    inner = kernel.calls.by_name.get(one.name)
    if inner is None or inner.opcode != one.opcode or inner.shape != one.shape:
        return 1.0
    return max(1.0, subject.plan.model.usage.body(kernel).group(inner).utilization)


def _with_chain(
    subject: Subject, row: _Repeated, repeated: dict[Instruction, _Repeated]
) -> _Repeated:
    """With the time of all that is computed as often for it, from what it is computed of."""
    target, usage = subject.planner.predictor.target, subject.plan.model.usage
    chain, given = {row.value}, set()
    pending = [row.value]
    while pending:
        for operand in pending.pop().operands:
            if operand in repeated and operand not in chain:
                chain.add(operand)
                pending.append(operand)
            elif operand not in chain:
                given.add(operand)
    rate = (target.peak_flops(row.value.array.dtype.name) or target.peak_flops("f32") or 0.0) / 2
    flops = sum(usage.op(one).flops for one in chain)
    size = sum(one.shape.byte_size for one in given if one.opcode not in SOURCES - {"parameter"})
    return _Repeated(
        row.value,
        row.kernels,
        row.times,
        flops / rate * 1e9 if rate else 0.0,
        size / target.memory_bandwidth * 1e9,
    )


def _candidate(row: _Repeated, *, on_host: bool) -> FindingCandidate:
    value, kernels = row.value, row.kernels
    listed = ", ".join(f"%{one.name}" for one in kernels[:3])
    more = f" and {len(kernels) - 3} more" if len(kernels) > 3 else ""
    often = f"{row.times:.3g} times an element"
    if len(kernels) > 1:
        where = f"in {len(kernels)} kernels ({listed}{more})"
        where += f", {often} in all" if row.times > len(kernels) + 0.1 else ""
    else:
        where = f"{often} in {listed}"
    return FindingCandidate(
        (value,),
        f"%{value.name} is computed {where}, with all that leads to it: fusion copies it into its users "
        f"one by one rather than write its {byte_size(value.shape.byte_size)}. Written once and read, it costs "
        "less.",
        (
            FindingRemedy(
                "model",
                "y = jax.lax.optimization_barrier(y) behind what computes it, before it is used: it is then "
                "computed once and kept in memory",
            ),
        ),
        _kept,
        tuple(user for user in value.users if user.opcode != "tuple"),
        holds=is_sure_on_host if on_host else None,
    )


def _kept(module: Module, places: Sequence[Instruction]) -> bool:
    """Put a barrier behind each place, through which everything reads it."""
    for place in places:
        after = place._next
        barrier = build.make(after or place.home, "opt-barrier", (), {}, shape=place.shape)
        edit.replace_uses(place, barrier)
        if place.is_root:
            edit.set_root(place.home, barrier)
        edit.set_operands(barrier, (place,))
    return True
