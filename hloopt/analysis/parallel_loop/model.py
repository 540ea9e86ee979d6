"""What is known of a ``while`` that may run as one kernel: its axes, and what each work item of them owns.

A **work item** is one index of all parallel axes together: what one thread, or one block, computes by itself
from the first iteration to the last.  No work item reads what another work item computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from math import prod
from typing import Literal, TypeAlias

from hloopt.analysis.induction import Affine
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.types import ArrayShape

__all__ = [
    "Axes",
    "Carried",
    "CarriedRole",
    "Dependence",
    "LoopMapping",
    "LoopNode",
    "ParallelLoop",
    "Sharing",
    "Termination",
    "local_dims",
]

LoopNode: TypeAlias = "tuple[Instruction, int]"
"""Leaf number ``leaf`` of an instruction's result (0 for an array)."""

Axes: TypeAlias = "tuple[int | None, ...]"
"""For each dimension the number of the parallel axis it lies along, None where each work item has all of it."""


def local_dims(shape: ArrayShape, axes: Axes | None) -> tuple[int, ...]:
    """The sizes of the dimensions along no axis, in order; all dimensions of a loop without parallel axes."""
    if axes is None:
        return shape.dims
    return tuple(size for size, axis in zip(shape.dims, axes, strict=True) if axis is None)


CarriedRole: TypeAlias = Literal["invariant", "uniform", "owned", "streamed"]


@dataclass(frozen=True, slots=True)
class Dependence:
    """An instruction that keeps a dimension from being parallel: ``words`` say why, with name and size."""

    instruction: Instruction
    words: str


@dataclass(frozen=True, slots=True)
class Sharing:
    """What work items may repeat so that dimensions become axes.

    free        an element of the state of so many elements at most, which depends on no larger one, may be
                computed by every work item alike (a generator's key and counters)
    repeated    so many operations an iteration may be repeated by each work item in any case: done one after
                the other they take about as long as the launch of a kernel, which each iteration saves
    least_part  above that, the least share of a work item's operations that are its own
    least_gain  and how much less work a work item has, at least, than one that does everything; this is also
                required of dimensions that only streamed elements have, whatever is repeated
    """

    free: int = 16
    repeated: int = 4096
    least_part: float = 0.125
    least_gain: float = 2.0


@dataclass(frozen=True, slots=True)
class Carried:
    """An element of the state, which is a flat tuple of arrays.

    number  its index in the tuple
    role    invariant: the body passes it through, it is read where it lies in memory;
            uniform: along no axis, every work item computes all of it;
            owned: each work item has its part along the axes, all of them;
            streamed: all the body does to it is one dynamic-update-slice (``update``) whose operand nothing
            else reads: what is written goes straight to the result; along all axes, or along none, where
            every work item has all that is written (or none, where it follows from collected reduces)
    axes    of its dimensions
    """

    number: int
    shape: ArrayShape
    role: CarriedRole
    axes: Axes
    update: Instruction | None = None

    @property
    def local_dims(self) -> tuple[int, ...]:
        """The sizes of the dimensions that every work item has all of, in order."""
        return local_dims(self.shape, self.axes)

    @property
    def local_elements(self) -> int:
        """Elements a work item has."""
        return prod(self.local_dims)


@dataclass(frozen=True, slots=True)
class Termination:
    """How long a work item runs.

    kind   known: ``count`` times, whatever the data;
           scalar: while the condition holds, which is the same for every work item;
           element: each work item while its own part of the condition holds: once it does not, nothing
           observable of the work item changes any more;
           gathered: the condition reduces what work items would own, and they cannot stop by themselves: there
           are no axes, and the one work item has all of it
    count   the exact count, or None
    most    an upper bound, or None
    reduces element: the reduces of the condition that a work item takes over its own elements alone (its part
            of their operands); with them the condition is the work item's own
    own     element: the one pred that a work item has in the operand of the one reduce, where the condition is
            the ``or`` of that and no more
    words   gathered, or scalar where other axes are left: why work items cannot stop by themselves
    """

    kind: Literal["known", "scalar", "element", "gathered"]
    count: int | None = None
    most: int | None = None
    own: Instruction | None = None
    reduces: tuple[Instruction, ...] = ()
    words: str = ""


@dataclass(frozen=True, eq=False)
class ParallelLoop:
    """The analysis of a ``while``.

    loop       the instruction
    sizes      of the parallel axes; empty where every work item is all there is
    carried    the elements of the state in order
    owned      axes of every array of the body, the condition and what they call that depends on the index of
               a work item; what is not in it can be computed by any work item at any index
    iterations  how long it runs
    mixing     what kept other dimensions from being parallel, most important first
    collected  reduces over parallel axes whose results, and what follows from them (``after``, with the
               dynamic-update-slices at the end), only go into streamed elements of the state: each iteration
               leaves a value, which nothing waits for.  The operand of each lies along all axes and all of
               these are reduced (local dimensions may be kept or reduced); the trip count is known; ``after``
               takes collected results, and otherwise only what is the same before and after the loop:
               constants, invariant elements, ``counters``, and what is computed from them; the parts that the
               dynamic-update-slices write do not overlap
    nested     loops inside, each with its own axes, which need not be those of this one (no reduces are
               collected in them)
    counters   scalar elements of the state that are ``first + t * step`` in iteration t, counted from 0
    obstacle   why it cannot be a kernel at all, whatever the axes; None where it can
    """

    loop: Instruction
    sizes: tuple[int, ...]
    carried: tuple[Carried, ...]
    owned: Mapping[LoopNode, Axes]
    iterations: Termination
    mixing: tuple[Dependence, ...] = ()
    collected: tuple[Instruction, ...] = ()
    after: frozenset[Instruction] = frozenset()
    counters: Mapping[int, Affine] = field(default_factory=dict)
    nested: Mapping[Instruction, ParallelLoop] = field(default_factory=dict)
    obstacle: Dependence | None = None

    @property
    def work_items(self) -> int:
        """How many work items there are."""
        return prod(self.sizes)


@dataclass(frozen=True, slots=True)
class LoopMapping:
    """How a loop runs as one kernel, and what it takes.

    kind          thread: a thread runs each work item from the first iteration to the last, its part of the
                  state in registers; block: the threads of a block share the work of a work item, whose part
                  of the state is in shared memory, with a barrier where one reads what another wrote
    parallel      the axes: with collected reduces for threads, without for blocks
    problem       why it does not fit, with the limit; names the instruction that mixes, where one does
    registers     32-bit values a thread holds at once, estimated
    shared_bytes  of a block
    threads       of a block
    stored        values of the body that are kept besides the state, in the order in which they are computed
    code          the problem in a word: ``mixes``, ``state-too-large``, ``code-size``, ``gathered-condition``,
                  ``op``, after ``loop-`` of fusion's REASONS; empty leaves it to the obstacle and what mixes
    limit         the threshold of the problem, where there are figures
    actual        the value that met it
    """

    kind: Literal["thread", "block"]
    parallel: ParallelLoop
    problem: str = ""
    registers: int = 0
    shared_bytes: int = 0
    threads: int = 0
    stored: tuple[LoopNode, ...] = ()
    code: str = ""
    limit: int | None = None
    actual: int | None = None
