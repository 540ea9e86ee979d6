"""How a region is cut into blocks, which inputs they overwrite, and which reduces have partial results.

A block is one index of each dimension before ``axis``, a range of ``axis`` and all of the later ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Final

from hloopt.backends.numpy.block_body import BlockBody, BlockScratch, RegionLayout, fold_in
from hloopt.backends.numpy.block_forms import BlockFold, Map
from hloopt.backends.numpy.block_regions import BlockRegion, RegionMember
from hloopt.backends.numpy.plan import Dims, Function, Line
from hloopt.dataclass import dataclass

__all__ = ["Folded", "RegionPlan", "plan_region"]

# What the arrays of a block, scratch and parts of whole ones, may take: more than a second-level cache of 1 MB,
# so that threads meet less often between calls, and no more, because each thread has its own.  Measured on
# Zen 5 with two threads, in ms for 1, 1.5 and 2 MB: Black-Scholes over 1M elements 12.2, 11.2, 10.5; the
# gradient of a layer norm with GELU 0.83, 0.82, 0.82; with one thread a masked softmax over 8M, between
# products, 55 for 1 MB, 56 for 2 MB, and a formula of 26 ops over 1M elements 18.6 for 128 kB.
_BLOCK_BYTES: Final = 3 << 19
# A call of NumPy costs some 0.4 us, as much as 4000 elements of an addition; of more than 2^17 nothing is
# gained.
_FEWEST, _MOST = 1 << 14, 1 << 17
_FEW_BLOCKS: Final = 4  # so that there is something to share
# What parts of reduces may take in all, and the most lanes, whose parts are put together at the end.
_PART_BYTES: Final = 8 << 20
_LANES: Final = 64


@dataclass(frozen=True, slots=True)
class Folded:
    """A reduce that is complete after the last block.

    out     its place among the results
    kept    dimensions of the result that are cut: (dimension of the result, dimension of the space)
    start   the slot of the initial value
    """

    out: int
    fold: BlockFold
    kept: tuple[tuple[int, int], ...]
    start: int


@dataclass(frozen=True, slots=True, eq=False)
class RegionPlan:
    """A region ready to be run.

    function  (slices of dimensions 0 to ``axis``, length of the range, scratch arrays, inputs, results) to the
              parts of ``folded``
    ins       the slots it reads; those of ``written`` come first, in the order of the results
    outs      the slots it makes
    written   results that may be written into the input at the same place
    """

    space: Dims
    axis: int
    rows: int
    function: Function
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    written: tuple[int, ...]
    scratch: tuple[BlockScratch, ...]
    scratch_bytes: int
    folded: tuple[Folded, ...]
    lanes: int

    @property
    def blocks(self) -> int:
        """Their number."""
        return prod(self.space[: self.axis]) * -(-self.space[self.axis] // self.rows)

    def places(self, number: int) -> tuple[slice, ...]:
        """Where a block lies in the dimensions that are cut."""
        around, at = divmod(number, -(-self.space[self.axis] // self.rows))
        start = at * self.rows
        found = [slice(start, min(start + self.rows, self.space[self.axis]))]
        for size in reversed(self.space[: self.axis]):
            around, index = divmod(around, size)
            found.append(slice(index, index + 1))
        return tuple(reversed(found))


def plan_region(
    line: Line, region: BlockRegion, needed: Sequence[int], *, looped: bool = False
) -> RegionPlan:
    """Plan the blocks of a region; ``needed`` are the slots that others read.

    ``looped`` says that the line is the body of a loop: writing into its inputs costs a copy before the first
    iteration, and saves fresh memory in each.
    """
    return _Planner(line, region, needed, looped=looped).plan()


class _Planner:
    def __init__(
        self, line: Line, region: BlockRegion, needed: Sequence[int], *, looped: bool
    ) -> None:
        self.line, self.region, self.needed = line, region, frozenset(needed)
        self.looped = looped
        self.layout = RegionLayout(line, region)
        self.uses = self.layout.uses

    def plan(self) -> RegionPlan:
        region, line = self.region, self.line
        bytes_each = self._bytes_each()
        axis, rows = _cut(region, bytes_each)
        self.layout.axis, self.layout.rows = axis, rows
        reads = self._reads()
        whole = [m for m in region.members if m.step.outs[0] in self.needed and not m.partial]
        partial = [m for m in region.members if m.partial]
        pairs = self._writable(whole)
        whole.sort(key=lambda member: member.step.outs[0] not in pairs)
        outs = [member.step.outs[0] for member in (*whole, *partial)]
        firsts = [pairs[out] for out in outs if out in pairs]
        ins = [*firsts, *(slot for slot in reads if slot not in firsts)]
        function, scratch, scratch_bytes = BlockBody(self.layout, ins, whole).write()
        folded = tuple(
            Folded(
                outs.index(member.step.outs[0]),
                fold_in(member),
                tuple(
                    (at, place)
                    for at, place in enumerate(member.axes)
                    if place is not None and place <= axis
                ),
                member.ins[1],
            )
            for member in partial
        )
        made = RegionPlan(
            region.space,
            axis,
            rows,
            function,
            tuple(ins),
            tuple(outs),
            tuple(range(len(firsts))),
            scratch,
            scratch_bytes,
            folded,
            1,
        )
        return _with_lanes(made, line)

    # ---- sizes --------------------------------------------------------------------------------------

    def _bytes_each(self) -> int:
        """Bytes of arrays over the whole space that are alive at once, for each element."""
        alive = most = 0
        last = {slot: max(places) for slot, places in self.uses.items()}
        size = prod(self.region.space)
        ends: dict[int, list[int]] = {}
        for at, member in enumerate(self.region.members):
            out = member.step.outs[0]
            for slot in (*member.ins, out):
                base = self.layout.base(slot)
                if prod(self.line.dims[base]) == size and base not in ends:
                    ends[base] = [base]
                    alive += self.line.kinds[base].itemsize
            most = max(most, alive)
            for base in list(ends):
                if last.get(base, -1) <= at:
                    alive -= self.line.kinds[base].itemsize * len(ends[base])
                    ends[base] = []
        return max(most, 1)

    def _reads(self) -> list[int]:
        found: dict[int, None] = {}
        for member in self.region.members:
            for slot in member.ins:
                if not self.layout.is_inside(slot) and slot not in self.line.constants:
                    found[slot] = None
        return list(found)

    def _writable(self, whole: Sequence[RegionMember]) -> dict[int, int]:
        """Results and inputs of the same form that nothing in the block reads after the result is made."""
        line = self.line
        found: dict[int, int] = {}
        inputs = frozenset() if self.looped else frozenset(line.inputs)
        for member in whole:
            (out,) = member.step.outs
            made_at = self.region.members.index(member)
            for slot in self.uses:
                if (
                    slot not in found.values()
                    and not self.layout.is_inside(slot)
                    and slot not in inputs
                    and slot not in line.constants
                    and line.dims[slot] == line.dims[out]
                    and line.kinds[slot] == line.kinds[out]
                    and max(self.uses[slot]) <= made_at
                    and isinstance(member.form, Map)
                    and (member.form.in_place or max(self.uses[slot]) < made_at)
                    and all(
                        self.layout.operand_axes(self.region.members[at], slot) == member.axes
                        for at in self.uses[slot]
                    )
                ):
                    found[out] = slot
                    break
        return found


def _cut(region: BlockRegion, bytes_each: int) -> tuple[int, int]:
    """The dimension of which a block has a range, and how long the range is."""
    space = region.space
    elements = min(_BLOCK_BYTES // bytes_each, prod(space) // _FEW_BLOCKS, _MOST)
    elements = max(elements, _FEWEST)
    axis = 0
    while axis < region.last and prod(space[axis + 1 :]) > elements:
        axis += 1
    rows = max(elements // max(prod(space[axis + 1 :]), 1), 1)
    count = -(-space[axis] // min(rows, space[axis]))
    return axis, -(-space[axis] // count)


def _with_lanes(plan: RegionPlan, line: Line) -> RegionPlan:
    """Few enough that the parts of reduces take little memory; as many for any number of threads."""
    part = sum(
        prod(line.dims[plan.outs[folded.out]]) * folded.fold.wide.itemsize for folded in plan.folded
    )
    lanes = _LANES if not part else max(min(_LANES, _PART_BYTES // part), 2)
    return replace(plan, lanes=min(lanes, plan.blocks))
