"""How often the instructions of a fusion's body are computed and written, walking from its root up.

Every instruction has *element-wise use roots*: the instructions under whose indices it is computed.  What keeps
indices passes its roots on to its operands, everything else makes its operands roots of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from math import ceil
from typing import Any, Final, TypeAlias

from hloopt.cost_models.counting import OpUsage, narrow
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction
from hloopt.ops.traits import JOINING, REDUCING
from hloopt.types import elements_of

__all__ = ["BodyUsage", "UsageGroup"]

_Roots: TypeAlias = frozenset[object]
_UPDATES: Final = frozenset({"dynamic-update-slice", "scatter", "tuple"})
"""Ops that count otherwise where they are the result."""
_MOVING: Final = frozenset({"copy", "transpose"})
SPLITTING: Final = JOINING | REDUCING | {"dot", "dynamic-update-slice"}
"""Ops after which index computations that were already written are not found again."""


@dataclass(frozen=True, slots=True, eq=False)
class UsageGroup:
    """Some element-wise use roots, and the sums of their utilisations and of how often they are written."""

    roots: _Roots
    utilization: float
    emitted: int


class BodyUsage:
    """The utilisations of one body; results count as used once each.

    ``count`` gives the usage of an op by itself; ``uses`` is for cached uses of parameters, and invalidates
    those of which it may have changed.  ``opcodes`` are those of all that is computed, ``moving`` its
    copies and transposes.

    Among element-wise use roots an object of ``_marks`` stands for the body's root: what is computed under its
    indices is computed under those of a new root as well, where that keeps them.
    """

    def __init__(
        self,
        body: Computation,
        count: Callable[[Instruction], OpUsage],
    ) -> None:
        self.body = body
        self._count = count
        self._utilization: dict[object, float] = {}
        self._emitted: dict[object, int] = {}
        self._groups: dict[Instruction, UsageGroup] = {}
        self._known: dict[_Roots, UsageGroup] = {}
        self._flops = 0.0
        self._size = 0
        self._splits = 0
        self._parameters: dict[Instruction, None] = {}
        self._parameter_size = 0
        self.uses: dict[Instruction, Any] = {}
        self._sums: dict[Instruction, tuple[int, _Roots | None, float, int, bool]] = {}
        self._root = body.root
        self._marks: dict[Instruction, object] = {body.root: object()}
        self._root_operands = len(body.root.operands)
        self._results = 0
        self._written = 0
        self.opcodes: set[str] = set()
        self.moving: list[Instruction] = []
        self._take_in(list(reversed(body)))
        self._parameters = dict.fromkeys(body.parameters)

    @property
    def flops(self) -> int:
        """Flops of the whole body."""
        return int(narrow(self._flops))

    @property
    def ir_size(self) -> int:
        """Instructions written, repetitions and parameters included."""
        return self._size + self._parameter_size

    @property
    def splits(self) -> int:
        """How often ops of ``SPLITTING`` are written."""
        return self._splits

    @property
    def written(self) -> int:
        """Bytes of the results."""
        root = self._root
        results = root.operands if root.opcode == "tuple" else (root,)
        self._written += sum(map(_result_bytes, results[self._results :]))
        self._results = len(results)
        return self._written

    def group(self, instruction: Instruction) -> UsageGroup:
        """Of an instruction of the body."""
        return self._groups[instruction]

    def read(self, parameter: Instruction) -> float:
        """The utilisation of a parameter, less what results updated in place take from it."""
        used = self._groups[parameter].utilization
        for user in parameter.users:
            if user.opcode != "dynamic-update-slice" or user.operands[0] is not parameter:
                continue
            if self._is_result(user):
                share = self._groups[user].utilization * self._count(user).used[0]
                used -= _whole(share, parameter)
        return max(0.0, used)

    def _is_result(self, instruction: Instruction) -> bool:
        root = self._root
        return instruction is root or (root.opcode == "tuple" and root in instruction.users)

    def common(self, left: Instruction, right: Instruction) -> float:
        """The utilisation of the roots that two instructions share."""
        first, second = self._groups[left], self._groups[right]
        if first is second:
            return first.utilization
        return sum(self._utilization[root] for root in first.roots & second.roots)

    def grown(self) -> bool:
        """Add what has joined between the parameters and their users; False where more has changed.

        Instructions that were there keep their indices, and so their users: what joins is used by them, or by
        others that join.  Parameters that what joined does not read stay as they are, too.  What joins may be
        a result beside those there are.
        """
        body = self.body
        if not (self._has_same_root() or self._has_tuple_now()):
            return False
        parameters = dict.fromkeys(body.parameters)
        stayed = len(self._groups) - len(self._parameters)
        added = self._added()
        if stayed + len(added) + len(parameters) != len(body):
            return False
        changed = parameters.keys() - self._parameters.keys()
        for gone in self._parameters.keys() - parameters.keys():
            self._drop(gone)
            self._sums.pop(gone, None)
        for entry in added:
            changed.update(operand for operand in entry.operands if operand in parameters)
        for parameter in changed:
            self._drop(parameter)
        self._parameters = parameters
        self._take_in([*reversed(added), *changed])
        return True

    def _has_same_root(self) -> bool:
        """Whether results are those that were there, and some of what has joined."""
        results = self._root.operands
        if self.body.root is not self._root or len(results) < self._root_operands:
            return False
        if any(result in self._groups for result in results[self._root_operands :]):
            return False
        self._root_operands = len(results)
        return True

    def _has_tuple_now(self) -> bool:
        """Add the tuple of the one result there was and of what has joined.

        All that is a result is computed under the same indices, so that nothing else changes.
        """
        old, root = self._root, self.body.root
        if root.opcode != "tuple" or old.opcode == "tuple" or root.operands[0] is not old:
            return False
        if old.users != {root: 1} or any(entry in self._groups for entry in root.operands[1:]):
            return False
        self._root, self._root_operands = root, len(root.operands)
        self._marks[root] = self._marks.pop(old)
        self._take_in([root])
        return True

    def continued(self) -> bool:
        """Add what now follows the former root; False where more than the root has changed.

        What reads the former root keeps its indices, or reads each element once: what was there is computed as
        often as before.
        """
        body, before = self.body, self._groups.get(self._root)
        if before is None or body.root is self._root or self._root.opcode in _UPDATES:
            return False
        added = self._behind()
        parameters = dict.fromkeys(body.parameters)
        stayed = len(self._groups) - len(self._parameters)
        if stayed + len(added) + len(parameters) != len(body):
            return False
        if before.emitted != 1:
            return False
        old, self._root, self._root_operands = self._root, body.root, len(body.root.operands)
        self._results, self._written = 0, 0
        place = self._marks[old]
        if all(self._count(user).keeps_indices for user in old.users):
            del self._marks[old]
            self._marks[body.root] = place
        else:
            self._marks[body.root] = object()
        known = self._utilization[place], self._emitted[place]
        changed = parameters.keys() - self._parameters.keys()
        for entry in added:
            changed.update(operand for operand in entry.operands if operand in parameters)
        for parameter in changed:
            self._drop(parameter)
        self._parameters = parameters
        self._take_in([*added, *changed])
        return self._settle(old) is before and known == (
            self._utilization[place],
            self._emitted[place],
        )

    def _behind(self) -> list[Instruction]:
        """What stands behind the last instruction that was there before, the last one first."""
        entry = self.body._last
        found = []
        while entry is not None and entry not in self._groups:
            found.append(entry)
            entry = entry._previous
        return found

    def _added(self) -> list[Instruction]:
        """What stands between the parameters and the first instruction that was there before."""
        body = self.body
        entry = body.parameters[-1]._next if body.parameters else body._first
        found = []
        while entry is not None and entry not in self._groups:
            found.append(entry)
            entry = entry._next
        return found

    def _drop(self, parameter: Instruction) -> None:
        group = self._groups.pop(parameter, None)
        if group is not None:
            self._parameter_size -= group.emitted
            self._utilization.pop(parameter, None)
            self._emitted.pop(parameter, None)
            self.uses.pop(parameter, None)

    def _take_in(self, instructions: list[Instruction]) -> None:
        """Users come before what they use."""
        for instruction in instructions:
            group = self._settle(instruction)
            self._groups[instruction] = group
            if instruction.opcode == "parameter":
                self._parameter_size += group.emitted
                continue
            self.opcodes.add(instruction.opcode)
            if instruction.opcode in _MOVING:
                self.moving.append(instruction)
            self._flops += group.utilization * self._count(instruction).flops
            self._size += group.emitted
            if instruction.opcode in SPLITTING:
                self._splits += group.emitted

    def _settle(self, instruction: Instruction) -> UsageGroup:
        """The roots that users pass on, and the instruction itself where a user needs other indices.

        Users of a parameter stay, and more come behind them: of those seen before the sums are known.
        """
        roots: _Roots | None = None
        utilization, emitted, is_root = 0.0, 0, False
        if instruction is self._root:
            utilization, emitted, is_root = 1.0, 1, True
        users: Iterable[Instruction] = instruction.users
        if instruction in self._sums:
            seen, roots, utilization, emitted, is_root = self._sums[instruction]
            users = islice(users, seen, None)
        for user in users:
            group = self._groups[user]
            counted = self._count(user)
            if counted.keeps_indices:
                if roots is None:
                    roots = group.roots
                elif roots is not group.roots:
                    roots = roots | group.roots
                continue
            is_root = True
            for number in _places(instruction, user):
                used = group.utilization * counted.used[number]
                utilization += _whole(used, instruction)
                emitted += group.emitted
        if instruction.opcode == "parameter":
            self._sums[instruction] = len(instruction.users), roots, utilization, emitted, is_root
        if is_root:
            place = self._marks.get(instruction, instruction)
            self._utilization[place] = narrow(utilization)
            self._emitted[place] = emitted
            own: _Roots = frozenset((place,))
            roots = own if roots is None else roots | own
        return self._group(roots or frozenset(), instruction.opcode != "parameter")

    def _group(self, roots: _Roots, stays: bool) -> UsageGroup:
        """One object for equal sets, but for those of parameters, which change while others join."""
        known = self._known.get(roots)
        if known is None:
            utilization = sum(map(self._utilization.__getitem__, roots))
            emitted = sum(map(self._emitted.__getitem__, roots))
            known = UsageGroup(roots, narrow(utilization), emitted)
            if stays:
                self._known[roots] = known
        return known


def _places(operand: Instruction, user: Instruction) -> Iterable[int]:
    """Where an instruction stands among its user's operands."""
    if operand.users[user] == 1:
        return (user.operands.index(operand),)
    return [number for number, other in enumerate(user.operands) if other is operand]


def _whole(utilization: float, instruction: Instruction) -> float:
    """A utilisation that is a whole number of elements."""
    if utilization.is_integer():
        return utilization
    elements = elements_of(instruction.shape)
    if not elements:
        return 0.0
    return narrow(ceil(narrow(narrow(utilization) * elements)) / elements)


def _result_bytes(result: Instruction) -> int:
    """Of an update only what it changes."""
    if result.opcode == "dynamic-update-slice":
        return result.operands[1].shape.byte_size
    return result.shape.byte_size
