"""A whole program on a device: buffers, and steps in the order in which they run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.kernels.spec import KernelSpec, Launch
from hloopt.types import ArrayShape

__all__ = [
    "Allocation",
    "AllocationKind",
    "ConditionalStep",
    "HostStep",
    "KernelStep",
    "Move",
    "Plan",
    "PlanBuffer",
    "PlanStep",
    "WhileStep",
    "function_name",
    "walk_steps",
]

AllocationKind: TypeAlias = Literal["parameter", "constant", "arena", "result"]


@dataclass(frozen=True, slots=True)
class Allocation:
    """An allocation of device memory.

    ``number`` is the flat position among the entry's parameter leaves or among its results, or counts
    constants; ``instruction`` is the constant, ``index`` the leaf of it (empty for an array).  An entry
    parameter that is donated may be written.  Constants of equal bits share one allocation.  Results have
    separate allocations only where the plan was made so.
    """

    kind: AllocationKind
    number: int
    byte_size: int
    instruction: Instruction | None = None
    index: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanBuffer:
    """``byte_size`` bytes at ``offset`` (a multiple of 256) of an allocation, which hold ``shape``.

    What has no bytes (tokens, arrays without elements, constants that are written into the code) lies at
    offset 0 of the arena with ``byte_size`` 0.
    """

    allocation: Allocation
    offset: int
    byte_size: int
    shape: ArrayShape


@dataclass(frozen=True, slots=True)
class Move:
    """All bytes of one buffer into another of the same size."""

    source: PlanBuffer
    target: PlanBuffer


@dataclass(frozen=True, slots=True)
class KernelStep:
    """An instruction that runs by its spec; ``function`` begins the names of its CUDA functions.

    ``operands`` and ``results`` are the leaves of the instruction's operands and of its result, in flat
    order; ``inlined`` are the numbers of operand leaves that have no memory, because they are constants
    that no step of the spec reads.

    ``before`` are copies of operands into results that the spec updates in place where the operand's own
    bytes must stay; ``after`` are copies of results that could not be written where they belong, because
    an operand lies there.
    """

    instruction: Instruction
    spec: KernelSpec
    function: str
    operands: tuple[PlanBuffer, ...]
    results: tuple[PlanBuffer, ...]
    scratch: tuple[PlanBuffer, ...] = ()
    inlined: tuple[int, ...] = ()
    before: tuple[Move, ...] = ()
    after: tuple[Move, ...] = ()


@dataclass(frozen=True, slots=True)
class HostStep:
    """An instruction the interpreter evaluates on the host, because the user allowed it."""

    instruction: Instruction
    operands: tuple[PlanBuffer, ...]
    results: tuple[PlanBuffer, ...]


@dataclass(frozen=True, slots=True)
class WhileStep:
    """A loop: ``condition`` leaves a pred in ``predicate``; where ``iterations`` is known no condition runs.

    ``state`` are the buffers that an iteration changes for the next one.
    """

    instruction: Instruction
    condition: tuple[PlanStep, ...]
    predicate: PlanBuffer | None
    body: tuple[PlanStep, ...]
    iterations: int | None = None
    state: tuple[PlanBuffer, ...] = ()


@dataclass(frozen=True, slots=True)
class ConditionalStep:
    """``branches[selector]``, the last one for any other number; of a pred, true is the first."""

    instruction: Instruction
    selector: PlanBuffer
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
    live_bound   the most bytes alive at once in this order with these must-alias sets, each buffer rounded
                 up to 256; parameters and constants are alive all the time
    """

    allocations: tuple[Allocation, ...]
    parameters: tuple[PlanBuffer | None, ...]
    results: tuple[PlanBuffer, ...]
    steps: tuple[PlanStep, ...]
    peak: int
    live_bound: int


def function_name(step: KernelStep, launch: Launch) -> str:
    """The name of the CUDA function of one launch, unique in the program."""
    return step.function + launch.function


def walk_steps(steps: Iterable[PlanStep]) -> Iterator[PlanStep]:
    """All steps in order, those of loops and branches right behind the step that runs them."""
    for step in steps:
        yield step
        if isinstance(step, WhileStep):
            yield from walk_steps(step.condition)
            yield from walk_steps(step.body)
        elif isinstance(step, ConditionalStep):
            for branch in step.branches:
                yield from walk_steps(branch)
