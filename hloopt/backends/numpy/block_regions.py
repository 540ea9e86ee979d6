"""Which steps of a line are evaluated together by blocks: regions over the elements of one large array.

A region has a **space**, the dimensions of its largest arrays, and members: elementwise ops over the space or
over what is left of it when a reduce has folded its last dimensions (softmax, layernorm), and reduces.  Of a
value made inside it is known which dimension of the space each of its dimensions is (``SpaceAxes``; None for
one of size 1).  A reduce over the first dimension is complete after the last block only: its result leaves the
region.

Steps that are not members may lie between them; whatever depends on a region and is itself needed by a step
keeps that step out of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from math import prod
from typing import TypeAlias

from hloopt.backends.numpy.block_forms import BlockFold, Map, fold_of, map_of
from hloopt.backends.numpy.block_limits import BlockLimits
from hloopt.backends.numpy.plan import Dims, Line, Step
from hloopt.dataclass import dataclass
from hloopt.graphs import UnionFind
from hloopt.interpret.context import Context

__all__ = ["BlockRegion", "RegionMember", "SpaceAxes", "find_regions"]

SpaceAxes: TypeAlias = "tuple[int | None, ...]"


@dataclass(frozen=True, slots=True, eq=False)
class RegionMember:
    """A step of a region.

    ins      operands; of a reduce the array and the initial value
    axes     of the out
    folded   the dimensions of the first operand that a reduce folds; empty for an elementwise op
    partial  whether it is complete after the last block only
    """

    number: int
    step: Step
    form: Map | BlockFold
    ins: tuple[int, ...]
    axes: SpaceAxes
    folded: tuple[int, ...] = ()
    partial: bool = False


@dataclass(eq=False)
class BlockRegion:
    """Steps over one space; it may be cut along the dimensions up to ``last``.

    ``axes`` are those of the slots inside; ``same`` names the slot that one is under another shape.
    """

    number: int
    space: Dims
    last: int
    members: list[RegionMember] = field(default_factory=list)
    axes: dict[int, SpaceAxes] = field(default_factory=dict)
    same: dict[int, int] = field(default_factory=dict)
    outside: int = 0
    direct: int = 0


def find_regions(line: Line, context: Context, limits: BlockLimits) -> list[BlockRegion]:
    """The regions of a line, each with its members in order."""
    search = _Search(line, context, limits)
    for number, step in enumerate(line.steps):
        search.visit(number, step)
    found = [region for region in search.regions if region is not None]
    for region in found:
        region.members.sort(key=lambda member: member.number)
    return found


class _Search:
    """Goes through the steps of a line once.

    ``made``: the region inside which a slot is known; ``after``: bits of the regions that a slot made by a step
    outside depends on without another region between; ``readers``: the last region that reads a large array.
    """

    def __init__(self, line: Line, context: Context, limits: BlockLimits) -> None:
        self.line, self.context, self.limits = line, context, limits
        self.regions: list[BlockRegion | None] = []
        self._merged = UnionFind[int]()
        self._made: dict[int, int] = {}
        self._after: dict[int, int] = {}
        self._readers: dict[int, int] = {}

    def visit(self, number: int, step: Step) -> None:
        """Put a step into a region, or leave it outside."""
        if self._join(number, step):
            return
        mask = 0
        for slot in step.ins:
            mask |= self._needed(slot)
        for slot in step.outs:
            self._after[slot] = mask
        if step.reshapes:
            self._reshape(step.ins[0], step.outs[0])

    def _reshape(self, slot: int, out: int) -> None:
        """A value inside a region is known there under its other shape too."""
        region = self._region_of(slot)
        if region is None:
            return
        rest = iter(axis for axis in region.axes[slot] if axis is not None)
        dims = self.line.dims[out]
        region.axes[out] = tuple(None if size == 1 else next(rest) for size in dims)
        region.same[out] = region.same.get(slot, slot)
        self._made[out] = region.number

    # ---- dependencies -------------------------------------------------------------------------------

    def _region_of(self, slot: int) -> BlockRegion | None:
        number = self._made.get(slot)
        return self.regions[self._merged.find(number)] if number is not None else None

    def _needed(self, slot: int) -> int:
        """Bits of the regions that have to be run before a slot is there."""
        number = self._made.get(slot)
        return self._after.get(slot, 0) if number is None else 1 << self._merged.find(number)

    def _behind(self, mask: int) -> int:
        """Bits of all regions that these depend on, transitively."""
        seen, pending = 0, [mask]
        while pending:
            for number in _bits(pending.pop()):
                found = self._merged.find(number)
                if not seen >> found & 1:
                    seen |= 1 << found
                    region = self.regions[found]
                    assert region is not None
                    pending.append(region.outside | region.direct)
        return seen

    def _may_join(self, region: BlockRegion, ins: Sequence[int]) -> bool:
        mask = 0
        for slot in ins:
            if self._region_of(slot) is not region:
                mask |= self._needed(slot)
        return not self._behind(mask) >> region.number & 1

    def _may_merge(self, one: BlockRegion, other: BlockRegion) -> bool:
        if one.space != other.space:
            return False
        if len(one.members) + len(other.members) > self.limits.members:
            return False
        return not self._between(one, other) and not self._between(other, one)

    def _between(self, first: BlockRegion, then: BlockRegion) -> bool:
        """Whether an outside step both uses the first region and is used by the other."""
        direct = sum(
            1 << number
            for number in {self._merged.find(number) for number in _bits(then.direct)}
            if number not in (first.number, then.number)
        )
        return bool(self._behind(then.outside | direct) >> first.number & 1)

    def _merge(self, one: BlockRegion, other: BlockRegion) -> BlockRegion:
        """The other becomes part of the first."""
        self._merged.join(one.number, other.number)
        self.regions[other.number] = None
        one.last = min(one.last, other.last)
        one.members += other.members
        one.axes.update(other.axes)
        one.same.update(other.same)
        one.outside |= other.outside
        one.direct = (one.direct | other.direct) & ~(1 << one.number | 1 << other.number)
        return one

    # ---- joining ------------------------------------------------------------------------------------

    def _join(self, number: int, step: Step) -> bool:
        instruction = step.made
        if instruction is None or step.keep or step.several or step.writes:
            return False
        if len(step.operands) != len(instruction.operands) or not step.ins:
            return False
        if instruction.op.is_elementwise:
            return self._join_map(number, step)
        if instruction.opcode == "reduce" and len(instruction.operands) == 2:
            return self._join_fold(number, step)
        return False

    def _candidates(self, ins: Sequence[int], space: Dims) -> list[BlockRegion]:
        """Regions that define an operand; else the last one that reads an operand over the same space."""
        found = dict.fromkeys(region for region in map(self._region_of, ins) if region is not None)
        if found:
            return sorted(found, key=lambda region: prod(region.space), reverse=True)
        for slot in ins:
            reader = self._readers.get(slot)
            region = self.regions[self._merged.find(reader)] if reader is not None else None
            if region is not None and region.space == space:
                return [region]
        return []

    def _join_map(self, number: int, step: Step) -> bool:
        line, (out,) = self.line, step.outs
        dims = line.dims[out]
        large = prod(dims) >= self.limits.least
        ins = step.operands
        candidates = self._candidates(ins, dims)
        if not large and not candidates:
            return False
        instruction = step.made
        assert instruction is not None
        form = map_of(instruction, self.context, [line.constants.get(slot) for slot in ins])
        if form is None:
            return False
        region = self._chosen(candidates, ins)
        axes = self._axes(region, ins, dims) if region is not None else None
        if region is None or axes is None:
            if not large:
                return False
            region = self._new(dims)
            axes = tuple(None if size == 1 else axis for axis, size in enumerate(dims))
        self._add(region, RegionMember(number, step, form, ins, axes))
        return True

    def _chosen(self, candidates: Sequence[BlockRegion], ins: Sequence[int]) -> BlockRegion | None:
        """A region that a step with these operands may join; those that may become one do."""
        chosen: BlockRegion | None = None
        for region in candidates:
            if len(region.members) >= self.limits.members or not self._may_join(region, ins):
                continue
            if chosen is None:
                chosen = region
            elif self._may_merge(chosen, region):
                chosen = self._merge(chosen, region)
        return chosen

    def _axes(self, region: BlockRegion, ins: Sequence[int], dims: Dims) -> SpaceAxes | None:
        """The axes of an elementwise op's result in a region, by those of its operands there."""
        found: list[int | None] = [None] * len(dims)
        for slot in ins:
            if self._region_of(slot) is not region:
                continue
            for back, axis in enumerate(reversed(region.axes[slot]), 1):
                if axis is not None:
                    if found[-back] not in (None, axis):
                        return None
                    found[-back] = axis
        whole = [axis for axis, size in enumerate(region.space) if size != 1]
        wide = [at for at, size in enumerate(dims) if size != 1]
        if any(found[at] is None for at in wide):
            if [dims[at] for at in wide] != [region.space[axis] for axis in whole]:
                return None
            for at, axis in zip(wide, whole, strict=True):
                if found[at] not in (None, axis):
                    return None
                found[at] = axis
        known = [axis for axis in found if axis is not None]
        if known != sorted(set(known)) or any(
            size > 1 and size != region.space[axis]
            for size, axis in zip(dims, found, strict=True)
            if axis is not None
        ):
            return None
        if any(axis not in known for axis in whole if axis <= region.last):
            return None
        return tuple(found)

    def _join_fold(self, number: int, step: Step) -> bool:
        line, instruction = self.line, step.made
        assert instruction is not None
        operand = step.ins[0]
        dims = line.dims[operand]
        form = fold_of(instruction, self.context)
        if form is None or dims != instruction.operands[0].array.dims:
            return False
        ins = (operand, step.operands[1])
        candidates = self._candidates(ins[:1], dims)
        region = self._chosen(candidates, ins)
        if region is None:
            if prod(dims) < self.limits.least:
                return False
            region = self._new(dims)
        axes = self._axes(region, ins[:1], dims)
        if axes is None:
            if prod(dims) < self.limits.least:
                return False
            region = self._new(dims)
            axes = tuple(None if size == 1 else axis for axis, size in enumerate(dims))
        folded = tuple(sorted(instruction.attributes["dimensions"]))
        # Nothing is folded along dimensions of size 1.
        first = min(
            (axis for axis in (axes[at] for at in folded) if axis is not None),
            default=len(region.space),
        )
        partial = first == 0 or prod(region.space[first:]) > self.limits.row
        if not partial:
            region.last = min(region.last, first - 1)
        left = tuple(axis for at, axis in enumerate(axes) if at not in folded)
        self._add(region, RegionMember(number, step, form, ins, left, folded, partial))
        return True

    def _new(self, space: Dims) -> BlockRegion:
        region = BlockRegion(len(self.regions), space, len(space) - 1)
        self.regions.append(region)
        return region

    def _add(self, region: BlockRegion, member: RegionMember) -> None:
        (out,) = member.step.outs
        for slot in member.ins:
            maker = self._made.get(slot)
            if maker is None:
                region.outside |= self._after.get(slot, 0)
                if prod(self.line.dims[slot]) >= self.limits.least:
                    self._readers[slot] = region.number
            elif self._merged.find(maker) != region.number:
                region.direct |= 1 << self._merged.find(maker)
        region.members.append(member)
        if member.partial:
            self._after[out] = 1 << region.number
        else:
            region.axes[out] = member.axes
            self._made[out] = region.number


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
