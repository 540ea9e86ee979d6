"""Reshapes and transposes moved behind what is computed with them."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.graphs import UnionFind
from hloopt.ir import Computation, Instruction, Module, build, edit
from hloopt.ir.walk import open_computations
from hloopt.rewrite import Pass, PassLog, own_attributes, same_layout, used_once
from hloopt.rewrite.site import is_replaceable
from hloopt.simplify.data_movement import (
    PASSABLE,
    adds_only_ones,
    dimensions,
    in_order,
    is_scalar,
    keeps_places,
    unmodified_dimensions,
)
from hloopt.types import ArrayShape, Dims, Layout, Literal, inverse_permutation

__all__ = ["ReshapeMover"]

_STEP = "f(move(A), move(B)) => move(f(A, B))"
_ROUNDS = 16
_MOVES = ("reshape", "transpose")
_COMPUTED = frozenset(PASSABLE)


@dataclass(frozen=True, slots=True)
class _Move:
    """What equal reshapes or transposes do: from which sizes and layout, to which, in which order."""

    opcode: str
    source: Dims
    layout: Layout | None
    result: Dims
    permutation: Dims


@dataclass
class _Tree:
    """Elementwise ops that hang together, all of whose operands one kind of move can come after."""

    move: _Move
    members: dict[Instruction, None] = field(default_factory=dict)
    moves: dict[Instruction, None] = field(default_factory=dict)

    @property
    def needless(self) -> list[Instruction]:
        """The moves that nothing outside uses."""
        return [
            move
            for move in self.moves
            if not move.is_root and all(user in self.members for user in move.users)
        ]

    @property
    def results(self) -> list[Instruction]:
        """The ops that something outside uses."""
        return [
            member
            for member in self.members
            if member.is_root or any(user not in self.members for user in member.users)
        ]

    @property
    def undone(self) -> list[Instruction]:
        """The moves outside that only take a result back to where it comes from."""
        return [
            user
            for member in self.members
            for user in member.users
            if user not in self.members and self.undoes(user, member)
        ]

    def undoes(self, user: Instruction, member: Instruction) -> bool:
        """Whether ``user`` takes a member back, sizes, order and layout."""
        move = self.move
        if user.opcode != move.opcode or not _may_move(user):
            return False
        if "frontend_attributes" in user.attributes:
            return False
        if inverse_permutation(move.permutation) != dimensions(user):
            return False
        shape = ArrayShape(member.array.dtype, move.source, move.layout)
        return same_layout(user.array, shape) if user.array.dims == move.source else False

    def needs_move(self, member: Instruction) -> bool:
        """Whether a result has a user that does not take in the move behind it."""
        return member.is_root or any(
            user not in self.members and not self.takes_in(user) for user in member.users
        )

    def takes_in(self, user: Instruction) -> bool:
        """Whether ``simplify`` makes one op of the move and a user: a move like it, or a broadcast."""
        move = self.move
        if user.opcode == "broadcast" and move.opcode == "reshape":
            return adds_only_ones(move.source, move.result)
        return user.opcode == move.opcode


@dataclass(frozen=True)
class ReshapeMover(Pass):
    """Compute before reshapes and transposes, so that fewer are left and those that are left meet.

    1. Find trees of elementwise ops whose operands are all the same reshape or transpose of something, or
       can be had in its sizes for nothing: scalars, constants used once, broadcasts and iotas whose
       dimensions it keeps apart.
    2. Count the moves that a tree makes needless: those that nothing else uses, and those behind it that
       only take a result back.  Count those needed behind it: one for each op that something outside
       uses that does not take the move in, as another move or a broadcast does.
    3. Where fewer are needed, or as many of no more bytes, compute in the sizes before the move.

    Moves that thereby follow each other are merged by ``simplify``.  Left alone: ops with control edges
    or a sharding (its dimensions are those of the result), random numbers, sizes not known yet.

    own              false: move as XLA does, behind one op at a time, and only what no op is left to read
    """

    own: bool = True

    example: ClassVar[str] = """HloModule sums

