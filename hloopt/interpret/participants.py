"""Several participants: the same program once for each, in lock step on one machine.

Participant ``replica * partitions + partition`` runs in its own thread, but a baton lets exactly one of
them run at a time: it runs until it has to wait for others, and then the participant of the lowest number
that can go on has the baton.  So the order is the same in every run, and evaluators need no locks.

``Participant`` is the only one of an ordinary evaluation; ``Participants`` runs several.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.errors import EvaluationError
from hloopt.interpret.failures import failure, place

if TYPE_CHECKING:
    from hloopt.interpret.context import Value
    from hloopt.ir import Instruction

__all__ = ["Combine", "Participant", "Participants"]

Combine: TypeAlias = "Callable[[Sequence[Value]], Sequence[Value]]"
"""From the values of a group's members, in the group's order, to what each of them gets."""

T = TypeVar("T")


class Participant:
    """One of ``replicas * partitions`` participants, and how it exchanges values with the others.

    Made without arguments it is the only one: it exchanges values with itself.
    """

    def __init__(
        self, replica: int = 0, partition: int = 0, replicas: int = 1, partitions: int = 1
    ) -> None:
        self.replica = replica
        self.partition = partition
        self.replicas = replicas
        self.partitions = partitions
        self.number = replica * partitions + partition
        self.count = replicas * partitions
        self.groups: dict[Instruction, tuple[int, ...]] = {}  # those found so far
        self._requests: dict[int, Hashable | None] = {}
        self._requested = 0
        self._mail: defaultdict[Hashable, deque[Value]] = defaultdict(deque)
        self._claims: dict[Hashable, int] = {}

    def exchange(
        self, instruction: Instruction, members: Sequence[int], value: Value, combine: Combine
    ) -> Value:
        """Meet the other members of a group at an instruction; what ``combine`` gives this one.

        ``members`` are participants in the order in which ``combine`` gets their values; this one is among
        them.  Where there are others, the arrays given back are its own.
        """
        return combine([value])[0]

    def post(self, key: Hashable, value: Value) -> None:
        """Keep a value until it is taken by this key; the first one posted is taken first."""
        self._mail[key].append(_private(value))

    def take(self, instruction: Instruction, key: Hashable, sender: int | None) -> Value:
        """What was posted by this key (by ``sender``, where that is known); waits until it is there."""
        if not self._mail[key]:
            raise failure(instruction, "waits for data that is never sent")
        return self._mail[key].popleft()

    def claim(self, instruction: Instruction, what: Hashable) -> None:
        """Take for this participant alone; raises ``EvaluationError`` where another one has."""
        owner = self._claims.setdefault(what, self.number)
        if owner != self.number:
            raise failure(
                instruction,
                f"participants {owner} and {self.number} use one channel without source-target pairs",
            )

    def request(self, key: Hashable | None) -> int:
        """Open a request for what will be posted by a key (None: for zeros); its number."""
        self._requested += 1
        self._requests[self._requested] = key
        return self._requested

    def close(self, instruction: Instruction, number: int) -> Hashable | None:
        """The key of an open request, which is closed."""
        if number not in self._requests:
            raise failure(instruction, "ends what was not begun, or has ended already")
        return self._requests.pop(number)


@dataclass(frozen=True, slots=True)
class _Wait:
    """Where a participant waits: at an instruction, for others of a group or for data."""

    instruction: Instruction
    members: tuple[int, ...] = ()
    key: Hashable = None


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
        world = self._world
        arrived = world.meetings.setdefault((instruction, group), {})
        arrived[self.number] = value
        if len(arrived) < len(group):
            world.wait(self, _Wait(instruction, group))
        else:
            del world.meetings[instruction, group]
            results = combine([arrived[number] for number in group])
            for number, result in zip(group, results, strict=True):
                world.members[number].given = _private(result)
                world.members[number].waits = None
        given, self.given = self.given, None
        assert given is not None
        return given

    def post(self, key: Hashable, value: Value) -> None:
        super().post(key, value)
        for member in self._world.members:
            if member.waits is not None and member.waits.key == key:
                member.waits = None

    def take(self, instruction: Instruction, key: Hashable, sender: int | None) -> Value:
        while not self._mail[key]:
            senders = () if sender is None else (sender,)
            self._world.wait(self, _Wait(instruction, senders, key))
        return self._mail[key].popleft()


class Participants(Generic[T]):
    """Runs something once for each of ``replicas * partitions`` participants.

    ``entered`` is called with a participant whenever it gets the baton after another one had it: for the state
    that threads share.
    """

    def __init__(
        self,
        replicas: int,
        partitions: int,
        entered: Callable[[Participant], None] | None = None,
    ) -> None:
        self.replicas = replicas
        self.partitions = partitions
        self.meetings: dict[tuple[Instruction, tuple[int, ...]], dict[int, Value]] = {}
        self.mail: defaultdict[Hashable, deque[Value]] = defaultdict(deque)
        self.claims: dict[Hashable, int] = {}
        self.members = [_Member(number, self) for number in range(replicas * partitions)]
        self._entered = entered
        self._guard = threading.Lock()
        self._failure: BaseException | None = None
        self._results: dict[int, T] = {}

    def run(self, body: Callable[[Participant], T]) -> list[T]:
        """What ``body`` gives for each participant, in their order.

        Raises what a body raises first, after all of them have been stopped; ``EvaluationError`` when
        participants wait for each other without end.
        """
        threads = [
            threading.Thread(target=self._run, args=(member, body), name=f"participant {number}")
            for number, member in enumerate(self.members)
        ]
        try:
            for thread in threads:
                thread.start()
            self._give(self.members[0])
        except RuntimeError as error:
            self._fail(
                EvaluationError(f"{len(threads)} participants need as many threads: {error}")
            )
        except BaseException as error:  # noqa: BLE001 - raised again when all threads have ended
            self._fail(error)
        self._join([thread for thread in threads if thread.ident is not None])
        if self._failure is not None:
            raise self._failure
        return [self._results[member.number] for member in self.members]

    def wait(self, member: _Member, wait: _Wait) -> None:
        """Pass the baton on until what this participant waits for is there."""
        member.waits = wait
        following = self._next()
        if following is None:
            raise self._deadlock()
        self._give(following)
        self._take(member)

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
        ready = (member for member in self.members if not member.ended and member.waits is None)
        return next(ready, None)

    def _pass_on(self) -> None:
        """Pass the baton on after a participant has ended."""
        following = self._next()
        if following is not None:
            self._give(following)
        elif any(not member.ended for member in self.members):
            raise self._deadlock()

    def _fail(self, error: BaseException) -> None:
        """Stop all participants; the first error is the one that is reported."""
        with self._guard:
            if self._failure is None:
                self._failure = error
                for member in self.members:
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
            for thread, member in zip(threads, self.members, strict=False):
                if not member.ended and thread.ident is not None:
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(
                        ctypes.c_ulong(thread.ident), ctypes.py_object(_Stopped)
                    )

    # ---- deadlocks -----------------------------------------------------------------------------------

    def _deadlock(self) -> EvaluationError:
        """All wait: the error names the instructions and which participants are where."""
        first = next(member for member in self.members if member.waits is not None)
        wait = first.waits
        assert wait is not None
        instruction = wait.instruction
        here = [member.number for member in self.members if member.waits == wait]
        away = [number for number in wait.members if number not in here or wait.key is not None]
        what = "wait for" if len(here) > 1 else "waits for"
        if away:
            what += f"{' data from' if wait.key is not None else ''} {_listed(away)}"
        else:
            away = [member.number for member in self.members if member.number not in here]
            what += " data that is never sent"
        where = "; ".join(self._whereabouts(away))
        name = f"participant{'s' * (len(here) > 1)} {_listed(here)}"
        return failure(instruction, f"{name} {what} in {instruction.opcode}; {where}")

    def _whereabouts(self, numbers: Iterable[int]) -> list[str]:
        """Where participants are, those at one place together."""
        places: dict[str, list[int]] = {}
        for number in numbers:
            member = self.members[number]
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


def _private(value: Value) -> Value:
    """Private copies: executors overwrite what is not read any more."""
    if isinstance(value, tuple):
        return tuple(map(_private, value))
    return np.array(value)


def _listed(numbers: Sequence[int]) -> str:
    """``0, 1 and 2``."""
    *first, last = map(str, numbers)
    return f"{', '.join(first)} and {last}" if first else last
