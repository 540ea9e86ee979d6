"""Which tiles of scores the attention kernel leaves out: what the block tests before it computes one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field

from hloopt.analysis.attention import Limit, Masking, TileBound
from hloopt.analysis.attention.axes import Along
from hloopt.analysis.attention.places import Arithmetic, PlaceReader
from hloopt.analysis.index import Index, Indices, delinearize, linearize
from hloopt.codegen.elements import Elements
from hloopt.codegen.families.attention_block import AttentionBlock
from hloopt.codegen.families.attention_products import F32, HALVES
from hloopt.codegen.families.folding import ThreadFold
from hloopt.codegen.families.sweeping import guarded
from hloopt.codegen.scalars import convert, literal, scalar_op
from hloopt.codegen.writer import FunctionWriter
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import (
    TRUE,
    Expr,
    IndexValue,
    Number,
    Select,
    Var,
    as_expr,
    both,
    eq,
)
from hloopt.kernel_ir.types import BOOL, FLOAT, INT
from hloopt.kernels.families.attention import masking_in
from hloopt.kernels.families.sweeps import WARP
from hloopt.types import DType

__all__ = ["TileSkips", "write_sizes"]


@dataclass
class _Code(Arithmetic[Expr]):
    """Expressions of a kernel."""

    e: Elements

    def named(self, value: Expr) -> Expr:
        if isinstance(value, Var | Number | IndexValue):
            return value
        return self.e.scope.declare(value.type, value, "place")

    def number(self, value: int) -> Expr:
        return as_expr(value)

    def at_most(self, left: Expr, right: Expr) -> Expr:
        return left <= right

    def both(self, left: Expr, right: Expr) -> Expr:
        return both([left, right])

    def negated(self, test: Expr) -> Expr:
        return test.negated()

    def choice(self, test: Expr, chosen: Expr, other: Expr) -> Expr:
        return Select.of(test, chosen, other)

    def divided(self, value: Expr, divisor: int) -> tuple[Expr, Expr]:
        return (value, as_expr(0)) if divisor == 1 else (value / as_expr(divisor), value % divisor)

    def fits(self, interval: tuple[Expr, Expr], kind: DType) -> bool:
        return True  # what does not was found where all tiles are read at once


@dataclass
class TileSkips:
    """The tests of a block; ``sizes`` are the greatest elements of operands that they need."""

    block: AttentionBlock
    masking: Masking | None
    sizes: dict[Instruction, Expr] = field(default_factory=dict)

    @staticmethod
    def of(block: AttentionBlock) -> TileSkips:
        """Those of a kernel's tile: none where it leaves nothing out."""
        skips = TileSkips(block, masking_in(block.form, block.f.tile))
        skips._read_sizes()
        return skips

    def _read_sizes(self) -> None:
        """Fold what the blocks of the launch before have found; each lane then has all of it."""
        f, e = self.block.f, self.block.e
        for number, operand in enumerate(() if self.masking is None else self.masking.sizes):
            parts = f.scratch(number)
            count = parts.shape.elements
            greatest = e.scope.variable(FLOAT, "greatest_size", literal(0, F32))
            with e.counting(0, -(-count // WARP), "part") as part:
                at = e.symbol(part * WARP + self.block.lanes.lane, "at", 0, part.high * WARP + 31)
                with guarded(f, at, count) as inside:
                    _take(e, greatest, parts.memory[inside])
            _exchange(e, greatest)
            self.sizes[operand] = greatest

    def passes(self, number: int) -> int:
        """How often a sweep goes over the tiles: twice where masked ones wait for the others."""
        if self.masking is None or self.masking.limits[number] is None:
            return 1
        return 1 + self.masking.is_late(number)

    @contextmanager
    def needed(
        self,
        number: int,
        again: Index,
        first: Index,
        folds: Mapping[Instruction, Sequence[ThreadFold]],
    ) -> Iterator[None]:
        """Around what is done with the tile at a column, in a pass over them."""
        masking = self.masking
        limits = None if masking is None else masking.limits[number]
        if masking is None or limits is None:
            yield
            return
        e = self.block.e
        masked = e.scope.declare(BOOL, self._masked(masking, first), "masked")
        if self.passes(number) == 1:
            begins: Expr = masked.negated()
            tested: Expr = masked
        else:
            second = eq(again, 1)
            begins, tested = eq(masked, second), both([masked, second])
        needed = e.scope.variable(BOOL, "needed", begins)
        with e.when(tested) as inner:
            test = e.scope.variable(BOOL, "nothing", TRUE)
            self._test(limits, first, folds, test)
            inner.set(needed, inner.agree(test, "left_out").negated())
        with e.when(needed):
            yield

    def _masked(self, masking: Masking, first: Index) -> Expr:
        """Whether the mask takes away all of a tile; the same in all threads of the block."""
        block = self.block
        arithmetic = _Code(block.e)
        spans = []
        for start, step, size in (
            (block.first, block.height, block.form.count(block.form.rows)),
            (first, block.width, block.columns),
        ):
            last = block.clamped(start + (step - 1), size, "last")
            spans.append((as_expr(start), as_expr(last)))
        rows, columns = spans
        reader = PlaceReader(block.form, rows, columns, arithmetic, set(masking.unreadable))
        found = reader.read(masking.mask, masking.along)
        assert found is not None, "of a pred something is known"
        every, some = found
        return every if masking.masked else some.negated()

    # ---- limits -------------------------------------------------------------------------------------

    def _test(
        self,
        limits: Sequence[Limit],
        first: Index,
        folds: Mapping[Instruction, Sequence[ThreadFold]],
        test: Var,
    ) -> None:
        """Set ``test`` to whether all limits hold in the rows and columns of a thread."""
        block, e = self.block, self.block.e
        columns = set(block.form.columns)
        of_columns = [one for one in limits if columns & _axes_of(one)]
        of_rows = [one for one in limits if one not in of_columns]
        running: dict[Instruction, list[Expr]] = {
            hero: [fold.names[0] for fold in own]
            for hero, own in folds.items()
            if len(own[0].names) == 1 and own[0].has is None
        }
        for half in range(HALVES):
            with e.within(e.scope.braces()):
                block.bind_rows(half, running)
                self._hold(of_rows, block.row_axes(half), test)
                block.unbind()
        if not of_columns:
            return
        steps = -(-block.width // block.threads)
        with e.counting(0, steps, "part") as part:
            number = part * block.threads + block.f.thread()
            place = e.symbol(
                first + number % block.width, "column", 0, first.high + block.width - 1
            )
            inside = block.clamped(place, block.columns, "inside")
            known = {**block.at, **block.axes(block.form.columns, inside)}
            self._hold(of_columns, known, test)

    def _hold(self, limits: Sequence[Limit], known: Mapping[int, Index], test: Var) -> None:
        e = self.block.e
        tests: list[Expr] = [test]
        made: dict[TileBound, Expr] = {}
        for limit in limits:
            bound = self._bound(limit.bound, known, made)
            tests.append(bound <= literal(limit.most, F32))
        e.scope.set(test, both(tests))

    def _bound(
        self, bound: TileBound, known: Mapping[int, Index], made: dict[TileBound, Expr]
    ) -> Expr:
        found = made.get(bound)
        if found is None:
            found = made[bound] = self._made(bound, known, made)
        return found

    def _made(
        self, bound: TileBound, known: Mapping[int, Index], made: dict[TileBound, Expr]
    ) -> Expr:
        e, uses = self.block.e, self.block.f.uses
        if bound.op == "constant":
            return literal(bound.number, F32)
        if bound.op == "size":
            assert bound.value is not None, "of an operand"
            return self.sizes[bound.value]
        if bound.op == "value":
            assert bound.value is not None, "of a row or a column"
            value = e.value(bound.value, self._index(bound.along, known))
            return e.declare(F32, convert(value, bound.value.array.dtype, F32, uses), "bound")
        parts = [self._bound(part, known, made) for part in bound.parts]
        return e.declare(F32, scalar_op(bound.op, F32, parts, uses), "bound")

    def _index(self, along: Along, known: Mapping[int, Index]) -> Indices:
        """The place of a value; any will do along a dimension in which it is the same."""
        sizes = self.block.form.sizes
        zero = Index(0)
        parts = ([(known.get(axis, zero), sizes[axis]) for axis in part or ()] for part in along)
        return tuple(linearize([at for at, _ in own], [size for _, size in own]) for own in parts)


def _axes_of(limit: Limit) -> set[int]:
    return {axis for part in limit.bound.walk() for axis in part.axes}


def _take(e: Elements, greatest: Var, value: Expr) -> None:
    e.scope.set(greatest, scalar_op("maximum", F32, [greatest, value], e.uses))


def _exchange(e: Elements, greatest: Var) -> None:
    """Fold what the lanes of a warp have: afterwards each has all of it."""
    loop, at = e.scope.loop(WARP // 2, 0, "distance", INT, 2, test=">", change="/=")
    with e.within(loop):
        other = e.uses.call("shuffle_xor", greatest, at, type=FLOAT)
        _take(e, greatest, e.scope.declare(FLOAT, other, "other"))


def write_sizes(f: FunctionWriter, operands: Sequence[Instruction]) -> None:
    """The launch that finds the greatest absolute element of operands; a block has a part of each.

    An operand with a NaN has that as its greatest.
    """
    e, threads, blocks = f.elements, f.launch.block[0], f.launch.grid[0]
    lane = e.symbol(f.thread() % WARP, "lane", 0, WARP - 1)
    warps = threads // WARP
    for number, operand in enumerate(operands):
        shape = operand.array
        run = next(run for run in (8, 4, 2, 1) if shape.elements % run == 0)
        runs = shape.elements // run
        greatest = e.scope.variable(FLOAT, "greatest", literal(0, F32))
        with e.counting(0, -(-runs // (threads * blocks)), "step", unroll=4) as step:
            at = (step * blocks + f.block()) * threads + f.thread()
            place = e.symbol(at, "run", 0, step.high * blocks * threads + blocks * threads - 1)
            with guarded(f, place, runs) as inside:
                for one in range(run):
                    value = e.value(operand, delinearize(inside * run + one, shape.dims))
                    wide = e.declare(F32, convert(value, shape.dtype, F32, f.uses), "wide")
                    size = e.declare(F32, scalar_op("abs", F32, [wide], f.uses), "size")
                    _take(e, greatest, size)
        _exchange(e, greatest)
        tile = f.shared(FLOAT, (warps,), "sizes")
        with e.when(eq(lane, 0)):
            e.scope.set(tile[f.thread() // WARP], greatest)
        f.barrier()
        with e.when(eq(f.thread(), 0)):
            whole = e.scope.variable(FLOAT, "whole", literal(0, F32))
            for warp in range(warps):
                _take(e, whole, tile[warp])
            f.store(f.scratch(number), f.block(), whole)
