"""Computations whose signature may change, and how it does, with all their callers.

A signature may change where every caller is a ``call``, a ``fusion`` or a ``map`` of this module and says
nothing about single operands or results; that of a branch where every caller is a ``conditional``.
Before a copy of a caller is changed, the computation must be its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from hloopt.ir import Computation, Instruction, Module, build, edit
from hloopt.ir.walk import called_computations
from hloopt.types import TupleShape

__all__ = [
    "branch_operands",
    "drop_parameters",
    "is_open_barrier",
    "keep_barrier_elements",
    "keep_branch_elements",
    "keep_results",
    "own_computation",
    "own_fusion_bodies",
    "remove_uncalled",
    "takes_only",
    "tied",
    "with_elements",
    "with_parameters",
    "with_results",
]

_CALLS = ("call", "fusion", "map")


def branch_operands(
    conditional: Instruction,
) -> list[tuple[int, Computation]]:
    """The branches of a conditional, each with the number of its operand."""
    return list(enumerate(called_computations(conditional), 1))


def with_parameters(module: Module) -> set[Computation]:
    """Computations that may lose parameters: all callers are calls, fusions and maps."""
    return {
        computation
        for computation in module
        if computation is not module.entry
        and computation.callers
        and all(
            caller.opcode in _CALLS and not _is_fixed(caller, computation)
            for caller in computation.callers
        )
    }


def with_results(module: Module) -> set[Computation]:
    """Computations that may lose elements of the tuple they return.

    All callers are calls, fusions or conditionals whose results are only read element by element; of a
    conditional, all branches may.
    """
    found = {
        computation
        for computation in module
        if computation is not module.entry
        and computation.callers
        and _is_plain_tuple(computation.root)
        and all(_is_taken_apart(caller, computation) for caller in computation.callers)
    }
    pending = [computation for computation in module if computation not in found]
    while pending:
        for caller in pending.pop().callers:
            if caller.opcode == "conditional":
                tied = [branch for branch in called_computations(caller) if branch in found]
                found.difference_update(tied)
                pending += tied
    return found


def with_elements(module: Module) -> set[Computation]:
    """Branches that may lose elements of their argument: a tuple made for them and read by element only."""
    return {
        computation
        for computation in module
        if computation.callers
        and len(computation.parameters) == 1
        and all(
            caller.opcode == "conditional" and not _is_fixed(caller, computation)
            for caller in computation.callers
        )
        and _is_taken_apart_inside(computation.parameters[0])
        and all(
            caller.operands[number].opcode == "tuple"
            for caller in computation.callers
            for number, branch in branch_operands(caller)
            if branch is computation
        )
    }


def drop_parameters(computation: Computation, numbers: Iterable[int]) -> None:
    """Take unused parameters out, and their operands out of every call."""
    gone = set(numbers)
    for caller in computation.callers:
        kept = [operand for k, operand in enumerate(caller.operands) if k not in gone]
        edit.set_operands(caller, tuple(kept))
    for number in sorted(gone, reverse=True):
        edit.remove(computation.parameters[number])


def tied(computation: Computation) -> list[Computation]:
    """The computation, and all that must return the same shape: branches of the same conditionals."""
    found = {computation: None}
    pending = [computation]
    while pending:
        for caller in pending.pop().callers:
            for other in called_computations(caller):
                if other not in found:
                    found[other] = None
                    pending.append(other)
    return list(found)


def takes_only(group: list[Computation], wanted: set[int]) -> bool:
    """Whether no caller takes another element of the results."""
    return all(
        user.attributes["index"] in wanted
        for computation in group
        for caller in computation.callers
        for user in caller.users
    )


def keep_results(group: list[Computation], kept: list[int]) -> None:
    """Let ``tied`` computations return these elements only; a single one without a tuple."""
    place = {index: position for position, index in enumerate(kept)}
    callers = dict.fromkeys(caller for computation in group for caller in computation.callers)
    for computation in group:
        root = computation.root
        edit.set_operands(root, tuple(root.operands[index] for index in kept))
        edit.set_shape(root, TupleShape(tuple(root.elements[index] for index in kept)))
    alone = len(kept) == 1 and _may_be_alone(group, callers)
    for caller in callers:
        edit.set_shape(caller, group[0].root.shape)
        for user in list(caller.users):
            edit.set_attribute(user, "index", place[user.attributes["index"]])
    if alone:
        _take_out(group[0], callers)


def _may_be_alone(group: list[Computation], callers: Iterable[Instruction]) -> bool:
    """Whether a single result needs no tuple: not of a conditional, nor if a fusion only forwards it."""
    (element,) = group[0].root.operands
    return (
        element.is_array
        and element.opcode != "parameter"
        and all(
            caller.opcode != "conditional"
            and all("sharding" not in user.attributes for user in caller.users)
            for caller in callers
        )
    )


def _take_out(computation: Computation, callers: Iterable[Instruction]) -> None:
    root = computation.root
    (element,) = root.operands
    edit.set_root(computation, element)
    edit.remove(root)
    for caller in callers:
        edit.set_shape(caller, element.shape)
        for user in list(caller.users):
            edit.replace_instruction(user, caller)


def keep_branch_elements(computation: Computation, kept: list[int]) -> None:
    """Take these elements of the argument only."""
    parameter = computation.parameters[0]
    shape = TupleShape(tuple(parameter.elements[index] for index in kept))
    edit.set_shape(parameter, shape)
    for user in list(parameter.users):
        edit.set_attribute(user, "index", kept.index(user.attributes["index"]))
    for caller in list(computation.callers):
        for number, branch in branch_operands(caller):
            if branch is computation:
                _keep_operands(caller, number, kept, shape)


def _keep_operands(user: Instruction, number: int, kept: list[int], shape: TupleShape) -> None:
    """Make an operand a tuple of these elements only."""
    old = user.operands[number]
    operands = tuple(old.operands[index] for index in kept)
    new = build.make(user, "tuple", operands, shape=shape, name=old.name, metadata=old.metadata)
    edit.set_operand(user, number, new)
    if not (old.users or old.is_root or old.has_control_edges):
        edit.replace_instruction(old, new)


def is_open_barrier(instruction: Instruction) -> bool:
    """Whether it is an optimization barrier of a tuple made for it, whose users only read elements."""
    return (
        instruction.opcode == "opt-barrier"
        and instruction.operands[0].opcode == "tuple"
        and not instruction.is_root
        and not instruction.has_control_edges
        and not instruction.attributes
        and all(user.opcode == "get-tuple-element" for user in instruction.users)
    )


def keep_barrier_elements(barrier: Instruction, kept: list[int]) -> None:
    """Pass only these elements through a barrier."""
    old = barrier.operands[0]
    shape = TupleShape(tuple(old.elements[index] for index in kept))
    _keep_operands(barrier, 0, kept, shape)
    edit.set_shape(barrier, shape)
    place = {index: position for position, index in enumerate(kept)}
    for user in list(barrier.users):
        edit.set_attribute(user, "index", place[user.attributes["index"]])


def _is_fixed(caller: Instruction, computation: Computation) -> bool:
    """Whether a caller says something about single operands or results, or is part of another op."""
    attributes = caller.attributes
    home = caller.computation
    return (
        not caller.is_understood
        or "output_to_operand_aliasing" in attributes
        or bool(attributes.get("is_composite"))
        or str(attributes.get("kind", "")) == "kCustom"
        or home is None
        or any(outer.op.family == "async" for outer in home.callers)
        or (caller.opcode == "map" and len(computation.parameters) != len(caller.operands))
    )


def _is_plain_tuple(root: Instruction) -> bool:
    return (
        root.opcode == "tuple"
        and not root.users
        and not root.has_control_edges
        and not root.attributes
    )


def _is_taken_apart(caller: Instruction, computation: Computation) -> bool:
    return (
        caller.opcode in ("call", "fusion", "conditional")
        and not _is_fixed(caller, computation)
        and "sharding" not in caller.attributes
        and not caller.is_root
        and all(user.opcode == "get-tuple-element" for user in caller.users)
    )


def _is_taken_apart_inside(parameter: Instruction) -> bool:
    return (
        parameter.is_tuple
        and not parameter.is_root
        and not parameter.has_control_edges
        and "sharding" not in parameter.attributes
        and all(user.opcode == "get-tuple-element" for user in parameter.users)
    )


def own_computation(caller: Instruction, name: str) -> None:
    """Make the computation an attribute names exclusive to its caller: a copy where it is shared."""
    called: Computation = caller.attributes[name]
    module = called.module
    assert module is not None
    if sum(called.callers.values()) > 1:
        copy = edit.add_computation(module, build.clone_computation(called))
        edit.set_attribute(caller, name, copy)
        own_fusion_bodies(copy)


def own_fusion_bodies(instructions: Iterable[Instruction]) -> None:
    """Give each of the fusions among some instructions its own body, as a fusion must have.

    For instructions that were copied; once what they were copied from is gone, if it is to go.
    """
    for instruction in instructions:
        if instruction.opcode == "fusion" and instruction.computation is not None:
            own_computation(instruction, "calls")


def remove_uncalled(computations: Iterable[Computation]) -> None:
    """Remove those of some computations that have no caller, and what they called alone."""
    pending = list(computations)
    while pending:
        computation = pending.pop()
        module = computation.module
        if module is None or computation.callers or computation is module.entry:
            continue
        called = {one for caller in computation for one in called_computations(caller)}
        edit.remove_computation(computation)
        pending.extend(called)
