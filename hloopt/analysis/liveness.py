"""Live ranges of buffers, in the order of a computation's instructions.

Which instruction owns a buffer, and which takes one over, is in ``analysis/memory.py``.
"""

from __future__ import annotations

from dataclasses import field
from typing import TypeAlias

from hloopt.analysis.memory import MemoryModel, memory_model
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction, Module, walk
from hloopt.ops.traits import CONTROL_FLOW

__all__ = ["Buffer", "Known", "Peak", "called_bytes", "largest_buffers", "live_ranges", "peak"]


Known: TypeAlias = dict[tuple[Computation, bool], int]
"""What called computations need, with their results or without."""


@dataclass(slots=True, eq=False)
class Buffer:
    """Bytes that live from position ``start`` to ``end`` of a computation, both included.

    ``kind`` is ``parameter``, ``constant`` or ``temporary``; ``is_result`` says that the computation
    returns it to its caller.
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


def live_ranges(computation: Computation) -> list[Buffer]:
    """Every buffer of a computation with its live range, in order of definition.

    Positions count instructions in the computation's order.  Parameters live from the start, results
    to the end; a buffer that an update takes over in place lives on as the update's.
    """
    model = memory_model(computation)
    left, last = model.uses(), len(computation) - 1
    buffers: dict[int, Buffer] = {}
    inherited: set[int] = set()
    for buffer in model.parameters:
        buffers[buffer] = _buffer(model, buffer, 0, last)
    for number in range(len(model.instructions)):
        heirs = {
            target: source
            for source, target in model.taken[number]
            if model.is_free(number, source, left)
        }
        for buffer in model.touched[number]:
            left[buffer] -= 1
            buffers[buffer].end = max(buffers[buffer].end, number)
        for buffer in model.defined[number]:
            if buffer in heirs:
                buffers[buffer] = buffers[heirs[buffer]]
                inherited.add(buffer)
            else:
                buffers[buffer] = _buffer(model, buffer, number, number)
    for buffer in model.results:
        buffers[buffer].end = last
        buffers[buffer].is_result = True
    return [buffers[number] for number in range(len(model.sizes)) if number not in inherited]


def _buffer(model: MemoryModel, number: int, start: int, end: int) -> Buffer:
    owner, index = model.owners[number]
    instruction = model.instructions[owner]
    kind = instruction.opcode if instruction.opcode in ("parameter", "constant") else "temporary"
    return Buffer(instruction, index, model.sizes[number], start, end, kind)


def peak(computation: Computation, known: Known | None = None) -> Peak:
    """The peak of a computation, computations called through control flow included.

    Parameters of called computations are the caller's buffers and count once.  ``known`` remembers what called
    computations need.
    """
    return _peak_of(computation, live_ranges(computation), {} if known is None else known)


def largest_buffers(module: Module, count: int = 10) -> list[Buffer]:
    """The ``count`` largest buffers of the entry and what it runs, largest first.

    Parameters of called computations and results of calls and branches are not listed: they are their
    callers' buffers; nor is what takes no bytes, such as tokens.
    """
    found = [
        buffer
        for computation in walk.top_level_computations(module)
        for buffer in live_ranges(computation)
        if buffer.byte_size
        and (computation is module.entry or not _is_callers(buffer, computation))
    ]
    found.sort(key=lambda buffer: -buffer.byte_size)
    return found[:count]


def _is_callers(buffer: Buffer, computation: Computation) -> bool:
    if buffer.kind == "parameter":
        return True
    return buffer.is_result and all(caller.opcode != "while" for caller in computation.callers)


def _peak_of(computation: Computation, buffers: list[Buffer], known: Known) -> Peak:
    """The peak of some buffers of a computation, and of what its calls need."""
    count = len(computation)
    change = [0] * (count + 1)
    for buffer in buffers:
        change[buffer.start] += buffer.byte_size
        change[buffer.end + 1] -= buffer.byte_size
    alive, best, best_called, at, where = 0, -1, 0, 0, None
    for position, instruction in enumerate(computation):
        alive += change[position]
        called = called_bytes(instruction, known)
        if alive + called > best:
            best, best_called, at, where = alive + called, called, position, instruction
    living = [buffer for buffer in buffers if buffer.start <= at <= buffer.end]
    living.sort(key=lambda buffer: -buffer.byte_size)
    return Peak(max(best, 0), where, best_called, tuple(living))


def called_bytes(instruction: Instruction, known: Known) -> int:
    """The bytes that computations called through control flow need besides what is passed to them and back.

    Results of a call or a branch are in the caller's buffers; a loop's body writes its results beside the
    state that it reads.  ``known`` remembers the bytes.
    """
    if instruction.opcode not in CONTROL_FLOW:
        return 0
    most, is_loop = 0, instruction.opcode == "while"
    for called in walk.called_computations(instruction):
        if (called, is_loop) not in known:
            own = [
                buffer
                for buffer in live_ranges(called)
                if buffer.kind != "parameter" and (is_loop or not buffer.is_result)
            ]
            known[called, is_loop] = _peak_of(called, own, known).byte_size
        most = max(most, known[called, is_loop])
    return most
