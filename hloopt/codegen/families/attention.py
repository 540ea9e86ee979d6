"""The attention kernel: a warp has 16 rows; a lane two of them, and two neighbouring columns of every eight.

A lane's elements of a tile lie as those of a matrix unit do: with ``g = lane / 4`` and ``t = lane % 4`` in rows
``g`` and ``g + 8``, in columns ``8 j + 2 t`` and the next one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hloopt.analysis.attention import LateFactor, Rescaling, ScoreSweep, TiledProduct
from hloopt.analysis.contraction import AxisGroup
from hloopt.analysis.index import Index
from hloopt.codegen.families.attention_block import AttentionBlock
from hloopt.codegen.families.attention_loads import ColumnTiles, load_rows
from hloopt.codegen.families.attention_products import EIGHT, F32, HALVES, PAIR
from hloopt.codegen.families.attention_results import store_contexts, store_rows
from hloopt.codegen.families.attention_skips import TileSkips, write_sizes
from hloopt.codegen.families.attention_tile import ScoreTile
from hloopt.codegen.families.folding import ThreadFold, begin, everywhere, finished, merge
from hloopt.codegen.reducer import ReducerCode
from hloopt.codegen.scalars import convert, literal, scalar_op
from hloopt.codegen.writer import FunctionWriter
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import Expr, Select, eq
from hloopt.kernel_ir.types import INT
from hloopt.kernels.families.attention import attention_of, masking_in
from hloopt.types import DType

__all__ = ["EMITTERS"]


def _emit(f: FunctionWriter) -> None:
    form = attention_of(f.region)
    if f.launch.function == "_sizes":
        masking = masking_in(form, f.tile)
        assert masking is not None, "tiles are left out"
        write_sizes(f, masking.sizes)
        return
    block = _Sweeps(f, form)
    load_rows(block)
    skips = TileSkips.of(block)
    for number, sweep in enumerate(form.sweeps):
        block.sweep(sweep, number, skips)
    store_rows(block)
    if block.form.contexts:
        store_contexts(block)


class _Sweeps(AttentionBlock):
    """All columns, once a sweep."""

    def sweep(self, sweep: ScoreSweep, number: int, skips: TileSkips) -> None:
        """Traverse the columns, and keep what they give."""
        e, rescaling = self.e, sweep.rescaling
        self.invert()
        folds = {hero: self._begun(hero) for hero in sweep.heroes}
        if rescaling is not None:
            self._take_init(folds[rescaling.greatest])
        for product in sweep.contexts:
            eights = self.products.inner_eights(product)
            self.sums[product.hero] = self.products.cleared(eights, f"{product.hero.name}_sums")
        steps = -(-self.columns // self.width)
        with (
            e.counting(0, skips.passes(number), "again", unroll=1) as again,
            e.counting(0, steps, "step") as step,
        ):
            first = e.symbol(step * self.width, "first_column", 0, (steps - 1) * self.width)
            with skips.needed(number, again, first, folds):
                self._tile(sweep, first, folds)
        self._finish(sweep, folds)

    def _tile(
        self,
        sweep: ScoreSweep,
        first: Index,
        folds: Mapping[Instruction, list[ThreadFold]],
    ) -> None:
        """Compute a tile of scores, and take it in."""
        rescaling = sweep.rescaling
        operands: list[tuple[TiledProduct, AxisGroup]] = [(one, "k") for one in sweep.scores]
        operands += [(one, "n") for one in sweep.contexts]
        columns = ColumnTiles(self, operands, first)
        columns.begin()
        scores = {}
        for number, product in enumerate(sweep.scores):
            values = columns.arrive(number)
            sums = self.products.cleared(self.width // EIGHT, f"{product.hero.name}_tile")
            self.products.scores(product, self.own[product.hero], values, sums)
            scores[product.hero] = sums
            columns.leave(number)
        tile = ScoreTile(self, first, scores)
        if rescaling is None:
            tile.fold(folds)
        else:
            own = {one: fold for one, fold in folds.items() if one is rescaling.greatest}
            rest = {one: fold for one, fold in folds.items() if one not in own}
            early = {one: fold for one, fold in rest.items() if one not in rescaling.kept}
            tile.fold(early)
            self._rescale(rescaling, own[rescaling.greatest], tile, folds, sweep.contexts)
            kept = {one: fold for one, fold in rest.items() if one in rescaling.kept}
            tile.fold(kept, [rescaling.kept[one] for one in kept])
        for number, product in enumerate(sweep.contexts, len(sweep.scores)):
            late = rescaling.kept.get(product.hero) if rescaling is not None else None
            tile.weigh(product, late)
            values = columns.arrive(number)
            self.products.context(product, self.weights, values, self.sums[product.hero])
            columns.leave(number)
        self.unbind()

    def _begun(self, hero: Instruction) -> list[ThreadFold]:
        return [begin(self.e, hero) for _ in range(HALVES)]

    def _take_init(self, running: list[ThreadFold]) -> None:
        """Begin with the init value of the greatest score: exponentials lie below that, too."""
        e, init = self.e, running[0].hero.operands[1]
        known = init.constant_array
        if known is not None and known.reshape(-1)[0] == -np.inf:
            return
        for fold in running:
            merge(e, fold, fold.reducer.lift(e, [e.value(init)]))

    def _rescale(
        self,
        rescaling: Rescaling,
        running: list[ThreadFold],
        tile: ScoreTile,
        folds: Mapping[Instruction, list[ThreadFold]],
        contexts: Sequence[TiledProduct],
    ) -> None:
        """Take the tile's greatest scores in, and scale what waits for them."""
        e, greatest = self.e, rescaling.greatest
        own = self._begun(greatest)
        tile.fold({greatest: own})
        everywhere(e, own, 4, self.f.thread())
        kind = ReducerCode.of(greatest).accumulators[0]
        factors: list[Expr] = []
        most: list[Expr] = []
        for half in range(HALVES):
            (name,) = running[half].names
            before = e.declare(kind, name, "before")
            merge(e, running[half], own[half].names)
            # With nothing but -inf so far, exponentials of differences would be NaN.
            same = self._is_least(name, kind)
            distance = scalar_op("subtract", kind, [before, name], self.f.uses)
            wide = self._f32(e.declare(kind, distance, "distance"), kind)
            power = e.declare(F32, scalar_op("exponential", F32, [wide], self.f.uses), "power")
            factors.append(e.declare(F32, Select.of(same, literal(1, F32), power), "factor"))
            most.append(e.declare(kind, Select.of(same, literal(0, kind), name), "most"))
        tile.halves[greatest] = most
        for one in rescaling.kept:
            if one in folds:
                for half in range(HALVES):
                    (total,) = folds[one][half].names
                    e.scope.set(total, total * factors[half])
        for product in contexts:
            if product.hero in rescaling.kept:
                sums = self.sums[product.hero]
                with e.counting(0, sums.dims[0], "j", type=INT, unroll=0) as j:
                    for at in range(2 * PAIR):
                        place = sums[j, at]
                        e.scope.set(place, place * factors[at // PAIR])

    def _is_least(self, value: Expr, kind: DType) -> Expr:
        return eq(self._f32(value, kind), literal(float("-inf"), F32))

    def _f32(self, value: Expr, kind: DType) -> Expr:
        return convert(value, kind, F32, self.f.uses)

    def _finish(self, sweep: ScoreSweep, folds: Mapping[Instruction, list[ThreadFold]]) -> None:
        """Exchange what lanes have of a row, and finish it."""
        e, rescaling = self.e, sweep.rescaling
        whole = {} if rescaling is None else {rescaling.greatest}
        waiting = {} if rescaling is None else rescaling.kept
        # What others wait for comes first.
        for hero, own in sorted(folds.items(), key=lambda one: waiting.get(one[0]) is not None):
            if hero not in whole:
                everywhere(e, own, 4, self.f.thread())
            late = waiting.get(hero)
            if late is not None:
                for fold, factor in zip(own, self._late(late), strict=True):
                    (total,) = fold.names
                    value = scalar_op(late.opcode, F32, [total, factor], self.f.uses)
                    e.scope.set(total, value)
            self.found[hero] = [finished(e, fold)[0] for fold in own]
            if rescaling is not None and hero in waiting:
                self._without_scores(rescaling, folds, hero)
        if rescaling is None:
            return
        for hero, late in rescaling.kept.items():
            if hero in self.found:
                continue
            if late is None:
                self._without_scores(rescaling, folds, hero)
            else:
                self._apply(hero, late)

    def _without_scores(
        self,
        rescaling: Rescaling,
        folds: Mapping[Instruction, list[ThreadFold]],
        hero: Instruction,
    ) -> None:
        """Of a row of nothing but -inf the exponentials are NaN."""
        e, kind = self.e, rescaling.greatest.array.dtype
        for half in range(HALVES):
            (most,) = folds[rescaling.greatest][half].names
            none = self._is_least(most, kind)
            if hero in self.found:
                type = hero.array.dtype
                value = Select.of(none, literal(float("nan"), type), self.found[hero][half])
                self.found[hero][half] = e.declare(type, value, "total")
                continue
            sums = self.sums[hero]
            with e.when(none), e.counting(0, sums.dims[0], "j", type=INT, unroll=0) as j:
                for pair in range(PAIR):
                    e.scope.set(sums[j, half * PAIR + pair], literal(float("nan"), F32))

    def _late(self, late: LateFactor) -> list[Expr]:
        """The value of each of a lane's rows that sums of it waited for."""
        e = self.e
        factors: list[Expr] = []
        with self.rows_bound() as rows:
            for half in range(HALVES):
                rows(half)
                index = self.index(self.form.along[late.value], self.row_axes(half))
                kind = late.value.array.dtype
                factors.append(e.declare(F32, self._f32(e.value(late.value, index), kind), "late"))
        return factors

    def _apply(self, context: Instruction, late: LateFactor) -> None:
        """Multiply or divide a context by what its weights waited for."""
        e, sums, factors = self.e, self.sums[context], self._late(late)
        with e.counting(0, sums.dims[0], "j", type=INT, unroll=0) as j:
            for at in range(2 * PAIR):
                value = scalar_op(late.opcode, F32, [sums[j, at], factors[at // PAIR]], self.f.uses)
                e.scope.set(sums[j, at], value)


EMITTERS = {"attention": _emit}
