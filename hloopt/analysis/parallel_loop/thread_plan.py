"""What a thread that runs a work item of a loop keeps: values in arrays, and its number of registers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from math import prod
from typing import Final

from hloopt.analysis.parallel_loop.edges import leaf_count, shape_of
from hloopt.analysis.parallel_loop.model import Axes, Carried, LoopNode, ParallelLoop, local_dims
from hloopt.analysis.parallel_loop.state import LoopState
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction
from hloopt.ops.traits import CONTRACTING, FOLDING, MOVING, SOURCES, TUPLES
from hloopt.types import ArrayShape, ConvDims, DotDims

__all__ = ["HOISTED", "IN_LOOPS", "UNROLLED", "UNROLLED_FOLD", "ThreadPlan"]

UNROLLED: Final = 16
"""So many local elements at most are written out one by one and are in registers; more are in arrays that loops
go through."""

UNROLLED_FOLD: Final = 64
"""So many elements at most that a reduce or dot takes together are gone through by an unrolled loop."""

HOISTED: Final = 32
"""So many elements of what a loop only reads are read before it, and kept, at most."""

_ARRAY_WORDS: Final = 128
"""32-bit values of arrays that may be in registers together: half of them."""

_UNROLLED_CODE: Final = 1024
"""The most operations of an unrolled loop over an array."""

_REPEATED: Final = 32
"""Operations that storing a value must save a work item in each iteration."""

_HARD: Final = frozenset({"divide", "remainder"})
_HARD_COST: Final = 10
IN_LOOPS: Final = FOLDING - CONTRACTING - {"reduce"} | {"convolution", "scatter"}
"""Ops that are written as loops, however few elements they have."""
_FREE: Final = SOURCES | TUPLES | {"copy", "opt-barrier"}


@dataclass(frozen=True, eq=False)
class ThreadPlan:
    """A loop run by a thread for each work item; ``parallel`` says what it is.

    So many elements as ``unrolled`` of a value are variables, more are in arrays that loops go through.
    """

    parallel: ParallelLoop
    unrolled: int = UNROLLED

    @cached_property
    def _body(self) -> Computation:
        return self.parallel.loop.body

    def local(self, node: LoopNode) -> int:
        """Elements that a work item has of a value; one of what any of them can compute."""
        axes = self.axes(node)
        return 1 if axes is None else prod(local_dims(shape_of(node), axes))

    def axes(self, node: LoopNode) -> Axes | None:
        """The axes of a value that belongs to a work item; the only work item has all of every one."""
        if not self.parallel.sizes:
            return (None,) * shape_of(node).rank
        return self.parallel.owned.get(node)

    @cached_property
    def stored(self) -> tuple[Instruction, ...]:
        """Values of the body that are kept in arrays, operands first.

        One is where it takes more to compute its elements each time they are read than to keep them, unless
        all code that reads it is written out in one place, which computes an element once anyway.
        """
        found: list[Instruction] = []
        costs: dict[Instruction, int] = {}
        for instruction in self.parallel.loop.body:
            cost = self._cost(instruction, costs)
            costs[instruction] = cost
            if self._is_worth(instruction, cost):
                found.append(instruction)
                costs[instruction] = 1
        return tuple(found)

    def full_cost(self, value: Instruction) -> int:
        """Operations for an element of a value of the body, where stored ones are there."""
        return self._cost(value, self._costs)

    @cached_property
    def _costs(self) -> dict[Instruction, int]:
        costs: dict[Instruction, int] = {}
        stored = set(self.stored)
        for instruction in self.parallel.loop.body:
            costs[instruction] = self._cost(instruction, costs)
            if instruction in stored:
                costs[instruction] = 1
        return costs

    def _is_worth(self, instruction: Instruction, cost: int) -> bool:
        if not isinstance(instruction.shape, ArrayShape) or instruction.opcode in _FREE | MOVING:
            return False
        node = instruction, 0
        count = self.local(node)
        if self.axes(node) is None or count == 1:
            return False
        if count <= self.unrolled and not any(self._is_looped(user) for user in instruction.users):
            return False
        reads = sum(self._reads(instruction, user) for user in instruction.users)
        return cost * count * (reads - 1) > _REPEATED

    def _is_looped(self, user: Instruction) -> bool:
        """Whether elements of a value, or what they are folded from, are gone through by a loop."""
        if user.opcode == "tuple":
            return False
        if user in self._updates:
            return self.local((user.operands[1], 0)) > self.unrolled
        wide = max(self.local((user, leaf)) for leaf in range(leaf_count(user)))
        return user.opcode in IN_LOOPS or wide > self.unrolled or self.folded(user) > self.unrolled

    @cached_property
    def _updates(self) -> frozenset[Instruction]:
        """The updates that are written to memory part by part."""
        found = (one.update for one in self.parallel.carried if one.role == "streamed")
        return frozenset(update for update in found if update is not None)

    def folded(self, instruction: Instruction) -> int:
        """Elements that one element of a dot or reduce takes together, in a work item."""
        if instruction.opcode == "dot":
            dims = instruction.operands[0].array.dims
            return prod(dims[at] for at in DotDims.of(instruction.attributes).lhs_contracting)
        if instruction.opcode == "reduce":
            operand = instruction.operands[0]
            own = max(self.local((instruction, 0)), 1)
            return max(self.local((operand, 0)) // own, 1)
        if instruction.opcode in ("convolution", "reduce-window"):
            taps = instruction.window.size
            if instruction.opcode == "reduce-window":
                return taps
            labels: ConvDims = instruction.attributes["dim_labels"]
            return taps * instruction.operands[1].array.dims[labels.kernel_input_feature]
        return 1

    def _reads(self, value: Instruction, user: Instruction) -> int:
        """How often each element of a value is read for all elements of a user, about."""
        if user.opcode in TUPLES or user in self._updates:
            return 1
        wide = self.local((user, 0)) * self.folded(user)
        return max(wide // max(self.local((value, 0)), 1), 1)

    def _cost(self, instruction: Instruction, costs: dict[Instruction, int]) -> int:
        if instruction.opcode in _FREE or not isinstance(instruction.shape, ArrayShape):
            return 0
        below = sum(costs.get(operand, 0) for operand in instruction.operands)
        if instruction.opcode in MOVING:
            return max((costs.get(operand, 0) for operand in instruction.operands), default=0)
        if self.folded(instruction) > 1:
            return (below + 2) * self.folded(instruction)
        return below + self.own_cost(instruction)

    @staticmethod
    def own_cost(instruction: Instruction) -> int:
        """Operations of an element alone, where its operands are there."""
        if instruction.opcode in _FREE | MOVING or not isinstance(instruction.shape, ArrayShape):
            return 0
        hard = instruction.op.transcendentals or instruction.opcode in _HARD
        return _HARD_COST if hard else 1

    # ---- what it takes ------------------------------------------------------------------------------

    @cached_property
    def registers(self) -> int:
        """32-bit values that are alive at once at most, about: state, next state, what is computed from it."""
        arrays = self._array_words if self.arrays_in_registers else 0
        return _POINTERS + self._kept + self._read + self._alive + arrays + self._under_way

    @cached_property
    def _under_way(self) -> int:
        """Elements that an unrolled dot over arrays reads before it needs them: two for each product."""
        folds = (self.folded(one) for one in self._order() if one.opcode == "dot")
        return 2 * max((fold for fold in folds if self.unrolled < fold <= UNROLLED_FOLD), default=0)

    @property
    def arrays_in_registers(self) -> bool:
        """Whether loops over arrays are unrolled, so that their elements may be in registers."""
        return self._array_words <= _ARRAY_WORDS

    @cached_property
    def _array_words(self) -> int:
        """32-bit values of arrays with more than ``unrolled`` elements: state, next state, stored values."""
        states = (2 * _size(one.local_elements, one.shape, self.unrolled) for one in self._changing)
        values = (
            _size(self.local((one, 0)), one.array, self.unrolled)
            for one in self.stored
            if self.is_short(self.local((one, 0)), self.full_cost(one))
        )
        return sum(states) + sum(values)

    @staticmethod
    def is_short(count: int, cost: int) -> bool:
        """Whether a loop over so many elements, of so many operations each, may be unrolled."""
        return count * cost <= _UNROLLED_CODE

    @cached_property
    def local_bytes(self) -> int:
        """Bytes of arrays with more than ``unrolled`` elements, which lie in the thread's private memory."""
        total = 0
        for carried in self._changing:
            if carried.local_elements > self.unrolled:
                total += 2 * carried.local_elements * carried.shape.dtype.bytes
        for value in self.stored:
            if self.local((value, 0)) > self.unrolled:
                total += self.local((value, 0)) * value.array.dtype.bytes
        return total + max((inner.local_bytes for inner in self.inner), default=0)

    @cached_property
    def _changing(self) -> tuple[Carried, ...]:
        """The elements of the state that are kept."""
        counted = (
            LoopState(self.parallel.loop).counters
            if self.parallel.iterations.kind == "known"
            else {}
        )
        return tuple(
            carried
            for carried in self.parallel.carried
            if carried.role in ("uniform", "owned") and carried.number not in counted
        )

    @property
    def kept_words(self) -> int:
        """32-bit values of the elements of the state that are in variables."""
        return self._kept

    @cached_property
    def _kept(self) -> int:
        return sum(
            carried.local_elements * _words(carried.shape)
            for carried in self._changing
            if carried.local_elements <= self.unrolled
        )

    @cached_property
    def _read(self) -> int:
        """Of small arrays that the loop only reads, which are read once."""
        small = (
            carried.shape.elements
            for carried in self.parallel.carried
            if carried.role == "invariant" and carried.shape.elements <= HOISTED
        )
        return min(sum(small), HOISTED)

    @cached_property
    def _alive(self) -> int:
        """The most values alive in an iteration, in the order of a depth-first walk from the next state."""
        order = self._order()
        position = {instruction: at for at, instruction in enumerate(order)}
        end = dict(position)
        for at, instruction in enumerate(order):
            for source in _sources(instruction):
                end[source] = max(end.get(source, 0), at)
        for carried in self._changing:
            for source in _sources_of(self.parallel.loop.body.root.operands[carried.number]):
                end[source] = len(order)
        changes = [0] * (len(order) + 2)
        for instruction, at in position.items():
            width = self._width(instruction)
            changes[at] += width
            changes[end[instruction] + 1] -= width
        most = now = 0
        inner = {plan.parallel.loop: plan for plan in self.inner}
        for at, change in enumerate(changes):
            now += change
            within = inner.get(order[at]) if at < len(order) else None
            most = max(most, now + (within.registers - _POINTERS if within is not None else 0))
        return most

    def _width(self, instruction: Instruction) -> int:
        total = 0
        for leaf in range(leaf_count(instruction)):
            count = self.local((instruction, leaf))
            stored = instruction in self.stored and count > self.unrolled
            total += (
                0 if stored else min(count, self.unrolled) * _words(shape_of((instruction, leaf)))
            )
        return total

    def _order(self) -> list[Instruction]:
        """What is computed in an iteration, operands first, moved elements and constants left out."""
        found: dict[Instruction, None] = {}
        pending = [(one, False) for one in reversed(self.parallel.loop.body.root.operands)]
        seen: set[Instruction] = set()
        while pending:
            instruction, done = pending.pop()
            if done:
                found[instruction] = None
            elif instruction not in seen:
                seen.add(instruction)
                if instruction.opcode not in _FREE | MOVING:
                    pending.append((instruction, True))
                pending += [(one, False) for one in reversed(instruction.operands)]
        return list(found)

    @cached_property
    def inner(self) -> tuple[ThreadPlan, ...]:
        """The loops of the body."""
        nested = self.parallel.nested
        return tuple(
            ThreadPlan(nested[one], self.unrolled)
            for one in self.parallel.loop.body
            if one in nested
        )


_POINTERS: Final = 16
"""Registers for addresses, the work item and the iteration, of a small kernel (NVRTC 12, sm_90)."""


def _sources(instruction: Instruction) -> Iterator[Instruction]:
    """What the elements of the operands are computed from, through what only moves them."""
    for operand in instruction.operands:
        yield from _sources_of(operand)


def _sources_of(value: Instruction) -> Iterator[Instruction]:
    pending = [value]
    seen = {value}
    while pending:
        one = pending.pop()
        if one.opcode not in _FREE | MOVING:
            yield one
            continue
        for operand in one.operands:
            if operand not in seen:
                seen.add(operand)
                pending.append(operand)


def _size(count: int, shape: ArrayShape, unrolled: int) -> int:
    return count * _words(shape) if count > unrolled else 0


def _words(shape: ArrayShape) -> int:
    return max(1, -(-shape.dtype.bits // 32))
