"""What each back end may be asked for: a frozen record each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from hloopt.dataclass import dataclass

if TYPE_CHECKING:
    from hloopt.kernels.selection import KernelSelection

__all__ = ["DeviceOptions", "EmulatorMode", "NativeOptions", "NumpyOptions", "Options"]

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

    selection  what the user wants of kernels; None for the rules
    threads    as of ``NumpyOptions``; results do not depend on them
    """

    selection: KernelSelection | None = None
    threads: int | None = None


@dataclass(frozen=True)
class DeviceOptions:
    """How a module is run on ``gpu`` and ``emulator``.

    selection   chooses the kernels; its target is the device that launches are made for.  None for the default
    allow_host  whether the interpreter evaluates what has no kernel
    mode        of the emulator: ``check`` looks at every access, ``fast`` does not
    seed        of the emulator: the order in which blocks run
    flags       of the compiler, for a GPU: ``verify``, ``timed`` or ``fast-math``
    """

    selection: KernelSelection | None = None
    allow_host: bool = False
    mode: EmulatorMode = "check"
    seed: int = 0
    flags: str = "verify"


Options: TypeAlias = NumpyOptions | NativeOptions | DeviceOptions
