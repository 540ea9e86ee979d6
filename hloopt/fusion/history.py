"""What fusion strategies did to a module: one history, to which each of them appends while it runs.

An event is about a pair, which was fused (``FusionStep``) or refused (``Refusal``), and has the members of each
side at that time, so that nothing has to be replayed.  Plans, lock files, remarks and explanations are
views.  A member is an instruction of the module as the first strategy got it: an op, or a fusion of the text,
which stays one member.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import field
from itertools import islice
from typing import TypeAlias
from weakref import WeakKeyDictionary

from hloopt.analysis.hero import results_of
from hloopt.cost_models.model import Comparison
from hloopt.dataclass import dataclass
from hloopt.fusion.decision import Decision
from hloopt.fusion.strategies import fusible_computations
from hloopt.ir import Instruction, Module
from hloopt.rewrite.pass_ import Pass

__all__ = [
    "FusionHistory",
    "FusionPlan",
    "FusionStep",
    "Histories",
    "LoopFacts",
    "MappingFacts",
    "Membership",
    "PairSide",
    "Refusal",
    "describe",
    "describe_loop",
    "root_opcode",
]

_Place: TypeAlias = tuple[str, str]
"""Computation and name."""
_SERIAL = re.compile(r"(?:\.\d+|\.clone)+$")


@dataclass(slots=True, eq=False)
class Membership:
    """A fusion while it grows: ``members`` in the order in which they joined, of which ``outputs`` are results.

    ``is_fused`` says that pairs of instructions made it: no loop became it, and no pass that records nothing.
    """

    members: dict[str, None]
    outputs: dict[str, None]
    kind: str = ""
    fusion: Instruction | None = None
    is_fused: bool = True


@dataclass(frozen=True, slots=True)
class PairSide:
    """One side of a pair: an instruction by its name, or the first members of a fusion.

    It has no name, and no members, where the reason is about the other side alone.
    """

    name: str
    fusion: Membership | None = field(default=None, compare=False, repr=False)
    size: int = 1

    @property
    def members(self) -> Collection[str]:
        """The members at that time."""
        return (
            (self.name,) if self.fusion is None else tuple(islice(self.fusion.members, self.size))
        )

    @property
    def grown(self) -> Collection[str]:
        """Those of the fusion that it has become by taking others in."""
        if self.fusion is not None:
            return self.fusion.members.keys()
        return (self.name,) if self.name else ()


@dataclass(frozen=True, slots=True)
class _Event:
    """Something about a pair; names are those of the module before it, opcodes those of roots."""

    computation: str
    producers: PairSide
    producer_opcode: str
    consumers: PairSide
    consumer_opcode: str

    @property
    def producer(self) -> str:
        """The name of the producer."""
        return self.producers.name

    @property
    def consumer(self) -> str:
        """The name of the consumer."""
        return self.consumers.name

    @property
    def sides(self) -> tuple[PairSide, PairSide]:
        """Producer and consumer."""
        return self.producers, self.consumers


@dataclass(frozen=True, slots=True)
class FusionStep(_Event):
    """One producer that joined one consumer.

    fusion        what both are part of now
    duplicated    whether the producer stayed for other users
    multi_output  whether the producer's results are among the fusion's
    comparison    the times the strategy decided by, where it used a cost model; of all consumers together
                  where it decides about a producer with all of its users
    """

    fusion: str
    kind: str
    duplicated: bool
    multi_output: bool = False
    comparison: Comparison | None = None


@dataclass(frozen=True, slots=True)
class Refusal(_Event):
    """A strategy's last verdict on a pair; ``consumer`` is the fusion's name where it became one.

    ``consumer`` is empty where the reason is about the producer alone.  ``blocker`` is the other user that
    did, where a producer goes into all of its users or into none.
    """

    decision: Decision
    blocker: PairSide | None = None


@dataclass(frozen=True, slots=True)
class MappingFacts:
    """One mapping of a loop to a kernel.

    kernel        its name: while-per-thread, while-per-block
    units         how many work items there are, one for each index of the parallel axes; 0 where unknown
    problem       why it does not fit; empty where it does
    registers     32-bit values a thread holds at once
    shared_bytes  of a block
    threads       of a block
    time_us       of the whole loop, predicted; None where it was not priced
    parts         what that is made of, in words
    """

    kernel: str
    units: int
    problem: str = ""
    registers: int = 0
    shared_bytes: int = 0
    threads: int = 0
    time_us: float | None = None
    parts: str = ""


@dataclass(frozen=True, slots=True)
class LoopFacts:
    """A ``while`` that was examined, and the mappings that were considered.

    fusion    its name as one kernel; empty where it is not one
    kernel    which of the mappings was taken
    inside    the computations that only this loop reaches
    iterations  how long it runs, in words; empty where that is unknown
    profit    the best mapping's time against that of iterations started by the host, in words; empty if unknown
    prologue  the ops that joined the kernel
    text      what its state, condition and body were
    """

    computation: str
    loop: str
    mappings: tuple[MappingFacts, ...]
    iterations: str
    fusion: str = ""
    kernel: str = ""
    inside: tuple[str, ...] = ()
    profit: str = ""
    prologue: tuple[str, ...] = ()
    text: tuple[str, ...] = ()


@dataclass
class FusionPlan:
    """What one run of a strategy did, in order, and its last verdict on every pair it refused.

    instance    the strategy
    run         its number in the pipeline, 0 where there is none
    cost_model  the one it used, empty where it uses none
    target      the device the times are of
    loops       those that were examined, where the strategy makes kernels of loops
    """

    instance: Pass
    steps: list[FusionStep] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    cost_model: str = ""
    target: str = ""
    loops: list[LoopFacts] = field(default_factory=list)
    run: int = 0

    @property
    def strategy(self) -> str:
        """The name of the pass."""
        return self.instance.name

    def reasons(self) -> Counter[str]:
        """How often each reason was the last verdict."""
        return Counter(refusal.decision.code for refusal in self.refusals)


@dataclass
class FusionHistory:
    """The plans of all strategies that ran over one module, in their order, and the fusions that they made.

    Which of the fusions are left, and what they are called, is known when a strategy begins and when it has
    come to its end (``settle``).
    """

    module: str = ""
    plans: list[FusionPlan] = field(default_factory=list)
    fusions: dict[_Place, Membership] = field(default_factory=dict, repr=False)

    def part(self, computation: str, name: str) -> PairSide:
        """The current state of the op or fusion of this name."""
        made = self.fusions.get((computation, name))
        return PairSide(name) if made is None else PairSide(name, made, len(made.members))

    def join(
        self, producer: str, consumer: str, fusion: Instruction, *, multi_output: bool
    ) -> tuple[PairSide, PairSide]:
        """``producer`` is now part of what ``consumer`` was, called ``fusion``; what both were before."""
        home = fusion.home
        first = self.part(home.name, producer)
        # The consumer no longer exists, so its rows can grow: a step costs what joins.
        made = self.fusions.pop((home.name, consumer), None)
        made = made or Membership({consumer: None}, {consumer: None})
        second = PairSide(consumer, made, len(made.members))
        made.members |= dict.fromkeys(first.grown)
        if multi_output:
            made.outputs |= first.fusion.outputs if first.fusion is not None else {producer: None}
        made.kind, made.fusion = fusion.attributes["kind"], fusion
        self.fusions[home.name, fusion.name] = made
        return first, second

    def settle(self) -> None:
        """Update after other passes: fusions that are part of others now are dropped, renamed ones found."""
        fusions: dict[_Place, Membership] = {}
        for made in self.fusions.values():
            home = made.fusion.computation if made.fusion is not None else None
            if home is not None and made.fusion is not None:
                fusions[home.name, made.fusion.name] = made
        self.fusions = fusions

    def find(self, module: Module, known: Collection[_Place]) -> None:
        """Take in the fusions that passes have made without a record, but for those at ``known`` places."""
        followed = {made.fusion for made in self.fusions.values()}
        for home in fusible_computations(module):
            for entry in home:
                place = home.name, entry.name
                if entry.opcode == "fusion" and entry not in followed and place not in known:
                    self._find(place, entry, known)

    def _find(self, place: _Place, fusion: Instruction, known: Collection[_Place]) -> None:
        inside = [
            inner.name for inner in fusion.calls if inner.opcode not in ("parameter", "tuple")
        ]
        made = self.fusions.get(place)
        if made is not None and not made.members.keys().isdisjoint(inside):
            made.fusion = fusion  # a pass has rewritten it
            return
        members = dict.fromkeys(name for name in inside if (place[0], name) in known)
        results = (result.name for result in results_of(fusion))
        outputs = dict.fromkeys(name for name in results if name in members)
        kind = fusion.attributes["kind"]
        self.fusions[place] = Membership(members, outputs, kind, fusion, False)

    def let_go(self) -> None:
        """The module is finished: drop all references to it."""
        for made in self.fusions.values():
            made.fusion = None

    def fused(self, instruction: Instruction, home: str = "") -> Membership | None:
        """A fusion that pairs of instructions have made; ``home`` of one that is in no computation any more."""
        if instruction.computation is not None:
            home = instruction.computation.name
        if instruction.opcode != "fusion":
            return None
        made = self.fusions.get((home, instruction.name))
        return made if made is not None and made.is_fused else None

    def members(self, instruction: Instruction, home: str = "") -> Collection[str]:
        """What an op or fusion is made of: its own name where pairs of instructions have not made it."""
        made = self.fused(instruction, home)
        return (instruction.name,) if made is None else made.members.keys()

    def result(self, instruction: Instruction) -> str:
        """The first of the results of an op or fusion, by its name before anything was fused."""
        made = self.fused(instruction)
        return instruction.name if made is None else next(iter(made.outputs))

    def original(self, inner: Instruction, fusion: Instruction, home: str = "") -> str:
        """What an instruction of a fusion's body was called: a copy may have a number after its name."""
        members = self.members(fusion, home)
        if inner.name in members or inner is fusion:
            return inner.name
        plain = _SERIAL.sub("", inner.name)
        return plain if plain in members else inner.name

    def source(self, value: Instruction) -> str:
        """What computed a value originally: an op, or the result of a fusion by the name it had."""
        is_element = value.opcode == "get-tuple-element" and value.operands[0].opcode == "fusion"
        fusion = value.operands[0] if is_element else value
        if not is_element and self.fused(value) is None:
            return value.name
        results = results_of(fusion)
        index = value.tuple_index if is_element else 0
        return self.original(results[index], fusion) if index < len(results) else value.name


class Histories:
    """The histories of all modules that one pipeline runs over."""

    def __init__(self) -> None:
        self._of: WeakKeyDictionary[Module, FusionHistory] = WeakKeyDictionary()

    def of(self, module: Module) -> FusionHistory:
        """The history of a module; a new one where nothing has been fused in it."""
        found = self._of.get(module)
        if found is None:
            for other in self._of.values():
                other.let_go()
            found = self._of[module] = FusionHistory(module.name)
        return found


def root_opcode(instruction: Instruction) -> str:
    """What an op or fusion computes last."""
    if instruction.opcode != "fusion":
        return instruction.opcode
    return instruction.calls.root.opcode


def describe(instruction: Instruction) -> str:
    """Shape, opcode and operands: a fingerprint that shows whether an instruction has changed."""
    operands = ", ".join(operand.name for operand in instruction.operands)
    return f"{instruction.name} = {instruction.shape} {instruction.opcode}({operands})"


def describe_loop(loop: Instruction) -> tuple[str, ...]:
    """A fingerprint that shows whether a ``while`` has changed: its state, its condition and its body."""
    attributes = loop.attributes
    return (
        str(loop.shape),
        *map(describe, attributes["condition"]),
        *map(describe, attributes["body"]),
    )
