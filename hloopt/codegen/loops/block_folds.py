"""Reduces and dots whose results several threads of a block compute together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from hloopt.analysis.index import Index, Symbol, delinearize
from hloopt.analysis.parallel_loop.block_stages import Item, StagedIteration
from hloopt.analysis.parallel_loop.edges import LoopValue
from hloopt.analysis.reduction import WARP_SIZE
from hloopt.analysis.written_ops import dot_positions
from hloopt.codegen.elemental.linear import Products
from hloopt.codegen.families.folding import (
    ThreadFold,
    begin,
    everywhere,
    finished,
    identity,
    keep,
    merge,
    take,
    tree,
)
from hloopt.codegen.loops.places import KeptPlace
from hloopt.codegen.reducer import ReducerCode
from hloopt.codegen.types import register_type
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import Array, Expr, Select, Var, as_expr, eq
from hloopt.kernel_ir.types import BOOL, Type
from hloopt.types import DotDims, DType

if TYPE_CHECKING:
    from hloopt.codegen.elements import Elements
    from hloopt.codegen.loops.block import BlockLoop

__all__ = ["Folding"]

_Ask: TypeAlias = Callable[[Sequence[Index]], "list[Expr]"]

_SERIAL = 8
"""Partial results of so many warps are added up by every thread by itself."""


@dataclass(frozen=True)
class _Sum(ReducerCode):
    """The addition of a dot's products."""

    @property
    def plain(self) -> str:
        """The opcode, an addition."""
        return "add"

    @property
    def accumulators(self) -> tuple[DType, ...]:
        """The types of the products."""
        return self.dtypes


