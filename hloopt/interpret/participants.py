"""Several participants: the same program once for each, in lock step on one machine.

Participant ``replica * partitions + partition`` runs in its own thread, but a baton lets exactly one of
them run at a time: it runs until it has to wait for others, and then the participant of the lowest number
that can go on has the baton.  So the order is the same in every run, and evaluators need no locks.

``Participant`` is the only one of an ordinary evaluation; ``Participants`` runs several.  Those of other
processes are reached by a ``Transport``: the members of a group meet where the first of them is, and values are
combined there, in the group's order, as they are in one process, unless the transport itself reduces them.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Generic, TypeVar

from hloopt.dataclass import dataclass
from hloopt.errors import EvaluationError
from hloopt.interpret.context import arrays_of
from hloopt.interpret.failures import failure, place
from hloopt.interpret.participant import (
    Claims,
    Combine,
    Meeting,
    Parcel,
    Participant,
    Transport,
    private,
)

if TYPE_CHECKING:
    from hloopt.interpret.context import Value
    from hloopt.ir import Instruction
    from hloopt.types import Array

__all__ = ["Participants"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Wait:
    """Where a participant waits: at an instruction, for others of a group or for data."""

    instruction: Instruction
    members: tuple[int, ...] = ()
    key: Hashable = None


@dataclass
class _Gathered:
    """What participants have brought to a meeting, by their numbers, and what combines it."""

    values: dict[int, Value] = field(default_factory=dict)
    combine: Combine | None = None


def _meeting(instruction: Instruction, group: tuple[int, ...]) -> Meeting:
    home = instruction.computation
    return (home.name if home is not None else "", instruction.name, group)


class _Stopped(BaseException):
    """Unwinds the thread of a participant after another one has failed."""


class _Member(Participant):
    """A participant among several."""

    def __init__(self, number: int, world: Participants[T]) -> None:
        replicas, partitions = world.replicas, world.partitions
        super().__init__(number // partitions, number % partitions, replicas, partitions)
        self.turn = threading.Lock()  # open while this one has the baton, or may take it
        self.turn.acquire()
        self.waits: _Wait | None = None
        self.given: Value | None = None
        self.ended = False
        self._world: Participants[T] = world
        self._mail = world.mail
        self._claims = world.claims

    def exchange(
        self, instruction: Instruction, members: Sequence[int], value: Value, combine: Combine
    ) -> Value:
        group = tuple(members)
        if len(group) == 1:
            return combine([value])[0]
        world, key = self._world, _meeting(instruction, group)
        if group[0] in world.local:
            world.bring(key, self.number, value, combine)
        else:
            world.send(group[0], Parcel("brings", key, self.number, value))
        if self.given is None:
            world.wait(self, _Wait(instruction, group))
        given, self.given = self.given, None
        assert given is not None
        return given

    def reduce(
        self, instruction: Instruction, members: Sequence[int], values: tuple[Array, ...]
    ) -> tuple[Array, ...] | None:
        group = tuple(members)
        world = self._world
        if not world.contribute(_meeting(instruction, group), self.number, values):
            return None
        world.wait(self, _Wait(instruction, group))
        given, self.given = self.given, None
        assert isinstance(given, tuple)
        return tuple(arrays_of(given))

    def post(self, key: Hashable, value: Value, receiver: int | None) -> None:
        world = self._world
        if receiver not in world.local:
            world.send(receiver, Parcel("posts", key, self.number, value))
        if receiver is None or receiver in world.local:
            world.deposit(key, value)

    def take(self, instruction: Instruction, key: Hashable, sender: int | None) -> Value:
        while not self._mail[key]:
            senders = () if sender is None else (sender,)
            self._world.wait(self, _Wait(instruction, senders, key))
        return self._mail[key].popleft()


class Participants(Generic[T]):
    """Runs something once for each of ``replicas * partitions`` participants.

    ``entered`` is called with a participant whenever it gets the baton after another one had it: for the state
    that threads share.  With a ``transport`` those that are local to it run here.
    """

    def __init__(
        self,
        replicas: int,
        partitions: int,
        entered: Callable[[Participant], None] | None = None,
        transport: Transport | None = None,
    ) -> None:
        self.replicas = replicas
        self.partitions = partitions
        self._transport = transport
        self._gathered: dict[Meeting, _Gathered] = {}
        self.mail: defaultdict[Hashable, deque[Value]] = defaultdict(deque)
        self.claims: Claims = {} if transport is None else transport.claims
        numbers = range(replicas * partitions) if transport is None else transport.local
        self.local = {number: _Member(number, self) for number in numbers}
        self._entered = entered
        self._guard = threading.Lock()
        self._failure: BaseException | None = None
        self._results: dict[int, T] = {}

    def run(self, body: Callable[[Participant], T]) -> list[T]:
        """What ``body`` gives for each participant of this process, in their order.

        Raises what a body raises first, after all of them have been stopped; ``EvaluationError`` when
        participants wait for each other without end.
        """
        threads = [
            threading.Thread(target=self._run, args=(member, body), name=f"participant {number}")
            for number, member in self.local.items()
        ]
        try:
            for thread in threads:
                thread.start()
            for member in list(self.local.values())[:1]:
                self._give(member)
        except RuntimeError as error:
            self._fail(
                EvaluationError(f"{len(threads)} participants need as many threads: {error}")
            )
        except BaseException as error:  # noqa: BLE001 - raised again when all threads have ended
            self._fail(error)
        self._join([thread for thread in threads if thread.ident is not None])
        if self._failure is not None:
            raise self._failure
        return [self._results[number] for number in self.local]

    def wait(self, member: _Member, wait: _Wait) -> None:
        """Pass the baton on until what this participant waits for is there."""
        member.waits = wait
        following = self._next() or self._next_by_message()
        if following is None:
            raise self._deadlock()
        self._give(following)
        self._take(member)

    # ---- what participants exchange -----------------------------------------------------------------

    def bring(
        self, key: Meeting, number: int, value: Value, combine: Combine | None = None
    ) -> None:
        """Have a participant arrive at a meeting in this process; the last one completes it."""
        here = self._gathered.setdefault(key, _Gathered())
        here.values[number] = value
        here.combine = combine or here.combine
        group = key[-1]
        if len(here.values) < len(group):
            return
        del self._gathered[key]
        assert here.combine is not None, "the first of the group is of this process"
        results = here.combine([here.values[member] for member in group])
        for member, result in zip(group, results, strict=True):
            if member in self.local:
                self._give_value(member, private(result))
            else:
                self.send(member, Parcel("given", key, member, result))

    def contribute(self, key: Meeting, number: int, values: tuple[Array, ...]) -> bool:
        """Have a participant arrive where the transport reduces arrays; false where it does not."""
        transport = self._transport
        if transport is None or not transport.reduces(key):
            return False
        here = self._gathered.setdefault(key, _Gathered())
        here.values[number] = values
        group = [member for member in key[-1] if member in self.local]
        if len(here.values) == len(group):
            del self._gathered[key]
            transport.reduce(key, [here.values[member] for member in group])
        return True

    def _give_value(self, number: int, value: Value) -> None:
        self.local[number].given = value
        self.local[number].waits = None

    def deposit(self, key: Hashable, value: Value) -> None:
        """Keep what is posted, and wake who waits for it."""
        self.mail[key].append(private(value))
        for member in self.local.values():
            if member.waits is not None and member.waits.key == key:
                member.waits = None

    def send(self, receiver: int | None, message: Parcel) -> None:
        """Send to another process, if there are any."""
        if self._transport is not None:
            self._transport.send(receiver, message)

    def _next_by_message(self) -> _Member | None:
        """Take messages until a participant of this process can go on; None where none ever will."""
        following = None
        while following is None and self._transport is not None:
            waiting = (member for member in self.local.values() if member.waits is not None)
            message = self._transport.receive(tuple(map(_whereabouts, waiting)))
            if message is None:
                return None
            if message.kind == "posts":
                self.deposit(message.key, message.value)
            elif message.kind == "given":
                self._give_value(message.number, message.value)
            else:
                assert isinstance(message.key, tuple), "where a group meets"
                if message.kind == "brings":
                    self.bring(message.key, message.number, message.value)
                else:
                    for number in set(message.key[-1]) & self.local.keys():
                        self._give_value(number, private(message.value))
            following = self._next()
        return following

    def _run(self, member: _Member, body: Callable[[Participant], T]) -> None:
        try:
            try:
                self._take(member)
                self._results[member.number] = body(member)
                member.ended = True
                self._pass_on()
            except BaseException as error:  # noqa: BLE001 - raised again by run
                self._fail(error)
            finally:
                with self._guard:
                    member.ended = True
        except _Stopped:
            pass  # sent while this one was failing by itself

    def _take(self, member: _Member) -> None:
        member.turn.acquire()
        if self._failure is not None:
            raise _Stopped
        if self._entered is not None:
            self._entered(member)

    def _give(self, member: _Member) -> None:
        with self._guard:
            if self._failure is None:
                member.turn.release()

    def _next(self) -> _Member | None:
        members = self.local.values()
        ready = (member for member in members if not member.ended and member.waits is None)
        return next(ready, None)

    def _pass_on(self) -> None:
        """Pass the baton on after a participant has ended."""
        following = self._next()
        if following is not None:
            self._give(following)
        elif any(not member.ended for member in self.local.values()):
            following = self._next_by_message()
            if following is None:
                raise self._deadlock()
            self._give(following)

    def _fail(self, error: BaseException) -> None:
        """Stop all participants; the first error is the one that is reported."""
        with self._guard:
            if self._failure is None:
                self._failure = error
                for member in self.local.values():
                    if member.turn.locked():
                        member.turn.release()

    def _join(self, threads: Sequence[threading.Thread]) -> None:
        """Wait for all threads, also where this one is interrupted: then they are stopped first."""
        remaining = list(threads)
        while remaining:
            try:
                remaining[0].join()
                del remaining[0]
            except BaseException as error:  # noqa: BLE001 - raised again when all threads have ended
                self._fail(error)
                self._interrupt(threads)

    def _interrupt(self, threads: Sequence[threading.Thread]) -> None:
        """Raise ``_Stopped`` in the threads that still run."""
        import ctypes

        with self._guard:
            for thread, member in zip(threads, self.local.values(), strict=False):
                if not member.ended and thread.ident is not None:
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(
                        ctypes.c_ulong(thread.ident), ctypes.py_object(_Stopped)
                    )

    # ---- deadlocks -----------------------------------------------------------------------------------

    def _deadlock(self) -> EvaluationError:
        """All wait: the error names the instructions and which participants are where."""
        members = self.local.values()
        first = next(member for member in members if member.waits is not None)
        wait = first.waits
        assert wait is not None
        instruction = wait.instruction
        if self._transport is not None:
            places = "; ".join(self._transport.places)
            return failure(
                wait.instruction, f"participants wait for each other without end: {places}"
            )
        here = [member.number for member in members if member.waits == wait]
        away = [number for number in wait.members if number not in here or wait.key is not None]
        what = "wait for" if len(here) > 1 else "waits for"
        if away:
            what += f"{' data from' if wait.key is not None else ''} {_listed(away)}"
        else:
            away = [member.number for member in members if member.number not in here]
            what += " data that is never sent"
        where = "; ".join(self._whereabouts(away))
        name = f"participant{'s' * (len(here) > 1)} {_listed(here)}"
        return failure(instruction, f"{name} {what} in {instruction.opcode}; {where}")

    def _whereabouts(self, numbers: Iterable[int]) -> list[str]:
        """Where participants are, those at one place together."""
        places: dict[str, list[int]] = {}
        for number in numbers:
            member = self.local[number]
            if member.waits is None:
                said = "ended"
            else:
                at = member.waits.instruction
                said = f"at {place(at)}{at.name} ({at.opcode})"
            places.setdefault(said, []).append(number)
        found = []
        for said, group in places.items():
            verb = "have" if len(group) > 1 else "has"
            if said != "ended":
                verb = "are" if len(group) > 1 else "is"
            found.append(f"{_listed(group)} {verb} {said}")
        return found


def _whereabouts(member: _Member) -> str:
    assert member.waits is not None
    at = member.waits.instruction
    return f"{member.number} is at {at.name} ({at.opcode})"


def _listed(numbers: Sequence[int]) -> str:
    """``0, 1 and 2``."""
    *first, last = map(str, numbers)
    return f"{', '.join(first)} and {last}" if first else last
