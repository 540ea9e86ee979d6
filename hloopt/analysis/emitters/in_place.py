"""Kernels that only write an update: dynamic-update-slices whose operand and result may share a buffer."""

from __future__ import annotations

from collections.abc import Sequence

from hloopt.analysis.elementwise import is_elementwise, is_same_place
from hloopt.analysis.hero import roots
from hloopt.analysis.region import Region
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction

__all__ = ["Update", "updates_in_place"]


@dataclass(frozen=True, slots=True)
class Update:
    """Result number ``result`` is operand leaf ``operand`` with the update of ``instruction`` written in."""

    instruction: Instruction
    operand: int
    result: int


def updates_in_place(region: Region) -> tuple[Update, ...] | str:
    """The updates of a region that consists of nothing else, or why the whole result is to be computed.

    Every result is a dynamic-update-slice, or bitcasts of one, of an operand; nothing else in the kernel reads
    the operand but elementwise, or at the very place of the update; all updates have one shape.  That operand
    and result get the same buffer is taken for granted.
    """
    updates: list[Update] = []
    for number, root in enumerate(_roots(region)):
        update = _through_bitcasts(root, region)
        if update.opcode != "dynamic-update-slice":
            return f"{root.name} is not a dynamic-update-slice"
        target = _through_bitcasts(update.operands[0], region)
        if target not in region.inputs:
            return f"{update.name} updates no operand of the kernel"
        problem = _read_elsewhere(update, target, region) or _used_elsewhere(update, region)
        if problem:
            return problem
        updates.append(Update(update, region.inputs[target], number))
    return _one_shape(updates)


def _roots(region: Region) -> tuple[Instruction, ...]:
    if not region.is_fusion:
        return (region.instruction,)
    body = region.instruction.calls
    return roots(body)


def _one_shape(updates: Sequence[Update]) -> tuple[Update, ...] | str:
    first = updates[0].instruction
    seen: set[int] = set()
    for update in updates:
        if update.instruction.operands[1].array.dims != first.operands[1].array.dims:
            return f"{update.instruction.name} writes a shape other than that of {first.name}"
        if update.operand in seen:
            return f"{update.instruction.name} is the second update of one operand"
        seen.add(update.operand)
    return tuple(updates)


def _through_bitcasts(instruction: Instruction, region: Region) -> Instruction:
    while instruction.opcode == "bitcast" and instruction not in region.inputs:
        instruction = instruction.operands[0]
    return instruction


def _used_elsewhere(update: Instruction, region: Region) -> str:
    """Whether the updated array is more than a result; empty where it is not."""
    if not region.is_fusion:
        return ""
    pending = [update]
    while pending:
        for user in pending.pop().users:
            if user.opcode == "bitcast":
                pending.append(user)
            elif not (user.opcode == "tuple" and user.is_root):
                return f"{user.name} reads the result of {update.name}"
    return ""


def _read_elsewhere(update: Instruction, target: Instruction, region: Region) -> str:
    """Which other reading of the operand forbids to write into it; empty where none does."""
    if target in update.operands[1:]:
        return f"{update.name} reads {target.name} besides updating it"
    if not region.is_fusion:
        return ""
    pending, seen = [target], {target}
    while pending:
        for user in pending.pop().users:
            if user is update or user in seen:
                continue
            seen.add(user)
            if user.opcode == "dynamic-update-slice":
                return f"{user.name} updates {target.name} too"
            if user.opcode == "dynamic-slice" and _same_place(user, update):
                continue
            if user.opcode in ("tuple", "bitcast") or is_elementwise(user):
                pending.append(user)
                continue
            return f"{user.name} reads other elements of {target.name} than the update writes"
    return ""


def _same_place(slice_: Instruction, update: Instruction) -> bool:
    """Whether a dynamic-slice reads what the update writes; of a single element order does not matter."""
    if slice_.array.dims != update.operands[1].array.dims:
        return False
    return update.operands[1].array.elements == 1 or is_same_place(slice_, update)
