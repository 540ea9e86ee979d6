"""Classes of opcodes: what may be in a fusion, in which role, and what is expensive."""

from __future__ import annotations

from typing import Final

from hloopt.analysis.backend_config import is_triton
from hloopt.analysis.elementwise import is_elementwise, keeps_width
from hloopt.analysis.layout import (
    is_effective_scalar,
    moves_minor_dimension,
    reshape_is_bitcast,
    transpose_is_bitcast,
)
from hloopt.analysis.reduction import is_unnested
from hloopt.ir import Computation, Instruction, walk
from hloopt.ops.traits import (
    CHEAP,
    CHEAP_IF_REAL,
    CHEAP_ON_GPU,
    HEROES,
    INDEXING,
    MOVING,
    REARRANGING,
    REDUCING,
    SEQUENTIAL,
    TUPLES,
)
from hloopt.types import ArrayShape, TupleShape

__all__ = [
    "UNCOMPUTED",
    "is_always_duplicable",
    "is_expensive",
    "is_expensive_to_repeat",
    "is_fusible",
    "is_loop_fusible_consumer",
    "is_loop_fusible_producer",
    "is_reduction_epilogue",
    "may_be_fused",
    "physically_transposes",
    "repeats_reads",
    "reused_operands",
    "reused_parameters",
    "reuses",
]

UNCOMPUTED: Final = TUPLES | {"parameter"}
"""What no kernel computes: never fused."""
_NEVER: Final = SEQUENTIAL | {"domain", "parameter"}
_ALWAYS: Final = REDUCING | {"fusion", "map"}

_LOOP: Final = MOVING - {"bitcast"} | INDEXING | {"reduce-window"}
_LOOP_PRODUCERS: Final = frozenset({"iota", "constant"})

_HEROIC: Final = HEROES - {"concatenate", "dynamic-update-slice", "sort"} | {
    "fusion",
    "reduce-window",
}
_EPILOGUE: Final = frozenset({"convert", "bitcast", "bitcast-convert"})


def is_fusible(instruction: Instruction) -> bool:
    """Whether an instruction may be part of a fusion at all, whatever the device."""
    opcode = instruction.opcode
    if opcode in _NEVER:
        return False
    if opcode in _ALWAYS:
        return True
    if opcode == "rng":
        return len(instruction.users) <= 1
    if opcode == "copy" and _moves_to_another_memory(instruction):
        return False
    return not walk.has_side_effect(instruction)


def _moves_to_another_memory(copy: Instruction) -> bool:
    """Whether a copy changes the memory space: within a fusion it would move nothing."""
    spaces = {
        shape.layout.memory_space if shape.layout else 0
        for shape in (copy.shape, copy.operands[0].shape)
        if isinstance(shape, ArrayShape)
    }
    return len(spaces) > 1


def _is_loop_fusible(instruction: Instruction) -> bool:
    opcode = instruction.opcode
    if opcode in _LOOP:
        return isinstance(instruction.shape, ArrayShape)
    if opcode == "bitcast":
        return keeps_width(instruction)
    if opcode == "fusion":
        return bool(instruction.attributes["kind"] == "kLoop")
    return bool(instruction.operands) and is_elementwise(instruction)


def is_loop_fusible_producer(instruction: Instruction) -> bool:
    """Whether a loop kernel can compute any one element of the instruction where it needs it."""
    if instruction.opcode == "reduce":
        return isinstance(instruction.shape, ArrayShape)
    return instruction.opcode in _LOOP_PRODUCERS or _is_loop_fusible(instruction)


def is_loop_fusible_consumer(instruction: Instruction) -> bool:
    """Whether a loop kernel can be built around the instruction; every reduce is among these."""
    return instruction.opcode == "reduce" or _is_loop_fusible(instruction)


def is_expensive(instruction: Instruction) -> bool:
    """Whether an op is too expensive to compute again in another kernel."""
    opcode = instruction.opcode
    if opcode in CHEAP:
        return False
    shape = instruction.shape
    kind = shape.dtype if isinstance(shape, ArrayShape) else None
    if opcode in CHEAP_IF_REAL:
        source = instruction.operands[0].shape
        return not isinstance(source, ArrayShape) or source.dtype.is_complex
    if opcode in CHEAP_ON_GPU and kind is not None and kind.name in ("f32", "f16"):
        return False
    if opcode in ("divide", "remainder"):
        return kind is None or not kind.is_integer or not _is_splat(instruction.operands[1])
    return True


