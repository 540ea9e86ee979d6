"""What a participant is to evaluators, and what carries values to those of other processes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.errors import EvaluationError
from hloopt.interpret.failures import failure

if TYPE_CHECKING:
    from hloopt.interpret.context import Value
    from hloopt.ir import Instruction
    from hloopt.types import Array

__all__ = [
    "Claims",
    "Combine",
    "Meeting",
    "Parcel",
    "Participant",
    "Transport",
    "private",
    "two_claims",
]

Combine: TypeAlias = "Callable[[Sequence[Value]], Sequence[Value]]"
"""From the values of a group's members, in the group's order, to what each of them gets."""

Meeting: TypeAlias = "tuple[str, str, tuple[int, ...]]"
"""Where a group meets: computation, instruction and members."""

Claims: TypeAlias = "dict[Hashable, tuple[int, EvaluationError]]"
"""Who has what for itself: its number, and an error that names its instruction."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """What comes from another process: what a participant brings, is given, or posts; or what a group's arrays
    were reduced to.
    """

    kind: Literal["brings", "given", "posts", "reduced"]
    key: Hashable
    number: int
    value: Value


class Transport(ABC):
    """How participants of this process reach those of others.

    ``local`` are the numbers of its own, ``claims`` what these have for themselves.
    """

    local: tuple[int, ...]
    claims: Claims

    @abstractmethod
    def send(self, receiver: int | None, message: Parcel) -> None:
        """Send to the process of a participant, or to all others; what is sent may change afterwards."""

    @abstractmethod
    def receive(self, places: tuple[str, ...]) -> Parcel | None:
        """Wait for a message; None where the participants of all processes wait.

        ``places`` say where those of this process do.
        """

    def reduces(self, meeting: Meeting) -> bool:
        """Whether what a group brings to a meeting is reduced on the way, in an order of the transport's."""
        return False

    @abstractmethod
    def reduce(self, meeting: Meeting, values: Sequence[Value]) -> None:
        """Give what all members of this process bring, in their order, for a ``Parcel`` with the whole."""

    @property
    @abstractmethod
    def places(self) -> tuple[str, ...]:
        """Where the participants of all processes wait, as far as this one knows."""


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
        self._claims: Claims = {}

    def exchange(
        self, instruction: Instruction, members: Sequence[int], value: Value, combine: Combine
    ) -> Value:
        """Meet the other members of a group at an instruction; what ``combine`` gives this one.

        ``members`` are participants in the order in which ``combine`` gets their values; this one is among
        them.  Where there are others, the arrays given back are its own.
        """
        return combine([value])[0]

    def reduce(
        self, instruction: Instruction, members: Sequence[int], values: tuple[Array, ...]
    ) -> tuple[Array, ...] | None:
        """What the members' arrays are reduced to where something on the way does that; else None."""
        return None

    def post(self, key: Hashable, value: Value, receiver: int | None) -> None:
        """Keep a value until it is taken by this key; the first one posted is taken first.

        ``receiver`` is who takes it, where that is known.
        """
        self._mail[key].append(private(value))

    def take(self, instruction: Instruction, key: Hashable, sender: int | None) -> Value:
        """What was posted by this key (by ``sender``, where that is known); waits until it is there."""
        if not self._mail[key]:
            raise failure(instruction, "waits for data that is never sent")
        return self._mail[key].popleft()

    def claim(self, instruction: Instruction, what: Hashable) -> None:
        """Take for this participant alone; raises ``EvaluationError`` where another one has."""
        if what not in self._claims:
            self._claims[what] = self.number, failure(instruction, "")
        if (owner := self._claims[what][0]) != self.number:
            raise two_claims(failure(instruction, ""), owner, self.number)

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


def two_claims(at: EvaluationError, owner: int, other: int) -> EvaluationError:
    """An error to raise where two participants have one thing for themselves; ``at`` has the place."""
    said = (
        f"{at.reason}participants {owner} and {other} use one channel without source-target pairs"
    )
    return EvaluationError(said, place=at.place, line=at.line, column=at.column, excerpt=at.excerpt)


def private(value: Value) -> Value:
    """Private copies: executors overwrite what is not read any more."""
    if isinstance(value, tuple):
        return tuple(map(private, value))
    return np.array(value)
