"""The host: where infeed and recv take from, where outfeed and send give to, and what rng draws from.

Arrays have names, counted in the order in which instructions are executed; the elements of a tuple stand in its
place, each with its own number:

    infeed_0, infeed_1, ...             what infeed reads
    recv_CHANNEL_0, ...                 what recv reads over a channel of the host
    outfeed_0, ... send_CHANNEL_0, ...  what outfeed and send write

Of several participants, each reads such a stream from its start; ``infeed_0.3`` is of a stream that
participant 3 alone reads, and all names of what several participants write end like that.  A stream of which
nothing is given is drawn from the seed, element by element as inputs are: the array of a number is
always the same, so that all forms of a module read the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from hloopt.errors import EvaluationError, UsageError
from hloopt.interpret.drawn import drawn
from hloopt.types import Array, ArrayShape

__all__ = ["Host"]

_READ = re.compile(
    r"(?P<stream>infeed|recv_-?\d+)_(?P<number>0|[1-9]\d*)(?:\.(?P<participant>0|[1-9]\d*))?"
)
# The words beside seed and number that distinguish infeed and recv from any participant's parameters.
_INFEED, _RECV = (1 << 40) + 1, (1 << 40) + 2
_WORD = (1 << 64) - 1


_T = TypeVar("_T")


class Host:
    """What a program reads from and writes to the host, from the start of its streams.

    A host keeps its position: a second run with the same one reads on.  ``restarted`` gives one at the start.

    ``seed`` and ``number`` (of the participant) say what is drawn; ``states`` are the states of random
    generators, by keys that their owners choose.

    Raises ``UsageError`` for names that are not of this form or leave a number out, and for a negative seed.
    """

    def __init__(self, given: Mapping[str, Array] | None = None, *, seed: int = 0) -> None:
        if seed < 0:
            raise UsageError(f"a seed must be non-negative, got {seed}")
        self.seed = seed
        self.number = 0
        self.states: dict[Any, int] = {}
        self._streams = _streams(given or {})
        self._positions: dict[str, int] = {}
        self._written: dict[str, Array] = {}
        self._bounds: dict[str, Array | None] = {}
        self._others: dict[int, Host] = {}

    @classmethod
    def given(cls, host: Host | None) -> Host:
        """A host, or a new one of seed 0.  Raises ``UsageError`` for anything else, such as a second array."""
        if host is not None and not isinstance(host, Host):
            what = type(host).__name__
            raise UsageError(f"inputs are one list of arrays, and a Host may follow, not {what}")
        return cls() if host is None else host

    def of(self, number: int) -> Host:
        """The host of a participant; participant 0 has this one."""
        if number == self.number:
            return self
        if number not in self._others:
            other = self._others[number] = Host(seed=self.seed)
            other.number, other._streams = number, self._streams
        return self._others[number]

    def take(self, number: int, other: Host) -> None:
        """Take what a participant's host has become in another process."""
        self._others[number] = other

    def restarted(self) -> Host:
        """A host of the same streams and seed, at their start."""
        other = Host(seed=self.seed)
        other._streams = self._streams
        return other

    def infeed(self, shape: ArrayShape) -> tuple[str, Array]:
        """The next array for an infeed of a shape, and its name.

        Raises ``EvaluationError`` at the end of what is given; callers check whether it fits.
        """
        return self._take("infeed", shape, (_INFEED,))

    def receive(self, channel: int, shape: ArrayShape) -> tuple[str, Array]:
        """The next array over the channel with this identifier, as ``infeed``."""
        return self._take(f"recv_{channel}", shape, (_RECV, channel & _WORD))

    def outfeed(self, array: Array) -> None:
        """Keep an array that an outfeed writes; it may not change any more."""
        self._put("outfeed", array)

    def send(self, channel: int, array: Array) -> None:
        """Keep an array that is sent over the channel with this identifier."""
        self._put(f"send_{channel}", array)

    def bound(self, of: Callable[[Array], Array | None]) -> None:
        """Keep how far each array that was written may be off; None is nothing."""
        self._bounds = {name: of(array) for name, array in self._written.items()}

    @property
    def written(self) -> dict[str, Array]:
        """All that was written, by name: by participant, in order of execution."""
        return self._all(lambda host: host._written)

    @property
    def written_bounds(self) -> dict[str, Array | None]:
        """How far what was written may be off, by the same names, where ``bound`` was called."""
        return self._all(lambda host: host._bounds)

    def _all(self, part: Callable[[Host], dict[str, _T]]) -> dict[str, _T]:
        if not self._others:
            return dict(part(self))
        hosts = sorted(self._hosts(), key=lambda host: host.number)
        return {
            f"{name}.{host.number}": array for host in hosts for name, array in part(host).items()
        }

    @property
    def unread(self) -> list[str]:
        """The names of the given arrays that were not read."""
        read: dict[str, int] = {}
        for host in self._hosts():
            for stream, position in host._positions.items():
                read[stream] = max(position, read.get(stream, 0))
        return [
            _name(stream, number)
            for stream, arrays in self._streams.items()
            for number in range(read.get(stream, 0), len(arrays))
        ]

    def _hosts(self) -> Iterator[Host]:
        yield self
        yield from self._others.values()

    def _take(self, plain: str, shape: ArrayShape, words: tuple[int, ...]) -> tuple[str, Array]:
        stream = f"{plain}.{self.number}"
        if stream not in self._streams:
            stream = plain
        number = self._positions.get(stream, 0)
        name = _name(stream, number)
        given = self._streams.get(stream)
        if given is None:
            rng = np.random.default_rng([self.seed, number, *words, self.number])
            array: Array = drawn(rng, shape)
        elif number < len(given):
            array = given[number]
        else:
            last = _name(stream, number - 1)
            raise EvaluationError(f"{name} is not given: the stream ends after {last}")
        self._positions[stream] = number + 1
        return name, array

    def _put(self, stream: str, array: Array) -> None:
        number = self._positions.get(stream, 0)
        self._positions[stream] = number + 1
        self._written[f"{stream}_{number}"] = array


def _name(stream: str, number: int) -> str:
    plain, dot, participant = stream.partition(".")
    return f"{plain}_{number}{dot}{participant}"


def _streams(given: Mapping[str, Array]) -> dict[str, list[Array]]:
    """The arrays of each stream, which is called ``infeed``, or ``infeed.3`` where one participant reads it."""
    numbers: dict[str, dict[int, Array]] = {}
    for name, array in given.items():
        found = _READ.fullmatch(name)
        if found is None:
            raise UsageError(
                f"'{name}' is not the name of an array for the host; "
                "these are infeed_0, infeed_1, ... and recv_CHANNEL_0, ..."
            )
        participant = found["participant"]
        stream = found["stream"] if participant is None else f"{found['stream']}.{participant}"
        numbers.setdefault(stream, {})[int(found["number"])] = np.asarray(array)
    for stream, arrays in numbers.items():
        missing = next(number for number in range(len(arrays) + 1) if number not in arrays)
        if missing < len(arrays):
            raise UsageError(
                f"{_name(stream, missing)} is missing, {_name(stream, max(arrays))} is given"
            )
    return {
        stream: [arrays[number] for number in range(len(arrays))]
        for stream, arrays in numbers.items()
    }
