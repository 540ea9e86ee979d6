"""Which instructions each fusion is made of, by the names they had before anything was fused.

Strategies come one after the other and name their fusions as they like; the ledger follows them by the steps
that the scribe tells.  A member is an instruction of the module as the first strategy got it: an op, or a
fusion of the text, which stays one member.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field
from weakref import WeakKeyDictionary

from hloopt.analysis.hero import roots
from hloopt.analysis.triton_config import is_triton
from hloopt.dataclass import dataclass
from hloopt.fusion.fusible import (
    is_fusible,
    is_loop_fusible_consumer,
    is_loop_fusible_producer,
)
from hloopt.fusion.homes import fusible_computations
from hloopt.ir import Computation, Instruction, Module, walk
from hloopt.ops.traits import HEROES

__all__ = [
    "Before",
    "Form",
    "Ledger",
    "Ledgers",
    "LoopMade",
    "describe",
    "describe_loop",
    "may_be_fused",
    "outputs_of",
    "users_inside",
]

_HEROES = HEROES - {"concatenate", "dynamic-update-slice", "sort"} | {"fusion", "reduce-window"}
_SERIAL = re.compile(r"(?:\.\d+|\.clone)+$")


@dataclass(frozen=True, slots=True)
class Before:
    """An instruction before it was fused: its rank among those of its computation, and what it does."""

    rank: int
    text: str


@dataclass(frozen=True, slots=True)
class Form:
    """Operands and results of a fusion in their order, by the names of what computed them at first.

    ``calls`` is the name of its computation, whose number says when it was made.
    """

    operands: tuple[str, ...]
    results: tuple[str, ...]
    calls: str = ""


@dataclass(frozen=True, slots=True)
class LoopMade:
    """A ``while`` that was looked at, as it was: the kernel it has become, if any, and what joined that."""

    computation: str
    name: str
    kernel: str
    prologue: tuple[str, ...]
    text: tuple[str, ...]


@dataclass
class Ledger:
    """The members of every fusion made in one module, by computation and the fusion's name.

    outputs  the members whose results a fusion has
    configs  the backend_config of those with kernels made elsewhere
    forms    operands and results in order, where the ledger has begun
    loops    what has become of each loop, by computation and name
    before   what may be fused, by computation and name, as it was before the first strategy (``begin``)

    Which of the fusions are left, and what they are called, is known when a strategy begins and when it has
    come to its end (``settle``).
    """

    module: str = ""
    made: dict[tuple[str, str], dict[str, None]] = field(default_factory=dict)
    outputs: dict[tuple[str, str], dict[str, None]] = field(default_factory=dict)
    kinds: dict[tuple[str, str], str] = field(default_factory=dict)
    configs: dict[tuple[str, str], str] = field(default_factory=dict)
    forms: dict[tuple[str, str], Form] = field(default_factory=dict, repr=False)
    loops: dict[tuple[str, str], LoopMade] = field(default_factory=dict, repr=False)
    before: dict[str, dict[str, Before]] = field(default_factory=dict, repr=False)
    _fusions: dict[tuple[str, str], Instruction] = field(default_factory=dict, repr=False)

    def begin(self, module: Module) -> None:
        """Note what there is before anything is fused; from the second time on nothing happens."""
        if self.before:
            return
        for computation in fusible_computations(module):
            rows = self.before[computation.name] = {}
            for rank, entry in enumerate(walk.post_order(computation)):
                if may_be_fused(entry):
                    rows[entry.name] = Before(rank, describe(entry))

    def joined(
        self, producer: str, consumer: str, fusion: Instruction, *, multi_output: bool = False
    ) -> None:
        """``producer`` is now part of what ``consumer`` was, which is called ``fusion``."""
        home = fusion.computation
        assert home is not None, "a fusion that has just been made"
        kind = fusion.attributes["kind"]
        self.record(home.name, producer, consumer, fusion.name, kind, multi_output=multi_output)
        self._fusions.pop((home.name, consumer), None)
        self._fusions[home.name, fusion.name] = fusion

    def record(
        self,
        computation: str,
        producer: str,
        consumer: str,
        fusion: str,
        kind: str,
        *,
        multi_output: bool = False,
    ) -> None:
        """The same by names alone, for plans that are read afterwards."""
        place = computation, fusion
        first, second = (computation, producer), (computation, consumer)
        # The consumer is gone, so that its rows can grow: a step costs what joins.
        members, results, _ = self.take(second)
        members |= self.inside(first)
        if multi_output:
            results |= self.results(first)
        self.put(place, members, results, kind)

    def take(self, place: tuple[str, str]) -> tuple[dict[str, None], dict[str, None], str]:
        """Members, results and kind of what is no longer called so."""
        return (
            self.made.pop(place, None) or {place[1]: None},
            self.outputs.pop(place, None) or {place[1]: None},
            self.kinds.pop(place, ""),
        )

    def put(
        self, place: tuple[str, str], members: dict[str, None], results: dict[str, None], kind: str
    ) -> None:
        """A fusion is called so."""
        self.made[place], self.outputs[place], self.kinds[place] = members, results, kind

    def settle(self) -> None:
        """Passes have gone by: fusions that are part of others now are none, others are called anew."""
        places = {}
        for place, fusion in self._fusions.items():
            home = fusion.computation
            places[place] = (home.name, fusion.name) if home is not None else None
        if any(place != now for place, now in places.items()):
            rows = {place: self.take(place) for place in places}
            self._fusions = {
                now: self._fusions[place] for place, now in places.items() if now is not None
            }
            for place, now in places.items():
                if now is not None:
                    self.put(now, *rows[place])
        self.configs, self.forms = {}, {}
        for place, fusion in self._fusions.items():
            kind = self.kinds[place] = fusion.attributes["kind"]
            config = fusion.attributes.get("backend_config")
            if kind == "kCustom" and config is not None:
                self.configs[place] = str(config)
            if self.before:
                self.forms[place] = self.form(fusion)

    def let_go(self) -> None:
        """Nobody asks about the module any more: hold on to nothing of it."""
        self._fusions.clear()

    def form(self, fusion: Instruction) -> Form:
        """Operands and results of a fusion by what computed them at first."""
        return Form(
            tuple(map(self.source, fusion.operands)),
            tuple(self.origin(result, fusion) for result in outputs_of(fusion)),
            fusion.attributes["calls"].name,
        )

    def source(self, value: Instruction) -> str:
        """What computed a value at first: an op, or the result of a fusion by the name it had."""
        if value.opcode == "get-tuple-element" and value.operands[0].opcode == "fusion":
            fusion = value.operands[0]
            results = outputs_of(fusion)
            index = value.attributes["index"]
            return self.origin(results[index], fusion) if index < len(results) else value.name
        if value.opcode != "fusion" or self._place(value) not in self.made:
            return value.name
        return self.origin(outputs_of(value)[0], value)

    def _place(self, instruction: Instruction) -> tuple[str, str]:
        home = instruction.computation
        return home.name if home is not None else "", instruction.name

    def members(self, instruction: Instruction) -> tuple[str, ...]:
        """What an op or fusion is made of: its own name where it is no fusion that has been made."""
        home = instruction.computation
        if instruction.opcode == "fusion" and home is not None:
            return tuple(self.inside((home.name, instruction.name)))
        return (instruction.name,)

    def origin(self, inner: Instruction, fusion: Instruction) -> str:
        """What an instruction of a fusion's body was called: a copy may have a number behind its name."""
        members = self.members(fusion)
        if inner.name in members or inner is fusion:
            return inner.name
        plain = _SERIAL.sub("", inner.name)
        return next((name for name in members if name == plain), inner.name)

    def inside(self, place: tuple[str, str]) -> dict[str, None]:
        """The members of what has a name in a computation."""
        return self.made.get(place, {place[1]: None})

    def results(self, place: tuple[str, str]) -> dict[str, None]:
        """The members whose results it has."""
        return self.outputs.get(place, {place[1]: None})


