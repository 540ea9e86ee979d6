"""Products of a row of an array with what stays the same, done once before a loop for all rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final, TypeAlias

from hloopt.analysis.emitters.dots import DotSizes
from hloopt.analysis.trip_count import trip_count
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, Module, build, edit
from hloopt.linear_algebra.loop_rows import IterationRow, IterationRows, outside, with_rows
from hloopt.linear_algebra.prices import AlgebraPrices, gained_time
from hloopt.passes.loops.carried import (
    CarriedState,
    states,
    whole_uses,
)
from hloopt.passes.loops.counters import constant_like
from hloopt.passes.loops.motion import check_growth, inner_loops_first, move_out
from hloopt.rewrite import Pass, PassLog
from hloopt.rewrite.dimension_numbers import dot_attributes
from hloopt.rewrite.site import is_replaceable
from hloopt.targets import Target, find_target
from hloopt.types import ArrayShape, DotDims

__all__ = ["RowProduct", "WhileProductHoisting", "row_products"]

_STEP: Final = "product before a loop"
_LEAST: Final = 0.98
_MOST_WAYS: Final = 4


@dataclass(frozen=True)
class RowProduct:
    """A dot in the body of a loop, of a row of an array and a factor that is the same in all iterations.

    side     the operand that is made of the row
    row      which one, of all rows of an array
    ways     what is done to each element of the row before, the last first
    """

    dot: Instruction
    side: int
    row: IterationRow
    iterations: int
    ways: tuple[Instruction, ...] = ()

    @property
    def piece(self) -> Instruction:
        """The dynamic-slice that reads the row."""
        value = self.ways[-1] if self.ways else self.dot
        return value.operands[0 if self.ways else self.side].operands[0]

    @property
    def factor(self) -> Instruction:
        """The operand that stays the same."""
        return self.dot.operands[1 - self.side]

    @property
    def dims(self) -> DotDims:
        """Those of the product of all rows: the rows are one more dimension of that operand."""
        return with_rows(DotDims.of(self.dot.attributes), self.side, self.row.dim)

    @property
    def place(self) -> int:
        """The dimension of that product which counts the rows."""
        dims, ranks = self.dims, [one.array.rank for one in self.dot.operands]
        ranks[self.side] += 1
        places = dims.places(*ranks)
        return places[self.side][self.row.dim]

    @property
    def shape(self) -> ArrayShape:
        """Of that product."""
        own, place = self.dot.array, self.place
        return ArrayShape(own.dtype, (*own.dims[:place], self.iterations, *own.dims[place:]))

    def seconds(self, target: Target) -> tuple[float, float]:
        """Of the products of all iterations, and of one of all rows with reading a row in each."""
        sizes = DotSizes.of(self.dot)
        algorithm = self.dot.attributes.get("algorithm", "")
        prices = AlgebraPrices(target, self.dot.array.dtype, algorithm)
        before = self.iterations * prices.matrix_product(sizes.batch, sizes.m, sizes.n, sizes.k)
        rows, columns = (
            size * (self.iterations if side == self.side else 1)
            for side, size in enumerate((sizes.m, sizes.n))
        )
        reading = self.iterations * prices.elementwise(self.dot.array.elements)
        if self.ways:
            # What is done to the rows is written, and read by the product.
            made = self.dot.operands[self.side].array.elements
            reading += 2 * self.iterations * prices.elementwise(made)
        return before, reading + prices.matrix_product(sizes.batch, rows, columns, sizes.k)


_Gaining: TypeAlias = tuple[RowProduct, tuple[float, float]]
"""A product with its times in the loop and before it."""


def row_products(loop: Instruction) -> list[RowProduct]:
    """The products in a loop of known count that need nothing of the iteration before.

    Each takes another one of all rows of an array that the loop passes through; its other factor is passed
    through as well, or a constant.
    """
    body = loop.body
    dots = [one for one in body if one.opcode == "dot" and len(one.operands) == 2]
    if not dots or body.root.opcode != "tuple" or any(map(whole_uses, states(loop)[:2])):
        return []
    iterations = trip_count(loop)
    if iterations is None or iterations < 2:
        return []
    rows, found = IterationRows(loop, iterations), []
    for dot in dots:
        arrays = [one.array for one in (*dot.operands, dot)]
        if not is_replaceable(dot) or any(one.is_dynamic or not one.elements for one in arrays):
            continue
        for side in (0, 1):
            factor = dot.operands[1 - side]
            if not rows.stays(factor):
                continue
            ways = _ways(dot.operands[side])
            row = rows.of(ways[-1].operands[0] if ways else dot.operands[side])
            if row is not None and row.size == iterations:
                found.append(RowProduct(dot, side, row, iterations, ways))
                break
    return found


def _ways(value: Instruction) -> tuple[Instruction, ...]:
    """What is done to each element of a value by itself, such as a conversion, the last first."""
    found: list[Instruction] = []
    while value.op.is_elementwise and len(value.operands) == 1 and len(found) < _MOST_WAYS:
        found.append(value)
        (value,) = value.operands
    return tuple(found)


@dataclass(frozen=True)
class WhileProductHoisting(Pass):
    """Multiply all rows of an array before a loop in which each iteration multiplies one of them.

    ``dot(xs[i], w)`` in each iteration becomes ``d = dot(xs, w)`` before the loop, and ``d[i]``, where the
    iterations read all rows of ``xs``, upwards or downwards, and ``w`` stays the same: the product of a
    recurrent layer's inputs, which may be converted first.  Each element is the same sum of the same products.
    No bytes are saved, but the tiles of a matrix unit are full, and there is one launch.

    max_growth  the product takes at most so many times the bytes of the rest of the state
    target      the device whose rates decide (``hloopt targets``)
    """

    name: ClassVar[str] = "while-product-hoisting"
    example: ClassVar[str] = """HloModule example

