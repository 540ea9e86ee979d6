"""What a block is of: a region, where its values are used, and along which dimensions operands lie."""

from __future__ import annotations

from hloopt.backends.numpy.block_forms import Fold
from hloopt.backends.numpy.block_regions import Axes, Member, Region
from hloopt.backends.numpy.plan import Line

__all__ = ["Layout", "fold_in"]


class Layout:
    """A region of a line; ``uses`` are, for each slot, the numbers of the members that read or make it.

    A block is one index of each dimension of the space before ``axis``, and up to ``rows`` of that one.
    """

    def __init__(self, line: Line, region: Region) -> None:
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


def fold_in(member: Member) -> Fold:
    """A reduce's form."""
    assert isinstance(member.form, Fold)
    return member.form
