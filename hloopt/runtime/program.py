"""What every executor gives: a program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hloopt.types import Array

if TYPE_CHECKING:
    from hloopt.interpret import Host
    from hloopt.interpret.progress import Progress
    from hloopt.ir import Module

__all__ = ["Program"]


class Program(ABC):
    """A module made executable for one device.

    ``module`` is the one that runs: on a device with kernels what its pipeline has made of the given one.
    ``kernels`` counts the instructions of the program that do work (``runtime.kernels``); ``launches``
    those of the last run (of participant 0), each as often as it ran.  ``progress`` says, to another thread,
    how far a run has come.
    """

    module: Module
    kernels: int
    launches: int
    progress: Progress

    @abstractmethod
    def run(self, inputs: Sequence[Array], host: Host | None = None) -> list[Array]:
        """Arrays in parameter order in, the flat list of result arrays out; tokens are left out.

        ``host`` is where infeed and outfeed lead to; without one, each run has its own (of seed 0).
        Inputs are not changed and results share no memory with them.  Threads that run one program wait
        for each other.
        Raises ``EvaluationError`` when the inputs do not fit the parameters, or the host's what is read.
        """

    @abstractmethod
    def run_participants(
        self, inputs: Sequence[Sequence[Array]], host: Host | None = None
    ) -> list[list[Array]]:
        """As ``run``, once for each of the participants the program was compiled for, in lock step.

        Participant ``replica * partitions + partition`` takes ``inputs[number]`` and talks to
        ``host.of(number)``; the results come in the same order.  Raises ``EvaluationError`` when participants
        wait for each other without end, too.
        """
