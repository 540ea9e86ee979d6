"""Which buffers live when, in the order in which a computation stands.

A buffer belongs to an instruction and a tuple index.  Tuples, get-tuple-element, bitcasts and the like
own none: they pass on the buffers of their operands.  A ``while`` works in the buffers of its initial
state, as XLA's buffer assignment does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from hloopt.ir import Computation, Instruction, Module, walk
from hloopt.types import Shape, TupleShape

__all__ = ["Buffer", "Peak", "largest_buffers", "live_ranges", "peak"]

_ALIASES = frozenset({
    "bitcast", "get-tuple-element", "tuple", "while", "opt-barrier", "domain",
    "add-dependency", "copy-done", "async-done", "async-update", "all-reduce-done",
    "all-gather-done", "collective-permute-done",
})  # fmt: skip
_UNSIZED = frozenset({"token", "opaque"})


@dataclass(slots=True, eq=False)
class Buffer:
    """Bytes that live from position ``start`` to ``end`` of a computation, both included.

    ``kind`` is ``parameter``, ``constant`` or ``temporary``; ``is_result`` says that the computation
    hands it to its caller.
    """

    instruction: Instruction
    index: tuple[int, ...]
    byte_size: int
    start: int
    end: int
    kind: str
    is_result: bool = False


@dataclass(frozen=True, slots=True)
class Peak:
    """The largest number of bytes alive at once, where, and which buffers of the computation those are.

    ``called_bytes`` are the temporaries of a computation called at that instruction (a loop body ...);
    they are part of ``byte_size``.
    """

    byte_size: int
    instruction: Instruction | None
    called_bytes: int = 0
    buffers: tuple[Buffer, ...] = field(default=())


_Value: TypeAlias = "Buffer | tuple[_Value, ...] | None"


def live_ranges(computation: Computation) -> list[Buffer]:
    """Every buffer of a computation with its live range, in order of definition.

    Positions count instructions in the computation's order.  Parameters live from the start, results
    to the end.
    """
    buffers: list[Buffer] = []
    values: dict[Instruction, _Value] = {}
    last = len(computation) - 1
    for position, instruction in enumerate(computation):
        value = _passed_on(instruction, values)
        if value is None:
            value = _defined(instruction, instruction.shape, (), position, buffers)
        values[instruction] = value
        if instruction.opcode not in ("tuple", "get-tuple-element", "bitcast"):
            for operand in instruction.operands:
                for buffer in _leaves(values[operand]):
                    buffer.end = position
    for buffer in _leaves(values[computation.root]):
        buffer.end = last
        buffer.is_result = True
    for buffer in buffers:
        if buffer.kind == "parameter":
            buffer.start, buffer.end = 0, last
    return buffers


def peak(computation: Computation) -> Peak:
    """The peak of a computation, computations called through control flow included.

    Parameters of called computations are the caller's buffers and count once.
    """
    return _peak(computation, {})


def largest_buffers(module: Module, count: int = 10) -> list[Buffer]:
    """The ``count`` largest buffers of the entry and what it runs, largest first.

    Parameters of called computations are not listed: they are their callers' buffers; nor is what takes
    no bytes, such as tokens.
    """
    found = [
        buffer
        for computation in walk.top_level_computations(module)
        for buffer in live_ranges(computation)
        if buffer.byte_size and (computation is module.entry or buffer.kind != "parameter")
    ]
    found.sort(key=lambda buffer: -buffer.byte_size)
    return found[:count]


def _peak(computation: Computation, known: dict[Computation, int]) -> Peak:
    buffers = live_ranges(computation)
    count = len(computation)
    change = [0] * (count + 1)
    for buffer in buffers:
        change[buffer.start] += buffer.byte_size
        change[buffer.end + 1] -= buffer.byte_size
    alive, best, best_called, at, where = 0, -1, 0, 0, None
    for position, instruction in enumerate(computation):
        alive += change[position]
        called = _called_bytes(instruction, known)
        if alive + called > best:
            best, best_called, at, where = alive + called, called, position, instruction
    living = [buffer for buffer in buffers if buffer.start <= at <= buffer.end]
    living.sort(key=lambda buffer: -buffer.byte_size)
    return Peak(max(best, 0), where, best_called, tuple(living))


def _called_bytes(instruction: Instruction, known: dict[Computation, int]) -> int:
    if instruction.opcode not in ("while", "conditional", "call", "async-start"):
        return 0
    most = 0
    for called in walk.called_computations(instruction):
        if called not in known:
            inner = _peak(called, known)
            passed = sum(shape.byte_size for shape in called.parameter_shapes)
            known[called] = max(0, inner.byte_size - passed)
        most = max(most, known[called])
    return most


def _passed_on(instruction: Instruction, values: dict[Instruction, _Value]) -> _Value:
    """The value an instruction passes on without a buffer of its own; None where it defines one."""
    opcode = instruction.opcode
    if opcode == "tuple":
        return tuple(values[operand] for operand in instruction.operands)
    if opcode == "get-tuple-element":
        whole = values[instruction.operands[0]]
        index = instruction.attributes["index"]
        return whole[index] if isinstance(whole, tuple) and index < len(whole) else None
    if opcode in _ALIASES and instruction.operands:
        value = values[instruction.operands[0]]
        return value if _fits(value, instruction.shape) else None
    return None


def _fits(value: _Value, shape: Shape) -> bool:
    if isinstance(shape, TupleShape):
        return isinstance(value, tuple) and len(value) == len(shape.elements)
    return isinstance(value, Buffer)


def _defined(
    instruction: Instruction,
    shape: Shape,
    index: tuple[int, ...],
    position: int,
    buffers: list[Buffer],
) -> _Value:
    if isinstance(shape, TupleShape):
        return tuple(
            _defined(instruction, element, (*index, number), position, buffers)
            for number, element in enumerate(shape.elements)
        )
    kind = instruction.opcode if instruction.opcode in ("parameter", "constant") else "temporary"
    buffer = Buffer(instruction, index, shape.byte_size, position, position, kind)
    buffers.append(buffer)
    return buffer


def _leaves(value: _Value) -> Iterator[Buffer]:
    if isinstance(value, Buffer):
        yield value
    elif value is not None:
        for element in value:
            yield from _leaves(element)
