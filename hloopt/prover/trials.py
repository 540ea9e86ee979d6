"""Inputs on which modules are compared: what each participant gets, and what the host sends."""

from __future__ import annotations

from dataclasses import field
from typing import Any, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.interpret import Host, participant_counts
from hloopt.ir import Module
from hloopt.runtime.inputs import generate_all, positions

__all__ = ["Arrays", "Trial", "TrialInputs", "check_fits", "made"]

Arrays: TypeAlias = "list[list[Any]]"
"""The arrays of each participant, flat and in the order of parameters or results."""


@dataclass(frozen=True)
class Trial:
    """How inputs are made: by a seed, ``special`` values of a class among them, none where it is empty."""

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
    """The inputs that a trial makes for a module; participants are the module's own without counts."""
    counts = participant_counts(module, replicas, partitions)
    arrays = generate_all(module, trial.seed, *counts)
    return TrialInputs(arrays, counts, Host(seed=trial.seed), str(trial))


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