class Folding:
    """The folds of a block's loops."""

    def __init__(self, block: BlockLoop) -> None:
        self.block = block
        self.e: Elements = block.e
        self.tiles: dict[Item, list[Array]] = {}

    @property
    def warps(self) -> int:
        """Warps of the block."""
        return self.block.plan.threads // WARP_SIZE

    def has_tiles(self, iteration: StagedIteration) -> bool:
        """Whether a loop has folds of which each warp leaves a part."""
        return any(item.kind == "fold" and not item.lanes for item in iteration.items)

    def declare(self, item: Item) -> None:
        """Two tiles with a place for each warp: an iteration writes the one that the last does not read."""
        probe = self._reducer(item.instruction)
        kinds: list[tuple[Type, int]] = [
            (register_type(kind), kind.bytes) for kind in probe.accumulators
        ]
        if self._needs_flag(item.instruction):
            kinds.append((BOOL, 1))
        hint = f"{item.instruction.name}_part"
        self.tiles[item] = [
            self.block.shared(kind, 2 * self.warps, size, hint) for kind, size in kinds
        ]

    def _needs_flag(self, hero: Instruction) -> bool:
        return not identity(self._reducer(hero))

    def _reducer(self, hero: Instruction) -> ReducerCode:
        if hero.opcode == "dot":
            assert hero.computation is not None
            return _Sum(hero.computation, (Products.of(hero).wide,))
        return ReducerCode.of(hero)

    # ---- taking in ----------------------------------------------------------------------------------

    def write(self, item: Item, now: Var | None) -> None:
        """Fold what the block's threads read; results go to shared memory, or parts of them to tiles."""
        if item.lanes:
            block = self.block
            with block.inside(block.frame(item.values[0].path)):
                self._by_lanes(item)
        else:
            self._by_block(item, now)

    def _by_lanes(self, item: Item) -> None:
        block, e, lanes = self.block, self.e, item.lanes
        value = item.values[0]
        results = block.flow.elements(value)
        thread, threads = block.threads.thread, block.plan.threads
        lane = e.symbol(thread % lanes, "lane", 0, lanes - 1)
        groups = threads // lanes
        rounds = -(-results // groups)
        with e.before(block.work_item):
            for number, is_last in self._rounds(rounds):
                place = thread // lanes + number * groups
                if place.high < results:
                    self._one(item, place, lane)
                    continue
                place = e.symbol(place, "result", place.low, place.high)
                rest = results - (rounds - 1) * groups
                busy = -(-rest * lanes // WARP_SIZE) * WARP_SIZE
                is_some = busy < threads and is_last
                with e.when(*([as_expr(thread) < busy] if is_some else ())):
                    has = as_expr(place) < results
                    inside = Select.of(has, place, results - 1)
                    self._one(item, e.symbol(inside, "inside", 0, results - 1), lane, has)

    def _rounds(self, rounds: int) -> Iterator[tuple[Index, bool]]:
        """The rounds as a loop, the last one, which may be shorter, by itself."""
        e = self.e
        if rounds > 1:
            loop, at = e.loop(rounds - 1, "round")
            with e.within(loop):
                yield at, False
        with e.within(e.scope.braces()):
            yield Index(rounds - 1), True

    def _one(self, item: Item, place: Index, lane: Index, *tests: Expr) -> None:
        """A result by the lanes of a group; the first of them stores it."""
        block, e = self.block, self.e
        value = item.values[0]
        index = block.index(value, place)
        fold = self._accumulated(value, index, lane, item.lanes)
        tree(e, [fold], item.lanes // 2)
        with e.when(eq(lane, 0), *tests):
            for leaf, name in zip(item.values, self._finished(value, index, fold), strict=True):
                e.scope.set(block.arrays[leaf].at(place), name)

    def _by_block(self, item: Item, now: Var | None) -> None:
        block, e = self.block, self.e
        value = item.values[0]
        index = block.index(value, Index(0))
        thread = block.threads.thread
        frame = block.frame(value.path)
        with block.inside(frame), e.before(block.work_item), e.within(e.scope.braces()):
            fold = self._accumulated(value, index, thread, block.plan.threads)
            tree(e, [fold], WARP_SIZE // 2)
            with e.when(eq(thread % WARP_SIZE, 0)):
                slot = self._first(now) + thread // WARP_SIZE
                keep(e, fold, [tile[slot] for tile in self.tiles[item]])

    def _accumulated(
        self, value: LoopValue, index: Sequence[Index], first: Index, step: int
    ) -> ThreadFold:
        e = self.e
        hero = value.instruction
        fold = self._begin(hero)
        sizes, ask = self._operands(hero, index)
        with e.before(index), self.block.threads.strided(first, prod(sizes), step) as at:
            take(e, fold, ask(delinearize(at, sizes)))
        return fold

    def _begin(self, hero: Instruction, values: Sequence[Expr] = ()) -> ThreadFold:
        if hero.opcode != "dot":
            return begin(self.e, hero, values)
        reducer = self._reducer(hero)
        kind = register_type(reducer.accumulators[0])
        name = self.e.scope.variable(kind, "sum", values[0] if values else identity(reducer))
        return ThreadFold(hero, reducer, (name,))

    def _operands(self, hero: Instruction, index: Sequence[Index]) -> tuple[list[int], _Ask]:
        """The sizes folded over, and what reads the elements at a place of them."""
        e = self.e
        if hero.opcode == "dot":
            lhs, rhs = hero.operands[:2]
            along = DotDims.of(hero.attributes).lhs_contracting

            def product(at: Sequence[Index]) -> list[Expr]:
                left_at, right_at = dot_positions(hero, tuple(index), tuple(at))
                left, right = e.value(lhs, left_at), e.value(rhs, right_at)
                return [Products.of(hero).product(e, left, right)]

            return [lhs.array.dims[one] for one in along], product
        inputs = hero.fold_inputs
        dims = inputs[0].array.dims
        reduced = sorted(set(hero.attributes["dimensions"]))

        def elements(at: Sequence[Index]) -> list[Expr]:
            kept, folded = iter(index), iter(at)
            position = [next(folded) if one in reduced else next(kept) for one in range(len(dims))]
            return [e.value(operand, position) for operand in inputs]

        return [dims[one] for one in reduced], elements

    # ---- results ------------------------------------------------------------------------------------

    def collect(self, iteration: StagedIteration, stage: int, now: Var | None) -> None:
        """What the warps left in a stage, folded by every thread: known from here on."""
        for item in iteration.at(stage):
            if item.kind == "fold" and not item.lanes:
                self._whole(item, now)

    def _whole(self, item: Item, now: Var | None) -> None:
        block, e = self.block, self.e
        value = item.values[0]
        hero, tiles = value.instruction, self.tiles[item]
        index = block.index(value, Index(0))
        first = self._first(now)
        with block.inside(block.frame(value.path)):
            if self.warps <= _SERIAL:
                fold = self._reloaded(hero, tiles, first)
                for warp in range(1, self.warps):
                    others = [tile[first + warp] for tile in tiles]
                    merge(e, fold, others)
            else:
                width = 1 << (self.warps - 1).bit_length()
                lane = e.symbol(block.threads.thread % width, "lane", 0, width - 1)
                assert width == self.warps, "so many warps are a power of two"
                fold = self._reloaded(hero, tiles, first + lane)
                everywhere(e, [fold], width, block.threads.thread)
            for leaf, name in zip(item.values, self._finished(value, index, fold), strict=True):
                kept = KeptPlace(name, leaf.shape, block.flow.axes(leaf))
                e.places[block.frame(leaf.path), hero, leaf.leaf] = kept

    def _first(self, now: Var | None) -> Index:
        """The place of the first warp in the tiles of this iteration."""
        assert now is not None, "tiles alternate"
        return Symbol(now.name, 0, 1).index * self.warps

    def _reloaded(self, hero: Instruction, tiles: Sequence[Array], slot: Index) -> ThreadFold:
        return self._begin(hero, [tile[slot] for tile in tiles])

    def _finished(self, value: LoopValue, index: Sequence[Index], fold: ThreadFold) -> list[Expr]:
        """The init values folded in, and rounded: one name a result."""
        e, hero = self.e, value.instruction
        if hero.opcode == "dot":
            return [Products.of(hero).result(e, fold.names[0])]
        return finished(e, fold)
