"""Values that are kept though they are cheap to compute again, and orders that keep too many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from hloopt.analysis.assignment import AssignedValue
from hloopt.findings.finding import FindingRemedy
from hloopt.findings.peak import origins, value_lines
from hloopt.findings.planning import ProgramPlan, is_planned
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Computation, Instruction, Module, build, edit
from hloopt.ir.build import clone_module, no_collection
from hloopt.numbers import byte_size
from hloopt.ops.traits import MOVING
from hloopt.passes.copy_insertion import CopyInsertion
from hloopt.passes.rematerialize import Rematerialize
from hloopt.passes.schedule import Schedule
from hloopt.rewrite.pass_ import PassLog
from hloopt.rewrite.site import is_replaceable
from hloopt.rewrite.source_lines import lines_text

__all__ = ["kept_values", "orders"]

_LEAST: Final = 1 << 20
"""Bytes of temporaries from which on their peak is worth a word."""
_SHARES: Final = (0.7, 0.4, 0.0)
"""The parts of the temporaries that are to be left, the largest, which costs least time, first."""
_SLOWER: Final = 1.25
"""How much longer a run may take for the memory that is saved by values that are computed one by one."""
_FORWARDS: Final = 1.75
"""The same where all that is computed before a gradient is computed again, but for products."""
_ALSO: Final = frozenset({"reduce"})
_SCALARS: Final = frozenset({"constant", "iota"})
_GRADIENT: Final = "transpose("
"""What JAX's names of ops have in the part of a gradient that goes backwards."""


def kept_values(subject: Subject) -> Iterator[FindingCandidate]:
    """Values to compute again: all that a gradient keeps but products, else those of the peak one by one."""
    if subject.plan.assignment.bytes_of("temporary") < _LEAST:
        return
    single = next(_one_by_one(subject), None)
    gradient = next(_of_gradient(subject), None)
    if gradient is not None:
        yield replace(gradient, instead=single)
    elif single is not None:
        yield single


def _of_gradient(subject: Subject) -> Iterator[FindingCandidate]:
    """What ``jax.checkpoint`` would compute again in a gradient with the policy that keeps products."""
    if not subject.is_small:
        return  # the whole would have to be planned again
    kept = _residuals(subject.module.entry)
    if sum(one.shape.byte_size for one in kept) < _LEAST:
        return
    kept.sort(key=lambda one: -one.shape.byte_size)
    module = subject.module
    lines = tuple(dict.fromkeys(line for one in kept for line in module.user_lines(one.metadata)))
    place = f" of {lines_text(lines)}" if lines else ""
    yield FindingCandidate(
        tuple(kept),
        f"The gradient reads {len(kept)} values{place} from before, "
        f"{byte_size(sum(one.shape.byte_size for one in kept))} as they are written. What fusion does "
        "not compute "
        "again is kept until then, though only cheap ops are between it and products or arguments.",
        (
            FindingRemedy(
                "model",
                "jax.checkpoint(f, policy=jax.checkpoint_policies.dots_saveable) around the function "
                "that is differentiated: products are kept, all else is computed again; in TensorFlow "
                "tf.recompute_grad, in PyTorch torch.utils.checkpoint",
            ),
        ),
        _checkpointed,
        holds=lambda before, after: after.seconds <= _FORWARDS * before.seconds,
    )


def _residuals(entry: Computation) -> list[Instruction]:
    """Values of the part that goes forwards, which are cheap to compute and read by the gradient."""
    backward = _backward(entry)
    return [
        one
        for one in entry
        if one not in backward
        and _is_cheap(one)
        and any(user in backward for user in one.users)
        and any(operand.opcode not in _SCALARS for operand in one.operands)
    ]


def _backward(entry: Computation) -> set[Instruction]:
    """What JAX names so, and what needs it."""
    found: set[Instruction] = set()
    for one in entry:
        name = "" if one.metadata is None else str(one.metadata.fields.get("op_name", ""))
        if _GRADIENT in name or any(operand in found for operand in one.operands):
            found.add(one)
    return found


def _is_cheap(one: Instruction) -> bool:
    """Whether an instruction is computed again rather than kept."""
    op = one.op
    return (
        one.is_array
        and is_replaceable(one)
        and (op.is_elementwise or op.opcode in MOVING or op.opcode in _ALSO)
        and bool(one.operands)
    )


def _checkpointed(module: Module, places: Sequence[Instruction]) -> bool:
    """Compute the places again for the gradient, from products and arguments behind barriers."""
    entry = places[0].home
    backward = _backward(entry)
    again: dict[Instruction, Instruction] = {}
    for place in places:
        pending = [place]
        while pending:
            here = pending[-1]
            missing = [one for one in here.operands if one not in again] if _is_cheap(here) else []
            if missing and here not in again:
                pending += missing
                continue
            pending.pop()
            if here in again:
                continue
            if _is_cheap(here):
                operands = tuple(again[one] for one in here.operands)
                again[here] = build.clone(here, here, operands)
            elif here.opcode in _SCALARS or not here.is_array:
                again[here] = here
                continue
            else:
                again[here] = build.make(here, "opt-barrier", (), {}, shape=here.shape)
                edit.set_operands(again[here], (here,))
            edit.move_after(here, again[here])
    for place in places:
        for user in [one for one in place.users if one in backward]:
            edit.replace_operand(user, place, again[place])
    return True


