"""The part of a module around some instructions, as a module: changes are tried there where the whole is large.

What the part reads of the rest is its parameters, what the rest reads of it its results.  It reaches so far
that what may fuse with the instructions is in it: through ops that compilers fuse, up to a number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction, Module, build, edit, walk
from hloopt.ops.traits import CONTRACTING, CONTROL_FLOW, LIBRARY, PLUMBING, TRANSFERS

__all__ = ["ModulePart", "cut_out"]

_CARRIED: Final = frozenset({"constant", "iota"})
"""Copied into the part rather than given to it: what they are decides about rewrites."""
_ENDS: Final = CONTROL_FLOW | TRANSFERS | PLUMBING - {"constant"} | {"custom-call"}
_APART: Final = CONTRACTING | LIBRARY | {"sort", "scatter"}
"""In the part as neighbours, but nothing fuses through them."""


@dataclass(frozen=True)
class ModulePart:
    """A part as a module; ``found`` has the instructions there, by those of the whole."""

    module: Module
    found: dict[Instruction, Instruction]


def cut_out(sites: Sequence[Instruction], most: int) -> ModulePart:
    """The part around instructions of one computation: ``most`` instructions beside them, the nearest first."""
    members = _members(sites, most)
    home = sites[0].home
    whole = sites[0].module
    part = Module(whole.name, whole.source)
    part.stack_tables = whole.stack_tables
    for name in ("num_partitions", "replica_count"):
        if name in whole.attributes:
            part.attributes[name] = whole.attributes[name]
    callees = _callees(part, members)
    entry = Computation("main")
    found: dict[Instruction, Instruction] = {}
    for instruction in home:
        if instruction in members:
            operands = tuple(found[one] for one in instruction.operands)
            found[instruction] = _copy(entry, instruction, operands, callees)
        elif any(user in members for user in instruction.users):
            given = {"parameter_number": len(entry.parameters)}
            found[instruction] = build.make(
                entry, "parameter", (), given, shape=instruction.shape, name=instruction.name
            )
    results = [found[one] for one in home if one in members and _is_needed(one, members)]
    root = (
        results[0]
        if len(results) == 1
        else build.make(entry, "tuple", tuple(results), name="results")
    )
    edit.set_root(entry, root)
    part.entry = edit.add_computation(part, entry)
    return ModulePart(part, found)


def _members(sites: Sequence[Instruction], most: int) -> set[Instruction]:
    members = dict.fromkeys(sites)
    for site in sites:  # how often a loop runs is seen in its first state
        members.update((one, None) for one in site.operands if one.opcode == "tuple")
    pending = deque(sites)
    while pending:
        here = pending.popleft()
        if here.opcode in _APART and here not in sites:
            continue
        for near in (*here.operands, *here.users):
            if near in members or near.opcode in _ENDS:
                continue
            if near.opcode in _CARRIED and near in here.operands:
                members[near] = None
            elif len(members) < most + len(sites):
                members[near] = None
                pending.append(near)
    for member in [*members]:  # small constants of whatever came last
        members.update((one, None) for one in member.operands if one.opcode in _CARRIED)
    return set(members)


def _is_needed(instruction: Instruction, members: Collection[Instruction]) -> bool:
    if instruction.opcode in _CARRIED:
        return False
    outside = any(user not in members for user in instruction.users)
    return outside or instruction.is_root or not instruction.users


def _callees(part: Module, members: Collection[Instruction]) -> dict[Computation, Computation]:
    """Copies of all computations that members call, in the part."""
    wanted = {called for member in members for called in walk.called_computations(member)}
    pending = list(wanted)
    while pending:
        for called in walk.callees(pending.pop()):
            if called not in wanted:
                wanted.add(called)
                pending.append(called)
    made: dict[Computation, Computation] = {}
    if wanted:
        module = next(iter(members)).module
        for computation in walk.callees_first(module):
            if computation in wanted:
                copy = build.clone_computation(computation, None, made)
                made[computation] = edit.add_computation(part, copy)
    return made


def _copy(
    entry: Computation,
    instruction: Instruction,
    operands: tuple[Instruction, ...],
    callees: dict[Computation, Computation],
) -> Instruction:
    copy = build.clone(instruction, entry, operands)
    for name, called in walk.calls_by_attribute(instruction).items():
        own = tuple(callees[one] for one in called)
        single = isinstance(instruction.attributes[name], Computation)
        edit.set_attribute(copy, name, own[0] if single else own)
    return copy
