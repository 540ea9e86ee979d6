"""How often a loop kernel would compute an instruction of its body for one element.

An instruction that is read under several different indices has its code written once for each.  Its
*indexing users* are the instructions that choose those indices: a user with the same dimensions passes
on its own indices, and every other user makes new ones.
"""

from __future__ import annotations

from collections.abc import Iterable

from hloopt.cost_models.body_usage import SPLITTING
from hloopt.fusion.decision import ALLOWED, Decision, forbid
from hloopt.fusion.limits import CodeLimits
from hloopt.ir import Computation, Instruction
from hloopt.types import ArrayShape

__all__ = ["Duplication", "RealUsers"]


class Duplication:
    """Emission counts of a fusion's body, kept while producers join it.

    A producer joins after all of its users in the body, so that counts of the body never change.
    ``times`` is how often the root itself is written.
    """

    def __init__(self, body: Computation, times: int = 1) -> None:
        self._users: dict[Instruction, set[Instruction]] = {body.root: {body.root}}
        self._count: dict[Instruction, int] = {body.root: times}
        for instruction in reversed(body):
            if instruction.opcode != "parameter" and instruction in self._users:
                self._settle(instruction)

    def count(self, parameter: Instruction) -> int:
        """How often the code of a producer in the place of ``parameter`` would be written."""
        return sum(self._count[user] for user in self._users.get(parameter, ()))

    def join(self, parameter: Instruction, fused: Instruction) -> None:
        """``fused`` has taken the place of ``parameter``."""
        self._users[fused] = self._users.pop(parameter, set())
        self._settle(fused)

    def decide(
        self,
        producer: Instruction,
        parameter: Instruction,
        limits: CodeLimits,
        real_users: RealUsers,
    ) -> Decision:
        """Whether the producer's code would be written too often."""
        count = 1 if producer.opcode == "broadcast" else self.count(parameter)
        return _decide_count(producer, count, limits, real_users)

    def decide_all(self, limits: CodeLimits) -> Decision:
        """Whether some instruction of the body is written too often."""
        real_users = RealUsers()
        for instruction, count in self._count.items():
            decision = _decide_count(instruction, count, limits, real_users)
            if not decision:
                return decision
        return ALLOWED

    def _settle(self, instruction: Instruction) -> None:
        users = self._users[instruction]
        if instruction not in self._count:
            self._count[instruction] = sum(self._count[user] for user in users)
        for operand in instruction.operands:
            seen = self._users.setdefault(operand, set())
            if _same_indices(operand, instruction):
                seen |= users
            else:
                seen.add(instruction)


def _decide_count(
    instruction: Instruction, count: int, limits: CodeLimits, real_users: RealUsers
) -> Decision:
    if count > limits.max_duplication:
        return forbid("code-duplication", limit=limits.max_duplication, actual=count)
    if instruction.opcode not in SPLITTING:
        return ALLOWED
    if count > limits.max_barrier_emissions:
        return forbid("not-emitted-twice", limit=limits.max_barrier_emissions, actual=count)
    users = real_users.of(instruction)
    if users > limits.max_barrier_users:
        return forbid("barrier-users", limit=limits.max_barrier_users, actual=users)
    return ALLOWED


class RealUsers:
    """Counts of producers' users, those of a fusion's parameter instead of the fusion; kept while ops join."""

    def __init__(self) -> None:
        self._known: dict[Instruction, int] = {}

    def of(self, producer: Instruction) -> int:
        """The users of one producer."""
        known = self._known.get(producer)
        if known is None:
            known = self._known[producer] = _real_users(producer)
        return known

    def joined(
        self, producer: Instruction, reads: Iterable[Instruction], inside: int, *, is_gone: bool
    ) -> None:
        """A copy of an op that ``reads`` some values is now inside a fusion, where it had ``inside`` users.

        ``is_gone``: the op itself was removed.
        """
        if producer in self._known:
            self._known[producer] -= inside
        if not is_gone:
            for operand in reads:
                if operand in self._known:
                    self._known[operand] += 1


def _real_users(producer: Instruction) -> int:
    total = 0
    for user in producer.users:
        if user.opcode == "fusion":
            body = user.calls
            total += sum(
                len(body.parameters[index].users)
                for index, operand in enumerate(user.operands)
                if operand is producer
            )
        else:
            total += 1
    return total


def _same_indices(operand: Instruction, user: Instruction) -> bool:
    if user.opcode == "transpose":
        return True
    left, right = operand.shape, user.shape
    return (
        isinstance(left, ArrayShape)
        and isinstance(right, ArrayShape)
        and left.dims == right.dims
        and left.layout == right.layout
    )