def _one_by_one(subject: Subject) -> Iterator[FindingCandidate]:
    plan = subject.plan
    found = plan.assignment
    temporaries = found.bytes_of("temporary")
    fixed = found.byte_size - temporaries
    limits = [fixed + int(share * temporaries) for share in _SHARES]
    if not subject.is_small:
        limits = limits[:1]
    copy = _recomputed(subject, limits[-1])
    if copy is None:
        return
    dropped = _no_longer_alive(plan, copy)
    if not dropped:
        return  # values have only moved
    sites = _of_one_computation(origins(subject, dropped)) or [subject.module.entry.root]
    lines = tuple(
        dict.fromkeys(line for one in dropped for line in value_lines(plan.module, one)[:1])
    )
    at = found.schedule.order[found.peak_time()]
    is_gradient = any(_GRADIENT in name for name in _op_names(plan.module, copy))
    place = f", from {lines_text(lines)}" if lines else ""
    candidate = None
    for limit in reversed(limits):
        candidate = FindingCandidate(
            tuple(sites),
            f"{len(dropped)} arrays ({byte_size(sum(one.byte_size for one in dropped))}){place} are kept in "
            f"memory over %{at.name}, where most is needed, for readers that come after it. They follow "
            "in one step each from arrays that are alive there anyway.",
            _remedies(lines, is_gradient, limit),
            _Recomputed(limit),
            is_late=True,
            holds=lambda before, after: after.seconds <= _SLOWER * before.seconds,
            instead=candidate,
            changed=copy if limit == limits[-1] else None,
        )
    assert candidate is not None, "there are limits"
    yield candidate


def _recomputed(subject: Subject, limit: int) -> Module | None:
    copy = clone_module(subject.plan.module)
    return copy if _Recomputed(limit)(copy, ()) else None


def _no_longer_alive(plan: ProgramPlan, after: Module) -> list[AssignedValue]:
    """Temporaries of the peak that are read last before it once others are computed again after it."""
    found = plan.assignment
    time = found.peak_time()
    order = [one.name for one in found.schedule.order]
    before = set(order[: time + 1])
    gone = []
    for value in found.alive(time):
        home = after.computations.get(value.instruction.home.name)
        same = None if home is None else home.by_name.get(value.instruction.name)
        if same is None or value.instruction.opcode == "parameter":
            continue
        if len(same.users) < len(value.instruction.users) and all(
            user.name in before for user in same.users
        ):
            gone.append(value)
    return gone


def _of_one_computation(found: Sequence[Instruction]) -> list[Instruction]:
    return [one for one in found if one.home is found[0].home]


def _op_names(before: Module, after: Module) -> Iterator[str]:
    """The frameworks' names of what reads a value that was computed again."""
    known = {one.name for one in before.instructions()}
    for one in after.instructions():
        if one.name not in known:
            for user in one.users:
                if user.metadata is not None:
                    yield str(user.metadata.fields.get("op_name", ""))


def _remedies(lines: Sequence[str], is_gradient: bool, limit: int) -> tuple[FindingRemedy, ...]:
    place = f" around what computes {lines_text(lines)}" if lines else ""
    model = (
        f"jax.checkpoint{place}, which computes it again for the gradient; in TensorFlow "
        "tf.recompute_grad, in PyTorch torch.utils.checkpoint"
        if is_gradient
        else "compute the array again where it is read last, from "
        "jax.lax.optimization_barrier(inputs), so that the compiler does not merge both"
    )
    return (
        FindingRemedy("model", model),
        FindingRemedy("hloopt", f"rematerialize{{bytes={limit}}} after the other passes"),
    )


class _Recomputed:
    """The change: values are computed again until the plan needs ``limit`` bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def __call__(self, module: Module, places: Sequence[Instruction]) -> bool:
        """Whether there is a value to compute again."""
        with no_collection():
            return Rematerialize(self.limit).run(module, PassLog())


def orders(subject: Subject) -> Iterator[FindingCandidate]:
    """A module that is ordered already, in another order."""
    if not is_planned(subject.module):
        return  # the plan is in hloopt's own order
    found = subject.plan.assignment
    if found.bytes_of("temporary") < _LEAST:
        return
    at = found.schedule.order[found.peak_time()]
    alive = [
        one
        for one in found.alive(found.peak_time())
        if one.instruction.opcode != "parameter" and one.byte_size >= _LEAST >> 4
    ]
    sites = _of_one_computation([at, *(one.instruction for one in alive)])
    yield FindingCandidate(
        tuple(dict.fromkeys(sites)),
        f"In the order in which the module stands, {len(alive)} arrays are alive while %{at.name} runs; "
        "in another order of the same instructions less is.",
        (
            FindingRemedy(
                "flag",
                "--xla_gpu_enable_latency_hiding_scheduler=false on a GPU, "
                "--xla_cpu_enable_concurrency_optimized_scheduler=false on a CPU: XLA then orders "
                "for memory, not to overlap",
            ),
            FindingRemedy("hloopt", "schedule,copy-insertion after the other passes"),
            FindingRemedy(
                "model",
                "jax.lax.optimization_barrier over what is to be done with first and the inputs of "
                "what is to come after it",
            ),
        ),
        _ordered,
        is_late=True,
    )


def _ordered(module: Module, places: Sequence[Instruction]) -> bool:
    changed = Schedule().run(module, PassLog())
    return CopyInsertion().run(module, PassLog()) or changed
