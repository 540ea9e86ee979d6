"""What XLA's priority fusion did with a module, step by step, and why: its log, queried by name.

A name is that of an instruction of the module before fusion, or of a fusion XLA made on the way.  The log
has for each producer: what XLA estimated its fusion to gain (*priced*), that it is not to be fused and why
(*refused*), that it joined a consumer (*fused*).  XLA decides about a producer with all of its users at once,
so a reason names no consumer.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import field
from functools import cached_property
from typing import Final, Literal, TypeAlias

from hloopt.cost_models.model import Comparison
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.fusion.replay import replay
from hloopt.fusion.strategies import fusible_computations
from hloopt.fusion.xla_log import Fused, Ineligible, Priced, XlaLog
from hloopt.fusion.xla_reasons import code_of
from hloopt.ir import Instruction, Module
from hloopt.ops.traits import PLUMBING, SEQUENTIAL
from hloopt.rewrite.spec import did_you_mean

__all__ = ["Action", "Border", "KernelRelation", "XlaDecision", "XlaHistory", "readers"]

Action: TypeAlias = Literal["priced", "refused", "fused"]

_NO_KERNEL: Final = PLUMBING | SEQUENTIAL | {"bitcast"}
_TICK_US: Final = 1e-6
"""Gains are differences of decimal texts."""

_PASSED_ON: Final = frozenset({"bitcast", "get-tuple-element"})


@dataclass(frozen=True, slots=True)
class XlaDecision:
    """One step of XLA's.

    number    of the step, from 1
    place     ``name:line:col`` in the log
    consumers of a priced producer; the one consumer of a fusion; none of a refused producer
    fusion    what producer and consumer are called from now on
    times     of a priced producer, of all its consumers together; None where the log has only the change
    gain_us   XLA's estimate of what the fusion saves, in microseconds, changes since the last whole price added
    words     of XLA, where it refuses
    """

    number: int
    place: str
    action: Action
    producer: str
    consumers: tuple[str, ...] = ()
    fusion: str = ""
    times: Comparison | None = None
    gain_us: float | None = None
    words: str = ""

    @property
    def code(self) -> str:
        """The stable code of a refusal; empty for unknown words, and where nothing is refused."""
        return code_of(self.words) or ""


@dataclass(frozen=True, slots=True)
class Border:
    """A result that goes through memory from one kernel to others.

    producer  the kernel that writes it
    readers   the kernels that read it, through bitcasts and elements of tuples
    bytes     of all its results
    last      XLA's last verdict on fusing the producer: a refusal, or a price without gain
    """

    producer: Instruction
    readers: tuple[Instruction, ...]
    bytes: int
    last: XlaDecision | None


@dataclass(frozen=True, slots=True)
class KernelRelation:
    """How two names are related after priority fusion.

    first, second  as given
    together       kernels that compute both
    joined         the step after which one fusion computed both, where one did
    price          XLA's last price of the fusion that joined them
    path           kernels from one that computes the first to one that computes the second, each read by the
                   next; or the other way round, where ``reverse``
    words          XLA's last verdict on each kernel of the path but the last
    """

    first: str
    second: str
    together: tuple[str, ...] = ()
    joined: XlaDecision | None = None
    price: XlaDecision | None = None
    path: tuple[str, ...] = ()
    reverse: bool = False
    words: tuple[XlaDecision | None, ...] = ()


@dataclass
class XlaHistory:
    """The log, replayed on the module before fusion.

    module   after XLA's priority fusion, with its names
    moments  in XLA's order
    members  what each kernel is made of, by the names before fusion
    """

    module: Module
    moments: list[XlaDecision] = field(default_factory=list)
    members: dict[str, dict[str, None]] = field(default_factory=dict)
    _about: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list), repr=False)
    _former: dict[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, module: Module, log: XlaLog) -> XlaHistory:
        """Replay a log on the module before fusion, which is changed.  Raises as ``replay`` does."""
        history = cls(module)
        for computation in fusible_computations(module):
            history.members |= {entry.name: {entry.name: None} for entry in computation}
        prices = _Prices()
        for number, event in enumerate(replay(module, log), 1):
            step, place = event.step, log.place(event.step)
            if isinstance(step, Fused):
                moment = XlaDecision(
                    number, place, "fused", step.producer, (step.consumer,), step.fusion
                )
                history._join(step, removed=event.removed)
                assert event.fusion is not None, "a fusion has been made"
                prices.fused(step, [operand.name for operand in event.fusion.operands])
            elif isinstance(step, Ineligible):
                moment = XlaDecision(number, place, "refused", step.producer, words=step.reason)
                prices.refused(step)
            else:
                times, gain = prices.priced(step)
                moment = XlaDecision(
                    number, place, "priced", step.producer, step.consumers, "", times, gain
                )
            history._note(moment)
        history._close()
        return history

    def _join(self, step: Fused, *, removed: bool) -> None:
        members = self.members.pop(step.consumer)
        members |= self.members[step.producer]
        self.members[step.fusion] = members
        if step.fusion != step.consumer:
            self._former[step.fusion] = step.consumer
        if removed:
            del self.members[step.producer]

    def _close(self) -> None:
        """Record the fusions that constants alone made in the end, which the log does not name."""
        for name, kernel in self.kernels.items():
            if name not in self.members and kernel.opcode == "fusion":
                consumer = kernel.calls.root.name
                self._former[name] = consumer
                self.members[name] = self.members.pop(consumer, {consumer: None})

    def _note(self, moment: XlaDecision) -> None:
        self.moments.append(moment)
        for name in dict.fromkeys((moment.producer, *moment.consumers, moment.fusion)):
            if name:
                self._about[name].append(moment.number - 1)

    def known(self) -> Iterator[str]:
        """Every name that ever existed."""
        yield from dict.fromkeys(
            (*self._about, *(name for members in self.members.values() for name in members))
        )

    def about(self, name: str) -> list[XlaDecision]:
        """The steps that name an instruction or a fusion, in XLA's order."""
        return [self.moments[index] for index in self._about.get(name, ())]

    def last_word(self, producer: str) -> XlaDecision | None:
        """XLA's last refusal, or last price, of a producer, under the name it had then."""
        name: str | None = producer
        while name is not None:
            for index in reversed(self._about.get(name, ())):
                moment = self.moments[index]
                if moment.producer == name and moment.action != "fused":
                    return moment
            name = self._former.get(name)
        return None

    def kernels_of(self, name: str) -> list[str]:
        """The kernels that compute what ever had this name.

        Raises ``UsageError`` for a name that nothing had, and for what no kernel computes.
        """
        wanted = self._made_of(name)
        if wanted is None:
            hint = did_you_mean(name, list(self.known()))
            raise UsageError(f"XLA's log and its module have no instruction '{name}'{hint}")
        homes = [home for home, members in self.members.items() if wanted <= members.keys()]
        found = [home for home in homes if home in self.kernels]
        if not found:
            raise UsageError(
                f"'{name}' is computed by no kernel: it is a parameter, control flow, or free"
            )
        return found

    def _made_of(self, name: str) -> frozenset[str] | None:
        """The names before fusion that a name stood for, last; None where nothing was called so."""
        if name in self.members:
            return frozenset(self.members[name])
        if any(name in members for members in self.members.values()):
            return frozenset((name,))
        made = self._history.get(name)
        return None if made is None else frozenset(made)

    @cached_property
    def _history(self) -> dict[str, set[str]]:
        """The members of each fusion that ever existed, at its end."""
        made: dict[str, set[str]] = {}
        for moment in self.moments:
            if moment.action == "fused":
                _join(made, moment)
        return made

    def relation(self, first: str, second: str) -> KernelRelation:
        """Whether two names are in one kernel, since when, or what separates them.

        Raises ``UsageError`` for a name that nothing had.
        """
        homes = self.kernels_of(first), self.kernels_of(second)
        together = tuple(name for name in homes[0] if name in homes[1])
        if together:
            joined = self._joined(first, second)
            price = self._price(joined) if joined is not None else None
            return KernelRelation(first, second, together, joined, price)
        for reverse in (False, True):
            starts, ends = homes[::-1] if reverse else homes
            path = self._path(starts, ends)
            if path:
                words = tuple(self.last_word(name) for name in path[:-1])
                return KernelRelation(first, second, (), None, None, path, reverse, words)
        return KernelRelation(first, second)

    def _joined(self, first: str, second: str) -> XlaDecision | None:
        """The step that made the first fusion of both."""
        made: dict[str, set[str]] = {}
        wanted = [self._made_of(name) or frozenset((name,)) for name in (first, second)]
        both = wanted[0] | wanted[1]
        for moment in self.moments:
            if moment.action == "fused" and both <= _join(made, moment, both):
                return moment
        return None

    def _price(self, fused: XlaDecision) -> XlaDecision | None:
        """XLA's estimate for a fusion right before it made it."""
        found = None
        for moment in self.about(fused.producer):
            if moment.number >= fused.number:
                break
            if moment.action == "priced" and moment.producer == fused.producer:
                found = moment
        return found

    def _path(self, starts: Iterable[str], ends: Iterable[str]) -> tuple[str, ...]:
        """The shortest way from kernel to kernel, each read by the next; empty where there is none."""
        named = self.kernels
        before: dict[str, str | None] = dict.fromkeys(starts)
        goal, pending = set(ends), deque(before)
        while pending:
            name = pending.popleft()
            if name in goal:
                path = [name]
                while (earlier := before[path[-1]]) is not None:
                    path.append(earlier)
                return tuple(reversed(path))
            for reader in readers(named[name]) if name in named else ():
                if reader.name not in before:
                    before[reader.name] = name
                    pending.append(reader.name)
        return ()

    @cached_property
    def kernels(self) -> dict[str, Instruction]:
        """The kernels after priority fusion, by name."""
        return {
            entry.name: entry
            for computation in fusible_computations(self.module)
            for entry in computation
            if entry.opcode not in _NO_KERNEL
        }

    def borders(self) -> list[Border]:
        """All results that one kernel writes and another reads, in the module's order."""
        found = []
        for name, kernel in self.kernels.items():
            others = tuple(readers(kernel))
            if others:
                size = kernel.shape.byte_size
                found.append(Border(kernel, others, size, self.last_word(name)))
        return found


