"""Keeping in-place updates in place: what may be fused with a dynamic-update-slice or scatter."""

from __future__ import annotations

from collections.abc import Iterator

from hloopt.analysis.elementwise import is_elementwise, is_same_place
from hloopt.analysis.hero import roots
from hloopt.dataclass import dataclass
from hloopt.fusion.decision import ALLOWED, Decision, forbid
from hloopt.ir import Computation, Instruction

__all__ = [
    "InPlacePair",
    "decide_in_place",
    "decide_scatter",
    "is_scatter_kernel",
    "updated_in_place",
]


@dataclass(frozen=True, slots=True)
class InPlacePair:
    """Operand ``index`` shares a result's buffer; ``update`` (of the body, in a fusion) writes it."""

    index: int
    update: Instruction


def updated_in_place(instruction: Instruction) -> tuple[InPlacePair, ...]:
    """The operands an op or fusion updates in place."""
    opcode = instruction.opcode
    if opcode == "dynamic-update-slice":
        return (InPlacePair(0, instruction),)
    if opcode == "scatter":
        count = (len(instruction.operands) - 1) // 2
        return tuple(InPlacePair(index, instruction) for index in range(count))
    if opcode == "fusion":
        return tuple(_body_pairs(instruction.calls))
    return ()


def decide_in_place(producer: Instruction, consumer: Instruction) -> Decision:
    """Whether the consumer can still update in place once the producer has joined it.

    Both are ops or fusions.  A fusion may read the updated value in one way that is not element by element.
    """
    for pair in updated_in_place(consumer):
        decision = _decide_pair(producer, consumer, pair)
        if not decision:
            return decision
    return ALLOWED


def _decide_pair(producer: Instruction, consumer: Instruction, pair: InPlacePair) -> Decision:
    target = consumer.operands[pair.index]
    if consumer.operands.count(target) > 1:
        return forbid("in-place-same-operand")
    if producer is not target and target not in producer.operands:
        return ALLOWED
    body: Computation | None = consumer.calls if consumer.opcode == "fusion" else None
    parameter = body.parameters[consumer.operands.index(producer)] if body is not None else None
    accesses = _accesses(producer)
    if len(accesses) > 1:
        return forbid("in-place-several-accesses")
    if not accesses:
        if parameter is not None and _read_elsewhere(parameter, pair.update):
            return forbid("in-place-read-elsewhere")
        return ALLOWED
    updates = _updates(consumer, body)
    if not updates:
        return ALLOWED
    if len(updates) > 1:
        return forbid("in-place-several-updates")
    access, update = accesses[0], updates[0]
    if access.opcode not in ("slice", "dynamic-slice"):
        return forbid("in-place-unrecognized")
    if not is_same_place(access, update, producer, consumer):
        return forbid("in-place-other-place")
    if parameter is not None and _read_elsewhere(parameter, pair.update):
        return forbid("in-place-several-accesses")
    return ALLOWED


def _body_pairs(body: Computation) -> Iterator[InPlacePair]:
    for output in roots(body):
        update = _through_bitcasts(output)
        for pair in updated_in_place(update) if update.opcode != "fusion" else ():
            target = _through_bitcasts(update.operands[pair.index])
            if target.opcode == "parameter":
                yield InPlacePair(target.parameter_number, update)


def _through_bitcasts(instruction: Instruction) -> Instruction:
    while instruction.opcode in ("bitcast", "opt-barrier"):
        instruction = instruction.operands[0]
    return instruction


def _is_pointwise(instruction: Instruction) -> bool:
    return instruction.opcode == "bitcast" or is_elementwise(instruction)


def _read_elsewhere(parameter: Instruction, update: Instruction) -> bool:
    """Whether an op other than the update, and not elementwise, depends on the parameter."""
    pending, seen = [parameter], {parameter}
    while pending:
        for user in pending.pop().users:
            if user in seen:
                continue
            seen.add(user)
            if user is not update and user.opcode != "tuple" and not _is_pointwise(user):
                return True
            pending.append(user)
    return False


def _accesses(producer: Instruction) -> list[Instruction]:
    """What of an op or fusion is not computed element by element."""
    if producer.opcode != "fusion":
        return [] if _is_pointwise(producer) else [producer]
    body = producer.calls
    return [
        entry
        for entry in body
        if entry.opcode not in ("parameter", "fusion") and not _is_pointwise(entry)
    ]


def _updates(consumer: Instruction, body: Computation | None) -> list[Instruction]:
    candidates = (consumer,) if body is None else tuple(body)
    return [entry for entry in candidates if entry.opcode == "dynamic-update-slice"]


def is_scatter_kernel(instruction: Instruction) -> bool:
    """Whether an op or fusion is written by the scatter kernel."""
    if instruction.opcode != "fusion":
        return instruction.opcode == "scatter"
    body = instruction.calls
    return bool(instruction.attributes["kind"] == "kInput") and body.root.opcode == "scatter"


def decide_scatter(producer: Instruction, consumer: Instruction) -> Decision:
    """Whether a scatter kernel stays one: it is the kernel's root, and its operand is in memory."""
    if is_scatter_kernel(producer):
        return forbid("scatter-producer")
    if not is_scatter_kernel(consumer):
        return ALLOWED
    target = _in_place_operand(consumer)
    if target is producer:
        return forbid("scatter-in-place-operand")
    if target is not None and target in producer.operands:
        return forbid("scatter-reads-in-place-operand")
    return ALLOWED


def _in_place_operand(consumer: Instruction) -> Instruction | None:
    """The operand whose buffer the scatter writes; None where that is computed in the fusion."""
    if consumer.opcode != "fusion":
        return consumer.operands[0]
    target = consumer.calls.root.operands[0]
    while target.opcode == "bitcast":
        target = target.operands[0]
    if target.opcode != "parameter":
        return None
    return consumer.operands[target.parameter_number]
