"""How an array that is cut along one dimension goes through each op.

A ``Split`` says where an array is cut.  ``follow`` says for an op that reads a cut array: its result is cut
too (a ``Split``), it reads one piece or combines them (``READS``), or it needs the whole array (None).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from itertools import pairwise
from math import prod
from typing import Final

from hloopt.analysis.elementwise import plain_opcode
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.ops.traits import ASSOCIATIVE, op_table
from hloopt.types import ArrayShape, Dims, PaddingDim, SliceRange

__all__ = ["READS", "Reads", "Split", "combiner", "follow", "seed", "start"]


class Reads(Enum):
    """What ``follow`` returns where the result is whole, and made of pieces."""

    PIECES = "pieces"


READS: Final = Reads.PIECES


@dataclass(frozen=True)
class Split:
    """Cut along ``dim`` at ``bounds``: the first is 0, the last the dimension's size."""

    dim: int
    bounds: Dims

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Start and limit of each piece."""
        return list(pairwise(self.bounds))

    def also(self, bounds: Dims) -> Split:
        """Cut at these places, too."""
        if set(bounds) <= set(self.bounds):
            return self
        return Split(self.dim, tuple(sorted({*self.bounds, *bounds})))

    def within(self, start: int, limit: int) -> bool:
        """Whether the range lies inside one piece."""
        return any(first <= start and limit <= last for first, last in self.ranges)

    def aligned(self, start: int, limit: int) -> bool:
        """Whether both ends of the range are ends of pieces."""
        return start in self.bounds and limit in self.bounds


Answer = Split | Reads | None


def combiner(user: Instruction, fast_math: bool) -> str:
    """The opcode that may combine partial results of a ``reduce`` in any order, or an empty string."""
    opcode = plain_opcode(user.to_apply) if len(user.operands) == 2 else ""
    exact = user.array.dtype.is_integer or user.array.dtype.is_pred
    return opcode if opcode in ASSOCIATIVE and (exact or fast_math) else ""


def start(instruction: Instruction, dim: int) -> int | None:
    """Where a dynamic-slice or dynamic-update-slice begins along ``dim``, clamped, if that is known."""
    update = instruction.opcode == "dynamic-update-slice"
    size = instruction.operands[1].array.dims[dim] if update else instruction.array.dims[dim]
    full = instruction.operands[0].array.dims[dim]
    if size == full:
        return 0
    index = instruction.operands[(2 if update else 1) + dim :][:1]
    first = index[0].constant_integer if index and index[0].array.rank == 0 else None
    return None if first is None else min(max(first, 0), full - size)


def seed(instruction: Instruction) -> Split | None:
    """How an instruction that puts arrays together along one dimension is cut."""
    shape = instruction.shape
    if not isinstance(shape, ArrayShape) or not shape.elements:
        return None
    if instruction.opcode == "concatenate" and len(instruction.operands) > 1:
        dim = instruction.dimensions[0]
        bounds = [0]
        for operand in instruction.operands:
            bounds.append(bounds[-1] + operand.array.dims[dim])
        return _split(dim, bounds)
    if instruction.opcode == "pad":
        padding: tuple[PaddingDim, ...] = instruction.attributes["padding"]
        padded = [d for d, entry in enumerate(padding) if entry != PaddingDim(0, 0)]
        if len(padded) == 1:
            return _padded(instruction, padded[0], ())
    if instruction.opcode == "dynamic-update-slice":
        update = instruction.operands[1].array.dims
        part = [d for d, size in enumerate(update) if size != shape.dims[d]]
        if len(part) == 1:
            return _updated(instruction, part[0], (0, shape.dims[part[0]]))
    return None


def follow(user: Instruction, number: int, split: Split, *, fast_math: bool = False) -> Answer:
    """What ``user`` makes of its operand ``number`` when that is cut as ``split`` says."""
    if user.op.family == "elementwise":
        same = user.is_array and user.array.dims == (user.operands[number].array.dims)
        return split if same else None
    if user.opcode == "reduce":
        return _reduce(user, number, split, fast_math)
    rule = _RULES.get(user.opcode)
    return rule(user, number, split) if rule is not None else None


def _split(dim: int, bounds: list[int]) -> Split | None:
    unique = sorted(set(bounds))
    return Split(dim, tuple(unique)) if len(unique) > 2 else None


def _broadcast(user: Instruction, number: int, split: Split) -> Answer:
    return Split(user.dimensions[split.dim], split.bounds)


def _transpose(user: Instruction, number: int, split: Split) -> Answer:
    return Split(user.dimensions.index(split.dim), split.bounds)


def _reshape(user: Instruction, number: int, split: Split) -> Answer:
    """The dimension of the result at which the same blocks of elements begin."""
    source, dims = user.operands[0].array.dims, user.array.dims
    if not user.array.elements:
        return None
    before, after = prod(source[: split.dim]), prod(source[split.dim + 1 :])
    for dim, size in enumerate(dims):
        if size > 1 and prod(dims[:dim]) == before:
            block = prod(dims[dim + 1 :])
            if all(bound * after % block == 0 for bound in split.bounds):
                scaled = tuple(bound * after // block for bound in split.bounds)
                return Split(dim, scaled) if scaled[-1] == size else None
    return None


def _reduce(user: Instruction, number: int, split: Split, fast_math: bool) -> Answer:
    if number != 0 or len(user.operands) != 2:
        return None
    dims = user.dimensions
    if split.dim in dims:
        return READS if combiner(user, fast_math) else None
    return Split(split.dim - sum(dim < split.dim for dim in dims), split.bounds)


def _slice(user: Instruction, number: int, split: Split) -> Answer:
    wanted: SliceRange = user.attributes["slice"][split.dim]
    if not user.array.elements:
        return None
    if split.within(wanted.start, wanted.limit):
        return READS
    if wanted.stride != 1 or not split.aligned(wanted.start, wanted.limit):
        return None
    return _clipped(split, wanted.start, wanted.limit)


def _dynamic_slice(user: Instruction, number: int, split: Split) -> Answer:
    if number != 0 or not user.array.elements:
        return None
    first = start(user, split.dim)
    if first is None:
        return None
    limit = first + user.array.dims[split.dim]
    if split.within(first, limit):
        return READS
    return _clipped(split, first, limit) if split.aligned(first, limit) else None


def _clipped(split: Split, first: int, limit: int) -> Answer:
    inside = [bound - first for bound in split.bounds if first <= bound <= limit]
    return Split(split.dim, tuple(inside))


def _dynamic_update_slice(user: Instruction, number: int, split: Split) -> Answer:
    if number > 1:
        return None
    first = start(user, split.dim)
    if first is None:
        return None
    if number == 0:
        return _updated(user, split.dim, split.bounds)
    return _updated(user, split.dim, tuple(first + bound for bound in split.bounds))


def _updated(user: Instruction, dim: int, bounds: Dims) -> Split | None:
    first, size = start(user, dim), user.array.dims[dim]
    if first is None:
        return None
    return _split(dim, [0, first, first + user.operands[1].array.dims[dim], size, *bounds])


def _concatenate(user: Instruction, number: int, split: Split) -> Answer:
    dim = user.dimensions[0]
    if dim != split.dim:
        return split
    whole = seed(user)
    if whole is None:
        return None
    offset = sum(operand.array.dims[dim] for operand in user.operands[:number])
    return whole.also(tuple(offset + bound for bound in split.bounds))


def _pad(user: Instruction, number: int, split: Split) -> Answer:
    return _padded(user, split.dim, split.bounds) if number == 0 else None


def _padded(user: Instruction, dim: int, bounds: Dims) -> Split | None:
    entry: PaddingDim = user.attributes["padding"][dim]
    if entry.interior or entry.low < 0 or entry.high < 0:
        return None
    size = user.array.dims[dim]
    inner = (entry.low, size - entry.high, *(entry.low + bound for bound in bounds))
    return _split(dim, [0, size, *inner])


def _reverse(user: Instruction, number: int, split: Split) -> Answer:
    if split.dim not in user.dimensions:
        return split
    size = split.bounds[-1]
    return Split(split.dim, tuple(size - bound for bound in reversed(split.bounds)))


_RULES: Final[Mapping[str, Callable[[Instruction, int, Split], Answer]]] = op_table({
    "broadcast": _broadcast, "transpose": _transpose, "reshape": _reshape, "slice": _slice,
    "dynamic-slice": _dynamic_slice, "dynamic-update-slice": _dynamic_update_slice,
    "concatenate": _concatenate, "pad": _pad, "reverse": _reverse,
}, otherwise="elementwise, a reduce, or where a split ends")  # fmt: skip