def _is_splat(instruction: Instruction) -> bool:
    """A constant of one element, or the broadcast of one."""
    if instruction.opcode == "broadcast":
        instruction = instruction.operands[0]
    return instruction.opcode == "constant" and is_effective_scalar(instruction.shape)


def is_always_duplicable(instruction: Instruction) -> bool:
    """Whether computing again costs no more than reading: broadcasts and widening conversions."""
    if instruction.opcode == "broadcast":
        return True
    if instruction.opcode != "convert":
        return False
    return instruction.operands[0].shape.byte_size < instruction.shape.byte_size


def is_expensive_to_repeat(instruction: Instruction, ratio: int) -> bool:
    """A serial reduce or a window that reads more than ``ratio`` elements for each result."""
    if instruction.opcode == "reduce":
        source, result = instruction.operands[0].shape, instruction.shape
        if isinstance(result, TupleShape):
            result = result.elements[0]
        if not isinstance(source, ArrayShape) or not isinstance(result, ArrayShape):
            return False
        return not is_unnested(instruction) and source.elements > ratio * result.elements
    if instruction.opcode == "reduce-window":
        return instruction.window.size > ratio
    return False


def repeats_reads(instruction: Instruction) -> bool:
    """Whether an op reads elements of its first operand several times."""
    if instruction.opcode in ("gather", "broadcast"):
        return instruction.array.elements > instruction.operands[0].array.elements
    if instruction.opcode == "reduce-window":
        return any(dimension.size > dimension.stride for dimension in instruction.window.dims)
    return False


def physically_transposes(instruction: Instruction) -> bool:
    """Whether an op writes its operand's elements in another order of memory.

    A copy counts whatever its layouts: it is there because a layout had to change.
    """
    return instruction.opcode == "copy" or moves_minor_dimension(instruction)


def is_reduction_epilogue(instruction: Instruction) -> bool:
    """Whether an op may follow a reduction in its kernel: one operand, at most one user, trivial."""
    if len(instruction.operands) != 1 or len(instruction.users) > 1:
        return False
    if instruction.opcode == "reshape":
        return reshape_is_bitcast(instruction)
    if instruction.opcode == "transpose":
        return transpose_is_bitcast(instruction)
    return instruction.opcode in _EPILOGUE


def may_be_fused(instruction: Instruction) -> bool:
    """Whether some strategy could make an instruction part of a fusion."""
    if instruction.opcode == "fusion" and instruction.attributes["kind"] == "kCustom":
        return is_triton(instruction)
    return is_fusible(instruction) and (
        instruction.opcode in _HEROIC
        or is_loop_fusible_producer(instruction)
        or is_loop_fusible_consumer(instruction)
    )


_USE: Final = REARRANGING - {"broadcast"} | {"concatenate", "gather"}


def reuses(instruction: Instruction, index: int) -> bool:
    """Whether an op may read an element of operand ``index`` for several result elements."""
    opcode = instruction.opcode
    if opcode in _USE or is_elementwise(instruction):
        return False
    if opcode == "pad":
        return index > 0
    if opcode == "reduce":
        return index >= len(instruction.operands) // 2
    if opcode == "dynamic-update-slice":
        return index > 1
    return True


def reused_operands(instruction: Instruction) -> set[Instruction]:
    """The operands of one op or fusion of which it may read elements several times."""
    operands = instruction.operands
    if instruction.opcode == "fusion":
        reused = reused_parameters(instruction.calls)
        return {operands[parameter.parameter_number] for parameter in reused}
    return {operand for index, operand in enumerate(operands) if reuses(instruction, index)}


def reused_parameters(body: Computation) -> set[Instruction]:
    """Parameters with a path to the root on which some op reads elements several times."""
    reused: set[Instruction] = set()
    for instruction in reversed(body):
        if instruction.opcode == "tuple":
            continue
        for index, operand in enumerate(instruction.operands):
            if instruction in reused or reuses(instruction, index):
                reused.add(operand)
    return {parameter for parameter in body.parameters if parameter in reused}
