"""Products that a loop collects row by row, computed once after it for all rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from hloopt.analysis.emitters.dots import DotSizes
from hloopt.analysis.trip_count import trip_count
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, Module, build, edit
from hloopt.linear_algebra.loop_rows import (
    IterationRows,
    RowKeeper,
    outside,
    row_counter,
    with_rows,
)
from hloopt.linear_algebra.prices import AlgebraPrices, gained_time
from hloopt.passes.loops.carried import (
    CarriedState,
    reads,
    remove_unused,
    states,
    used_reads,
    whole_uses,
)
from hloopt.passes.loops.motion import check_growth, inner_loops_first, move_out
from hloopt.rewrite import Pass, PassLog
from hloopt.rewrite.dimension_numbers import dot_attributes
from hloopt.rewrite.site import is_replaceable
from hloopt.targets import Target, find_target
from hloopt.types import ArrayShape, Dims, DotDims

__all__ = ["WhileOutputSinking"]

_STEP: Final = "collected product after a loop"
_LEAST: Final = 0.98
_MOST_PRODUCTS: Final = 8
"""Of products that follow each other how many leave the loop."""
_MOST: Final = 16
"""Instructions between a product and the array in which it is collected."""


@dataclass(frozen=True)
class WhileOutputSinking(Pass):
    """Multiply what a loop collects after it: by what stays the same, all rows at once.

    ``ys[i] = dot(h, w)`` in each iteration becomes ``hs[i] = h``, and ``ys = dot(hs, w)`` after the loop,
    where ``w`` stays the same, nothing else reads the product, and all rows are written: the layers that follow
    a recurrent one.  What is done to the product on its way, element by element with what stays the same (a
    bias, an activation), goes with it.  Each element is the same sum of the same products.

    max_growth  the factors that are kept take at most so many times the bytes of the rest of the state
    target      the device whose rates decide (``hloopt targets``)
    """

    name: ClassVar[str] = "while-output-sinking"
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
  ys = f32[8,4,16] get-tuple-element(s), index=2
  w = f32[16,16] get-tuple-element(s), index=3
  one = s32[] constant(1)
  j = s32[] add(i, one)
  zero = s32[] constant(0)
  more = f32[4,16] tanh(h)
  d = f32[4,16] dot(more, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  y = f32[1,4,16] reshape(d)
  out = f32[8,4,16] dynamic-update-slice(ys, y, i, zero, zero)
  ROOT t = (s32[], f32[4,16], f32[8,4,16], f32[16,16]) tuple(j, more, out, w)
}

ENTRY main {
  h = f32[4,16] parameter(0)
  ys = f32[8,4,16] parameter(1)
  w = f32[16,16] parameter(2)
  zero = s32[] constant(0)
  t = (s32[], f32[4,16], f32[8,4,16], f32[16,16]) tuple(zero, h, ys, w)
  loop = (s32[], f32[4,16], f32[8,4,16], f32[16,16]) while(t), condition=less, body=next
  ROOT all = f32[8,4,16] get-tuple-element(loop), index=2
}
"""

    max_growth: float = 1.0
    target: str = "h200"

    def __post_init__(self) -> None:
        find_target(self.target)
        check_growth(self, self.max_growth)

    def run(self, module: Module, log: PassLog) -> bool:
        """Inner loops first: what leaves them may leave the outer ones, too."""
        changed = False
        for loop in inner_loops_first(module):
            # What the product after a product was made of is collected instead, and may leave as well.
            for _ in range(_MOST_PRODUCTS):
                if not self.sink(loop, log):
                    break
                changed = True
        return changed

    def sink(self, loop: Instruction, log: PassLog, *, in_chains: bool = False) -> bool:
        """Move the products of one loop after it; ``in_chains`` those that ``found`` names then."""

        def begin(carried: CarriedState) -> Callable[[_Collected], None]:
            keeper = RowKeeper.of(carried)
            return lambda one: _sink(keeper, one)

        def told(one: _Collected) -> tuple[Instruction, str]:
            return (
                one.dot,
                f"{loop.name} only collects it: {gained_time(*one.seconds)} predicted on {self.target}",
            )

        return move_out(
            loop,
            _STEP,
            log,
            found=lambda log: self.found(loop, log, in_chains=in_chains),
            begin=begin,
            told=told,
        )

    def found(
        self, loop: Instruction, log: PassLog, *, in_chains: bool = False
    ) -> list[_Collected]:
        """The products that are collected in elements of the state, and take less after the loop.

        ``in_chains``: those that the loop multiplies further by what stays the same, whatever they take.
        """
        body = loop.body
        condition, state, _ = states(loop)
        if body.root.opcode != "tuple" or whole_uses(state) or whole_uses(condition):
            return []
        inside, in_condition = used_reads(state), used_reads(condition)
        written = [
            (number, update)
            for number, update in enumerate(body.root.operands)
            if update.opcode == "dynamic-update-slice"
            and not in_condition.get(number)
            and _is_written_only(update, inside.get(number, []))
        ]
        iterations = trip_count(loop) if written else None
        if iterations is None or iterations < 2 or row_counter(loop, iterations) is None:
            return []
        rows, rest = IterationRows(loop, iterations), loop.shape.byte_size
        target, found = find_target(self.target), []
        for number, update in written:
            one = _collected(number, update, rows, iterations, target, in_chains=in_chains)
            if one is None:
                continue
            growth = iterations * one.factor.array.byte_size
            if not in_chains and one.seconds[1] >= one.seconds[0] * _LEAST:
                log.miss(_STEP, one.dot, f"it takes no less there: {gained_time(*one.seconds)}")
            elif growth > self.max_growth * rest:
                log.miss(
                    _STEP,
                    one.dot,
                    f"{growth} bytes to keep are more than max_growth={self.max_growth:g} times the {rest} "
                    "of the state",
                )
            else:
                found.append(one)
                rest += growth
        return found


