"""How a region is cut into blocks, and one block written out as a Python function.

A block is one index of each dimension before ``axis``, a range of ``axis`` and all of the later ones.  What a
block makes and nobody outside needs goes into scratch arrays, which are used again as soon as nobody in the
block needs them; results are written into their part of the whole arrays.  The text of the function is made of
numbers and of our own names: nothing of the module's text ever reaches it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod
from typing import Any, Final

import numpy as np

from hloopt.runtime.numpy.block_forms import Fold, Map
from hloopt.runtime.numpy.block_regions import Axes, Member, Region
from hloopt.runtime.numpy.plan import Dims, Function, Line

__all__ = ["BlockPlan", "Folded", "Scratch", "plan_region"]

# What the arrays of a block, scratch and parts of whole ones, may take: twice a second-level cache of 1 MB, so
# that threads meet less often between calls.  Measured on Zen 5 with one thread, in ms for 512 kB, 1 MB, 2 MB
# and 4 MB: a formula of 26 ops over 1M elements 10.4, 8.9, 8.3, 8.3 (18.6 for 128 kB); a masked softmax over
# 8M, between products, 60, 55, 56, 58.
_BLOCK_BYTES: Final = 2 << 20
# A call of NumPy costs some 0.4 us, as much as 4000 elements of an addition; of more than 2^17 nothing is
# gained.
_FEWEST, _MOST = 1 << 14, 1 << 17
_FEW_BLOCKS: Final = 4  # so that there is something to share
# What parts of reduces may take in all, and the most lanes, whose parts are put together at the end.
_PART_BYTES: Final = 8 << 20
_LANES: Final = 64
_ALIGNED: Final = 64  # bytes: a line of the cache


@dataclass(frozen=True, slots=True)
class Scratch:
    """An array of a block: the byte where it begins; its dimensions, of which the range is at ``ranged``."""

    begin: int
    kind: np.dtype[Any]
    dims: Dims
    ranged: int | None


@dataclass(frozen=True, slots=True)
class Folded:
    """A reduce that is complete after the last block.

    out     its place among the results
    kept    dimensions of the result that are cut: (dimension of the result, dimension of the space)
    start   the slot of the initial value
    """

    out: int
    fold: Fold
    kept: tuple[tuple[int, int], ...]
    start: int


@dataclass(frozen=True, slots=True, eq=False)
class BlockPlan:
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
    scratch: tuple[Scratch, ...]
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
    line: Line, region: Region, needed: Sequence[int], *, looped: bool = False
) -> BlockPlan:
    """Plan the blocks of a region; ``needed`` are the slots that others read.

    ``looped`` says that the line is the body of a loop: writing into its inputs costs a copy before the first
    trip, and saves fresh memory in each.
    """
    return _Planner(line, region, needed, looped=looped).plan()


class _Planner:
    def __init__(self, line: Line, region: Region, needed: Sequence[int], *, looped: bool) -> None:
        self.line, self.region, self.needed = line, region, frozenset(needed)
        self.looped = looped
        self.uses = self._uses()

    def plan(self) -> BlockPlan:
        region, line = self.region, self.line
        bytes_each = self._bytes_each()
        axis, rows = _cut(region, bytes_each)
        self.axis, self.rows = axis, rows
        reads = self._reads()
        whole = [m for m in region.members if m.step.outs[0] in self.needed and not m.partial]
        partial = [m for m in region.members if m.partial]
        pairs = self._writable(whole)
        whole.sort(key=lambda member: member.step.outs[0] not in pairs)
        outs = [member.step.outs[0] for member in (*whole, *partial)]
        firsts = [pairs[out] for out in outs if out in pairs]
        ins = [*firsts, *(slot for slot in reads if slot not in firsts)]
        function, scratch, scratch_bytes = _Body(self, ins, whole).write()
        folded = tuple(
            Folded(
                outs.index(member.step.outs[0]),
                _fold(member),
                tuple(
                    (at, place)
                    for at, place in enumerate(member.axes)
                    if place is not None and place <= axis
                ),
                member.ins[1],
            )
            for member in partial
        )
        made = BlockPlan(
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
                base = self.base(slot)
                if prod(self.line.dims[base]) == size and base not in ends:
                    ends[base] = [base]
                    alive += self.line.kinds[base].itemsize
            most = max(most, alive)
            for base in list(ends):
                if last.get(base, -1) <= at:
                    alive -= self.line.kinds[base].itemsize * len(ends[base])
                    ends[base] = []
        return max(most, 1)

    def _uses(self) -> dict[int, list[int]]:
        """For each slot the numbers of the members that read or make it, by its first name."""
        uses: dict[int, list[int]] = {}
        for at, member in enumerate(self.region.members):
            for slot in (*member.ins, *member.step.outs):
                uses.setdefault(self.base(slot), []).append(at)
        return uses

    def base(self, slot: int) -> int:
        """The slot of which this one is another shape."""
        return self.region.same.get(slot, slot)

    def is_inside(self, slot: int) -> bool:
        """Whether a slot is made in the block."""
        return slot in self.region.axes

    def _reads(self) -> list[int]:
        found: dict[int, None] = {}
        for member in self.region.members:
            for slot in member.ins:
                if not self.is_inside(slot) and slot not in self.line.constants:
                    found[slot] = None
        return list(found)

    def operand_axes(self, member: Member, slot: int) -> Axes:
        """The dimensions of the space that an operand from outside lies along."""
        dims = self.line.dims[slot]
        if isinstance(member.form, Fold):
            if slot != member.ins[0]:
                return ()
            whole = iter(axis for axis, size in enumerate(self.region.space) if size != 1)
            return tuple(None if size == 1 else next(whole) for size in dims)
        tail = member.axes[len(member.axes) - len(dims) :]
        return tuple(None if size == 1 else axis for size, axis in zip(dims, tail, strict=True))

    def _writable(self, whole: Sequence[Member]) -> dict[int, int]:
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
                    and not self.is_inside(slot)
                    and slot not in inputs
                    and slot not in line.constants
                    and line.dims[slot] == line.dims[out]
                    and line.kinds[slot] == line.kinds[out]
                    and max(self.uses[slot]) <= made_at
                    and isinstance(member.form, Map)
                    and (member.form.in_place or max(self.uses[slot]) < made_at)
                    and all(
                        self.operand_axes(self.region.members[at], slot) == member.axes
                        for at in self.uses[slot]
                    )
                ):
                    found[out] = slot
                    break
        return found


def _fold(member: Member) -> Fold:
    assert isinstance(member.form, Fold)
    return member.form


def _cut(region: Region, bytes_each: int) -> tuple[int, int]:
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


def _with_lanes(plan: BlockPlan, line: Line) -> BlockPlan:
    """Few enough that the parts of reduces take little memory; as many for any number of threads."""
    part = sum(
        prod(line.dims[plan.outs[folded.out]]) * folded.fold.wide.itemsize for folded in plan.folded
    )
    lanes = _LANES if not part else max(min(_LANES, _PART_BYTES // part), 2)
    return replace(plan, lanes=min(lanes, plan.blocks))


class _Body:
    """Writes the function of a block."""

    def __init__(self, planner: _Planner, ins: Sequence[int], whole: Sequence[Member]) -> None:
        self.planner, self.ins, self.whole = planner, ins, whole
        self.region, self.line, self.axis = planner.region, planner.line, planner.axis
        self.bound: dict[str, Any] = {}
        self.text: list[str] = []
        self.names: dict[int, str] = {}
        self._cuts: dict[tuple[int, Axes], str] = {}
        self._scratch: dict[tuple[int, np.dtype[Any], Dims, int | None], int] = {}
        self._buffers: list[int] = []
        self._free: dict[int, list[int]] = {}
        self._held: dict[int, int] = {}

    def write(self) -> tuple[Function, tuple[Scratch, ...], int]:
        """The function, its scratch arrays, and the bytes they take."""
        results = {member.step.outs[0]: at for at, member in enumerate(self.whole)}
        parts = []
        for at, member in enumerate(self.region.members):
            (out,) = member.step.outs
            if member.partial:
                parts.append(self._part(member))
            elif isinstance(member.form, Fold):
                self._whole(member)
            else:
                self._map(member, at)
            if out in results and not member.partial:
                self._store(member, results[out])
            self._let_go(at)
        scratch = [f"t{at}" for at in range(len(self._scratch))]
        inputs = [f"v{at}" for at in range(len(self.ins))]
        outputs = [f"o{at}" for at in range(len(self.whole))]
        cuts = [f"b{at}" for at in range(self.axis + 1)]
        head = f"def block({', '.join([*cuts, 'r', *scratch, *inputs, *outputs])}):"
        body = [*self.text, f"return ({''.join(f'{part}, ' for part in parts)})"]
        source = "\n    ".join([head, *body])
        exec(compile(source, "<numpy block>", "exec"), self.bound)  # noqa: S102 - our own names
        function: Function = self.bound["block"]
        begins = [0, *accumulate(-(-size // _ALIGNED) * _ALIGNED for size in self._buffers)]
        arrays = [
            Scratch(begins[buffer], kind, dims, ranged)
            for buffer, kind, dims, ranged in self._scratch
        ]
        return function, tuple(arrays), begins[-1]

    # ---- names --------------------------------------------------------------------------------------

    def _bind(self, value: Any) -> str:
        name = f"k{len(self.bound)}"
        self.bound[name] = value
        return name

    def _add(self, text: str) -> None:
        self.text.append(text)

    def _value(self, member: Member, slot: int) -> str:
        """What a member calls an operand: its part that lies in the block."""
        planner = self.planner
        if planner.is_inside(slot):
            base = planner.base(slot)
            return self.names[base] if base == slot else self._reshaped(base, slot)
        axes = planner.operand_axes(member, slot)
        key = (slot, axes)
        if key not in self._cuts:
            known = self.line.constants.get(slot)
            name = self._bind(known) if known is not None else f"v{self.ins.index(slot)}"
            cut = self._index(axes)
            if cut:
                self._add(f"a{len(self._cuts)} = {name}[{cut}]")
                name = f"a{len(self._cuts)}"
            self._cuts[key] = name
        return self._cuts[key]

    def _index(self, axes: Axes) -> str:
        """The index of a block in an array; nothing where it lies along no dimension that is cut."""
        places = [f"b{axis}" if axis is not None and axis <= self.axis else ":" for axis in axes]
        while places and places[-1] == ":":
            places.pop()
        return ", ".join(places)

    def _dims(self, axes: Axes) -> tuple[Dims, int | None]:
        """Dimensions of a value in a block, 1 for the range, and where the range is."""
        space = self.region.space
        dims = tuple(1 if axis is None or axis <= self.axis else space[axis] for axis in axes)
        return dims, axes.index(self.axis) if self.axis in axes else None

    def _reshaped(self, base: int, slot: int) -> str:
        dims, at = self._dims(self.region.axes[slot])
        words = ", ".join("r" if place == at else str(size) for place, size in enumerate(dims))
        return (
            f"{self.names[base]}.reshape(({words},))"
            if words
            else f"{self.names[base]}.reshape(())"
        )

    # ---- members ------------------------------------------------------------------------------------

    def _map(self, member: Member, at: int) -> None:
        form, (out,) = member.form, member.step.outs
        assert isinstance(form, Map)
        operands = ", ".join(self._value(member, slot) for slot in member.ins)
        function = self._bind(form.function)
        name = f"s{at}"
        if not form.into:
            self._add(f"{name} = {function}({operands})")
        else:
            stored = next((n for n, one in enumerate(self.whole) if one is member), None)
            if stored is not None:
                index = self._index(member.axes) or "..."
                self._add(f"{name} = o{stored}[{index}]")
            else:
                name = f"t{self._take(member, at)}"
            self._add(f"{function}({operands}, out={name})")
        self.names[out] = name

    def _store(self, member: Member, place: int) -> None:
        """Put a result where it belongs, unless it was written there."""
        if isinstance(member.form, Map) and member.form.into:
            return
        name = self.names[member.step.outs[0]]
        self._add(f"o{place}[{self._index(member.axes) or '...'}] = {name}")

    def _whole(self, member: Member) -> None:
        form, (out,) = _fold(member), member.step.outs
        name = f"s{self.region.members.index(member)}"
        operand = self._value(member, member.ins[0])
        start = self._start(member)
        axes = self._bind(member.folded)
        self._add(f"{name} = {self._bind(form.whole)}({operand}, {axes}, {start})")
        self.names[out] = name

    def _start(self, member: Member) -> str:
        form = _fold(member)
        slot = member.ins[1]
        known = self.line.constants.get(slot)
        if known is not None:
            return self._bind(form.start(known))
        return f"{self._bind(form.start)}(v{self.ins.index(slot)})"

    def _part(self, member: Member) -> str:
        name = f"s{self.region.members.index(member)}"
        operand = self._value(member, member.ins[0])
        axes = self._bind(member.folded)
        self._add(f"{name} = {self._bind(_fold(member).part)}({operand}, {axes})")
        return name

    # ---- scratch ------------------------------------------------------------------------------------

    def _take(self, member: Member, at: int) -> int:
        """A scratch array for a result: that of an operand read for the last time, or a free one."""
        (out,) = member.step.outs
        kind = self.line.kinds[out]
        dims, ranged = self._dims(member.axes)
        size = prod(dims) * (1 if ranged is None else self.planner.rows) * kind.itemsize
        assert isinstance(member.form, Map)
        buffer = -1
        if member.form.in_place:
            for slot in member.ins:
                base = self.planner.base(slot)
                same = slot == base and self.line.kinds[slot] == kind
                if (
                    same
                    and base in self._held
                    and self.region.axes[slot] == member.axes
                    and max(self.planner.uses[base]) == at
                ):
                    buffer = self._held.pop(base)
                    break
        if buffer < 0 and self._free.get(size):
            buffer = self._free[size].pop()
        elif buffer < 0:
            buffer = len(self._buffers)
            self._buffers.append(size)
        self._held[out] = buffer
        return self._scratch.setdefault((buffer, kind, dims, ranged), len(self._scratch))

    def _let_go(self, at: int) -> None:
        """What is read for the last time leaves its scratch array."""
        for base in [base for base in self._held if max(self.planner.uses[base]) <= at]:
            buffer = self._held.pop(base)
            self._free.setdefault(self._buffers[buffer], []).append(buffer)
