"""What all branches have in common, before or after them instead of in each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeGuard

from hloopt.analysis.layout import same_layout
from hloopt.graphs import post_order
from hloopt.ir import Instruction, build, edit
from hloopt.passes.conditional_simplifier.branches import Branch, Key, is_movable, is_trivial
from hloopt.rewrite import PassLog
from hloopt.rewrite.source_lines import merge_lines
from hloopt.types import TupleShape

__all__ = ["hoist_heads", "hoist_results", "hoist_tails"]

_TAILS = ("elementwise", "movement")


class _Outside:
    """Builds values of a branch right before the conditional."""

    def __init__(self, conditional: Instruction, branch: Branch) -> None:
        self.conditional, self.branch = conditional, branch
        self.made: dict[Instruction, Instruction] = {}

    def value(self, instruction: Instruction) -> Instruction:
        """The instruction of the branch, of outer operands."""
        for one in post_order((instruction,), self.inner_operands, self.made):
            key = self.branch.keys[one]
            if _is_outer(key):
                self.made[one] = key[1]
            else:
                operands = tuple(self.made[entry] for entry in one.operands)
                self.made[one] = build.clone(one, self.conditional, operands)
        return self.made[instruction]

    def inner_operands(self, instruction: Instruction) -> Iterable[Instruction]:
        """Operands that are made before an instruction is; none of what is outside."""
        is_outer = _is_outer(self.branch.keys[instruction])
        return () if is_outer else reversed(instruction.operands)


def _is_outer(key: Key) -> TypeGuard[tuple[str, Instruction]]:
    return isinstance(key, tuple) and key[0] == "outer"


def _common(branches: list[Branch]) -> set[Key]:
    """Keys that every branch has and that are made of nothing but outer values."""
    shared = set.intersection(*(set(branch.keys.values()) for branch in branches))
    found: set[Key] = set()
    for branch in branches[:1]:
        for instruction, key in branch.keys.items():
            if key not in shared or (isinstance(key, tuple) and key[0] == "own"):
                continue
            if _is_outer(key) or all(
                branch.keys[operand] in found for operand in instruction.operands
            ):
                found.add(key)
    return found


def _is_boundary(instruction: Instruction, branch: Branch, common: set[Key]) -> bool:
    """Whether a common value is used by something that is not common."""
    return instruction.is_root or any(branch.keys[user] not in common for user in instruction.users)


def hoist_heads(conditional: Instruction, branches: list[Branch], log: PassLog) -> bool:
    """Compute before the conditional what every branch computes of the same operands."""
    if not all(branch.is_own for branch in branches):
        return False
    common = _common(branches)
    wanted: dict[Key, None] = {}
    for branch in branches:
        for instruction, key in branch.keys.items():
            if (
                key in common
                and not is_trivial(instruction)
                and instruction.is_array
                and _is_boundary(instruction, branch, common)
            ):
                wanted[key] = None
    chosen: list[Key] = []
    for key in wanted:
        if log.allows():
            instruction = _of_key(branches[0], key)
            log.hit("compute before the conditional", instruction, "every branch computes it")
            chosen.append(key)
    if chosen:
        _hand_in(conditional, branches, chosen)
    return bool(chosen)


def _of_key(branch: Branch, key: Key) -> Instruction:
    return next(instruction for instruction, known in branch.keys.items() if known == key)


def _hand_in(conditional: Instruction, branches: list[Branch], keys: list[Key]) -> None:
    """Append values to the argument of every branch and use them in place of their equals."""
    outside = _Outside(conditional, branches[0])
    first = {key: instruction for instruction, key in reversed(list(branches[0].keys.items()))}
    values = tuple(outside.value(first[key]) for key in keys)
    made = {
        key: copy
        for instruction, copy in outside.made.items()
        if not _is_outer(key := branches[0].keys[instruction])
    }
    for branch in branches:
        old, parameter = branch.operand, branch.parameter
        operands = (*old.operands, *values)
        shape = TupleShape(tuple(operand.shape for operand in operands))
        place = {key: len(old.operands) + position for position, key in enumerate(keys)}
        new = build.make(
            conditional, "tuple", operands, old.attributes, shape=shape, name=old.name,
            metadata=old.metadata,
        )  # fmt: skip
        edit.set_operand(conditional, branch.number, new)
        edit.set_shape(parameter, shape)
        for instruction, key in list(branch.keys.items()):
            if key in made:
                merge_lines(made[key], (instruction,))
            if key in place:
                element = build.element(instruction, parameter, place[key], instruction.metadata)
                edit.set_shape(element, instruction.shape)
                edit.replace_instruction(instruction, element)
    _remove_unused(branch.operand for branch in branches)


def _remove_unused(instructions: Iterable[Instruction]) -> None:
    for instruction in dict.fromkeys(instructions):
        if not (instruction.is_used or instruction.has_control_edges):
            edit.remove(instruction)


def hoist_results(conditional: Instruction, branches: list[Branch], log: PassLog) -> bool:
    """Use the outer value in place of a result that every branch makes of outer values alike."""
    if not conditional.is_tuple:
        return False
    roots = [branch.computation.root for branch in branches]
    if any(root.opcode != "tuple" for root in roots):
        return False
    common = _common(branches)
    outside = _Outside(conditional, branches[0])
    changed = False
    for user in list(conditional.users):
        if user.opcode != "get-tuple-element" or "sharding" in user.attributes:
            continue
        index = user.tuple_index
        keys = {
            branch.keys[root.operands[index]] for branch, root in zip(branches, roots, strict=True)
        }
        result = roots[0].operands[index]
        if len(keys) != 1 or not keys <= common or user.control_predecessors:
            continue
        if not user.is_used:
            continue
        if not same_layout(result.shape, user.shape) or not log.allows():
            continue
        log.hit("take the result from outside the conditional", user, "every branch returns it")
        edit.replace_instruction(user, outside.value(result))
        changed = True
    return changed


def hoist_tails(conditional: Instruction, branches: list[Branch], log: PassLog) -> bool:
    """Do after the conditional what every branch does last to one element of its result."""
    if (
        not isinstance(conditional.shape, TupleShape)
        or "sharding" in conditional.attributes
        or conditional.is_root
        or any(user.opcode != "get-tuple-element" for user in conditional.users)
        or any(_is_shared(branch) for branch in branches)
    ):
        return False
    common = _common(branches)
    changed = False
    for index in range(len(conditional.shape.elements)):
        takers = [user for user in conditional.users if user.tuple_index == index]
        number = _tail(branches, index, common)
        if number is None or not takers or not log.allows():
            continue
        last = branches[0].computation.root.operands[index]
        log.hit("compute after the conditional", last, "every branch does it last")
        _hand_out(conditional, branches, index, number, takers)
        changed = True
    return changed


def _is_shared(branch: Branch) -> bool:
    root = branch.computation.root
    return (
        sum(branch.computation.callers.values()) != 1
        or root.opcode != "tuple"
        or bool(root.users or root.control_predecessors or root.attributes)
    )


def _tail(branches: list[Branch], index: int, common: set[Key]) -> int | None:
    """Which operand of the last op differs among the branches, if that op is one and the same."""
    tails = [branch.computation.root.operands[index] for branch in branches]
    first = tails[0]
    differing: set[int] = set()
    for branch, tail in zip(branches, tails, strict=True):
        if not _may_end(tail, first):
            return None
        for number, operand in enumerate(tail.operands):
            key = branches[0].keys[first.operands[number]]
            if branch.keys[operand] != key or key not in common:
                differing.add(number)
    if len(differing) != 1:
        return None
    (number,) = differing
    given = [tail.operands[number].shape for tail in tails]
    same = all(same_layout(shape, given[0]) for shape in given[1:])
    smaller = first.operands[number].array.byte_size <= first.array.byte_size
    return number if same and smaller else None


def _may_end(tail: Instruction, first: Instruction) -> bool:
    return (
        tail.opcode == first.opcode
        and tail.op.family in _TAILS
        and is_movable(tail)
        and same_layout(tail.shape, first.shape)
        and tail.attributes == first.attributes
        and len(tail.operands) == len(first.operands)
        and list(tail.users.values()) == [1]
        and all(operand.is_array for operand in tail.operands)
        and all(
            one.shape == other.shape
            for one, other in zip(tail.operands, first.operands, strict=True)
        )
    )


def _hand_out(
    conditional: Instruction,
    branches: list[Branch],
    index: int,
    number: int,
    takers: list[Instruction],
) -> None:
    """Let the branches return the operand, and apply the op to every ``get-tuple-element`` of it."""
    last = branches[0].computation.root.operands[index]
    shape = conditional.shape
    assert isinstance(shape, TupleShape)
    given = last.operands[number].shape
    shape = TupleShape((*shape.elements[:index], given, *shape.elements[index + 1 :]))
    outside = _Outside(conditional, branches[0])
    others = {k: outside.value(entry) for k, entry in enumerate(last.operands) if k != number}
    tails = [branch.computation.root.operands[index] for branch in branches]
    for branch, tail in zip(branches, tails, strict=True):
        root = branch.computation.root
        edit.set_operand(root, index, tail.operands[number])
        edit.set_shape(root, shape)
        if tail is not last:
            edit.remove(tail)
    edit.set_shape(conditional, shape)
    for taker in takers:
        element = build.element(taker, conditional, index, taker.metadata)
        operands = tuple(others.get(k, element) for k in range(len(last.operands)))
        after = build.make(
            taker, last.opcode, operands, last.attributes, shape=taker.shape, name=last.name,
            metadata=last.metadata,
        )  # fmt: skip
        merge_lines(after, tails)
        edit.replace_instruction(taker, after)
    edit.remove(last)
