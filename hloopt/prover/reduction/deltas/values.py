"""Simpler values: a parameter with what the value was in the run, an operand of the same shape, a constant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from hloopt.ir import Instruction, build, edit
from hloopt.ir.walk import has_side_effect
from hloopt.prover.reduction.case import Case, CaseDraft, Leaves, ModulePlace
from hloopt.prover.reduction.recording import Delta, Site, ValueRecorder, entry_chain
from hloopt.runtime.inputs import positions
from hloopt.types import ArrayShape, Shape, without_layout

__all__ = ["ALIKE", "CONSTANTS", "EFFECTS", "FRONT", "OPERANDS", "PARAMETERS"]

_GIVEN: Final = ("parameter", "constant")
_JOINING: Final = ("and", "or")
"""A loop may well end by one of the conditions that these join."""
_NEAR: Final = 16
"""So many values behind an operand are looked at for one of the right shape."""


def _is_value(instruction: Instruction) -> bool:
    """Whether its arrays could be given instead of computed."""
    literal = instruction.literal
    if instruction.opcode in (*_GIVEN, "tuple") and (literal is None or not literal.elided):
        return False
    return any(True for _ in positions(instruction.shape))


# ---- a parameter in its place ---------------------------------------------------------------------


def _front_sites(case: Case) -> list[Site]:
    """The entry's instructions, from the first one on."""
    return [
        (case.module.entry.name, one.name)
        for one in case.module.entry
        if one.opcode != "parameter" and not one.is_root
    ]


def _parameter_sites(case: Case) -> list[Site]:
    return list(_chain_places(case))


def _chain_places(case: Case) -> list[ModulePlace]:
    """Values of the entry, and of what runs once as a part of it, from the last one on."""
    module = case.module
    return [
        (home.name, one.name)
        for home in module
        if entry_chain(module, home.name) is not None
        for one in reversed(home)
        if _is_value(one) and (home is not module.entry or not one.is_root)
    ]


def _to_parameters(draft: CaseDraft, sites: Sequence[Site], recorder: ValueRecorder) -> None:
    """Give the values that others than the chosen ones read, with what they were; drop the rest."""
    found = [one for site in sites if (one := draft.find((site[0], site[1]))) is not None]
    chosen = set(found)
    read = [
        one
        for one in found
        if _is_value(one) and (one.is_root or any(user not in chosen for user in one.users))
    ]
    places = [_place(one) for one in read]
    recorded = recorder.values(places, _chain_places(draft.case))
    at = {one: number for number, one in enumerate(found)}
    order = list(found[0].home) if found else []
    later = {one: number for number, one in enumerate(order)}
    for one in sorted(read, key=lambda each: later.get(each, at[each]), reverse=True):
        if one.computation is None or not one.is_used:
            continue
        leaves = recorded[_place(one)]
        if one.home is draft.entry:
            draft.replace(one, draft.given(one, leaves), made=True)
        elif isinstance(one.shape, ArrayShape):
            draft.replace(one, _passed(draft, one, one.shape, leaves), made=True)


def _place(instruction: Instruction) -> ModulePlace:
    return instruction.home.name, instruction.name


def _passed(draft: CaseDraft, value: Instruction, shape: Shape, leaves: Leaves) -> Instruction:
    """A parameter of the entry, handed on through calls and fusions to where a value is."""
    made = draft.parameter(shape, leaves, value.name)
    for caller in entry_chain(draft.module, value.home.name) or ():
        (body,) = caller.op.computation_attributes()
        inner = caller.attributes[body]
        edit.add_operands(caller, (made,))
        number = {"parameter_number": len(inner.parameters)}
        first = next(iter(inner))
        made = build.make(first, "parameter", (), number, shape=shape, name=value.name)
    return made


# ---- an operand in its place ----------------------------------------------------------------------


def _operand_sites(case: Case) -> list[Site]:
    return [
        (home.name, one.name, other.name)
        for home in case.module
        for one in reversed(home)
        if one.opcode not in (*_GIVEN, "tuple") and (one.opcode in _JOINING or not _counts(one))
        for other in _sources(one)
    ]


def _sources(one: Instruction) -> list[Instruction]:
    """Of each operand the nearest value of the same shape: the operand itself, or what it is computed from."""
    found: dict[Instruction, None] = {}
    for operand in dict.fromkeys(one.operands):
        pending, seen = [operand], {operand}
        for other in pending:
            if _alike(one.shape, other.shape):
                found[other] = None
                break
            if len(seen) < _NEAR:
                fresh = [value for value in dict.fromkeys(other.operands) if value not in seen]
                pending += fresh
                seen.update(fresh)
    return list(found)


def _alike(left: Shape, right: Shape) -> bool:
    return left is right or without_layout(left) == without_layout(right)


