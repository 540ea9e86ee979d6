"""What a device does for a program: memory, copies, launches.  A plan is walked over it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from hloopt.dataclass import dataclass
from hloopt.kernels.spec import ArgumentRole, Dim3
from hloopt.types import Array

if TYPE_CHECKING:
    from hloopt.codegen.program import KernelProgram

__all__ = [
    "Capturing",
    "Device",
    "Pointer",
    "PointerArgument",
]


@dataclass(frozen=True, slots=True)
class Pointer:
    """``byte_size`` bytes at ``offset`` of an allocation the device knows by ``allocation``."""

    allocation: int
    offset: int
    byte_size: int


@dataclass(frozen=True, slots=True)
class PointerArgument:
    """A pointer and what the function does with it (``kernels.spec.Argument``)."""

    pointer: Pointer
    role: ArgumentRole
    partial: bool = False


class Device(Protocol):
    """One device; a session begins with ``load`` and ends with ``close``.

    Everything is in order of the calls; ``download`` waits.  An error of a kernel (an access outside its
    buffers, a race, a time limit) is an ``EvaluationError`` that names function and, through ``describe``,
    the HLO instruction.
    """

    def load(self, program: KernelProgram | str, describe: dict[str, str]) -> None:
        """Compile a program, or take it from the cache; ``describe`` tells functions' instructions."""

    def allocate(self, byte_size: int) -> int:
        """Memory of its own; not initialised.  Returns the allocation's number."""

    def upload(self, target: Pointer, array: Array) -> None:
        """Contiguous bytes of an array to the device."""

    def download(self, source: Pointer) -> Array:
        """Bytes (u8) from the device, after everything before has run."""

    def copy(self, target: Pointer, source: Pointer) -> None:
        """Copy bytes on the device."""

    def fill(self, target: Pointer, value: int) -> None:
        """Set every byte."""

    def launch(
        self,
        function: str,
        grid: Dim3,
        block: Dim3,
        arguments: Sequence[PointerArgument],
        scalars: Sequence[int] = (),
        shared: int = 0,
    ) -> None:
        """Launch a function: pointers, then 32-bit integers; ``shared`` bytes a block beside its arrays."""

    def close(self) -> None:
        """Free everything."""


@runtime_checkable
class Capturing(Protocol):
    """A device that can write a stretch of work down once and run it again as one."""

    def begin_capture(self) -> None:
        """From here on launches, copies, fills and library calls are written down instead of run."""

    def end_capture(self) -> int:
        """What came since, for ``replay``; nothing of it has run yet."""

    def abandon_capture(self) -> None:
        """Forget a capture whose work failed half-way; without one, do nothing."""

    def replay(self, graph: int) -> None:
        """Run it: the same functions on the same memory."""