class Ledgers:
    """The ledgers of all modules that one set of advisers is asked about."""

    def __init__(self) -> None:
        self._of: WeakKeyDictionary[Module, Ledger] = WeakKeyDictionary()

    def of(self, instruction: Instruction) -> Ledger:
        """The ledger of an instruction's module; an empty one where it is in none."""
        home = instruction.computation
        if home is None or home.module is None:
            return Ledger()
        return self.open(home.module)

    def settle(self) -> None:
        """A strategy begins, or has come to its end."""
        for ledger in self._of.values():
            ledger.settle()

    def open(self, module: Module) -> Ledger:
        """The ledger of a module; a new one where nothing has been fused in it."""
        found = self._of.get(module)
        if found is None:
            for other in self._of.values():
                other.let_go()
            found = self._of[module] = Ledger(module.name)
        return found


def describe(instruction: Instruction) -> str:
    """Shape, opcode and operands: what tells an instruction that is no longer what it was."""
    operands = ", ".join(operand.name for operand in instruction.operands)
    return f"{instruction.name} = {instruction.shape} {instruction.opcode}({operands})"


def describe_loop(loop: Instruction) -> tuple[str, ...]:
    """What tells a ``while`` that is no longer what it was: its state, its condition and its body."""
    attributes = loop.attributes
    return (
        str(loop.shape),
        *map(describe, attributes["condition"]),
        *map(describe, attributes["body"]),
    )


def may_be_fused(instruction: Instruction) -> bool:
    """Whether some strategy could make an instruction part of a fusion."""
    if instruction.opcode == "fusion" and instruction.attributes["kind"] == "kCustom":
        return is_triton(instruction)
    return is_fusible(instruction) and (
        instruction.opcode in _HEROES
        or is_loop_fusible_producer(instruction)
        or is_loop_fusible_consumer(instruction)
    )


def outputs_of(instruction: Instruction) -> tuple[Instruction, ...]:
    """What an op or fusion computes last: the roots of a fusion's body."""
    if instruction.opcode != "fusion":
        return (instruction,)
    body: Computation = instruction.attributes["calls"]
    return tuple(roots(body))


def users_inside(producer: Instruction, consumer: Instruction) -> Iterator[Instruction]:
    """What uses the producer's results: the consumer itself, or instructions of its body."""
    taken = {producer, *(user for user in producer.users if user.opcode == "get-tuple-element")}
    if consumer.opcode != "fusion":
        if not taken.isdisjoint(consumer.operands):
            yield consumer
        return
    body: Computation = consumer.attributes["calls"]
    seen: dict[Instruction, None] = {}
    for operand, parameter in zip(consumer.operands, body.parameters, strict=True):
        if operand in taken:
            seen |= dict.fromkeys(parameter.users)
    yield from seen
