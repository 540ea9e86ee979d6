"""Priority fusion of one computation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Final, TypeAlias

from hloopt.analysis.written_code import Written
from hloopt.cost_models.model import Comparison, CostModel
from hloopt.dataclass import dataclass
from hloopt.fusion import apply
from hloopt.fusion.decision import ALLOWED, Decision, forbid
from hloopt.fusion.fusible import UNCOMPUTED, is_fusible
from hloopt.fusion.history import root_opcode
from hloopt.fusion.in_place import decide_scatter
from hloopt.fusion.joining import Joiner
from hloopt.fusion.kinds import hlo_kind
from hloopt.fusion.limits import Footprint
from hloopt.fusion.priority.benefit import Benefits
from hloopt.fusion.priority.rules import PairRules, is_fusible_bitcast
from hloopt.fusion.priority.twins import Twins
from hloopt.fusion.recorder import FusionRecorder
from hloopt.fusion.triton import TritonFusions
from hloopt.ir import Computation, Instruction, walk
from hloopt.types import ArrayShape

__all__ = ["PriorityRun", "ProducerQueue"]

_PRICED_LAST: Final = frozenset({"constant", "get-tuple-element"})
"""Operands without a priority from a model: constants are fused at the end, elements never."""

_Word: TypeAlias = tuple[Instruction, Instruction | None, Decision]


class ProducerQueue:
    """A queue of producers with priorities that change.

    Of equal priorities the instruction made last comes first, as XLA orders by (priority, unique id).  The
    order of the text counts as the order of creation; fusions are made later.
    ``numbers`` are the instructions' places in this order.
    """

    def __init__(self) -> None:
        self.numbers: dict[Instruction, int] = {}
        self._counter = count()
        self._heap: list[tuple[float, int, int, Instruction]] = []
        self._entries = count()
        self._current: dict[Instruction, tuple[float, int]] = {}

    def made(self, instruction: Instruction) -> None:
        """An instruction exists; it keeps its place among equals from now on."""
        if instruction not in self.numbers:
            self.numbers[instruction] = next(self._counter)

    def put(self, producer: Instruction, priority: float) -> None:
        """Enqueue a producer, or change its priority."""
        key = (-priority, -self.numbers[producer])
        if self._current.get(producer) != key:
            self._current[producer] = key
            # The same priority may come back: two entries then differ by their number.
            heappush(self._heap, (*key, next(self._entries), producer))

    def drop(self, producer: Instruction) -> None:
        """Remove a producer, if it is enqueued."""
        self._current.pop(producer, None)

    def gone(self, instruction: Instruction) -> None:
        """An instruction was removed from the module."""
        self.drop(instruction)
        self.numbers.pop(instruction, None)

    def pop(self) -> Instruction | None:
        """Remove and return the producer with the highest priority; None where none is left."""
        while self._heap:
            negated, number, _, producer = heappop(self._heap)
            if self._current.get(producer) == (negated, number):
                del self._current[producer]
                return producer
        return None

    def __contains__(self, producer: Instruction) -> bool:
        return producer in self._current

    def waiting(self) -> list[Instruction]:
        """All producers enqueued, in no order."""
        return list(self._current)


@dataclass
class PriorityRun:
    """The state of a run: the queue, and what depends on it.

    max_constant   elements of a constant that goes into its users' kernels
    """

    computation: Computation
    rules: PairRules
    model: CostModel
    triton: TritonFusions
    recorder: FusionRecorder
    max_constant: int = 1

    def __post_init__(self) -> None:
        self.queue = ProducerQueue()
        self.benefits = Benefits(self.rules, self.model, self.recorder.advice)
        self.bodies: dict[Computation, None] = {}
        self.twins = Twins(self.queue.numbers, self.model.usage.opcodes)
        self.joiner = Joiner()
        self.fuel = ALLOWED
        self._touched: dict[Instruction, None] = {}
        self._replaced: dict[Instruction, Instruction] = {}

    def run(self) -> None:
        """Fuse until nothing gains any more, then the constants; record all verdicts."""
        order = walk.post_order(self.computation)
        for instruction in order:
            self.queue.made(instruction)
        for instruction in order:
            if instruction.opcode not in UNCOMPUTED and instruction.users:
                self._touch(instruction)
        self._settle()
        while self.fuel:
            producer = self.queue.pop()
            if producer is None:
                break
            self._fuse_producer(producer)
        self._wake(self.twins.wake_all())
        self._settle()
        words = list(self._last_words())
        words += self._fuse_constants()
        self._tell(words)
        apply.number_parameter_names(self.bodies)

    def _touch(self, producer: Instruction) -> None:
        if is_fusible(producer):
            self.benefits.open(producer)
            self._touched[producer] = None

    def _wake(self, twins: Iterable[Instruction]) -> None:
        for twin in twins:
            self._touch(twin)

    def _settle(self) -> None:
        """Recompute the priorities of all that changed."""
        for producer in self._touched:
            priority = self._priority(producer)
            if priority >= 0:
                self.queue.put(producer, priority)
            else:
                self.queue.drop(producer)
        self._touched.clear()

    def _priority(self, producer: Instruction) -> float:
        if is_fusible_bitcast(producer):
            return inf
        if producer.opcode == "constant":
            return -inf
        return self.benefits.priority(producer)

    def _fuse_producer(self, producer: Instruction) -> None:
        consumers, comparison = self._choose(producer)
        by_wish = self.benefits.is_wanted(producer)
        taken: list[Instruction] = []
        joined = [producer]
        self._wake((*self.twins.wake(producer), *self.twins.wake_operands(producer)))
        for consumer in consumers:
            self.fuel = self.recorder.allows()
            if not self.fuel:
                break
            self._wake(self.twins.wake(consumer))
            operands = (*producer.operands, *self.twins.awake(consumer))
            fusion = self._fuse(producer, consumer, comparison)
            twins = self._fuse_twins(producer, fusion, comparison)
            operands += tuple(operand for twin in twins for operand in twin.operands)
            self._follow(fusion, consumer, operands)
            taken.append(consumer)
            joined += twins
        stays = not taken or not all(map(self._remove_joined, reversed(joined)))
        if stays and taken:
            self.benefits.changed(producer, taken, None)
            if by_wish and producer.users:
                self._touched[producer] = None
        self._settle()
        if not self.fuel and producer.users:
            # It would have been fused: it is enqueued like the others.
            self.queue.put(producer, inf)

    def _remove_joined(self, producer: Instruction) -> bool:
        """Remove a producer that has joined its users, unless it has others."""
        sources = producer.operands
        if not apply.remove_producer(producer):
            return False
        self._forget(producer)
        for operand in sources:
            self.benefits.gone(operand, producer)
            if operand.opcode == "rng" and operand not in self.benefits:
                # Only now it has one user, and may be fused.
                self._touch(operand)
        return True

    def _fuse_twins(
        self, producer: Instruction, fusion: Instruction, comparison: Comparison | None
    ) -> list[Instruction]:
        """Twins of a producer join the fusion as well, without being priced."""

        def fit(twin: Instruction, count: int) -> bool:
            return self.rules.have_room(twin, fusion, count)

        found = self.twins.followers(producer, fusion, fit)
        allowed = self.recorder.allowed(len(found))
        twins = found[:allowed]
        self._wake(found[allowed:])
        if not twins:
            return []
        for twin in twins:
            self._wake(self.twins.wake_operands(twin))
            self.rules.became(fusion, *self._sizes(twin, fusion))
        before = fusion.name, root_opcode(fusion)
        self.joiner.fuse_all(twins, fusion)
        self.model.grown(fusion)
        self._classify(fusion)
        for twin in twins:
            self.recorder.fused(twin, before, fusion, duplicated=False, comparison=comparison)
        self.fuel = self.recorder.allows()
        return twins

    def _choose(self, producer: Instruction) -> tuple[list[Instruction], Comparison | None]:
        if not is_fusible_bitcast(producer):
            return self.benefits.consumers(producer), self.benefits.comparison(producer)
        able = [user for user in producer.users if self.benefits.judge(producer, user)]
        return able, None

    def _fuse(
        self, producer: Instruction, consumer: Instruction, comparison: Comparison | None
    ) -> Instruction:
        before = consumer.name, root_opcode(consumer)
        structures = self.model.usage.structures
        pair = structures.pair(producer, consumer)
        grown = self._sizes(producer, consumer)
        # A constant changes no tiles.
        tiles = (
            None if producer.opcode == "constant" else self.triton.parameters(producer, consumer)
        )
        fusion = self.joiner.fuse(producer, consumer)
        if tiles is not None:
            self.triton.write(fusion, tiles)
        self.rules.became(fusion, *grown)
        self.model.grown(fusion)
        structures.became(fusion, pair)
        self.bodies[fusion.calls] = None
        self._classify(fusion)
        self.recorder.fused(
            producer, before, fusion, duplicated=bool(producer.users), comparison=comparison
        )
        if fusion is not consumer:
            self._forget(consumer)
            self.queue.made(fusion)
        return fusion

    def _sizes(
        self, producer: Instruction, consumer: Instruction
    ) -> tuple[Footprint, Written | None]:
        """What a kernel of both takes."""
        footprint = self.rules.footprints.of(producer) + self.rules.footprints.of(consumer)
        return footprint, self.rules.code_of(producer, consumer)

    def _classify(self, fusion: Instruction) -> None:
        if not self.rules.is_triton(fusion):
            fusion.attributes["kind"] = hlo_kind(self.rules.kernels.of(fusion).kind)

    def _follow(
        self, fusion: Instruction, consumer: Instruction, operands: Iterable[Instruction]
    ) -> None:
        """Update the benefits after a fusion has grown."""
        for twin in self.twins.put_to_sleep(fusion):
            self.queue.drop(twin)
            self._touched.pop(twin, None)
        self._wake(self.twins.wake_next(fusion))
        asleep = self.twins.asleep
        for operand in dict.fromkeys((*operands, *self.twins.awake(fusion))):
            if operand in asleep or operand.opcode in _PRICED_LAST:
                continue
            if operand.computation is not self.computation:
                continue
            if not is_fusible(operand):
                continue
            new = fusion if fusion in operand.users else None
            self.benefits.changed(operand, (consumer,), new)
            if new is not None:
                self._touched[operand] = None
        if fusion.users:
            self.benefits.open(fusion)
            self._touched[fusion] = None

    def _forget(self, instruction: Instruction) -> None:
        """An instruction was removed from the module."""
        self.queue.gone(instruction)
        self.benefits.forget(instruction)
        self.rules.forget(instruction)
        self.model.forget(instruction)
        self._touched.pop(instruction, None)

    def _last_words(self) -> Iterator[_Word]:
        """Why each producer that is left is not in its users' kernels, pair by pair."""
        for producer in self.computation:
            if producer.opcode in UNCOMPUTED or not producer.users:
                continue
            if producer.opcode != "constant" and is_fusible(producer):
                yield from self._words_on(producer)

    def _words_on(self, producer: Instruction) -> Iterator[_Word]:
        if not self.fuel and producer in self.queue:
            yield producer, None, self.fuel
        elif is_fusible_bitcast(producer):
            for user in producer.users:
                yield producer, user, self.benefits.judge(producer, user)
        elif (refusal := self.benefits.refusal(producer)) is None:
            yield from self._slower(producer)
        else:
            blocker, decision = refusal
            yield producer, blocker, decision
            if blocker is not None:
                together = forbid("not-into-all", words=blocker.name)
                for user in producer.users:
                    if user is not blocker and not is_fusible_bitcast(user):
                        yield producer, user, together

    def _slower(self, producer: Instruction) -> Iterator[_Word]:
        comparison = self.benefits.comparison(producer)
        if comparison is not None:
            users = self.benefits.consumers(producer)
            only = users[0] if len(users) == 1 else None
            yield producer, only, forbid("slower", comparison=comparison)

    def _fuse_constants(self) -> Iterator[_Word]:
        """Small constants go into all their users: code holds their values.  Records which do not, and why."""
        constants = [entry for entry in self.computation if entry.opcode == "constant"]
        for constant in constants:
            if not constant.users:
                continue
            elements = constant.shape.elements if isinstance(constant.shape, ArrayShape) else None
            if elements is None or elements > self.max_constant:
                limit = self.max_constant
                yield (
                    constant,
                    None,
                    forbid("constant-not-scalar", limit=limit, actual=elements),
                )
                continue
            for user in list(constant.users):
                decision = self._decide_constant(constant, user)
                if decision:
                    decision = self.fuel = self.fuel and self.recorder.allows()
                if decision:
                    self._replaced[user] = self._fuse(constant, user, None)
                else:
                    yield constant, user, decision
            apply.remove_producer(constant)

    def _decide_constant(self, constant: Instruction, user: Instruction) -> Decision:
        advised = self.recorder.advice.decide(constant, user)
        if not advised:
            return advised
        if constant.is_root:
            return forbid("producer-is-root")
        if self.rules.is_triton(user):
            return self.rules.triton(constant, user)
        if not self.rules.is_fusible(user):
            return forbid("consumer-not-fusible")
        return decide_scatter(constant, user)

    def _tell(self, words: Iterable[_Word]) -> None:
        """Record the last verdicts, under the current names of what they are about."""
        for producer, consumer, decision in words:
            now = self._now(producer)
            if now.computation is not None:
                about = None if consumer is None else self._now(consumer)
                self.recorder.refused(now, about, decision)

    def _now(self, instruction: Instruction) -> Instruction:
        return self._replaced.get(instruction, instruction)
