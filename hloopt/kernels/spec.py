"""What is launched for one top-level instruction: plain values, the same for every device.

A ``KernelSpec`` says how: functions, grids, blocks and what each argument is bound to.  It follows from the
kernel's name, its tile, the instruction and the target alone, so that name and tile are all a lock file holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Literal, TypeAlias

from hloopt.dataclass import dataclass

__all__ = [
    "Argument",
    "ArgumentRole",
    "Copy",
    "Dim3",
    "Fill",
    "KernelPart",
    "KernelSpec",
    "Launch",
    "LeafPlace",
    "PlaceKind",
    "ScratchBuffer",
    "Tile",
    "written",
]

Dim3: TypeAlias = tuple[int, int, int]
Tile: TypeAlias = Mapping[str, int]
ArgumentRole: TypeAlias = Literal["in", "out", "update"]
PlaceKind: TypeAlias = Literal["operand", "result", "scratch"]


@dataclass(frozen=True, slots=True)
class LeafPlace:
    """A buffer as the instruction sees it: leaf ``number`` of its operands, its results, or its scratch."""

    kind: PlaceKind
    number: int


@dataclass(frozen=True, slots=True)
class Argument:
    """A pointer passed to a function.

    ``role`` is ``in`` (only read), ``out`` (every byte is written and none read before; ``partial`` where
    this launch leaves some to another one of the same instruction), ``update`` (read and written).
    """

    place: LeafPlace
    role: ArgumentRole
    partial: bool = False


def written(
    numbers: Iterable[int], role: ArgumentRole = "out", *, partial: bool = False
) -> tuple[Argument, ...]:
    """Pointers to leaves of the result."""
    return tuple(Argument(LeafPlace("result", number), role, partial) for number in numbers)


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch: ``scalars`` are 32-bit integers passed after the pointers.

    ``function`` is the suffix of the function's name, empty for an instruction's only one.  ``shared`` is how
    many bytes of shared memory a block is given beside the arrays that the function declares.  ``part`` is the
    number of what the function computes: of a group of reductions, or of a transform.
    """

    function: str
    grid: Dim3
    block: Dim3
    arguments: tuple[Argument, ...]
    scalars: tuple[int, ...] = ()
    shared: int = 0
    part: int = 0

    @classmethod
    def linear(
        cls,
        function: str,
        blocks: int,
        threads: int,
        arguments: tuple[Argument, ...],
        *,
        scalars: tuple[int, ...] = (),
        shared: int = 0,
        part: int = 0,
    ) -> Launch:
        """A launch whose grid and blocks have one dimension."""
        grid, block = (blocks, 1, 1), (threads, 1, 1)
        return cls(function, grid, block, arguments, scalars, shared, part)


@dataclass(frozen=True, slots=True)
class Copy:
    """All bytes of one buffer into another of the same size."""

    source: LeafPlace
    target: LeafPlace


@dataclass(frozen=True, slots=True)
class Fill:
    """Every byte of a buffer set to ``value``."""

    target: LeafPlace
    value: int = 0


KernelPart: TypeAlias = Launch | Copy | Fill


@dataclass(frozen=True, slots=True)
class ScratchBuffer:
    """Memory an instruction needs while it runs: elements of an HLO type."""

    dtype: str
    elements: int


@dataclass(frozen=True)
class KernelSpec:
    """How one instruction runs.

    kernel     the kernel's name, as ``--kernel`` takes it
    tile       its parameters
    steps      what happens, in order
    scratch    private memory
    in_place   pairs (operand leaf, result leaf) that lie in one buffer: the kernel only writes what changes
    overwrites further pairs that may lie in one buffer: each element of the operand is read by the thread that
               writes the result's element at the same place, before it does; no other pair shares bytes
    is_atomic  whether the order of threads decides roundings, so that two runs may differ
    library    the library call that takes the place of steps, or empty
    """

    kernel: str
    tile: Tile = field(default_factory=lambda: MappingProxyType({}))
    steps: tuple[KernelPart, ...] = ()
    scratch: tuple[ScratchBuffer, ...] = ()
    in_place: tuple[tuple[int, int], ...] = ()
    overwrites: tuple[tuple[int, int], ...] = ()
    is_atomic: bool = False
    library: str = ""
