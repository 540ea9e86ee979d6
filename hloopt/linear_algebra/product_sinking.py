"""Products that a loop only adds up, done once after it as one product over all iterations."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from hloopt.analysis.emitters.dots import DotSizes
from hloopt.analysis.trip_count import trip_count
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, Module, build, edit
from hloopt.linear_algebra.loop_rows import IterationRows, RowKeeper, all_rows, beside, row_counter
from hloopt.linear_algebra.prices import AlgebraPrices, gained_time
from hloopt.ops.traits import PERMUTING
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
from hloopt.targets import Target, find_target
from hloopt.types import DotDims

__all__ = ["WhileProductSinking"]

_STEP: Final = "product after a loop"
_LINEAR: Final = PERMUTING - {"bitcast"} | {"negate"}
"""What may stand between a product and its sum: of a sum it is the sum of each."""
_LEAST: Final = 0.98


@dataclass(frozen=True)
class WhileProductSinking(Pass):
    """Let a loop that adds up products keep their factors, and multiply them all at once after it.

    ``c = c + dot(a, b)`` in each iteration becomes ``as[i] = a; bs[i] = b``, and ``c + dot(as, bs)`` after the
    last, which contracts the iterations, too.  A factor that is row i of an array that the loop only reads is
    there already; where one is the same in all iterations, the other is added up instead.  So the gradient of
    a recurrent layer's weights, one thin product in each step back, is one product of all steps.  Nothing but
    the result may read ``c``, and the number of iterations has to be known.

    fast_math    also floats, whose sums round otherwise then; integers stay what they are
    reassociate  the same, for this pass and ``linear-algebra`` alone
    max_growth   the factors that are kept take at most so many times the bytes of the rest of the state
    target       the device whose rates decide (``hloopt targets``)
    """

    name: ClassVar[str] = "while-product-sinking"
    example: ClassVar[str] = """HloModule example

