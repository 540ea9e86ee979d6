"""The hero of a fusion root: the instruction that decides how the kernel is laid out."""

from __future__ import annotations

from collections.abc import Callable

from hloopt.analysis.elementwise import is_elementwise
from hloopt.analysis.layout import reshape_is_bitcast, same_layout, transpose_is_bitcast
from hloopt.analysis.reduction import is_race_free, is_unnested
from hloopt.analysis.transpose import tiled_transpose
from hloopt.ir import Computation, Instruction

__all__ = [
    "find_hero",
    "is_intermediate",
    "is_real_reduction_hero",
    "only_intermediates_below",
    "results_of",
    "roots",
]

_MAX_INTERMEDIATE_OPERANDS = 3


def roots(computation: Computation) -> tuple[Instruction, ...]:
    """The results of a fusion's computation: the operands of a tuple root, or the root itself."""
    root = computation.root
    return root.operands if root.opcode == "tuple" else (root,)


def results_of(instruction: Instruction) -> tuple[Instruction, ...]:
    """What an op or fusion computes last: the roots of a fusion's body, or the op itself."""
    return (
        roots(instruction.attributes["calls"]) if instruction.opcode == "fusion" else (instruction,)
    )


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
    transposes, seen = _behind(start, _is_tiled_transpose)
    hero = _only(transposes)
    if hero is None:
        # Where no transpose ended the search, it has met all that the other one would.
        joined = _behind(start, _is_concatenate)[0] if transposes else filter(_is_concatenate, seen)
        hero = _only(list(joined))
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


def _behind(
    start: Instruction, wanted: Callable[[Instruction], bool]
) -> tuple[list[Instruction], list[Instruction]]:
    """What is wanted, seen from ``start`` through intermediates, up to the second; and all that was met."""
    found: list[Instruction] = []
    met = [start]
    seen = {start}
    for instruction in met:
        if wanted(instruction):
            found.append(instruction)
            if len(found) > 1:
                break
        elif is_intermediate(instruction, _MAX_INTERMEDIATE_OPERANDS):
            fresh = [operand for operand in instruction.operands if operand not in seen]
            seen.update(fresh)
            met += dict.fromkeys(fresh)
    return found, met


def _only(found: list[Instruction]) -> Instruction | None:
    """The one instruction that is wanted, if there is one and it reaches its root through intermediates."""
    return found[0] if len(found) == 1 and only_intermediates_below(found[0]) else None


def only_intermediates_below(hero: Instruction) -> bool:
    """Whether all that its computation makes of an instruction passes elements through in place."""
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
