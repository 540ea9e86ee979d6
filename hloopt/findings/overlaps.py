"""Collectives that run while nothing else does, though there is work that does not depend on them.

An asynchronous collective begins at its start and is over at its done: kernels between both run beside it, and
the time of it that they leave is exposed.  An order with the start as early, and the done as late, as operands
and users allow exposes the least.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hloopt.cost_models.collectives import collective_form, collective_opcode
from hloopt.findings.finding import FindingRemedy
from hloopt.findings.planning import is_planned
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.graphs import reached
from hloopt.ir import Computation, Instruction, Module, edit
from hloopt.kernels.costs import kernel_costs
from hloopt.ops.traits import COLLECTIVE, DONES, STARTS

__all__ = ["exposed", "exposed_seconds"]

_STARTS: Final = (STARTS & COLLECTIVE) | {"async-start"}
_TRIED: Final = 3
"""Collectives that are moved, those that expose most."""
_LOOKED_AT: Final = 12
"""Collectives whose independent work is counted."""
_PART: Final = 0.02
"""The part of a run that a collective exposes at least."""


_HIDDEN: Final = 0.001
"""The part of a run from which on a plan has an order that hides collectives: its compiler looked for more."""


class _Order:
    """The kernels of a planned computation in their order, and what of its collectives nothing hides."""

    def __init__(self, seconds: dict[Instruction, float]) -> None:
        self.seconds = seconds

    def left(self, computation: Computation) -> dict[Instruction, float]:
        """Seconds of each start that are left when it has to be done; those begun first go first."""
        waiting: dict[Instruction, float] = {}
        left: dict[Instruction, float] = {}
        for one in computation:
            if one in self.seconds and one.opcode in _STARTS and _done(one) is not None:
                waiting[one] = self.seconds[one]
            elif one.opcode in DONES and one.operands[0] in waiting:
                left[one.operands[0]] = waiting.pop(one.operands[0])
            else:
                beside = self.seconds.get(one, 0.0)
                for start, rest in waiting.items():
                    waiting[start] = max(0.0, rest - beside)
                    beside = max(0.0, beside - rest)
        return left

    def hidden(self, module: Module) -> float:
        """Seconds of collectives that other kernels hide, in all."""
        return sum(
            self.seconds[start] - rest
            for computation in module
            for start, rest in self.left(computation).items()
        )


def _order(subject: Subject, module: Module) -> tuple[_Order, float]:
    """Seconds of kernels while the entry runs once, and their sum."""
    is_plan = module is subject.module
    rows = subject.plan.rows if is_plan else kernel_costs(module, subject.planner.predictor)
    place = {one.name: one for one in module.instructions()} if is_plan else {}
    seconds = {place.get(row.instruction.name, row.instruction): row.seconds for row in rows}
    return _Order(seconds), sum(seconds.values())


def exposed_seconds(subject: Subject, module: Module) -> float:
    """Predicted seconds of a run of a planned module, where kernels hide what runs beside them."""
    order, total = _order(subject, module)
    return total - order.hidden(module)


def exposed(subject: Subject) -> Iterator[FindingCandidate]:
    """Collectives of a plan that other kernels could hide."""
    if not is_planned(subject.module):
        return
    target = subject.planner.predictor.target
    order, total = _order(subject, subject.module)
    if order.hidden(subject.module) > _HIDDEN * total:
        return
    waits = [
        (rest, start)
        for computation in subject.module
        for start, rest in order.left(computation).items()
        if rest > _PART * total and collective_form(start, target) is not None
    ]
    waits.sort(key=lambda wait: -wait[0])
    found = 0
    for rest, start in waits[:_LOOKED_AT]:
        before, after = _around(start)
        free = sum(
            order.seconds.get(one, 0.0)
            for one in start.home
            if one not in before and one not in after and one.opcode not in _STARTS
        )
        if found < _TRIED and free > order.seconds[start] - rest:
            found += 1
            yield _candidate(subject, start, rest, free)


def _candidate(subject: Subject, start: Instruction, rest: float, free: float) -> FindingCandidate:
    form = collective_form(start, subject.planner.predictor.target)
    done = _done(start)
    assert done is not None, "its time was found by it"
    return FindingCandidate(
        (start, done),
        f"%{start.name} ({collective_opcode(start)} over {form}) has {rest * 1e6:.3g} us left when "
        f"%{done.name} waits for it, by the links' datasheets; kernels of {free * 1e6:.3g} us neither make its "
        "operands nor read its result, and do not run beside it in this order.",
        (
            FindingRemedy(
                "flag",
                "without --xla_gpu_disable_async_collectives; --xla_gpu_enable_latency_hiding_scheduler=true "
                "where XLA is older than that of jaxlib 0.10",
            ),
            FindingRemedy(
                "model",
                "call it as soon as its operand is there, and read its result late: gradients layer by layer "
                "and not at the end, the weights of the next layer while this one computes, or two halves "
                "of the batch in turn",
            ),
        ),
        _Moved(start.home.name, start.name),
        counted=_Exposed(subject),
        is_late=True,
    )


class _Exposed:
    """The figure: seconds of a run of a planned module, where kernels hide collectives."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject

    def __call__(self, module: Module) -> float:
        """Of one module."""
        return exposed_seconds(self.subject, module)


class _Moved:
    """The change: a start as early, and its done as late, as operands and users allow."""

    def __init__(self, computation: str, start: str) -> None:
        self.computation = computation
        self.start = start

    def __call__(self, module: Module, places: Sequence[Instruction]) -> bool:
        """Order the computation anew."""
        home = module.computations[self.computation]
        start = home.by_name[self.start]
        before, after = _around(start)
        first = [one for one in home if one in before]
        last = [one for one in home if one in after]
        beside = [
            one for one in home if one not in before and one not in after and one is not start
        ]
        edit.put_in_order(home, [*first, start, *beside, *last])
        return True


def _done(start: Instruction) -> Instruction | None:
    """What ends a start; None where several ops read it."""
    users = [one for one in start.users if one.opcode in DONES]
    return users[0] if len(start.users) == 1 and users else None


def _around(start: Instruction) -> tuple[set[Instruction], set[Instruction]]:
    """All that has to be done before a start, and all that waits for its end, the done included."""
    return set(reached(_needed(start), _needed)), set(reached(_waiting(start), _waiting))


def _needed(one: Instruction) -> tuple[Instruction, ...]:
    return (*one.operands, *one.control_predecessors)


def _waiting(one: Instruction) -> tuple[Instruction, ...]:
    return (*one.users, *one.control_successors)