less {
  s = (s32[], s32[64,64], s32[8,4,64], s32[4,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(8)
  ROOT c = pred[] compare(i, n), direction=LT
}

next {
  s = (s32[], s32[64,64], s32[8,4,64], s32[4,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  total = s32[64,64] get-tuple-element(s), index=1
  xs = s32[8,4,64] get-tuple-element(s), index=2
  g = s32[4,64] get-tuple-element(s), index=3
  one = s32[] constant(1)
  j = s32[] add(i, one)
  zero = s32[] constant(0)
  row = s32[1,4,64] dynamic-slice(xs, i, zero, zero), dynamic_slice_sizes={1,4,64}
  x = s32[4,64] reshape(row)
  h = s32[4,64] multiply(g, x)
  d = s32[64,64] dot(x, h), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  more = s32[64,64] add(total, d)
  ROOT t = (s32[], s32[64,64], s32[8,4,64], s32[4,64]) tuple(j, more, xs, h)
}

ENTRY main {
  xs = s32[8,4,64] parameter(0)
  g = s32[4,64] parameter(1)
  first = s32[64,64] parameter(2)
  zero = s32[] constant(0)
  t = (s32[], s32[64,64], s32[8,4,64], s32[4,64]) tuple(zero, first, xs, g)
  loop = (s32[], s32[64,64], s32[8,4,64], s32[4,64]) while(t), condition=less, body=next
  ROOT total = s32[64,64] get-tuple-element(loop), index=1
}
"""

    fast_math: bool = False
    reassociate: bool = False
    max_growth: float = 1.0
    target: str = "h200"

    def __post_init__(self) -> None:
        find_target(self.target)
        check_growth(self, self.max_growth)

    def run(self, module: Module, log: PassLog) -> bool:
        """Inner loops first: what leaves them may leave the outer ones, too."""
        changed = False
        for loop in inner_loops_first(module):
            changed |= self.sink(loop, log)
        return changed

    def sink(self, loop: Instruction, log: PassLog) -> bool:
        """Move the products of one loop after it."""

        def begin(carried: CarriedState) -> Callable[[_Addend], None]:
            keeper = RowKeeper.of(carried)
            return lambda one: _sink(keeper, one)

        def told(one: _Addend) -> tuple[Instruction, str]:
            before, after = one.seconds
            gain = f"{gained_time(before, after)} predicted on {self.target}"
            return one.dot, f"{loop.name} only adds it up: {gain}"

        return move_out(
            loop,
            _STEP,
            log,
            found=lambda log: self.found(loop, log),
            begin=begin,
            told=told,
        )

    def found(self, loop: Instruction, log: PassLog) -> list[_Addend]:
        """The products that are added up in elements of the state, and may leave."""
        body = loop.body
        condition, state, _ = states(loop)
        if body.root.opcode != "tuple" or whole_uses(state) or whole_uses(condition):
            return []
        inside, in_condition = used_reads(state), used_reads(condition)
        added = [
            (number, chain)
            for number, following in enumerate(body.root.operands)
            if not in_condition.get(number)
            and (chain := _added(following, inside.get(number, []))) is not None
        ]
        if not added:
            return []
        iterations = trip_count(loop)
        if iterations is None or iterations < 2 or row_counter(loop, iterations) is None:
            for _, chain in added:
                log.miss(_STEP, chain[-1], "its loop has no counter whose values are known")
            return []
        rows = IterationRows(loop, iterations)
        target, rest = find_target(self.target), loop.shape.byte_size
        kept: set[Instruction] = set()
        found = []
        for number, chain in added:
            one = _Addend(number, chain, iterations, rows, frozenset(kept), target)
            problem = self._problem(one, rest)
            if problem:
                log.miss(_STEP, one.dot, problem)
                continue
            rest += one.growth
            if not any(one.same):
                kept |= set(one.new)
            found.append(one)
        return found

    def _problem(self, one: _Addend, rest: int) -> str:
        kind = one.dot.array.dtype
        if all(one.same):
            return "its factors are the same in all iterations"
        before, after = one.seconds
        if after >= before * _LEAST:
            return f"it takes no less there: {before * 1e6:.3g} => {after * 1e6:.3g} us"
        if not (self.fast_math or self.reassociate or kind.is_integer):
            return f"another order changes sums of {kind.name}: fast_math"
        if one.growth > self.max_growth * rest:
            return (
                f"{one.growth} bytes to keep are more than max_growth={self.max_growth:g} times the"
                f" {rest} of the state"
            )
        return ""


class _Addend:
    """A product that is added up: what is there of its factors, and what both ways take.

    number   of the state element
    chain    from what is added to the dot
    rows     of its factors, where they are rows of arrays
    same     whether each factor is the same in all iterations; not both are
    new      the factors that have to be kept or added up
    growth   bytes that the loop carries for those
    seconds  of all iterations, and of the one product with what its factors take
    """

    def __init__(
        self,
        number: int,
        chain: tuple[Instruction, ...],
        iterations: int,
        rows: IterationRows,
        kept: frozenset[Instruction],
        target: Target,
    ) -> None:
        self.number, self.chain, self.dot = number, chain, chain[-1]
        sides = self.dot.operands
        self.same = tuple(rows.is_passed_on(side) for side in sides)
        adds_up = any(self.same)
        self.rows = tuple(None if adds_up else rows.of(side) for side in sides)
        new = dict.fromkeys(
            side
            for side, row, same in zip(sides, self.rows, self.same, strict=True)
            if row is None and not same and side not in kept
        )
        self.new = tuple(new)
        self.times = 1 if adds_up else iterations
        self.growth = self.times * sum(side.array.byte_size for side in self.new)
        self.seconds = self._seconds(iterations, target)

    def _seconds(self, iterations: int, target: Target) -> tuple[float, float]:
        dot = self.dot
        sizes = DotSizes.of(dot)
        prices = AlgebraPrices(target, dot.array.dtype, dot.attributes.get("algorithm", ""))
        matrices = sizes.batch, sizes.m, sizes.n
        sums = prices.elementwise(3 * dot.array.elements)
        before = iterations * (prices.matrix_product(*matrices, sizes.k) + sums)
        kept = sum(side.array.elements for side in self.new)
        # Read where it is made, written here; at first it is filled with zeros.
        keeping = iterations * prices.elementwise(3 * kept)
        return before, keeping + prices.matrix_product(*matrices, sizes.k * self.times)


def _sink(keeper: RowKeeper, one: _Addend) -> None:
    """Keep the factors; what read the sum's end reads the first value and the product of all."""
    carried = keeper.carried
    loop, following = carried.loop, carried.root.operands[one.number]
    step = next((row.step for row in one.rows if row is not None), 1)
    kept = _kept(keeper, one, step)
    read = next(operand for operand in following.operands if operand is not one.chain[0])
    operands = list(carried.root.operands)
    operands[one.number] = read
    edit.set_operands(carried.root, tuple(operands))
    for end in list(reads(loop)[one.number]):
        first = build.element(end, loop, one.number)
        edit.set_shape(first, end.shape)
        total = _product(end, keeper, one, kept, step)
        for link in reversed(one.chain[:-1]):
            total = build.clone(link, end, (total,))
        made = build.make(end, "add", (first, total), shape=end.shape, metadata=following.metadata)
        edit.replace_instruction(end, made)
    remove_unused([following])


def _kept(keeper: RowKeeper, one: _Addend, step: int) -> list[int]:
    """The state elements that have what the factors are made of."""
    found = []
    for side, row, same in zip(one.dot.operands, one.rows, one.same, strict=True):
        if same:
            found.append(side.tuple_index)
        elif any(one.same):
            found.append(keeper.add_up(side))
        else:
            found.append(keeper.keep(side, step) if row is None else row.element)
    return found


def _product(
    end: Instruction, keeper: RowKeeper, one: _Addend, kept: list[int], step: int
) -> Instruction:
    """The sum of all products, after the loop."""
    wholes = [build.element(end, keeper.carried.loop, at) for at in kept]
    dims = DotDims.of(one.dot.attributes)
    if not any(one.same):
        sides = [
            all_rows(end, whole, row, step, keeper.iterations)
            for whole, row in zip(wholes, one.rows, strict=True)
        ]
        wholes = [whole for whole, _ in sides]
        dims = _dims(one.dot, [dim for _, dim in sides])
    return build.make(
        end,
        "dot",
        tuple(wholes),
        dot_attributes(one.dot, dims),
        shape=one.dot.shape,
        metadata=one.dot.metadata,
    )


def _dims(dot: Instruction, counted: list[int]) -> DotDims:
    """Those of a dot over iterations as well, which are a dimension more in each factor."""
    dims, (first, second) = DotDims.of(dot.attributes), counted
    return DotDims(
        (first, *beside(dims.lhs_contracting, first)),
        (second, *beside(dims.rhs_contracting, second)),
        beside(dims.lhs_batch, first),
        beside(dims.rhs_batch, second),
    )


def _added(following: Instruction, inside: list[Instruction]) -> tuple[Instruction, ...] | None:
    """From what is added to an element to the dot it is; nothing else reads any of them."""
    if following.opcode != "add" or len(inside) != 1 or following.is_tied:
        return None
    (read,) = inside
    others = [operand for operand in following.operands if operand is not read]
    if len(others) != 1 or list(read.users) != [following] or sum(following.users.values()) != 1:
        return None
    chain = [others[0]]
    while chain[-1].opcode in _LINEAR and _is_alone(chain[-1]):
        chain.append(chain[-1].operands[0])
    dot = chain[-1]
    if dot.opcode != "dot" or not _is_alone(dot) or len(dot.operands) != 2:
        return None
    arrays = [one.array for one in (*dot.operands, dot)]
    is_plain = len({one.dtype for one in arrays}) == 1 and not any(one.is_dynamic for one in arrays)
    return tuple(chain) if is_plain and all(one.elements for one in arrays) else None


def _is_alone(one: Instruction) -> bool:
    return sum(one.users.values()) == 1 and not one.is_tied and one.is_understood
