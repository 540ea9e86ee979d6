"""Work in a loop's body that gives the same in every iteration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from hloopt.analysis.effects import Effects
from hloopt.analysis.trip_count import counted_iterations
from hloopt.findings.finding import FindingRemedy
from hloopt.findings.planning import is_planned
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.graphs import reached
from hloopt.ir import Instruction, Module
from hloopt.ir.walk import callees
from hloopt.ops.traits import CONTRACTING
from hloopt.passes.loops.carried import growth_obstacle
from hloopt.passes.loops.invariant_motion import MAYBE_COSTLY, InvariantSearch, WhileInvariantMotion
from hloopt.rewrite import PassLog

__all__ = ["invariants"]

_FEW: Final = 3
"""Iterations from which on a loop is looked at."""
_LEAST: Final = 1 << 12
"""Bytes that such work reads or writes at least."""
_SHOWN: Final = 3
_LITTLE: Final = 0.005
"""The part of a loop's time up to which work is left out in large modules, where two plans of a loop take
seconds: a quarter of what a finding must gain, since work that is fused may run in several kernels."""


def invariants(subject: Subject) -> Iterator[FindingCandidate]:
    """Loops that compute again what depends only on what they do not change: XLA leaves it there on GPUs."""
    if is_planned(subject.module):
        return
    motion, effects = WhileInvariantMotion(), Effects(subject.module)
    for loop in subject.module.instructions():
        if loop.opcode != "while" or not loop.is_tuple or growth_obstacle(loop):
            continue
        if counted_iterations(loop).count < _FEW:
            continue
        leaving = InvariantSearch(motion, loop, "body", effects, PassLog()).leaving()
        worth = [value for value in leaving if _size(value) >= _LEAST]
        if worth and (subject.is_small or not _is_little(subject, loop, leaving)):
            yield _candidate(subject, loop, worth)


def _is_little(subject: Subject, loop: Instruction, leaving: Sequence[Instruction]) -> bool:
    """Whether work in kernels of its own takes so little beside a loop's products that no plan need tell."""
    if any(value.op.family in MAYBE_COSTLY for value in leaving):
        return False
    called = reached([loop.body], callees)
    products = (one for computation in called for one in computation if one.opcode in CONTRACTING)
    return _seconds(subject, leaving) < _LITTLE * _seconds(subject, products)


def _seconds(subject: Subject, kernels: Iterable[Instruction]) -> float:
    """What instructions take while the entry runs once, each as a kernel of its own."""
    predict = subject.planner.predictor.predict
    return sum(predict(one).seconds * subject.runs(one)[0] for one in kernels)


def _size(value: Instruction) -> int:
    return max(one.shape.byte_size for one in (value, *value.operands))


def _candidate(
    subject: Subject, loop: Instruction, values: Sequence[Instruction]
) -> FindingCandidate:
    shown = ", ".join(f"%{one.name} ({one.opcode} {one.shape})" for one in values[-_SHOWN:])
    more = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
    runs = subject.runs(loop.body.root)[0]
    return FindingCandidate(
        (loop,),
        f"{shown}{more} in the body of %{loop.name} {'are' if len(values) > 1 else 'is'} the same in each of "
        f"{runs:,} iterations, made of what the loop does not change, and computed again each time.",
        (
            FindingRemedy(
                "model",
                "compute it before jax.lax.scan, fori_loop or while_loop: the body closes over the result",
            ),
            FindingRemedy("hloopt", "while-invariant-motion, in O2 and O3"),
        ),
        _moved,
        tuple(values),
    )


def _moved(module: Module, places: Sequence[Instruction]) -> bool:
    motion, effects = WhileInvariantMotion(), Effects(module)
    made = [motion.hoist(loop, effects, PassLog()) for loop in places]
    return any(made)
