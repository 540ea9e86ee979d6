"""Collectives of a program that one device runs alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, Module, build, edit
from hloopt.ir.walk import open_computations
from hloopt.ops.custom import MARKERS
from hloopt.ops.traits import COLLECTIVE, DEVICE_NUMBERS, op_table
from hloopt.rewrite import Pass, PassLog, same_layout
from hloopt.types import ArrayShape, Shape, TupleShape, compatible, parts_of

__all__ = ["SoleParticipant"]

_STEP = "a collective of one participant"

_Write = Callable[[Instruction], "Instruction | None"]


@dataclass(frozen=True)
class SoleParticipant(Pass):
    """Write what a program computes when no other device takes part, if its header asks for none.

    1. ``all-reduce``, ``all-gather``, ``reduce-scatter`` and ``all-to-all`` give their operands, and so does
       ``collective-broadcast`` where a group names device 0; where a reducer computes in another type,
       operands are rounded to that.
    2. ``collective-permute`` gives its operands where device 0 sends to itself, and gives zeros elsewhere.
    3. ``partition-id`` and ``replica-id`` are 0.
    4. ``-start`` and ``-done`` of these do the same as the op in one.
    5. Custom calls that only say where a value is to be, or how it is split (``Sharding`` ...), forward it.

    Left alone: modules of several replicas or partitions, ``ragged-all-to-all``, permutes of slices, and
    collectives wrapped in asynchronous calls.
    """

    keeps_schedule: ClassVar[bool] = True
    example: ClassVar[str] = """HloModule alone

add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}

ENTRY main {
  p = f32[4] parameter(0)
  a = f32[4] all-reduce(p), replica_groups={}, to_apply=add
  i = u32[] partition-id()
  f = f32[] convert(i)
  b = f32[4] broadcast(f), dimensions={}
  ROOT r = f32[4] add(a, b)
}
"""

    def run(self, module: Module, log: PassLog) -> bool:
        """Operands come first, so that each end of an asynchronous pair meets what its start became."""
        if any(_count(module, name) != 1 for name in ("replica_count", "num_partitions")):
            return False
        changed = False
        for computation in open_computations(module):
            for instruction in list(computation):
                write = _rule(instruction)
                if write is None or instruction.computation is None:
                    continue
                if not log.allows():
                    return changed
                changed |= _rewrite(instruction, write, log)
        return changed


def _count(module: Module, name: str) -> object:
    return module.attributes.get(name, 1)


def _rule(instruction: Instruction) -> _Write | None:
    if instruction.opcode == "custom-call":
        is_marker = instruction.custom_call_target in MARKERS
        return _operands if is_marker and len(instruction.operands) == 1 else None
    return _RULES.get(instruction.opcode)


def _rewrite(instruction: Instruction, write: _Write, log: PassLog) -> bool:
    if instruction.opcode.endswith("-start") and not _ends(instruction):
        log.miss(_STEP, instruction, "what it starts is used before it is done")
        return False
    value = write(instruction)
    if value is None:
        log.miss(_STEP, instruction, "it moves slices, or groups of one do not explain its shape")
        return False
    log.hit(_STEP, instruction)
    if instruction.opcode.endswith("-start"):
        for done in list(instruction.users):
            _drop(done, value)
    _drop(instruction, value)
    return True


def _drop(instruction: Instruction, value: Instruction) -> None:
    """Use the value instead; what waited for the instruction waits for what that waited for."""
    if value.offset < 0 and not instruction.control_successors and not value.users:
        edit.replace_instruction(instruction, value)
        return
    edit.replace_uses(instruction, value)
    edit.remove(instruction)


def _ends(start: Instruction) -> bool:
    return not start.is_root and all(user.opcode.endswith("-done") for user in start.users)


def _result_shape(instruction: Instruction) -> Shape:
    """What the op in one would give: that of the end of an asynchronous pair."""
    for user in instruction.users:
        if user.opcode.endswith("-done"):
            return user.shape
    return instruction.shape


def _handed_on(instruction: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
    """The operands as the op's result, with its layouts; None where they are not such arrays."""
    shape = _result_shape(instruction)
    parts = parts_of(shape)
    if len(parts) != len(operands):
        return None
    if not all(
        compatible(part, operand.shape) for part, operand in zip(parts, operands, strict=True)
    ):
        return None
    placed = tuple(
        operand
        if same_layout(operand.shape, part)
        else _make(instruction, "copy", (operand,), part)
        for operand, part in zip(operands, parts, strict=True)
    )
    if isinstance(shape, TupleShape):
        return _make(instruction, "tuple", placed, shape)
    return placed[0]


def _make(
    position: Instruction, opcode: str, operands: tuple[Instruction, ...], shape: Shape
) -> Instruction:
    return build.make(position, opcode, operands, {}, shape=shape, metadata=position.metadata)


def _operands(instruction: Instruction) -> Instruction | None:
    return _handed_on(instruction, instruction.operands)


def _reduced(instruction: Instruction) -> Instruction | None:
    reducer = instruction.to_apply
    kind = reducer.root.array.dtype
    return _handed_on(
        instruction, tuple(_rounded(instruction, operand, kind) for operand in instruction.operands)
    )


def _rounded(position: Instruction, operand: Instruction, kind: object) -> Instruction:
    """An operand as a reducer of another type leaves it: a narrower one rounds."""
    shape = operand.array
    if shape.dtype is kind:
        return operand
    inner = ArrayShape(position.to_apply.root.array.dtype, shape.dims, shape.layout)
    converted = _make(position, "convert", (operand,), inner)
    return _make(position, "convert", (converted,), shape)


def _broadcast(instruction: Instruction) -> Instruction | None:
    groups = instruction.attributes.get("replica_groups", ())
    if isinstance(groups, tuple) and groups and not any(0 in group for group in groups):
        return _zeros(instruction)
    return _operands(instruction)


def _permuted(instruction: Instruction) -> Instruction | None:
    attributes = instruction.attributes
    if "slice_sizes" in attributes or not isinstance(attributes["source_target_pairs"], tuple):
        return None
    if (0, 0) in attributes["source_target_pairs"]:
        return _operands(instruction)
    return _zeros(instruction)


def _zeros(instruction: Instruction) -> Instruction | None:
    shape = _result_shape(instruction)
    parts = parts_of(shape)
    if not all(isinstance(part, ArrayShape) for part in parts):
        return None
    made = tuple(
        build.splat(instruction, part, 0) for part in parts if isinstance(part, ArrayShape)
    )
    if isinstance(shape, TupleShape):
        return _make(instruction, "tuple", made, shape)
    return made[0]


_RULES: Final[Mapping[str, _Write]] = op_table(
    {
        "all-gather": _operands,
        "all-gather-start": _operands,
        "all-reduce": _reduced,
        "all-reduce-start": _reduced,
        "all-to-all": _operands,
        "collective-broadcast": _broadcast,
        "collective-permute": _permuted,
        "collective-permute-start": _permuted,
        "partition-id": _zeros,
        "reduce-scatter": _reduced,
        "replica-id": _zeros,
    },
    COLLECTIVE | DEVICE_NUMBERS,
    "it stays, or goes with its start",
)
