"""Dots that share an operand made into one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar

from hloopt.analysis.reachability import Reachability
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Computation, Instruction, Module, edit
from hloopt.ir.walk import open_computations
from hloopt.rewrite import Pass, PassLog, own_attributes
from hloopt.rewrite.site import Site, is_replaceable, row_major
from hloopt.rewrite.source_lines import merge_lines
from hloopt.types import ArrayShape, DotDims, SliceRange, free_dims

__all__ = ["DotMerger"]

_MOST_MOVED = 256
_MOST_NEEDED = 512
_MOST_TRIED = 8
_MOST_GROUPS = 64
"""Groups that are looked at for one dot, the latest: of a long chain each dot is a group."""


@dataclass(frozen=True)
class DotMerger(Pass):
    """Make dots that share an operand into one wider dot.

        dot(a, b), dot(a, c)  =>  d = dot(a, concatenate(b, c)), slice(d), slice(d)

    1. Dots belong together that share an operand on the same side, with the same dimension numbers,
       element types and precision; the others have one dimension that comes back, and only that differs.
    2. A dot is a *candidate* when its operands and result together have at most ``max_bytes``.  At most one
       dot that is not joins a group: merging is for dots too small to fill a device.
    3. A dot joins the first one of its group when nothing it reads depends on that.  What it reads and
       comes later is moved before the first one (at most 256 instructions).

    The same products are added; how an executor orders the sums of a wider dot is its own affair.  More
    bytes move than before, so this pays where launching a dot costs more than copying its operands.

    max_bytes   the most bytes of the operands and the result of a candidate
    twins       whether dot(x, a) and dot(b, transpose(x)) belong together, too, as in XLA:
                the second is transpose(dot(x, transpose(b))); matrices without a batch
    """

    example: ClassVar[str] = """HloModule two_projections