less {
  s = (s32[], f32[4,16], f32[8,4,16], f32[16,16]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(8)
  ROOT c = pred[] compare(i, n), direction=LT
}

next {
  s = (s32[], f32[4,16], f32[8,4,16], f32[16,16]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  h = f32[4,16] get-tuple-element(s), index=1
  xs = f32[8,4,16] get-tuple-element(s), index=2
  w = f32[16,16] get-tuple-element(s), index=3
  one = s32[] constant(1)
  j = s32[] add(i, one)
  zero = s32[] constant(0)
  row = f32[1,4,16] dynamic-slice(xs, i, zero, zero), dynamic_slice_sizes={1,4,16}
  x = f32[4,16] reshape(row)
  d = f32[4,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  more = f32[4,16] add(h, d)
  y = f32[4,16] tanh(more)
  ROOT t = (s32[], f32[4,16], f32[8,4,16], f32[16,16]) tuple(j, y, xs, w)
}

ENTRY main {
  xs = f32[8,4,16] parameter(0)
  w = f32[16,16] parameter(1)
  h = f32[4,16] parameter(2)
  zero = s32[] constant(0)
  t = (s32[], f32[4,16], f32[8,4,16], f32[16,16]) tuple(zero, h, xs, w)
  loop = (s32[], f32[4,16], f32[8,4,16], f32[16,16]) while(t), condition=less, body=next
  ROOT last = f32[4,16] get-tuple-element(loop), index=1
}
"""

    max_growth: float = 4.0
    target: str = "h200"

    def __post_init__(self) -> None:
        find_target(self.target)
        check_growth(self, self.max_growth)

    def run(self, module: Module, log: PassLog) -> bool:
        """Inner loops first: what leaves them may leave the outer ones, too."""
        changed = False
        for loop in inner_loops_first(module):
            changed |= self.hoist(loop, log)
        return changed

    def hoist(self, loop: Instruction, log: PassLog) -> bool:
        """Move the products of one loop in front of it."""

        def begin(carried: CarriedState) -> Callable[[_Gaining], None]:
            return lambda found: _hoist(carried, found[0])

        def told(found: _Gaining) -> tuple[Instruction, str]:
            one, (before, after) = found
            gain = f"{gained_time(before, after)} predicted on {self.target}"
            return one.dot, f"{loop.name} changes neither factor: {gain}"

        return move_out(
            loop,
            _STEP,
            log,
            found=lambda log: self.found(loop, log),
            begin=begin,
            told=told,
        )

    def found(self, loop: Instruction, log: PassLog) -> list[_Gaining]:
        """The products that take less before the loop, with both times."""
        found, rest = [], loop.shape.byte_size
        for one in row_products(loop):
            seconds = one.seconds(find_target(self.target))
            before, after = (f"{time * 1e6:.3g}" for time in seconds)
            growth = one.shape.byte_size
            if seconds[1] >= seconds[0] * _LEAST:
                log.miss(_STEP, one.dot, f"it takes no less there: {before} => {after} us")
            elif growth > self.max_growth * rest:
                log.miss(
                    _STEP,
                    one.dot,
                    f"its {growth} bytes are more than max_growth={self.max_growth:g} times the {rest} "
                    "of the state",
                )
            else:
                found.append((one, seconds))
                rest += growth
        return found


def _hoist(carried: CarriedState, one: RowProduct) -> None:
    """Carry the product of all rows, of which each iteration takes its row."""
    init, dot = carried.init, one.dot
    rows = init.operands[one.row.element]
    for way in reversed(one.ways):
        shape = ArrayShape(way.array.dtype, rows.array.dims)
        rows = build.make(
            init, way.opcode, (rows,), way.attributes, shape=shape, metadata=way.metadata
        )
    given = [rows, outside(init, init, one.factor)]
    whole = build.make(
        init,
        "dot",
        tuple(given if one.side == 0 else reversed(given)),
        dot_attributes(dot, one.dims),
        shape=one.shape,
        metadata=dot.metadata,
    )
    (at,) = carried.add([whole])
    place = one.place
    index = one.piece.operands[1 + one.row.dim]
    zero = constant_like(dot, index, 0)
    sizes = tuple(1 if dim == place else size for dim, size in enumerate(one.shape.dims))
    row = build.make(
        dot,
        "dynamic-slice",
        (
            build.element(dot, carried.states[1], at),
            *(index if dim == place else zero for dim in range(len(sizes))),
        ),
        {"dynamic_slice_sizes": sizes},
        shape=ArrayShape(dot.array.dtype, sizes),
        metadata=dot.metadata,
    )
    edit.replace_instruction(
        dot, build.make(dot, "reshape", (row,), shape=dot.shape, metadata=dot.metadata)
    )
