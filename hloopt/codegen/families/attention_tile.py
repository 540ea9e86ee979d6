"""A tile of scores in the registers of a warp, and what is done with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field

from hloopt.analysis.attention import LateFactor, TiledProduct
from hloopt.analysis.attention.axes import AxisNumber
from hloopt.analysis.index import Index, Indices
from hloopt.codegen.families.attention_block import AttentionBlock
from hloopt.codegen.families.attention_products import EIGHT, F32, HALVES, PAIR, stored_factor
from hloopt.codegen.families.folding import ThreadFold, take
from hloopt.codegen.scalars import convert, literal
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import Array, Expr, below
from hloopt.kernel_ir.types import INT

__all__ = ["ScoreTile"]


@dataclass
class ScoreTile:
    """A tile of scores: a lane's elements of each product, and what rows are known to have.

    ``halves`` are values a row, of the lane's two rows.
    """

    block: AttentionBlock
    first: Index
    scores: Mapping[Instruction, Array]
    halves: dict[Instruction, list[Expr]] = field(default_factory=dict)

    @contextmanager
    def _places(self) -> Iterator[Index]:
        with self.block.e.counting(0, self.block.width // EIGHT, "j", type=INT, unroll=0) as j:
            yield j

    def _at(self, j: Index, half: int, pair: int) -> tuple[dict[AxisNumber, Index], list[Expr]]:
        """The axes of an element, with its values bound; the tests that there is such a column."""
        block = self.block
        e, form = block.e, block.form
        last = self.first.high + block.width - 1
        place = self.first + j * EIGHT + block.t * PAIR + pair
        column = e.symbol(place, "column", 0, last)
        inside = block.clamped(column, block.columns, "inside")
        for product in form.scores:
            if product.hero not in self.scores:
                continue
            total = self.scores[product.hero][j, half * PAIR + pair]
            block.place(product.hero).now = block.rounded(product, total)
        block.bind_rows(half, self.halves)
        known = {**block.row_axes(half), **block.axes(form.columns, inside)}
        return known, below(column, block.columns)

    def fold(
        self,
        folds: Mapping[Instruction, list[ThreadFold]],
        lates: Iterable[LateFactor | None] = (),
    ) -> None:
        """Take a lane's elements of each row in, without factors that are not known yet."""
        if not folds:
            return
        block = self.block
        e = block.e
        with self._places() as j:
            for half in range(HALVES):
                for pair in range(PAIR):
                    known, tests = self._at(j, half, pair)
                    self._leave_out(lates)
                    with e.when(*tests):
                        for hero, own in folds.items():
                            source = hero.operands[0]
                            index = block.index(block.form.along[source], known)
                            take(e, own[half], [e.value(source, index)])
        block.unbind()

    def _leave_out(self, lates: Iterable[LateFactor | None]) -> None:
        """Have 1 for values a row that are multiplied or divided by at the end."""
        for late in lates:
            if late is not None:
                self.block.place(late.value).now = literal(1, late.value.array.dtype)

    def _weight(self, product: TiledProduct, source: Instruction, index: Indices) -> Expr:
        """An element of the weights in f32: matrix units round it themselves."""
        e, kind = self.block.e, product.contraction.kind
        cast = source.opcode == "convert" and source.operands[0].array.dtype is F32
        if cast and self.block.products.rounds(product, source.array.dtype):
            return e.value(source.operands[0], index)
        value = stored_factor(e, e.value(source, index), source.array.dtype, product, kind)
        return convert(value, kind, F32, e.uses)

    def weigh(self, product: TiledProduct, late: LateFactor | None) -> None:
        """Set a lane's weights; zeros behind the last column."""
        block = self.block
        e, source = block.e, product.contraction.lhs.instruction
        with self._places() as j:
            for half in range(HALVES):
                for pair in range(PAIR):
                    known, tests = self._at(j, half, pair)
                    self._leave_out((late,))
                    target = block.products.weight(block.weights, j, half, pair)
                    if tests:
                        e.scope.set(target, literal(0, F32))
                    with e.when(*tests):
                        index = block.index(block.form.along[source], known)
                        e.scope.set(target, self._weight(product, source, index))
        block.unbind()
