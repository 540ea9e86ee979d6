"""How a fused loop is cut into blocks of its work items, and whether that pays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hloopt.analysis.parallel_loop import ParallelLoop, parallel_loop
from hloopt.analysis.parallel_loop.edges import shape_of
from hloopt.analysis.parallel_loop.needs import WHOLE, Needs
from hloopt.dataclass import dataclass
from hloopt.interpret.regions import combiner
from hloopt.ir import Instruction
from hloopt.ops.traits import BODIES, IDEMPOTENT, SOURCES
from hloopt.rewrite.regions import identity
from hloopt.types import ArrayShape

__all__ = ["Blocking", "Blocks", "plan_blocks"]

_REPEATED: Final = 8
"""At most one part in so many of the work of all blocks may be uniform work that each block repeats."""

_ROUNDED: Final = 16
"""Work items of a block are a multiple of this: rows of blocks begin where vectors do."""

_NO_WORK: Final = BODIES | SOURCES | {"broadcast", "parameter"}
"""Ops that call no NumPy function, or whose callees do."""

_ONCE: Final = frozenset({"add", "multiply", "xor"})


@dataclass(frozen=True, slots=True)
class Blocking:
    """When a loop is cut into blocks, and how finely.

    whole_bytes     a loop whose iterations touch no more runs whole: it stays in the last-level cache,
                    which gains as much as calling NumPy more often costs
    block_bytes     what an iteration of a block may touch: a core's second-level cache, 1 to 2 MB
                    since about 2020
    least_elements  of a call of NumPy, on average: as many as take several times as long as the call
    work_items      in a block, overriding the others; 0 to follow them
    """

    whole_bytes: int = 8 << 20
    block_bytes: int = 1 << 20
    least_elements: int = 16384
    work_items: int = 0


@dataclass(frozen=True, eq=False)
class Blocks:
    """How a loop is cut.

    axis     number of the parallel axis
    size     work items of a block
    needs    what a block computes
    partial  reduces of which a block has a part
    later    what the parts take then; None where there are none
    late     elements of the state that follow from the parts; the others are the blocks'
    """

    parallel: ParallelLoop
    axis: int
    size: int
    needs: Needs
    partial: tuple[Instruction, ...]
    later: Needs | None
    late: frozenset[int]

    @property
    def work_items(self) -> int:
        """Along the axis."""
        return self.parallel.sizes[self.axis]

    @property
    def words(self) -> str:
        """For people."""
        count = -(-self.work_items // self.size)
        return f"{count} blocks of {self.size} work items"


def plan_blocks(
    loop: Instruction, results: Sequence[int], iteration_bytes: int, blocking: Blocking
) -> Blocks | str:
    """How to cut a ``while`` of which the elements ``results`` are wanted, or why it runs whole.

    ``body_bytes``: of arrays that the body makes and that are live at once.
    """
    parallel = parallel_loop(loop, collect=True)
    if parallel.obstacle is not None:
        return parallel.obstacle.words
    if not parallel.sizes:
        return "it has no parallel axis"
    if parallel.iterations.kind == "gathered":
        return "its condition depends on all work items"
    axis = max(range(len(parallel.sizes)), key=parallel.sizes.__getitem__)
    touched = _state_bytes(parallel, axis) + iteration_bytes
    if not blocking.work_items and touched <= blocking.whole_bytes:
        return f"an iteration touches {touched} bytes, at most {blocking.whole_bytes}"
    partial = parallel.collected
    for one in partial:
        if problem := _problem(one):
            return problem
    if partial and parallel.iterations.kind == "element":
        return "blocks with different trip counts have no partial results of the same reduces"
    late = frozenset(
        carried.number for carried in parallel.carried if carried.update in parallel.after
    )
    places = [(number, _place(parallel, number, axis)) for number in results]
    early = [pair for pair in places if pair[0] not in late]
    joined = frozenset((*partial, *parallel.iterations.reduces))
    found = Needs(parallel, axis, joined=joined)
    found.search(early, partial)
    later = None
    if partial:
        rest = [pair for pair in places if pair[0] in late]
        later = Needs(parallel, axis, given=frozenset(partial))
        later.search(rest)
    problem = found.problem or (later.problem if later is not None else "")
    if problem:
        return problem
    size = _size(_work(found), parallel.sizes[axis], touched, blocking)
    if isinstance(size, str):
        return size
    return Blocks(parallel, axis, size, found, partial, later, late)


def _place(parallel: ParallelLoop, number: int, axis: int) -> int:
    axes = parallel.carried[number].axes
    return axes.index(axis) if axis in axes else WHOLE


def _state_bytes(parallel: ParallelLoop, axis: int) -> int:
    """Of state along the axis; of streamed arrays an iteration touches a row, which the body makes."""
    return sum(
        carried.shape.elements * carried.shape.dtype.numpy.itemsize
        for carried in parallel.carried
        if carried.role == "owned" and axis in carried.axes
    )


def _size(work: _Work, work_items: int, touched: int, blocking: Blocking) -> int | str:
    """Work items of a block, or why there are none."""
    if blocking.work_items:
        return min(blocking.work_items, work_items)
    if not work.own:
        return "nothing in it lies along the axis"
    enough = blocking.least_elements * work.calls * work_items // work.own
    size = max(blocking.block_bytes * work_items // touched, enough, 1)
    count = -(-work_items // size)
    size = -(-work_items // count)
    if size > _ROUNDED:
        size = -(-size // _ROUNDED) * _ROUNDED
    if size >= work_items:
        return f"a block of fewer than all {work_items} work items would be too small"
    if size * touched // work_items > max(blocking.whole_bytes, blocking.block_bytes):
        return f"a block of {size} work items, the fewest that pay, would not fit the cache better than all"
    if work.same * count * _REPEATED > work.own:
        words = f"{work.same} elements per iteration that are the same for all work items"
        return f"{count} blocks would each compute {words}, beside {work.own} of their own"
    return size


def _problem(reduce: Instruction) -> str:
    """Why partial results of a reduce cannot be combined."""
    if not isinstance(reduce.shape, ArrayShape):
        return f"reduce {reduce.name} has a tuple for its result"
    name = combiner(reduce.to_apply)
    if name in IDEMPOTENT:
        return ""
    if name not in _ONCE:
        return f"reduce {reduce.name} is not known to be associative: its parts cannot be combined"
    literal = reduce.operands[1].literal
    start = literal.array if literal is not None else None
    if start is None or start.reshape(()) != identity(name, reduce.array.dtype):
        return f"each part of reduce {reduce.name} would begin with its first value"
    return ""


@dataclass(frozen=True, slots=True)
class _Work:
    """What an iteration computes: elements along the axis and others, and in how many calls."""

    own: int
    same: int
    calls: int


def _work(found: Needs) -> _Work:
    own, same, calls = 0, 0, 0
    for (_, instruction), pairs in found.places.items():
        if instruction.opcode in _NO_WORK:
            continue
        for leaf, place in pairs:
            calls += 1
            elements = shape_of((instruction, leaf)).elements
            own, same = (own, same + elements) if place == WHOLE else (own + elements, same)
    return _Work(own, same, calls)
