"""One block of a region written out as a Python function.

Values that are used only inside a block go into scratch arrays, which are reused after the last use of the
value; results are written into their part of the whole arrays.  The text of the function consists
of numbers and names made here: nothing of the module's text ever reaches it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import Any, Final

import numpy as np

from hloopt.backends.numpy.block_forms import BlockFold, Map
from hloopt.backends.numpy.block_regions import BlockRegion, RegionMember, SpaceAxes
from hloopt.backends.numpy.plan import Dims, Function, Line
from hloopt.backends.numpy.short_runs import stretched_from
from hloopt.dataclass import dataclass

__all__ = ["BlockBody", "BlockScratch", "RegionLayout", "fold_in"]

_ALIGNED: Final = 64  # bytes: a line of the cache


@dataclass(frozen=True, slots=True)
class BlockScratch:
    """An array of a block: the byte where it begins; its dimensions, of which the range is at ``ranged``."""

    begin: int
    kind: np.dtype[Any]
    dims: Dims
    ranged: int | None


class BlockBody:
    """Writes the function of a block."""

    def __init__(
        self, layout: RegionLayout, ins: Sequence[int], whole: Sequence[RegionMember]
    ) -> None:
        self.layout, self.ins, self.whole = layout, ins, whole
        self.region, self.line, self.axis = layout.region, layout.line, layout.axis
        self.bound: dict[str, Any] = {}
        self.text: list[str] = []
        self.names: dict[int, str] = {}
        self._cuts: dict[tuple[int, SpaceAxes], str] = {}
        self._stretched: dict[tuple[int, str], str] = {}
        self._scratch: dict[tuple[int, np.dtype[Any], Dims, int | None], int] = {}
        self._buffers: list[int] = []
        self._free: dict[int, list[int]] = {}
        self._held: dict[int, int] = {}

    def write(self) -> tuple[Function, tuple[BlockScratch, ...], int]:
        """The function, its scratch arrays, and the bytes they take."""
        results = {member.step.outs[0]: at for at, member in enumerate(self.whole)}
        parts = []
        for at, member in enumerate(self.region.members):
            (out,) = member.step.outs
            if member.partial:
                parts.append(self._part(member))
            elif isinstance(member.form, BlockFold):
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
            BlockScratch(begins[buffer], kind, dims, ranged)
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

    def _value(self, member: RegionMember, slot: int) -> str:
        """What a member calls an operand: its part that lies in the block."""
        layout = self.layout
        if layout.is_inside(slot):
            base = layout.base(slot)
            return self.names[base] if base == slot else self._reshaped(base, slot)
        axes = layout.operand_axes(member, slot)
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

    def _operand(self, member: RegionMember, slot: int) -> str:
        """The same for an elementwise op: a copy where many short runs of it would be stretched."""
        layout, name = self.layout, self._value(member, slot)
        inside = layout.is_inside(slot)
        axes = self.region.axes[slot] if inside else layout.operand_axes(member, slot)
        axes = (*(None,) * (len(member.axes) - len(axes)), *axes)
        dims, whole = self._sizes(axes), self._sizes(member.axes)
        first = stretched_from(dims, whole)
        if first is None:
            return name
        _, ranged = self._dims((*axes[:first], *member.axes[first:]))
        words = [str(size) for size in (*dims[:first], *whole[first:])]
        if ranged is not None:
            words[ranged] = "r"
        key = (slot, f"({', '.join(words)},)")
        if key not in self._stretched:
            made = self._stretched[key] = f"w{len(self._stretched)}"
            self._add(f"{made} = {self._bind(_stretch)}({name}, {key[1]})")
        return self._stretched[key]

    def _index(self, axes: SpaceAxes) -> str:
        """The index of a block in an array; nothing where it lies along no dimension that is cut."""
        places = [f"b{axis}" if axis is not None and axis <= self.axis else ":" for axis in axes]
        while places and places[-1] == ":":
            places.pop()
        return ", ".join(places)

    def _dims(self, axes: SpaceAxes) -> tuple[Dims, int | None]:
        """Dimensions of a value in a block, 1 for the range, and where the range is."""
        space = self.region.space
        dims = tuple(1 if axis is None or axis <= self.axis else space[axis] for axis in axes)
        return dims, axes.index(self.axis) if self.axis in axes else None

    def _sizes(self, axes: SpaceAxes) -> Dims:
        """Dimensions of a value in a whole block."""
        dims, ranged = self._dims(axes)
        rows = self.layout.rows
        return tuple(rows if at == ranged else size for at, size in enumerate(dims))

    def _reshaped(self, base: int, slot: int) -> str:
        dims, at = self._dims(self.region.axes[slot])
        words = ", ".join("r" if place == at else str(size) for place, size in enumerate(dims))
        return (
            f"{self.names[base]}.reshape(({words},))"
            if words
            else f"{self.names[base]}.reshape(())"
        )

    # ---- members ------------------------------------------------------------------------------------

    def _map(self, member: RegionMember, at: int) -> None:
        form, (out,) = member.form, member.step.outs
        assert isinstance(form, Map)
        operands = ", ".join(self._operand(member, slot) for slot in member.ins)
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

    def _store(self, member: RegionMember, place: int) -> None:
        """Put a result where it belongs, unless it was written there."""
        if isinstance(member.form, Map) and member.form.into:
            return
        name = self.names[member.step.outs[0]]
        self._add(f"o{place}[{self._index(member.axes) or '...'}] = {name}")

    def _whole(self, member: RegionMember) -> None:
        form, (out,) = fold_in(member), member.step.outs
        name = f"s{self.region.members.index(member)}"
        operand = self._value(member, member.ins[0])
        start = self._start(member)
        axes = self._bind(member.folded)
        self._add(f"{name} = {self._bind(form.whole)}({operand}, {axes}, {start})")
        self.names[out] = name

    def _start(self, member: RegionMember) -> str:
        form = fold_in(member)
        slot = member.ins[1]
        known = self.line.constants.get(slot)
        if known is not None:
            return self._bind(form.start(known))
        return f"{self._bind(form.start)}(v{self.ins.index(slot)})"

    def _part(self, member: RegionMember) -> str:
        name = f"s{self.region.members.index(member)}"
        operand = self._value(member, member.ins[0])
        axes = self._bind(member.folded)
        self._add(f"{name} = {self._bind(fold_in(member).part)}({operand}, {axes})")
        return name

    # ---- scratch ------------------------------------------------------------------------------------

    def _take(self, member: RegionMember, at: int) -> int:
        """A scratch array for a result: that of an operand read for the last time, or a free one."""
        (out,) = member.step.outs
        kind = self.line.kinds[out]
        dims, ranged = self._dims(member.axes)
        size = prod(dims) * (1 if ranged is None else self.layout.rows) * kind.itemsize
        assert isinstance(member.form, Map)
        buffer = -1
        if member.form.in_place:
            for slot in member.ins:
                base = self.layout.base(slot)
                same = slot == base and self.line.kinds[slot] == kind
                if (
                    same
                    and base in self._held
                    and self.region.axes[slot] == member.axes
                    and max(self.layout.uses[base]) == at
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
        for base in [base for base in self._held if max(self.layout.uses[base]) <= at]:
            buffer = self._held.pop(base)
            self._free.setdefault(self._buffers[buffer], []).append(buffer)


def _stretch(array: Any, dims: Dims) -> Any:
    return np.ascontiguousarray(np.broadcast_to(array, dims))


class RegionLayout:
    """A region of a line; ``uses`` are, for each slot, the numbers of the members that read or make it.

    A block is one index of each dimension of the space before ``axis``, and up to ``rows`` of that one.
    """

    def __init__(self, line: Line, region: BlockRegion) -> None:
        self.line, self.region = line, region
        self.axis = self.rows = 0
        self.uses: dict[int, list[int]] = {}
        for at, member in enumerate(region.members):
            for slot in (*member.ins, *member.step.outs):
                self.uses.setdefault(self.base(slot), []).append(at)

    def base(self, slot: int) -> int:
        """The slot of which this one is another shape."""
        return self.region.same.get(slot, slot)

    def is_inside(self, slot: int) -> bool:
        """Whether a slot is made in the block."""
        return slot in self.region.axes

    def operand_axes(self, member: RegionMember, slot: int) -> SpaceAxes:
        """The dimensions of the space that an operand from outside lies along."""
        dims = self.line.dims[slot]
        if isinstance(member.form, BlockFold):
            if slot != member.ins[0]:
                return ()
            whole = iter(axis for axis, size in enumerate(self.region.space) if size != 1)
            return tuple(None if size == 1 else next(whole) for size in dims)
        tail = member.axes[len(member.axes) - len(dims) :]
        return tuple(None if size == 1 else axis for size, axis in zip(dims, tail, strict=True))


def fold_in(member: RegionMember) -> BlockFold:
    """A reduce's form."""
    assert isinstance(member.form, BlockFold)
    return member.form