@dataclass(frozen=True)
class _Collected:
    """A product with what is done to it, of which each iteration writes a row.

    number   of the state element it is written into
    ways     what is done to the dot, the last first, and which operand leads to it
    side     the operand of the dot that changes
    dim      of the array, which counts the rows, and ``step`` from one iteration to the next
    seconds  of all iterations, and of one product with what keeps its factor
    """

    number: int
    ways: tuple[tuple[Instruction, int], ...]
    dot: Instruction
    side: int
    dim: int
    step: int
    iterations: int
    seconds: tuple[float, float]

    @property
    def factor(self) -> Instruction:
        """The operand that changes."""
        return self.dot.operands[self.side]


def _is_written_only(update: Instruction, inside: list[Instruction]) -> bool:
    """Whether an element is read for nothing but to write a part of it."""
    return (
        len(inside) == 1
        and update.operands[0] is inside[0]
        and sum(inside[0].users.values()) == 1
        and sum(update.users.values()) == 1
        and is_replaceable(update)
    )


def _collected(
    number: int,
    update: Instruction,
    rows: IterationRows,
    iterations: int,
    target: Target,
    *,
    in_chains: bool,
) -> _Collected | None:
    """The product that is written into all rows of an array; None for everything else."""
    row = rows.written(number, update)
    if row is None or row.size != iterations:
        return None
    value = update.operands[1].operands[0]
    ways: list[tuple[Instruction, int]] = []
    while value.opcode != "dot":
        # One operand leads to the product, the others stay the same.
        leads = [at for at, one in enumerate(value.operands) if not rows.stays(one)]
        if not (value.op.is_elementwise and _is_alone(value) and len(leads) == 1):
            return None
        if len(ways) == _MOST or any(one.array.dims != value.array.dims for one in value.operands):
            return None
        ways.append((value, leads[0]))
        value = value.operands[leads[0]]
    arrays = [one.array for one in (*value.operands, value)]
    if any(one.is_dynamic or not one.elements for one in arrays):
        return None
    is_taken = _is_multiplied_further(value, rows) if in_chains else _is_alone(value)
    if not is_taken:
        return None
    changing = [side for side, one in enumerate(value.operands) if not rows.stays(one)]
    if len(value.operands) != 2 or len(changing) != 1:
        return None
    (side,) = changing
    seconds = _seconds(value, side, iterations, target)
    return _Collected(number, tuple(ways), value, side, row.dim, row.step, iterations, seconds)


