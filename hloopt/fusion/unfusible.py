"""Producers that must not be duplicated: copies of them would make kernels read more than now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hloopt.analysis.layout import is_effective_scalar, true_rank
from hloopt.analysis.reachability import Reachability
from hloopt.fusion.fusible import is_fusible
from hloopt.ir import Instruction
from hloopt.types import ArrayShape, Shape, TupleShape, leaves

__all__ = ["globally_unfusible"]

MAX_PATH_INSTRUCTIONS: Final = 512
"""Where telling the paths between two instructions apart takes more, they count as not fusible."""

_Allowed = Callable[[Instruction, Instruction], bool]


def globally_unfusible(
    order: list[Instruction], reachability: Reachability, allowed: _Allowed
) -> set[Instruction]:
    """The producers that are fused into no consumer at all.

    A producer may be duplicated when it reads one relevant operand at most, when its operands together
    are no larger than its output, or when it can be fused into each user along all paths to it.
    ``order`` is a post-order; ``allowed(producer, consumer)`` the verdict on one pair.
    """
    kept: set[Instruction] = set()
    for consumer in reversed(order):
        for producer in dict.fromkeys(consumer.operands):
            if producer in kept or _is_at_most_unary(producer) or _does_not_grow(producer):
                continue
            if is_fusible(producer) and _on_all_paths(
                producer, consumer, reachability, allowed, kept
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
) -> bool:
    if not is_fusible(consumer) or not allowed(producer, consumer):
        return False
    if len(producer.users) == 1:
        return True
    path = reachability.path_instructions(producer, consumer, MAX_PATH_INSTRUCTIONS)
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
    read = sum(_elements(operand.shape) for operand in set(instruction.operands))
    return read <= _elements(instruction.shape)


def _elements(shape: Shape) -> int:
    if isinstance(shape, ArrayShape):
        return shape.elements
    if isinstance(shape, TupleShape):
        return sum(map(_elements, shape.elements))
    return shape.element.elements
