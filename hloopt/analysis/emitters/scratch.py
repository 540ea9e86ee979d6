"""A producer and one of its users as the fusion they would be, outside of any module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hloopt.ir import Computation, Instruction, edit
from hloopt.types import TupleShape

__all__ = ["fused_apart"]


@contextmanager
def fused_apart(
    producer: Instruction, consumer: Instruction, *, multi_output: bool = False
) -> Iterator[Instruction]:
    """The fusion of both, without a kind and in no computation; nothing points to it from the module.

    Its operands are the module's instructions, each once, the producer's first.  ``multi_output``: the
    producer's results come behind those of the consumer.  Gone when the block is left.
    """
    body = Computation("apart")
    outside = dict.fromkeys(
        operand
        for operand in (*producer.operands, *consumer.operands)
        if operand is not producer and not _is_element(operand, producer)
    )
    values = {
        operand: edit.append_unnamed(
            body,
            Instruction("param", "parameter", operand.shape, (), {"parameter_number": number}),
        )
        for number, operand in enumerate(outside)
    }
    made = _copy(producer, values, body)
    values[producer] = made[0]
    for operand in consumer.operands:
        if _is_element(operand, producer):
            values[operand] = made[operand.tuple_index]
    results = _copy(consumer, values, body)
    if multi_output:
        results += made
    shape = consumer.shape
    if multi_output or isinstance(shape, TupleShape):
        shape = TupleShape(tuple(result.shape for result in results))
        body.root = edit.append(body, Instruction("tuple", "tuple", shape, results))
    else:
        (body.root,) = results
    try:
        yield Instruction("apart", "fusion", shape, tuple(outside), {"calls": body})
    finally:
        edit.dissolve(body)


def _copy(
    instruction: Instruction, values: dict[Instruction, Instruction], body: Computation
) -> tuple[Instruction, ...]:
    """Copies of an op, or of a fusion's instructions; returns those of the results, without their tuple."""
    operands = tuple(values[operand] for operand in instruction.operands)
    if instruction.opcode != "fusion":
        return (_clone(instruction, body, operands),)
    source = instruction.calls
    results = source.results
    inner = dict(zip(source.parameters, operands, strict=True))
    for entry in source:
        if entry.opcode == "parameter" or (entry is source.root and entry.opcode == "tuple"):
            continue
        copied = tuple(inner[operand] for operand in entry.operands)
        inner[entry] = _clone(entry, body, copied)
    return tuple(inner[result] for result in results)


def _clone(
    instruction: Instruction, body: Computation, operands: tuple[Instruction, ...]
) -> Instruction:
    """A copy that has the attributes in common: separate parts are never changed."""
    copy = Instruction(
        instruction.name, instruction.opcode, instruction.shape, operands, instruction.attributes
    )
    return edit.append_unnamed(body, copy)


def _is_element(operand: Instruction, producer: Instruction) -> bool:
    return operand.is_element_of(producer)
