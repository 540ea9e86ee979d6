"""What a participant is to evaluators, and what carries values to those of other processes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.interpret.failures import failure

if TYPE_CHECKING:
    from hloopt.interpret.context import Value
    from hloopt.ir import Instruction

__all__ = ["Combine", "Parcel", "Participant", "Transport", "private"]

Combine: TypeAlias = "Callable[[Sequence[Value]], Sequence[Value]]"
"""From the values of a group's members, in the group's order, to what each of them gets."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """What goes from one process to another: what a participant brings, what it is given, or posts."""

    kind: Literal["brings", "given", "posts"]
    key: Hashable
    number: int
    value: Value


class Transport(ABC):
    """How participants of this process reach those of others; ``local`` are the numbers of its own."""

    local: tuple[int, ...]

    @abstractmethod
    def send(self, receiver: int | None, message: Parcel) -> None:
        """Send to the process of a participant, or to all others; what is sent may change afterwards."""

    @abstractmethod
    def receive(self, places: tuple[str, ...]) -> Parcel | None:
        """Wait for a message; None where the participants of all processes wait.

        ``places`` say where those of this process do.
        """

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
        self._claims: dict[Hashable, int] = {}

    def exchange(
        self, instruction: Instruction, members: Sequence[int], value: Value, combine: Combine
    ) -> Value:
        """Meet the other members of a group at an instruction; what ``combine`` gives this one.

        ``members`` are participants in the order in which ``combine`` gets their values; this one is among
        them.  Where there are others, the arrays given back are its own.
        """
        return combine([value])[0]

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


def private(value: Value) -> Value:
    """Private copies: executors overwrite what is not read any more."""
    if isinstance(value, tuple):
        return tuple(map(private, value))
    return np.array(value)