ENTRY main {
  x = f32[8,16]{1,0} parameter(0)
  y = f32[8,16]{1,0} parameter(1)
  a = f32[128]{0} reshape(x)
  b = f32[128]{0} reshape(y)
  s = f32[128]{0} add(a, b)
  t = f32[128]{0} tanh(s)
  ROOT r = f32[16,8]{1,0} reshape(t)
}
"""

    def run(self, module: Module, log: PassLog) -> bool:
        """Find the trees of a computation in one sweep and move those that gain, until none does."""
        changed = False
        for computation in open_computations(module):
            if not self.own:
                changed |= _sink_each(computation, log)
                continue
            for _ in range(_ROUNDS):
                if not _sink_all(computation, log):
                    break
                changed = True
            else:
                log.note(f"{self.name}: more is to be moved in {computation.name}; run it again")
        return changed


def _sink_all(computation: Computation, log: PassLog) -> bool:
    """One sweep: a move behind one tree may begin another, which the next sweep sees."""
    trees = _trees(computation)
    kept = {move for tree in trees for move in tree.moves}
    changed = False
    for tree in trees:
        if not _gains(tree, log):
            continue
        if not log.allows():
            break
        log.hit(_STEP, next(reversed(tree.members)), f"of a tree of {len(tree.members)}")
        _sink(tree, kept)
        changed = True
    return changed


def _sink_each(computation: Computation, log: PassLog) -> bool:
    """XLA's sweep: each candidate by itself, once all that reads its moves is one."""
    candidates = _candidates(computation)
    kept = {move for tree in candidates.values() for move in tree.moves}
    changed = False
    for member, tree in candidates.items():
        if not log.allows():
            break
        log.hit(_STEP, member, "whose moves nothing else reads")
        _sink(tree, kept)
        changed = True
    return changed


def _candidates(computation: Computation) -> dict[Instruction, _Tree]:
    """Ops behind equal moves and what comes free; without those whose moves something else reads."""
    moves = {one: move for one in computation if (move := _move_of(one)) is not None}
    found: dict[Instruction, _Tree] = {}
    for instruction in computation:
        if instruction.opcode not in _COMPUTED or not _may_move(instruction):
            continue
        move = _common_move(instruction, moves, {})
        own = {operand: None for operand in instruction.operands if operand in moves}
        if move is not None and not all(_is_uniform(one.operands[0]) for one in own):
            found[instruction] = _Tree(move, {instruction: None}, own)
    waiting = [one for tree in found.values() for one in tree.moves]
    while waiting:
        users = waiting.pop().users
        if any(user not in found for user in users):
            dropped = [found.pop(user) for user in dict.fromkeys(users) if user in found]
            waiting += [one for tree in dropped for one in tree.moves]
    return found


def _is_uniform(instruction: Instruction) -> bool:
    """Whether moving it costs nothing: a constant, or a scalar in every element."""
    broadcast = instruction.opcode == "broadcast" and is_scalar(instruction.operands[0])
    return broadcast or instruction.opcode == "constant"


def _may_move(instruction: Instruction) -> bool:
    return (
        is_replaceable(instruction)
        and instruction.is_array
        and "sharding" not in instruction.attributes
        and 0 not in instruction.array.dims
    )


def _move_of(instruction: Instruction) -> _Move | None:
    if instruction.opcode not in _MOVES or not _may_move(instruction):
        return None
    operand = instruction.operands[0]
    if "frontend_attributes" in instruction.attributes or is_scalar(instruction):
        return None
    source, result = operand.array, instruction.array
    if is_scalar(operand) or source.dims == result.dims == () or _keeps_all(instruction):
        return None
    return _Move(
        instruction.opcode, source.dims, source.layout, result.dims, dimensions(instruction)
    )


def _keeps_all(instruction: Instruction) -> bool:
    """Whether this moves nothing: ``simplify`` removes it."""
    if instruction.opcode == "transpose":
        return keeps_places(instruction)
    return instruction.array.dims == instruction.operands[0].array.dims


def _trees(computation: Computation) -> list[_Tree]:
    """All trees, in the order of their first ops; each op is in one at most."""
    moves: dict[Instruction, _Move] = {}
    members: dict[Instruction, _Move] = {}
    groups = UnionFind[Instruction]()
    for instruction in computation:
        move = _move_of(instruction)
        if move is not None:
            moves[instruction] = move
            continue
        if instruction.opcode not in _COMPUTED or not _may_move(instruction):
            continue
        common = _common_move(instruction, moves, members)
        if common is not None:
            members[instruction] = common
            for operand in instruction.operands:
                if operand in members or operand in moves:
                    groups.join(instruction, operand)
    found: dict[Instruction, _Tree] = {}
    for member, move in members.items():
        tree = found.setdefault(groups.find(member), _Tree(move))
        tree.members[member] = None
        tree.moves.update((operand, None) for operand in member.operands if operand in moves)
    return list(found.values())


def _common_move(
    instruction: Instruction,
    moves: dict[Instruction, _Move],
    members: dict[Instruction, _Move],
) -> _Move | None:
    """The one kind of move that all operands can come after; None without one."""
    kinds = {
        moves.get(operand) or members[operand]
        for operand in instruction.operands
        if operand in moves or operand in members
    }
    if len(kinds) != 1:
        return None
    (move,) = kinds
    for operand in instruction.operands:
        if operand not in moves and operand not in members and not _comes_free(operand, move):
            return None
    return move if move.result == instruction.array.dims else None


