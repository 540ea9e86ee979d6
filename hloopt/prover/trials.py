"""Inputs on which modules are compared: what each participant gets, and what the host sends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.interpret import Host, participant_counts
from hloopt.ir import Module
from hloopt.runtime.inputs import (
    generate_all,
    has_inputs,
    load_all_inputs,
    load_host,
    origin_of,
    positions,
)
from hloopt.runtime.trial_inputs import SPREADS, Spread, spread_inputs
from hloopt.spelling import nearest

if TYPE_CHECKING:
    from hloopt.proto.snapshot import Snapshot

__all__ = [
    "Arrays",
    "Trial",
    "TrialInputs",
    "TrialOptions",
    "check_fits",
    "made",
    "special_class",
    "special_classes",
]

Arrays: TypeAlias = "list[list[Any]]"
"""The arrays of each participant, flat and in the order of parameters or results."""


@dataclass(frozen=True)
class Trial:
    """How inputs are made: by a seed, with values of a ``special`` class; of none where it is empty."""

    seed: int = 0
    special: str = ""

    def __str__(self) -> str:
        """As messages name it."""
        return f"seed {self.seed}" + (f", {self.special}" if self.special else "")


@dataclass(frozen=True)
class TrialInputs:
    """The inputs of one trial, which every module of a comparison gets.

    arrays   of each participant
    counts   replicas and partitions
    host     where streams begin; a run takes ``host.restarted()``
    origin   what the arrays come from: a seed, a file
    """

    arrays: Arrays
    counts: tuple[int, int] = (1, 1)
    host: Host = field(default_factory=Host)
    origin: str = "given"


def made(
    module: Module, trial: Trial, replicas: int | None = None, partitions: int | None = None
) -> TrialInputs:
    """The inputs that a trial makes for a module; participants are the module's own without counts.

    Raises ``UsageError`` for a class that does not exist.
    """
    counts = participant_counts(module, replicas, partitions)
    arrays = generate_all(module, trial.seed, *counts)
    if trial.special:
        spread = special_class(trial.special)
        arrays = [spread_inputs(module, own, trial.seed, spread) for own in arrays]
    return TrialInputs(arrays, counts, Host(seed=trial.seed), origin_of(module, trial))


def special_class(name: str) -> Spread:
    """The class of that name.  Raises ``UsageError`` where there is none."""
    for spread in SPREADS:
        if spread == name:
            return spread
    close = nearest(name, SPREADS)
    meant = f"; did you mean '{close[0]}'?" if close else ""
    raise UsageError(f"no class of inputs is called '{name}' (known: {', '.join(SPREADS)}){meant}")


def special_classes(module: Module) -> list[Spread]:
    """The classes that change any input of a module: without an integer there are no extremes of integers."""
    plain = made(module, Trial(), 1, 1).arrays[0]

    def changes(spread: Spread) -> bool:
        found = spread_inputs(module, plain, 0, spread)
        return any(one.tobytes() != own.tobytes() for one, own in zip(found, plain, strict=True))

    return [spread for spread in SPREADS if changes(spread)]


@dataclass(frozen=True)
class TrialOptions:
    """On which inputs modules are run; each field is the option of its name.

    ``trials`` is how many there are: None for one, or for one of each class of ``special``, in which "all"
    stands for all classes.  ``seed`` is the first trial's, the next have the next ones.
    """

    inputs: str | None = None
    seed: int | None = None
    trials: int | None = None
    special: tuple[str, ...] = ()
    replicas: int | None = None
    partitions: int | None = None

    def check(self) -> None:
        """Raise ``UsageError`` for options that contradict each other, and for unknown classes."""
        if self.inputs is not None and (self.trials or self.special):
            raise UsageError("--inputs is one trial: --trials and --special make others")
        for name in self.special:
            if name != "all":
                special_class(name)

    @property
    def is_plain(self) -> bool:
        """Whether one random input is all that is asked for, and special values by no option."""
        return self.inputs is None and self.trials is None and not self.special

    def plan(self, module: Module) -> list[Trial]:
        """The trials that are made for a module.

        With ``trials`` alone the first is plain, and then every class that changes an input has its turn.
        Raises ``UsageError`` where none of the classes asked for does.
        """
        first = self.seed or 0
        if not self.special and self.trials in (None, 1):
            return [Trial(first)]
        there = special_classes(module)
        asked = there if not self.special or "all" in self.special else self.special
        turns: list[str] = [spread for spread in there if spread in asked]
        if not self.special:
            turns.insert(0, "")
        elif not turns:
            classes = " nor ".join(self.special)
            raise UsageError(f"no input of {module.name} can be {classes}")
        count = len(turns) if self.trials is None else self.trials
        return [Trial(first + number, turns[number % len(turns)]) for number in range(count)]

    def all(self, module: Module, snapshot: Snapshot | None = None) -> Iterator[TrialInputs]:
        """The inputs of each trial: a file's, a snapshot's where nothing else is asked for, or of ``plan``.

        Raises ``UsageError`` where a file or a snapshot does not fit the module.
        """
        self.check()
        counts = participant_counts(module, self.replicas, self.partitions)
        path = None if self.inputs is None else Path(self.inputs)
        host = load_host(path, self.seed or 0)
        has_streams = path is not None and not has_inputs(path)
        asked = self.trials or self.special or self.seed is not None
        if path is not None and not has_streams:
            arrays = load_all_inputs(path, module, prod(counts))
            yield TrialInputs(arrays, counts, host, str(path))
        elif snapshot is not None and not asked:
            if prod(counts) > 1:
                raise UsageError(
                    f"{module.name}: the snapshot has inputs of one participant, {prod(counts)} are run; "
                    "give --inputs or --seed"
                )
            yield TrialInputs([list(snapshot.inputs)], counts, host, "snapshot")
        else:
            for trial in self.plan(module):
                found = made(module, trial, *counts)
                yield replace(found, host=host) if has_streams else found


def check_fits(module: Module, inputs: TrialInputs, name: str) -> None:
    """Raise ``UsageError`` where a module takes other inputs than these.

    The message names the first parameter that has no array, or one of another shape or type.
    """
    wanted = [
        (parameter.name, shape)
        for parameter in module.entry.parameters
        for _, shape in positions(parameter.shape)
    ]
    for arrays in inputs.arrays:
        if len(arrays) != len(wanted):
            raise UsageError(
                f"{name}: its parameters are {len(wanted)} arrays, the inputs ({inputs.origin}) "
                f"are {len(arrays)}"
            )
        for array, (parameter, shape) in zip(arrays, wanted, strict=True):
            if not shape.holds(array.shape) or array.dtype.itemsize != shape.dtype.numpy.itemsize:
                raise UsageError(
                    f"{name}: parameter {parameter} is {shape}, the input ({inputs.origin}) "
                    f"{array.dtype}{list(array.shape)}"
                )