def _is_multiplied_further(dot: Instruction, rows: IterationRows) -> bool:
    """Whether all but one of the readers of a product multiply it by what stays the same."""
    readers = [user for user in dot.users if user.opcode == "dot" and len(user.operands) == 2]
    others = [one for user in readers for one in user.operands if one is not dot]
    return (
        is_replaceable(dot)
        and len(readers) == len(others) == len(dot.users) - 1
        and sum(dot.users.values()) == len(dot.users)
        and bool(readers)
        and all(map(rows.stays, others))
    )


def _is_alone(one: Instruction) -> bool:
    return sum(one.users.values()) == 1 and is_replaceable(one) and one.is_array


def _seconds(dot: Instruction, side: int, iterations: int, target: Target) -> tuple[float, float]:
    sizes = DotSizes.of(dot)
    prices = AlgebraPrices(target, dot.array.dtype, dot.attributes.get("algorithm", ""))
    rows, columns = (
        size * (iterations if at == side else 1) for at, size in enumerate((sizes.m, sizes.n))
    )
    before = prices.matrix_product(sizes.batch, sizes.m, sizes.n, sizes.k)
    keeping = prices.elementwise(3 * dot.operands[side].array.elements)
    after = prices.matrix_product(sizes.batch, rows, columns, sizes.k)
    return iterations * before, iterations * keeping + after


def _sink(keeper: RowKeeper, one: _Collected) -> None:
    """Keep the factor; what read the array reads the product of all rows."""
    carried = keeper.carried
    loop, update = carried.loop, carried.root.operands[one.number]
    kept = keeper.keep(one.factor, one.step)
    operands = list(carried.root.operands)
    operands[one.number] = update.operands[0]
    edit.set_operands(carried.root, tuple(operands))
    for end in list(reads(loop)[one.number]):
        value = _product(end, loop, kept, one)
        for way, leading in reversed(one.ways):
            shape = value.array.dims
            given = tuple(
                value if at == leading else _spread(end, loop, operand, shape, one.dim)
                for at, operand in enumerate(way.operands)
            )
            value = build.make(
                end,
                way.opcode,
                given,
                way.attributes,
                shape=ArrayShape(way.array.dtype, shape),
                metadata=way.metadata,
            )
        edit.replace_instruction(end, value)
    remove_unused([update])


def _spread(
    end: Instruction, loop: Instruction, same: Instruction, dims: Dims, row: int
) -> Instruction:
    """What stays the same, in each row along dimension ``row``."""
    value = outside(end, loop, same)
    rest = tuple(dim for dim in range(len(dims)) if dim != row)
    shape = ArrayShape(value.array.dtype, dims)
    return build.make(end, "broadcast", (value,), {"dimensions": rest}, shape=shape)


def _product(end: Instruction, loop: Instruction, kept: int, one: _Collected) -> Instruction:
    """The product of all rows, in which dimension ``one.dim`` counts them."""
    dot = one.dot
    dims = with_rows(DotDims.of(dot.attributes), one.side, 0)
    factor = outside(end, loop, dot.operands[1 - one.side])
    given = [build.element(end, loop, kept), factor]
    if one.side == 1:
        given.reverse()
    place = dims.places(*(value.array.rank for value in given))[one.side][0]
    rest = dot.array.dims
    shape = ArrayShape(dot.array.dtype, (*rest[:place], one.iterations, *rest[place:]))
    attributes = dot_attributes(dot, dims)
    made = build.make(end, "dot", tuple(given), attributes, shape=shape, metadata=dot.metadata)
    if place == one.dim:
        return made
    order = [dim for dim in range(shape.rank) if dim != place]
    order.insert(one.dim, place)
    return build.make(end, "transpose", (made,), {"dimensions": tuple(order)})
