"""Reading a loop: what an instruction stands for, through tuples, copies, views, calls and fusions.

A ``FramedInstruction`` is an instruction together with the calls it was reached through; a ``StateSlot`` is an
element of the loop's state (None where the state is not a tuple).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction
from hloopt.ops.traits import FORWARDING, VIEWS
from hloopt.types import ArrayShape, TupleShape

__all__ = ["CallFrame", "FramedInstruction", "Reader", "StateSlot", "WhileLoop", "is_splat_view"]

MAX_STEPS = 4096
"""The most steps from instruction to operand that are followed."""


@dataclass(frozen=True, slots=True, eq=False)
class CallFrame:
    """One call that is being followed."""

    call: Instruction
    outer: CallFrame | None


@dataclass(frozen=True, slots=True)
class StateSlot:
    """An element of the state, by its index; None is the whole state, which is not a tuple."""

    index: int | None


FramedInstruction: TypeAlias = "tuple[Instruction, CallFrame | None]"


class Reader:
    """Finds what instructions stand for; parameters in ``states`` are the state of a loop.

    What every element of the result has in common with every element of the operand (``broadcast`` of a
    number) is read through as well: the requested values are such numbers.
    So is a slice of a concatenate that lies within one operand: fusions lay results side by side like that.
    """

    def __init__(self, states: tuple[Instruction, ...] = ()) -> None:
        self._states = states
        self._frames: dict[tuple[Instruction, CallFrame | None], CallFrame] = {}

    def find(
        self, instruction: Instruction, frame: CallFrame | None = None, path: tuple[int, ...] = ()
    ) -> FramedInstruction | StateSlot | None:
        """What an instruction, or the element of it at ``path``, stands for; None where that is unknown."""
        pending = list(reversed(path))
        for _ in range(MAX_STEPS):
            if instruction in self._states and frame is None:
                return _slot(instruction, pending)
            opcode = instruction.opcode
            if opcode == "get-tuple-element":
                pending.append(instruction.attributes["index"])
                instruction = instruction.operands[0]
            elif opcode == "tuple" and pending:
                instruction = instruction.operands[pending.pop()]
            elif opcode in FORWARDING or is_splat_view(instruction):
                instruction = _joined_part(instruction) or instruction.operands[0]
            elif opcode in _CALLS:
                frame = self._frame(instruction, frame)
                instruction = instruction.attributes[_CALLS[opcode]].root
            elif opcode == "parameter" and frame is not None:
                number = instruction.parameter_number
                instruction, frame = frame.call.operands[number], frame.outer
            elif opcode == "while" and pending and _passes(instruction, pending[-1]):
                instruction = instruction.operands[0]
            else:
                outer = _given(instruction, pending) if opcode == "parameter" else None
                if outer is None:
                    return None if pending else (instruction, frame)
                instruction = outer
        return None

    def _frame(self, call: Instruction, outer: CallFrame | None) -> CallFrame:
        return self._frames.setdefault((call, outer), CallFrame(call, outer))


_CALLS = {"call": "to_apply", "fusion": "calls"}


def is_splat_view(instruction: Instruction) -> bool:
    """Whether the result holds nothing but elements of its operand, of the same type, and at least one."""
    if instruction.opcode not in VIEWS:
        return False
    source, result = instruction.operands[0].shape, instruction.shape
    return (
        isinstance(source, ArrayShape)
        and isinstance(result, ArrayShape)
        and source.dtype is result.dtype
        and bool(source.elements and result.elements)
    )


def _joined_part(instruction: Instruction) -> Instruction | None:
    """The operand of a concatenate that a slice of it lies in."""
    joined = instruction.operands[0]
    if instruction.opcode != "slice" or joined.opcode != "concatenate":
        return None
    (dimension,) = joined.attributes["dimensions"]
    taken, end = instruction.attributes["slice"][dimension], 0
    for part in joined.operands:
        start, end = end, end + part.array.dims[dimension]
        if start <= taken.start and taken.limit <= end:
            return part
    return None


def _slot(state: Instruction, pending: list[int]) -> StateSlot | None:
    if not isinstance(state.shape, TupleShape):
        return StateSlot(None)
    return StateSlot(pending[0]) if len(pending) == 1 else None


def _passes(loop: Instruction, index: int) -> bool:
    """Whether a loop passes an element of its state through; only direct forms are recognised."""
    body = loop.body
    following = body.root
    if following.opcode == "tuple":
        following = following.operands[index]
        while following.opcode == "copy":
            following = following.operands[0]
    elif following is body.parameters[0]:
        return True
    return (
        following.opcode == "get-tuple-element"
        and following.operands[0] is body.parameters[0]
        and following.attributes["index"] == index
    )


def _given(parameter: Instruction, pending: list[int]) -> Instruction | None:
    """What the only caller of a computation passes to it; through a loop, where that passes it on."""
    computation = parameter.computation
    if computation is None or len(computation.callers) != 1:
        return None
    ((caller, count),) = computation.callers.items()
    if caller.opcode in _CALLS:
        return caller.operands[parameter.parameter_number]
    if caller.opcode == "while" and pending and _passes(caller, pending[-1]):
        return caller.operands[0]
    if caller.opcode == "conditional" and count == 1:
        return caller.operands[1 + _branches(caller).index(computation)]
    return None


def _branches(conditional: Instruction) -> tuple[Computation, ...]:
    found: tuple[Computation, ...] | None = conditional.attributes.get("branch_computations")
    if found is not None:
        return found
    attributes = conditional.attributes
    return attributes["true_computation"], attributes["false_computation"]


class WhileLoop:
    """A while by elements of its state."""

    def __init__(self, loop: Instruction) -> None:
        self.instruction = loop
        self.condition = loop.condition
        self.body = loop.body
        self.inside = Reader((self.condition.parameters[0], self.body.parameters[0]))
        self.outside = Reader()

    def slots(self) -> Iterator[StateSlot]:
        """All elements of the state."""
        shape = self.instruction.shape
        if isinstance(shape, TupleShape):
            yield from map(StateSlot, range(len(shape.elements)))
        else:
            yield StateSlot(None)

    def shape(self, slot: StateSlot) -> ArrayShape | None:
        """The element's shape, where it is an array."""
        shape = self.instruction.shape
        if slot.index is not None and isinstance(shape, TupleShape):
            shape = shape.elements[slot.index]
        return shape if isinstance(shape, ArrayShape) else None

    def initial(self, slot: StateSlot) -> FramedInstruction | None:
        """What the element is before the loop."""
        found = self.outside.find(self.instruction.operands[0], None, _path(slot))
        return found if isinstance(found, tuple) else None

    def following(self, slot: StateSlot) -> FramedInstruction | StateSlot | None:
        """What the body makes the element's next value."""
        return self.inside.find(self.body.root, None, _path(slot))

    def is_passed_on(self, slot: StateSlot) -> bool:
        """Whether the body passes the element through unchanged."""
        return self.following(slot) == slot


def _path(slot: StateSlot) -> tuple[int, ...]:
    return () if slot.index is None else (slot.index,)
