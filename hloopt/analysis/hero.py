"""The hero of a fusion root: the instruction that decides how the kernel is laid out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from hloopt.analysis.elementwise import is_elementwise
from hloopt.analysis.layout import reshape_is_bitcast, same_layout, transpose_is_bitcast
from hloopt.analysis.reduction import is_race_free, is_unnested
from hloopt.analysis.transpose import tiled_transpose
from hloopt.ir import Computation, Instruction

__all__ = ["find_hero", "is_intermediate", "is_real_reduction_hero", "roots"]

_MAX_INTERMEDIATE_OPERANDS = 3


def roots(computation: Computation) -> tuple[Instruction, ...]:
    """The results of a fusion's computation: the operands of a tuple root, or the root itself."""
    root = computation.root
    return root.operands if root.opcode == "tuple" else (root,)


def is_intermediate(instruction: Instruction, allowed_operands: int = 1) -> bool:
    """Whether an instruction passes elements through in place: elementwise or physically a bitcast."""
    if not 1 <= len(instruction.operands) <= allowed_operands:
        return False
    opcode = instruction.opcode
    if opcode == "bitcast":
        return True
    if opcode == "reshape":
        return reshape_is_bitcast(instruction)
    if opcode == "transpose":
        return transpose_is_bitcast(instruction)
    if opcode == "copy":
        return same_layout(instruction.operands[0].shape, instruction.shape)
    return is_elementwise(instruction)


def find_hero(root: Instruction) -> Instruction:
    """Walk up from a root to the one tiled transpose or concatenate behind it, or its reduce.

    The root itself where there is none.  Cost is linear in the part of the computation walked.
    """
    start = root
    while is_intermediate(start) and start.operands[0].opcode != "parameter":
        start = start.operands[0]
    for wanted in (_is_tiled_transpose, _is_concatenate):
        hero = _single(start, wanted)
        if hero is not None:
            return hero
    return start if start.opcode == "reduce" else root


def is_real_reduction_hero(root: Instruction, hero: Instruction) -> bool:
    """Whether the hero makes the kernel a reduction kernel."""
    if hero.opcode != "reduce" or not is_unnested(hero):
        return False
    return root is hero or is_race_free(hero)


def _is_tiled_transpose(instruction: Instruction) -> bool:
    return tiled_transpose(instruction) is not None


def _is_concatenate(instruction: Instruction) -> bool:
    return instruction.opcode == "concatenate"


def _single(start: Instruction, wanted: Callable[[Instruction], bool]) -> Instruction | None:
    """The only instruction that is wanted, seen from ``start`` through intermediates."""
    found: Instruction | None = None
    queue = deque([start])
    seen = {start}
    while queue:
        instruction = queue.popleft()
        if wanted(instruction):
            if found is not None:
                return None
            found = instruction
            continue
        if not is_intermediate(instruction, _MAX_INTERMEDIATE_OPERANDS):
            continue
        for operand in instruction.operands:
            if operand not in seen:
                seen.add(operand)
                queue.append(operand)
    if found is None or not _only_intermediates_below(found):
        return None
    return found


def _only_intermediates_below(hero: Instruction) -> bool:
    pending = [hero]
    seen = {hero}
    while pending:
        for user in pending.pop().users:
            if user in seen:
                continue
            seen.add(user)
            if user.opcode == "tuple":
                continue
            if not is_intermediate(user, _MAX_INTERMEDIATE_OPERANDS):
                return False
            pending.append(user)
    return True