ENTRY main {
  x = f32[8,16]{1,0} parameter(0)
  q = f32[16,4]{1,0} parameter(1)
  k = f32[16,6]{1,0} parameter(2)
  a = f32[8,4]{1,0} dot(x, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  b = f32[8,6]{1,0} dot(x, k), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (f32[8,4]{1,0}, f32[8,6]{1,0}) tuple(a, b)
}
"""

    max_bytes: int = 64 << 20
    twins: bool = False

    def __post_init__(self) -> None:
        if self.max_bytes < 0:
            raise UsageError(f"{self.name}: max_bytes must be non-negative, got {self.max_bytes}")

    def run(self, module: Module, log: PassLog) -> bool:
        """Group the dots of each computation in one walk, then merge group by group."""
        changed = False
        for computation in open_computations(module):
            changed |= self.merge_all(computation, log)
        return changed

    def merge_all(self, computation: Computation, log: PassLog) -> bool:
        """Merge by shared left operands first, then what is left by shared right ones."""
        changed = self.twins and log.allows() and self.turn_twins(computation, log)
        for shared in (0, 1):
            order = _Order(computation)
            groups: dict[tuple[Any, ...], list[_Group]] = {}
            for instruction in computation:
                if instruction.opcode == "dot" and is_replaceable(instruction):
                    self.place(instruction, shared, groups, order, log)
            for found in groups.values():
                for group in found:
                    dots = order.still_before(group.dots) if log.allows() else []
                    if len(dots) > 1:
                        names = ", ".join(dot.name for dot in dots[1:])
                        log.hit("merge dots", dots[0], f"with {names}")
                        _merge(dots, shared, order)
                        changed = True
        return changed

    def turn_twins(self, computation: Computation, log: PassLog) -> bool:
        """Let products with a transpose of what another dot has on its left have it there as well."""
        products = [one for one in computation if one.opcode == "dot" and _is_product(one)]
        lefts: dict[Instruction, list[Instruction]] = {}
        for dot in products:
            lefts.setdefault(dot.operands[0], []).append(dot)
        reachability = Reachability(computation)
        taken: set[Instruction] = set()
        pairs: list[tuple[Instruction, Instruction]] = []
        for dot in products:
            left, other = self.partner(dot, lefts, taken, reachability)
            if left is not None and other is not None:
                taken |= {dot, other}
                pairs.append((dot, left))
                log.hit("turn a dot", dot, f"it shares {left.name} with {other.name}")
        for dot, left in pairs:
            _turn(dot, left)
        return bool(pairs)

    def partner(
        self,
        dot: Instruction,
        lefts: dict[Instruction, list[Instruction]],
        taken: set[Instruction],
        reachability: Reachability,
    ) -> tuple[Instruction | None, Instruction | None]:
        """What a dot has on its right, transposed, and a dot that has this on its left."""
        for left in _twins(dot.operands[1]):
            for other in lefts.get(left, ())[:_MOST_TRIED]:
                if dot is other or taken & {dot, other} or not self.may_join(dot, other):
                    continue
                if not reachability.connected(dot, other):
                    return left, other
        return None, None

    def may_join(self, dot: Instruction, other: Instruction) -> bool:
        """Whether two products are of one form, but for a mark of the first, and one is a candidate."""
        kinds = [[one.array.dtype for one in (*each.operands, each)] for each in (dot, other)]
        if kinds[0] != kinds[1] or _words(own_attributes(dot)) != _words(other.attributes):
            return False
        return any(_moved_bytes(each) <= self.max_bytes for each in (dot, other))

    def place(
        self,
        dot: Instruction,
        shared: int,
        groups: dict[tuple[Any, ...], list[_Group]],
        order: _Order,
        log: PassLog,
    ) -> None:
        """Put a dot into the first group that takes it, or begin one."""
        if _joined_dim(dot, 1 - shared) is None:
            return
        size = _moved_bytes(dot)
        small = size <= self.max_bytes
        tried = groups.setdefault(_key(dot, shared), [])[-_MOST_GROUPS:]
        behind = order.needed_by(dot, tried[0].dots[0]) if tried else frozenset()
        for group in tried:
            if not (small or group.all_small):
                log.miss(
                    "merge dots",
                    dot,
                    f"{size} bytes are more than max_bytes={self.max_bytes}, as in its group already",
                )
                continue
            if behind.isdisjoint(group.dots) and order.move_before(group.dots[0], dot, group.dots):
                group.dots.append(dot)
                group.all_small &= small
                return
        groups[_key(dot, shared)].append(_Group([dot], small))


@dataclass
class _Group:
    """Dots to be merged, in the order of the computation; whether each of them is a candidate."""

    dots: list[Instruction]
    all_small: bool


@dataclass
class _Order:
    """Positions in a computation, kept while operands are moved up."""

    computation: Computation
    number: dict[Instruction, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.number = {entry: at for at, entry in enumerate(self.computation)}

    def needed_by(self, dot: Instruction, first: Instruction) -> frozenset[Instruction]:
        """What ``dot`` needs, from ``first`` on; of much not all.  In a chain no two dots go together."""
        limit = self.number[first]
        found: set[Instruction] = set()
        pending = [*dot.operands]
        while pending and len(found) < _MOST_NEEDED:
            one = pending.pop()
            if one not in found and self.number[one] >= limit:
                found.add(one)
                pending += one.operands
        return frozenset(found)

    def move_before(self, first: Instruction, dot: Instruction, group: list[Instruction]) -> bool:
        """Move what ``dot`` reads before ``first``; False, and nothing moved, where that cannot be."""
        if any(operand in group for operand in dot.operands):
            return False
        limit = self.number[first]
        needed: dict[Instruction, None] = {}
        pending = [operand for operand in dot.operands if self.number[operand] > limit]
        while pending:
            instruction = pending.pop()
            if instruction in needed:
                continue
            if instruction in group or instruction.control_successors:
                return False
            needed[instruction] = None
            if len(needed) > _MOST_MOVED:
                return False
            before = (*instruction.operands, *instruction.control_predecessors)
            if first in before:
                return False
            pending.extend(entry for entry in before if self.number[entry] > limit)
        for instruction in sorted(needed, key=self.number.__getitem__):
            edit.move_before(first, instruction)
            self.renumber(instruction, first)
        return True

    def still_before(self, dots: list[Instruction]) -> list[Instruction]:
        """The first dot with those whose operands can be before it now that other groups are merged.

        Groups may want each other's operands before theirs: the first that is merged has its way.
        """
        first, *rest = sorted(dots, key=self.number.__getitem__)
        kept = [first]
        for dot in rest:
            if self.move_before(first, dot, kept):
                kept.append(dot)
        return kept

    def renumber(self, moved: Instruction, first: Instruction) -> None:
        """Give what is right before ``first`` a number between those of its neighbours.

        Where floats have none left, everything is numbered anew.
        """
        previous, limit = moved._previous, self.number[first]
        low = self.number[previous] if previous is not None else limit - 1
        middle = (low + limit) / 2
        if low < middle < limit:
            self.number[moved] = middle
        else:
            self.number = {entry: at for at, entry in enumerate(self.computation)}


def _moved_bytes(dot: Instruction) -> int:
    return dot.array.byte_size + sum(operand.array.byte_size for operand in dot.operands)


def _is_product(dot: Instruction) -> bool:
    """Whether two matrices are multiplied, rows by columns."""
    dims = DotDims.of(dot.attributes)
    two = all(operand.array.rank == 2 for operand in dot.operands)
    return (
        two and (dims.lhs_contracting, dims.rhs_contracting) == ((1,), (0,)) and is_replaceable(dot)
    )


def _twins(matrix: Instruction) -> list[Instruction]:
    """What a matrix is the transpose of, and its transposes."""
    found = [user for user in matrix.users if user.opcode == "transpose"]
    found += [matrix.operands[0]] if matrix.opcode == "transpose" else []
    return [one for one in found if one.array.rank == 2]


def _turn(dot: Instruction, left: Instruction) -> None:
    """``dot(b, transpose(left))`` as ``transpose(dot(left, transpose(b)))``."""
    site, (rows, columns) = Site(dot), dot.array.dims
    if left.opcode == "transpose" and left.operands[0] is dot.operands[1]:
        edit.move_before(dot, left)
    turned = site.transpose(dot.operands[0], (1, 0))
    product = site.make(
        "dot", left, turned, shape=row_major(dot.array, (columns, rows)), **own_attributes(dot)
    )
    site.replace(site.transpose(product, (1, 0)))


def _key(dot: Instruction, shared: int) -> tuple[Any, ...]:
    other = dot.operands[1 - shared].array
    joined = _joined_dim(dot, 1 - shared)
    dims = tuple(size for dim, size in enumerate(other.dims) if dim != joined)
    source, words = dot.operands[shared], _words(dot.attributes)
    return (source, other.dtype, other.rank, joined, dims, dot.array.dtype, words)


def _words(attributes: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((name, str(value)) for name, value in sorted(attributes.items()))


def _joined_dim(dot: Instruction, side: int) -> int | None:
    """The one dimension of an operand that comes back in the result."""
    dims = DotDims.of(dot.attributes)
    batch = (dims.lhs_batch, dims.rhs_batch)[side]
    contracting = (dims.lhs_contracting, dims.rhs_contracting)[side]
    free = free_dims(dot.operands[side].array.rank, batch, contracting)
    return free[0] if len(free) == 1 else None


def _merge(dots: list[Instruction], shared: int, order: _Order) -> None:
    first, side = dots[0], 1 - shared
    site, joined = Site(first), _joined_dim(first, 1 - shared)
    assert joined is not None
    parts = tuple(dot.operands[side] for dot in dots)
    sizes = [part.array.dims[joined] for part in parts]
    wide = site.make(
        "concatenate",
        *parts,
        shape=_resized(parts[0].array, joined, sum(sizes)),
        dimensions=(joined,),
    )
    order.renumber(wide, first)
    operands = (first.operands[0], wide) if side else (wide, first.operands[1])
    dims = DotDims.of(first.attributes)
    batch = len(dims.lhs_batch)
    axis = first.array.rank - 1 if side else batch
    shape = _resized(first.array, axis, sum(sizes))
    product = site.make("dot", *operands, shape=shape, **own_attributes(first))
    order.renumber(product, first)
    merge_lines(wide, dots)
    merge_lines(product, dots)
    begin = 0
    for dot, size in zip(dots, sizes, strict=True):
        ranges = [SliceRange(0, entry) for entry in dot.array.dims]
        ranges[axis] = SliceRange(begin, begin + size)
        begin += size
        place = Site(dot)
        part = place.result("slice", product, slice=tuple(ranges))
        order.number[part] = order.number[dot]
        place.replace(part)


def _resized(shape: ArrayShape, dim: int, size: int) -> ArrayShape:
    return row_major(shape, (*shape.dims[:dim], size, *shape.dims[dim + 1 :]))