def _counts(instruction: Instruction) -> bool:
    """Whether the condition of a loop reads what this makes: without it the loop may not end."""
    home = instruction.home
    loops = [caller for caller in home.callers if caller.opcode == "while"]
    if not loops:
        return False
    if any(loop.condition is home for loop in loops):
        return True
    read = {
        user.tuple_index
        for loop in loops
        for user in loop.condition.parameters[0].users
        if user.opcode == "get-tuple-element"
    }
    root = home.root
    return root.opcode == "tuple" and any(
        operand is instruction and number in read for number, operand in enumerate(root.operands)
    )


def _to_operands(draft: CaseDraft, sites: Sequence[Site], _: ValueRecorder) -> None:
    for home, name, source in sites:
        one, other = draft.find((home, name)), draft.find((home, source))
        # What an earlier change has put elsewhere may no longer be what this one is computed from.
        if one is not None and other is not None and other in _sources(one):
            draft.replace(one, other)


# ---- a constant in its place ----------------------------------------------------------------------


def _constant_sites(case: Case) -> list[Site]:
    """Each value as zeros, as ones and as its first element where that is known."""
    module = case.module
    found: list[Site] = []
    for home in module:
        known = entry_chain(module, home.name) is not None
        for one in reversed(home):
            if not one.is_array or not one.array.dtype.is_array or _counts(one):
                continue
            is_given = one.opcode == "parameter" and home is not module.entry
            is_result = one.is_root and home is module.entry
            if is_given or is_result or one.opcode in ("constant", "broadcast"):
                continue
            found.append((home.name, one.name, "0"))
            if one.opcode != "parameter":
                found.append((home.name, one.name, "first" if known else "1"))
    return found


def _to_constants(draft: CaseDraft, sites: Sequence[Site], recorder: ValueRecorder) -> None:
    wanted: list[ModulePlace] = [(home, name) for home, name, kind in sites if kind == "first"]
    recorded = recorder.values(wanted)
    for home, name, kind in sites:
        one = draft.find((home, name))
        if one is None or not isinstance(one.shape, ArrayShape) or not one.is_used:
            continue
        value: Any = int(kind == "1")
        if kind == "first":
            array = recorded[home, name][0][0]
            if not array.size:
                continue
            value = array.reshape(-1)[0]
        if one.shape.dtype.is_array and not one.shape.is_dynamic:
            draft.replace(one, build.splat(_position(one), one.shape, value), made=True)


# ---- nothing in its place ---------------------------------------------------------------------------


def _effect_sites(case: Case) -> list[Site]:
    """What nothing reads, and what is there for its effect: collectives, messages, custom calls."""
    return [
        (home.name, one.name)
        for home in case.module
        for one in reversed(home)
        if not one.is_used and has_side_effect(one)
    ]


def _drop_effects(draft: CaseDraft, sites: Sequence[Site], _: ValueRecorder) -> None:
    for home, name in sites:
        one = draft.find((home, name))
        if one is not None:
            draft.drop(one)


# ---- another value in its place --------------------------------------------------------------------


def _alike_sites(case: Case) -> list[Site]:
    """Each value with the first one of its shape in its computation.

    Where values are known, they are parameters by now: the entry's parameters alone are left, and elements.
    """
    found: list[Site] = []
    for home in case.module:
        known = entry_chain(case.module, home.name) is not None
        first: dict[Shape, str] = {}
        for one in home:
            if not one.is_array or (one.opcode == "parameter" and home is not case.module.entry):
                continue
            other = first.setdefault(without_layout(one.shape), one.name)
            wanted = not known or one.opcode in ("parameter", "get-tuple-element")
            if other != one.name and wanted and not _counts(one):
                found.append((home.name, one.name, other))
    return found


def _to_alike(draft: CaseDraft, sites: Sequence[Site], _: ValueRecorder) -> None:
    for home, name, other in sites:
        one, first = draft.find((home, name)), draft.find((home, other))
        if one is not None and first is not None and (one.users or one.is_root):
            draft.replace(one, first)


def _position(one: Instruction) -> Instruction:
    """Before a value; parameters of the entry may stand behind what is to read the constant."""
    return next(iter(one.home)) if one.opcode == "parameter" else one


FRONT: Final = Delta("beginning of the entry", _front_sites, _to_parameters, "prefix", grows=True)
PARAMETERS: Final = Delta("values to parameters", _parameter_sites, _to_parameters)
OPERANDS: Final = Delta("values to operands", _operand_sites, _to_operands)
CONSTANTS: Final = Delta("values to constants", _constant_sites, _to_constants)
EFFECTS: Final = Delta("effects of values that nothing reads", _effect_sites, _drop_effects)
ALIKE: Final = Delta("values to others of their shape", _alike_sites, _to_alike)
