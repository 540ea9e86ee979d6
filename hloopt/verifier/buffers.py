"""Buffers ``b(f32[8])``: who may have one, and that each is written once.

A buffer value may be handed to one writer only: custom calls, loops and other callers count as writers.
"""

from __future__ import annotations

from collections.abc import Iterator

from hloopt.ir import Computation, Instruction
from hloopt.ops.shapes import braces
from hloopt.ops.traits import CONTROL_FLOW, TUPLES
from hloopt.types import ArrayShape, BufferShape, FrontendAttributes, Shape, TupleShape, compatible
from hloopt.verifier.constraints import Fault
from hloopt.verifier.readings import aliases

__all__ = ["BufferChecks"]

Index = tuple[int, ...]

_CALLERS = CONTROL_FLOW | {"custom-call", "fusion"}
_COUNTED = ("custom-call", "parameter", "while")
_STREAM = "_xla_stream_annotation"


class BufferChecks:
    """The checks of one module; shapes are looked into once."""

    def __init__(self) -> None:
        # The value keeps the key's id from being used again.
        self._places: dict[int, tuple[Shape, tuple[Index, ...]]] = {}

    def faults(self, computation: Computation) -> Iterator[Fault]:
        """The offences of a computation's instructions, in which buffers may not occur at all."""
        concerned: set[Instruction] = set()
        for instruction in computation:
            if self._indices(instruction.shape):
                concerned.add(instruction)
                concerned.update(instruction.users)
            elif instruction.opcode == "custom-call" and instruction.custom_call_target in _FORMS:
                concerned.add(instruction)
        if not concerned:
            return
        if any(caller.opcode == "async-start" for caller in computation.callers):
            if computation.root.opcode == "custom-call":
                yield from self._custom_call(computation.root)
            return
        for instruction in computation:
            if instruction in concerned:
                yield from self._instruction(instruction)
        yield from self._writers(computation)

    def _indices(self, shape: Shape) -> tuple[Index, ...]:
        """Where the buffers of a shape are."""
        if isinstance(shape, ArrayShape):
            return ()
        known = self._places.get(id(shape))
        if known is None:
            known = self._places[id(shape)] = shape, tuple(_places(shape))
        return known[1]

    def _instruction(self, instruction: Instruction) -> Iterator[Fault]:
        opcode = instruction.opcode
        if opcode in ("while", *TUPLES) or opcode.startswith("async-"):
            return
        if opcode == "custom-call":
            yield from self._custom_call(instruction)
            return
        if opcode == "call" and _STREAM in FrontendAttributes.of(instruction.attributes):
            return
        if opcode == "parameter":
            module = instruction.computation and instruction.computation.module
            if module and module.entry is instruction.computation:
                yield Fault(
                    instruction,
                    "buffer",
                    f"has shape {instruction.shape}; the entry takes no buffers",
                )
            return
        yield Fault(instruction, "buffer", f"{opcode} takes and gives no buffers")

    # ---- custom calls -------------------------------------------------------------------------------

    def _custom_call(self, call: Instruction) -> Iterator[Fault]:
        target = call.custom_call_target
        form = _form_message(call, target) if target in _FORMS else None
        message = self._general_message(call) if form is None else form
        if message:
            yield Fault(call, "buffer", message)

    def _general_message(self, call: Instruction) -> str:
        given: dict[tuple[int, Index], int] = {}
        made: dict[Index, int] = {}
        for pair in aliases(call):
            place = pair.parameter, pair.parameter_index
            given[place] = given.get(place, 0) + 1
            made[pair.output_index] = made.get(pair.output_index, 0) + 1
        for number, operand in enumerate(call.operands):
            for index in self._indices(operand.shape):
                count = given.get((number, index), 0)
                if count != 1:
                    return (
                        f"the buffer {braces(index)} of operand {number} must be one result by "
                        f"output_to_operand_aliasing=, it is {count}"
                    )
        for index in self._indices(call.shape):
            count = made.get(index, 0)
            if count != 1:
                return (
                    f"the buffer {braces(index)} of the result must be one operand by "
                    f"output_to_operand_aliasing=, it is {count}"
                )
        return ""

    # ---- writers ------------------------------------------------------------------------------------

    def _writers(self, computation: Computation) -> Iterator[Fault]:
        """Count writers from the users backwards: each value includes those of what is made of it."""
        in_loop = any(caller.opcode == "while" for caller in computation.callers)
        counts: dict[Instruction, dict[Index, int]] = {}
        found: list[Fault] = []
        for instruction in reversed(computation):
            indices = self._indices(instruction.shape)
            if not indices:
                continue
            count = counts[instruction] = _count(instruction, indices, counts, in_loop=in_loop)
            if instruction.opcode not in _COUNTED:
                continue
            for index in indices:
                if count[index] > 1:
                    message = f"the buffer {braces(index)} has {count[index]} writers, not one"
                    found.append(Fault(instruction, "buffer", message))
        yield from reversed(found)


def _places(shape: Shape, index: Index = ()) -> Iterator[Index]:
    if isinstance(shape, BufferShape):
        yield index
    elif isinstance(shape, TupleShape) and shape.holds_buffers:
        for number, element in enumerate(shape.elements):
            yield from _places(element, (*index, number))


def _count(
    instruction: Instruction,
    indices: tuple[Index, ...],
    counts: dict[Instruction, dict[Index, int]],
    *,
    in_loop: bool,
) -> dict[Index, int]:
    """How many write each of the buffers that an instruction gives."""
    writers = sum(user.opcode in _CALLERS for user in instruction.users)
    found = dict.fromkeys(indices, writers)
    for user in instruction.users:
        inner = counts.get(user, {})
        if user.opcode == "get-tuple-element":
            number = user.attributes.get("index")
            for index, count in inner.items():
                place = (number, *index)
                if place in found:
                    found[place] += count
        elif user.opcode == "tuple":
            if user.is_root:
                if in_loop:
                    found = {index: count + 1 for index, count in found.items()}
                continue
            number = user.operands.index(instruction)
            for index in indices:
                found[index] += inner.get((number, *index), 0)
    return found


# ---- what makes and ends buffers --------------------------------------------------------------------

_FORMS = ("CreateBuffer", "Pin", "Unpin")


def _form_message(call: Instruction, target: str) -> str:
    operands, shape = call.operands, call.shape
    if target == "CreateBuffer":
        if operands:
            return f"CreateBuffer takes no operands, not {len(operands)}"
        return "" if isinstance(shape, BufferShape) else f"CreateBuffer gives {shape}, not a buffer"
    if len(operands) != 1:
        return f"{target} takes one operand, not {len(operands)}"
    given = operands[0].shape
    array, buffer = (given, shape) if target == "Pin" else (shape, given)
    if not isinstance(array, ArrayShape) or not isinstance(buffer, BufferShape):
        wanted = "an array to a buffer" if target == "Pin" else "a buffer to an array"
        return f"{target} makes {given} to {shape}, not {wanted}"
    if not compatible(array, buffer.element):
        return f"{target} makes {given} to {shape}; their arrays must be equal"
    pairs = aliases(call)
    if len(pairs) != 1:
        return f"{target} has one pair in output_to_operand_aliasing=, not {len(pairs)}"
    return ""
