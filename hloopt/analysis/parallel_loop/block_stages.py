"""What the threads of one block do in an iteration of a loop: items in stages, and where the state is kept.

``block_plan`` decides what is stored, ``block_schedule`` when and where.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Final, Literal

from hloopt.analysis.parallel_loop.edges import CallPath, LoopValue
from hloopt.analysis.parallel_loop.flow import Flow
from hloopt.analysis.parallel_loop.model import ParallelLoop
from hloopt.analysis.reduction import WARP_SIZE
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction

__all__ = [
    "MOST_SLOTS",
    "BlockPlan",
    "Item",
    "StagedIteration",
    "StagedState",
    "barriers_in",
    "has_followers",
    "is_array",
    "shared_sizes",
]

MOST_SLOTS: Final = 4
"""Elements of a value that a thread keeps in registers at most."""

Kind = Literal["scalar", "registers", "single", "double", "streamed"]


@dataclass(eq=False)
class Item:
    """Values that are computed together in a stage.

    kind    map: a thread computes each element; fold: threads share the elements that a reduce or dot takes
            together; sort: each element counts those that come before it; loop: a ``while``
    values  the leaves that are stored, of one instruction
    lanes   of a fold: neighbouring threads for each result, a power of two up to a warp, or 0 for all of the
            block, each of which has the results afterwards
    inner   the loop
    guarded whether it is left out where the branch it stands in is not taken: a loop, and what reads of one;
            other branches' values are computed whether they are used or not
    """

    kind: Literal["map", "fold", "sort", "loop"]
    values: tuple[LoopValue, ...]
    stage: int = 0
    lanes: int = 1
    inner: StagedIteration | None = None
    guarded: bool = False

    @property
    def instruction(self) -> Instruction:
        """What is computed."""
        return self.values[0].instruction


@dataclass(eq=False)
class StagedState:
    """A leaf of a loop's state that changes.

    number  of the leaf
    value   as the body reads it
    next    what it becomes (of a streamed one: the update)
    kind    scalar: each thread has it; registers: each thread has the elements that it computes; single: in
            shared memory, written once nothing reads it any more; double: twice there, read from one place and
            written to the other; streamed: written to the result only
    stage   in which the next one is computed
    alias   that the next one is stored by the item that computes it
    update  of a streamed one: the dynamic-update-slice; ``starts`` are its indices
    """

    number: int
    value: LoopValue
    next: LoopValue
    kind: Kind = "double"
    stage: int = 0
    alias: bool = False
    update: Instruction | None = None
    starts: tuple[LoopValue, ...] = ()


@dataclass(eq=False)
class StagedIteration:
    """A loop as the block runs it.

    path       where the ``while`` stands
    states     what changes
    items      what else is stored, in order of stages
    decides    the stage at whose beginning the condition is known; the body's stages begin there
    stages     how many there are
    closes     whether a barrier ends an iteration
    """

    path: CallPath
    loop: Instruction
    condition: LoopValue
    states: list[StagedState] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    decides: int = 0
    stages: int = 1
    closes: bool = True
    outer: dict[LoopValue, None] = field(default_factory=dict)

    def at(self, stage: int) -> list[Item]:
        """The items of a stage."""
        return [item for item in self.items if item.stage == stage]


@dataclass(frozen=True, eq=False)
class BlockPlan:
    """A loop run by blocks of ``threads``; ``parallel`` says how many blocks there are.

    ``code_bytes`` are about those of the code of all its iterations.
    """

    parallel: ParallelLoop
    flow: Flow
    iteration: StagedIteration
    threads: int
    stored: frozenset[LoopValue]
    shared_bytes: int
    barriers: int
    largest: LoopValue | None
    code_bytes: int


def has_followers(elements: int, threads: int) -> bool:
    """Whether threads without an element compute the last one, too: none of their warps would be idle.

    What they read they read while its owner may write it already.
    """
    return threads - WARP_SIZE < elements < threads


def is_array(flow: Flow, item: Item, value: LoopValue) -> bool:
    """Whether a stored value lies in shared memory: not where every thread has it in a variable."""
    if item.kind == "fold" and item.lanes == 0:
        return False
    return not (item.kind == "loop" and flow.elements(value) == 1)


def shared_sizes(
    flow: Flow, iteration: StagedIteration, threads: int
) -> Iterator[tuple[LoopValue, int]]:
    """The bytes of shared memory of each value that has some, where a block has so many threads."""
    for state in iteration.states:
        copies = {"single": 1, "double": 2}.get(state.kind, 0)
        if copies:
            bytes_each = state.value.shape.dtype.bytes
            yield state.value, _padded(copies * flow.elements(state.value) * bytes_each)
    aliases = {state.next for state in iteration.states if state.alias}
    for item in iteration.items:
        for value in item.values:
            size = value.shape.dtype.bytes
            if item.kind == "fold" and item.lanes == 0:
                warps = threads // WARP_SIZE
                wide = 16 if value.shape.dtype.is_complex else 8
                yield value, _padded(2 * warps * wide) + _padded(2 * warps)
            elif value not in aliases and is_array(flow, item, value) and item.kind != "loop":
                yield value, _padded(flow.elements(value) * size)
        if item.inner is not None:
            yield from shared_sizes(flow, item.inner, threads)


def barriers_in(iteration: StagedIteration) -> int:
    """How many an iteration has, those of an iteration of each loop inside with them."""
    inside = sum(barriers_in(item.inner) for item in iteration.items if item.inner is not None)
    return iteration.stages - 1 + iteration.closes + inside


def _padded(size: int) -> int:
    """Every array begins at a multiple of 16 bytes."""
    return -(-size // 16) * 16