def _join(
    made: dict[str, set[str]], fused: XlaDecision, among: Container[str] | None = None
) -> set[str]:
    """Record and return the members of a fusion that are ``among`` others."""
    (consumer,) = fused.consumers
    for name in (consumer, fused.producer):
        made.setdefault(name, {name} if among is None or name in among else set())
    if fused.fusion != consumer:
        made[fused.fusion] = set(made[consumer])
    made[fused.fusion] |= made[fused.producer]
    return made[fused.fusion]


class _Prices:
    """Totals of XLA's prices: where it has a producer's price already, the log has only the change.

    That is where the producer waits in the queue and one of its consumers has just become another.
    """

    def __init__(self) -> None:
        self._gains: dict[str, float] = {}
        self._changed: set[str] = set()
        self._fusing = False

    def priced(self, step: Priced) -> tuple[Comparison | None, float]:
        """The times of a price that is whole, and what the fusion saves."""
        self._fusing = False
        name, gain = step.producer, step.times.gain_us
        whole = not (name in self._gains and name in self._changed)
        if not whole:
            gain += self._gains[name]
        if gain >= -_TICK_US:
            self._gains[name] = gain
        else:
            self._gains.pop(name, None)
        return (step.times if whole else None), gain

    def refused(self, step: Ineligible) -> None:
        """A producer leaves the queue."""
        self._fusing = False
        self._gains.pop(step.producer, None)

    def fused(self, step: Fused, operands: Iterable[str]) -> None:
        """A producer has been taken from the queue; the fusion's operands have a consumer that changed."""
        if not self._fusing:
            self._changed.clear()
        self._fusing = True
        self._gains.pop(step.producer, None)
        if step.fusion != step.consumer:
            self._gains.pop(step.consumer, None)
        self._changed.update(operands)


def readers(kernel: Instruction) -> Iterator[Instruction]:
    """The kernels that read a kernel's results, through bitcasts and elements of tuples, each once."""
    seen: set[Instruction] = set()
    pending: Sequence[Instruction] = list(kernel.users)
    while pending:
        following: list[Instruction] = []
        for user in pending:
            if user in seen:
                continue
            seen.add(user)
            if user.opcode in _PASSED_ON:
                following += user.users
            elif user.opcode not in _NO_KERNEL:
                yield user
        pending = following
