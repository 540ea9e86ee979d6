"""The interface of every executor's programs, and the options of each: a frozen record each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.types import Array

if TYPE_CHECKING:
    from hloopt.interpret import Host
    from hloopt.interpret.participant import Transport
    from hloopt.interpret.progress import Progress
    from hloopt.ir import Module
    from hloopt.kernels.selection import KernelSelection
    from hloopt.runtime.timing import StepClock

__all__ = [
    "DeviceOptions",
    "EmulatorMode",
    "NativeOptions",
    "NumpyOptions",
    "Options",
    "Program",
    "SharedProgram",
]


class Program(ABC):
    """A module made executable for one device.

    ``module`` is the one that runs: on a device with kernels what its pipeline has made of the given one.
    ``kernels`` counts the instructions of the program that do work (``kernels.selectable``); ``launches``
    those of the last run (of participant 0), each as often as it ran.  ``progress`` says, to another thread,
    how far a run has come.
    """

    module: Module
    kernels: int
    launches: int
    progress: Progress

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.module.name}, kernels: {self.kernels}>"

    @abstractmethod
    def run(self, inputs: Sequence[Array], host: Host | None = None) -> list[Array]:
        """Arrays in parameter order in, the flat list of result arrays out; tokens are left out.

        ``host`` is where infeed and outfeed lead to; without one, each run has its own (of seed 0).
        Inputs are not changed and results share no memory with them.  Threads that run one program wait
        for each other.
        Raises ``EvaluationError`` when the inputs do not fit the parameters, or the host's what is read.
        """

    def timed(self) -> tuple[Program, StepClock]:
        """The same program, compiled with a clock that is called around its steps.

        Raises ``UsageError`` on devices where the host's clock says nothing of steps.
        """
        raise UsageError("steps are timed on the devices cpu, native and gpu")

    @abstractmethod
    def run_participants(
        self, inputs: Sequence[Sequence[Array]], host: Host | None = None
    ) -> list[list[Array]]:
        """As ``run``, once for each of the participants the program was compiled for, in lock step.

        Participant ``replica * partitions + partition`` takes ``inputs[number]`` and uses
        ``host.of(number)``; the results come in the same order.  Raises ``EvaluationError`` when participants
        wait for each other without end, too.
        """


class SharedProgram(Program):
    """A program whose participants may be spread over processes, each of which has compiled the module."""

    @abstractmethod
    def run_local(
        self, inputs: Sequence[Sequence[Array]], host: Host, transport: Transport
    ) -> list[list[Array]]:
        """As ``run_participants``, for those of this process; ``transport`` reaches the others."""


EmulatorMode: TypeAlias = Literal["check", "fast"]


@dataclass(frozen=True)
class NumpyOptions:
    """How a module is run on ``cpu``.

    excess_precision  whether fusions may keep more than their types hold
    replicas, partitions  participants, in lock step
    exact    whether functions of f32 are computed as the interpreter does, correctly rounded, where they else
             err by up to 4 units in the last place and take a third of the time
    threads  that share large work; None for ``HLOOPT_THREADS``, or as many as cores
    """

    excess_precision: bool = False
    replicas: int = 1
    partitions: int = 1
    exact: bool = False
    threads: int | None = None


@dataclass(frozen=True)
class NativeOptions:
    """How a module is run on ``native``.

    selection  the user's choice of kernels; None for the rules
    threads    as of ``NumpyOptions``; results do not depend on them
    replicas, partitions  participants, in lock step
    """

    selection: KernelSelection | None = None
    threads: int | None = None
    replicas: int = 1
    partitions: int = 1


@dataclass(frozen=True)
class DeviceOptions:
    """How a module is run on ``gpu`` and ``emulator``.

    selection   chooses the kernels; its target is the device that launches are made for.  None for the default
    allow_host  whether the interpreter evaluates what has no kernel
    mode        of the emulator: ``check`` verifies every access, ``fast`` does not
    seed        of the emulator: the order in which blocks run
    flags       of the compiler, for a GPU: ``verify``, ``timed`` or ``fast-math``
    """

    selection: KernelSelection | None = None
    allow_host: bool = False
    mode: EmulatorMode = "check"
    seed: int = 0
    flags: str = "verify"


Options: TypeAlias = NumpyOptions | NativeOptions | DeviceOptions
