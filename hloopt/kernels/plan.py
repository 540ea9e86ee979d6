"""A whole program on a device: buffers, and steps in the order in which they run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from hloopt.ir import Instruction
from hloopt.kernels.spec import KernelSpec
from hloopt.types import ArrayShape

__all__ = [
    "Allocation",
    "AllocationKind",
    "Buffer",
    "ConditionalStep",
    "HostStep",
    "KernelStep",
    "Plan",
    "PlanStep",
    "WhileStep",
]

AllocationKind: TypeAlias = Literal["parameter", "constant", "arena"]


@dataclass(frozen=True, slots=True)
class Allocation:
    """Device memory of its own.

    ``number`` is the flat position among the entry's parameter leaves, or counts constants; ``instruction``
    is the constant.  An entry parameter that is donated may be written.
    """

    kind: AllocationKind
    number: int
    byte_size: int
    instruction: Instruction | None = None


@dataclass(frozen=True, slots=True)
class Buffer:
    """``byte_size`` bytes at ``offset`` (a multiple of 256) of an allocation, which hold ``shape``."""

    allocation: Allocation
    offset: int
    byte_size: int
    shape: ArrayShape


@dataclass(frozen=True, slots=True)
class KernelStep:
    """An instruction that runs by its spec; ``function`` begins the names of its CUDA functions."""

    instruction: Instruction
    spec: KernelSpec
    function: str
    operands: tuple[Buffer, ...]
    results: tuple[Buffer, ...]
    scratch: tuple[Buffer, ...] = ()


@dataclass(frozen=True, slots=True)
class HostStep:
    """An instruction the interpreter evaluates on the host, because the user allowed it."""

    instruction: Instruction
    operands: tuple[Buffer, ...]
    results: tuple[Buffer, ...]


@dataclass(frozen=True, slots=True)
class WhileStep:
    """A loop: ``condition`` leaves a pred in ``predicate``; ``trips`` where the count is known (no condition runs)."""

    instruction: Instruction
    condition: tuple[PlanStep, ...]
    predicate: Buffer | None
    body: tuple[PlanStep, ...]
    trips: int | None = None


@dataclass(frozen=True, slots=True)
class ConditionalStep:
    """``branches[selector]``, the last one for any other number; of a pred, true is the first."""

    instruction: Instruction
    selector: Buffer
    branches: tuple[tuple[PlanStep, ...], ...]


PlanStep: TypeAlias = KernelStep | HostStep | WhileStep | ConditionalStep


@dataclass(frozen=True)
class Plan:
    """A program.

    allocations  all device memory; at most one arena
    parameters   the buffer of each leaf of the entry's parameters, in flat order; None for a token
    results      the buffer of each leaf of the result, in flat order; tokens left out
    steps        what runs
    peak         bytes of all allocations together
    live_bound   the most bytes alive at once in this order with these must-alias sets
    """

    allocations: tuple[Allocation, ...]
    parameters: tuple[Buffer | None, ...]
    results: tuple[Buffer, ...]
    steps: tuple[PlanStep, ...]
    peak: int
    live_bound: int
