"""Producers that must not be duplicated: copies of them would make kernels read more than now."""

from __future__ import annotations

from collections.abc import Callable

from hloopt.analysis.layout import is_effective_scalar, true_rank
from hloopt.analysis.reachability import Reachability
from hloopt.fusion.fusible import is_fusible
from hloopt.ir import Instruction
from hloopt.types import elements_of, leaves

__all__ = ["globally_unfusible"]

_Allowed = Callable[[Instruction, Instruction], bool]


def globally_unfusible(
    order: list[Instruction], reachability: Reachability, allowed: _Allowed, max_paths: int
) -> set[Instruction]:
    """The producers that are fused into no consumer at all.

    A producer may be duplicated when it reads one relevant operand at most, when its operands together
    are no larger than its output, or when it can be fused into each user along all paths to it.
    ``order`` is a post-order; ``allowed(producer, consumer)`` the verdict on one pair.  Where there are
    more than ``max_paths`` instructions between two, they count as not fusible.
    """
    kept: set[Instruction] = set()
    free: dict[Instruction, bool] = {}
    for consumer in reversed(order):
        for producer in dict.fromkeys(consumer.operands):
            if producer not in free:
                free[producer] = _is_at_most_unary(producer) or _does_not_grow(producer)
            if producer in kept or free[producer]:
                continue
            if is_fusible(producer) and _on_all_paths(
                producer, consumer, reachability, allowed, kept, max_paths
            ):
                continue
            kept.add(producer)
    return kept


def _on_all_paths(
    producer: Instruction,
    consumer: Instruction,
    reachability: Reachability,
    allowed: _Allowed,
    kept: set[Instruction],
    max_paths: int,
) -> bool:
    if not is_fusible(consumer) or not allowed(producer, consumer):
        return False
    if len(producer.users) == 1:
        return True
    path = reachability.path_instructions(producer, consumer, max_paths)
    if path is None:
        return False
    for instruction in path:
        if instruction is producer:
            continue
        if instruction is not consumer and (instruction in kept or not is_fusible(instruction)):
            return False
        for operand in dict.fromkeys(instruction.operands):
            if operand in path and not allowed(operand, instruction):
                return False
    return True


def _is_at_most_unary(instruction: Instruction) -> bool:
    rank = max((true_rank(leaf) for leaf in leaves(instruction.shape)), default=0)
    count = 0
    for operand in instruction.operands:
        if operand.opcode in ("broadcast", "iota"):
            continue
        if operand.opcode == "constant" and is_effective_scalar(operand.shape):
            continue
        count += true_rank(operand.shape) >= rank
    return count <= 1


def _does_not_grow(instruction: Instruction) -> bool:
    read = sum(elements_of(operand.shape) for operand in set(instruction.operands))
    return read <= elements_of(instruction.shape)