def _comes_free(operand: Instruction, move: _Move) -> bool:
    """Whether the operand can be had in the sizes before the move without moving data."""
    if is_scalar(operand):
        return True
    if operand.opcode == "constant":
        return operand.constant_array is not None and used_once(operand)
    return _places(operand, move) is not None


def _places(operand: Instruction, move: _Move) -> Dims | None:
    """Where the dimensions that a broadcast or iota has are before the move."""
    if operand.opcode == "broadcast":
        dims = dimensions(operand)
    elif operand.opcode == "iota":
        dims = (operand.iota_dimension,)
    else:
        return None
    if move.opcode == "transpose":
        places = tuple(move.permutation[d] for d in dims)
    else:
        kept = unmodified_dimensions(move.result, move.source)
        if any(d not in kept for d in dims):
            return None
        places = tuple(kept[d] for d in dims)
    return places if in_order(places) else None


def _gains(tree: _Tree, log: PassLog) -> bool:
    """Fewer moves, or as many of no more bytes."""
    before = [*tree.needless, *tree.undone]
    after = [result for result in tree.results if tree.needs_move(result)]
    last = next(reversed(tree.members))
    if len(after) > len(before):
        log.miss(_STEP, last, f"{len(after)} moves instead of {len(before)}")
        return False
    if not before:
        return False
    bytes_before, bytes_after = (
        sum(one.array.byte_size for one in side) for side in (before, after)
    )
    if len(after) == len(before) and bytes_after > bytes_before:
        log.miss(_STEP, last, f"{bytes_after} bytes moved instead of {bytes_before}")
        return False
    return True


def _sink(tree: _Tree, kept: set[Instruction]) -> None:
    """Compute before the moves, and move what is used outside; ``kept`` are moves that trees begin with."""
    move, results = tree.move, set(tree.results)
    new: dict[Instruction, Instruction] = {}
    for member in tree.members:
        operands = tuple(
            new[operand] if operand in new else _before(member, operand, tree)
            for operand in member.operands
        )
        attributes = own_attributes(member)
        if "frontend_attributes" in member.attributes:
            attributes["frontend_attributes"] = member.attributes["frontend_attributes"]
        shape = ArrayShape(member.array.dtype, move.source, move.layout)
        new[member] = build.make(
            member, member.opcode, operands, attributes, shape=shape, metadata=member.metadata
        )
    for member in reversed(tree.members):
        if member in results:
            for user in list(member.users):
                outside = user not in tree.members and user not in kept
                if outside and tree.undoes(user, member):
                    edit.replace_instruction(user, new[member])
            if not member.users and not member.is_root:
                edit.remove(member)
                continue
            attributes = {"dimensions": move.permutation} if move.permutation else {}
            moved = build.make(
                member,
                move.opcode,
                (new[member],),
                attributes,
                shape=member.array,
                metadata=member.metadata,
            )
            edit.replace_instruction(member, moved)
            continue
        name, offset = member.name, member.offset
        operands = member.operands
        edit.remove(member)
        edit.rename(new[member], name)
        new[member].offset = offset
        _remove_unused(operands)
    _remove_unused(tuple(tree.moves))


def _before(member: Instruction, operand: Instruction, tree: _Tree) -> Instruction:
    """An operand in the sizes before the move."""
    move = tree.move
    if operand in tree.moves:
        return operand.operands[0]
    if is_scalar(operand):
        return operand
    shape = ArrayShape(operand.array.dtype, move.source, move.layout)
    metadata = operand.metadata
    if operand.opcode == "constant":
        values = operand.constant_array
        assert values is not None
        if move.opcode == "transpose":
            values = values.transpose(np.argsort(move.permutation))
        values = np.ascontiguousarray(values).reshape(move.source)
        literal = Literal(shape, values)
        return build.make(
            member, "constant", (), {"literal": literal}, shape=shape, metadata=metadata
        )
    places = _places(operand, move)
    assert places is not None
    key = {"dimensions": places} if operand.opcode == "broadcast" else {"iota_dimension": places[0]}
    return build.make(member, operand.opcode, operand.operands, key, shape=shape, metadata=metadata)


def _remove_unused(instructions: tuple[Instruction, ...]) -> None:
    """Take out moves, broadcasts, iotas and constants that nothing needs any more."""
    for instruction in instructions:
        unused = instruction.computation is not None and not instruction.users
        free = instruction.opcode in (*_MOVES, "broadcast", "iota", "constant")
        if unused and free and not instruction.is_root and is_replaceable(instruction):
            operands = instruction.operands
            edit.remove(instruction)
            _remove_unused(operands)
