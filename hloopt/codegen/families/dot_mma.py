"""Matrix products by matrix units.

A block computes m by n results, each of its warps a part of them.  Tiles of both operands go through as many
stages in shared memory as the tile says: while one is multiplied the next ones are on their way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import TypeVar

from hloopt.analysis.contraction import AxisGroup
from hloopt.analysis.index import Index, delinearize, narrowed
from hloopt.codegen.families.dot_values import ProductWriter
from hloopt.codegen.families.matrix_loads import TileLoad
from hloopt.codegen.families.sweeping import guarded
from hloopt.codegen.writer import FunctionWriter
from hloopt.dataclass import dataclass
from hloopt.kernel_ir.expressions import Array, Call, Cast, Element, Expr, as_expr
from hloopt.kernel_ir.statements import Commit, LoadMatrices, MultiplyMatrices, Wait
from hloopt.kernel_ir.types import INT, UINT
from hloopt.kernels.families.dot_region import product_of
from hloopt.kernels.families.dot_tiling import oriented
from hloopt.kernels.families.matrix_tiling import MatrixTiling, matrix_tiling_of

__all__ = ["EMITTERS", "emit"]

_WARP = 32


def emit(f: FunctionWriter) -> None:
    """The one launch, or both of a contracted axis that is cut into parts."""
    product = product_of(f.region)
    contraction = oriented(product, f.region)
    tiling = matrix_tiling_of(f.region, contraction, f.tile, f.spec.kernel)
    writer = _Product(f, product, contraction, tiling)
    if f.launch.function == "_sum":
        writer.emit_sum(tiling.split)
    else:
        writer.emit()


@dataclass
class _Product(ProductWriter):
    tiling: MatrixTiling
    counts: dict[AxisGroup, Index] = field(default_factory=dict)
    first: dict[AxisGroup, Index] = field(default_factory=dict)

    def emit(self) -> None:
        f, tiling = self.f, self.tiling
        f.blocks_per_core = 1
        self._place()
        batch = self.counts["b"]
        sides = [("lhs", self.contraction.lhs, "m"), ("rhs", self.contraction.rhs, "n")]
        if self.product.second is not None:
            sides.append(("second", self.product.second.rhs, "n"))
        loads = [
            TileLoad(self, tiling, name, side, group, self.first[group], batch)  # type: ignore[arg-type, index]
            for name, side, group in sides
        ]
        shape = (tiling.warp_m // 16, tiling.warp_n // 8, 4)
        sums = [f.scope.array(tiling.step.sum, shape, "sums", [0]) for _ in loads[1:]]
        for load in loads:
            load.declare()
        self._along_k(loads, sums)
        self._store(sums)

    def _place(self) -> None:
        """Which tile this block has, and where in it this warp and this lane are."""
        f, tiling, e = self.f, self.tiling, self.f.elements
        batch, group = self.contraction.size("b"), tiling.group
        b, part, outer, block_n, inner = delinearize(
            f.block(), (batch, tiling.split, tiling.blocks_m // group, tiling.blocks_n, group)
        )
        block_m = outer * group + inner
        self.counts["b"] = e.symbol(b, "b", 0, batch - 1)
        self.part = e.symbol(part, "part", 0, tiling.split - 1)
        self.first["m"] = e.symbol(
            block_m * tiling.m, "first_m", 0, (tiling.blocks_m - 1) * tiling.m
        )
        self.first["n"] = e.symbol(
            block_n * tiling.n, "first_n", 0, (tiling.blocks_n - 1) * tiling.n
        )
        thread = f.thread()
        self.lane = e.symbol(thread % _WARP, "lane", 0, _WARP - 1)
        row, column = delinearize(
            thread // _WARP, (tiling.threads // _WARP // tiling.warps_n, tiling.warps_n)
        )
        self.warp = {
            "m": e.symbol(row * tiling.warp_m, "warp_m", 0, tiling.m - tiling.warp_m),
            "n": e.symbol(column * tiling.warp_n, "warp_n", 0, tiling.n - tiling.warp_n),
        }

    # ---- the contracted axis ------------------------------------------------------------------------

    def _along_k(self, loads: list[TileLoad], sums: list[Array]) -> None:
        """A step a tile: what comes ``stages - 1`` later is begun before its products are made."""
        f, e, tiling = self.f, self.f.elements, self.tiling
        ahead, copies = tiling.stages - 1, any(load.is_copied for load in loads)
        for early in range(ahead):
            if early < tiling.steps:
                for load in loads:
                    self._fill(load, early)
            if copies:
                f.scope.add(Commit())
        with e.counting(0, tiling.steps, "step") as step:
            if copies:
                e.scope.add(Wait(ahead - 1))
            # Behind it all threads see the stage, and none reads the one that is filled next.
            f.barrier()
            own = e.symbol(step % tiling.stages, "own", 0, ahead)
            if tiling.steps <= ahead:
                if copies:
                    e.scope.add(Commit())
                self._multiply(loads, own, sums)
                return
            following = e.symbol(step + ahead, "following", 0, tiling.steps - 1 + ahead)
            stage = e.symbol(following % tiling.stages, "stage", 0, ahead)
            with guarded(f, following, tiling.steps) as inside:
                for load in loads:
                    if load.is_copied:
                        load.copy(stage, self._step(inside))
                    else:
                        load.compute(self._step(inside))
            if copies:
                e.scope.add(Commit())
            self._multiply(loads, own, sums)
            if not all(load.is_copied for load in loads):
                with guarded(f, following, tiling.steps):
                    for load in loads:
                        if not load.is_copied:
                            load.write(stage)

    def _step(self, own: Index) -> Index:
        """The number of a step of this block's part among those of the whole contracted axis."""
        return own + self.part * self.tiling.steps

    def _fill(self, load: TileLoad, early: int) -> None:
        step = self._step(Index(early))
        if load.is_copied:
            load.copy(Index(early), step)
            return
        load.compute(step)
        load.write(Index(early))

    def _multiply(self, loads: list[TileLoad], stage: Index, sums: list[Array]) -> None:
        """The products of one stage."""
        e, tiling = self.f.elements, self.tiling
        tiles_m, tiles_n = tiling.warp_m // 16, tiling.warp_n // 8
        with e.counting(0, tiling.k // tiling.factors.depth, "deep", type=INT, unroll=0) as deep:
            left = self._fragments(loads[0], stage, deep, tiles_m, "left")
            for load, own in zip(loads[1:], sums, strict=True):
                right = self._fragments(load, stage, deep, tiles_n, "right")
                with (
                    e.counting(0, tiles_m, "i", type=INT, unroll=0) as i,
                    e.counting(0, tiles_n, "j", type=INT, unroll=0) as j,
                ):
                    # Of terms the small products come first; that of two second terms is left out.
                    for first, second in ((1, 0), (0, 1), (0, 0))[-tiling.factors.products :]:
                        for part in range(2) if tiling.halves else range(1):
                            self._step_of(own, left[first], right[second], (i, j), part)

    def _step_of(
        self, sums: Array, left: Array, right: Array, at: tuple[Index, Index], part: int
    ) -> None:
        """One step, of the whole depth or of a half of it."""
        step, (i, j) = self.tiling.step, at
        self.f.elements.scope.add(
            MultiplyMatrices(
                step.name,
                tuple(sums[i, j, one] for one in range(4)),
                tuple(left[i, part * step.left + one] for one in range(step.left)),
                tuple(right[j, part * step.right + one] for one in range(step.right)),
            )
        )

    def _fragments(
        self, load: TileLoad, stage: Index, deep: Index, count: int, name: str
    ) -> list[Array]:
        """The registers of ``count`` tiles along m, or along n, for one step; of each term of the factors."""
        e, factors = self.f.elements, self.tiling.factors
        each = 4 if load.free == "m" else 2
        made = [e.scope.array(UINT, (count, each), name) for _ in range(min(2, factors.products))]
        at_once = 4 // each
        with e.counting(0, count // at_once, "i", type=INT, unroll=0) as i:
            targets = [
                tuple(one[i * at_once + at // each, at % each] for at in range(4)) for one in made
            ]
            if factors.products == 1:
                self._read(load, stage, deep, i, targets[0])
                if factors.bytes == 4:
                    for one in targets[0]:
                        e.scope.set(one, self.f.uses.call("nearest_tf32", one, type=UINT))
            else:
                self._cut(load, stage, deep, i, targets)
        return made

    def _cut(
        self,
        load: TileLoad,
        stage: Index,
        deep: Index,
        i: Index,
        targets: Sequence[tuple[Element, ...]],
    ) -> None:
        """The two terms of what two steps of f32 would read.

        Which of the elements along k a lane has does not matter as long as both operands have the same: the
        two of a pair lie 4 apart in memory.
        """
        e, uses = self.f.elements, self.f.uses
        # By the register: of which of two reads, and which of its words are a pair.
        pairs = (
            ((0, 0, 2), (0, 1, 3), (1, 0, 2), (1, 1, 3))
            if load.free == "m"
            else ((0, 0, 1), (1, 0, 1), (0, 2, 3), (1, 2, 3))
        )
        words = e.scope.array(UINT, (2, 4), "words")
        for half in range(2):
            self._read(load, stage, deep * 2 + half, i, tuple(words[half, at] for at in range(4)))
        for at, (half, first, second) in enumerate(pairs):
            pair = (words[half, first], words[half, second])
            e.scope.set(targets[0][at], uses.call("upper_pair", *pair, type=UINT))
            lower = uses.call("lower_pair", *pair, targets[0][at], type=UINT)
            e.scope.set(targets[1][at], lower)

    def _read(
        self, load: TileLoad, stage: Index, deep: Index, at: Index, registers: tuple[Element, ...]
    ) -> None:
        """Four matrices, 16 of m or n by two chunks of k: for the left operand m first, else k first."""
        e, layout = self.f.elements, load.layout
        along = self.warp[load.free] + at * 16
        if layout.by_words:
            for number, register in enumerate(registers):
                across, down = _part(load, number)
                row, column = (
                    deep * 8 + down * 4 + self.lane % 4,
                    along + across * 8 + self.lane // 4,
                )
                place = load.element(stage, row, column // layout.each)
                word: Expr = load.tile[place + as_expr(column % layout.each)]
                if load.is_copied:
                    word = Call("__float_as_uint", (word,), UINT)
                e.scope.set(register, word)
            return
        free, k = _part(load, self.lane // 8)
        row = self.lane % 8
        if layout.along_k:
            line, chunk = along + free * 8 + row, deep * 2 + k
        else:
            line, chunk = deep * 16 + k * 8 + row, along // layout.each + free
        place = load.element(stage, line, chunk)
        e.scope.add(LoadMatrices(registers, load.tile.address(place), not layout.along_k))

    # ---- results ------------------------------------------------------------------------------------

    def _store(self, sums: list[Array]) -> None:
        """Each lane has two neighbours of rows that lie 8 apart."""
        e, tiling = self.f.elements, self.tiling
        last = tiling.blocks_m * tiling.m - 1
        with (
            e.counting(0, tiling.warp_m // 16, "i", type=INT, unroll=0) as i,
            e.counting(0, 2, "half", type=INT, unroll=0) as half,
        ):
            place = self.first["m"] + self.warp["m"] + i * 16 + half * 8 + self.lane // 4
            with self._inside("m", e.symbol(place, "m", 0, last)):
                self._store_row(sums, i, half)

    def _store_row(self, sums: list[Array], i: Index, half: Index) -> None:
        e, tiling = self.f.elements, self.tiling
        last = tiling.blocks_n * tiling.n - 2
        lanes = 1 if self.contraction.size("n") % 2 else 2
        with e.counting(0, tiling.warp_n // 8, "j", type=INT, unroll=0) as j:
            place = self.first["n"] + self.warp["n"] + j * 8 + self.lane % 4 * 2
            first = e.symbol(place, "n", 0, last)
            for at in range(0, 2, lanes):
                with self._inside("n", first + at, lanes):
                    counts = [{**self.counts, "n": self.counts["n"] + at} for at in range(lanes)]
                    first_sums, *others = (
                        [self._total(one[i, j, half * 2 + at + lane]) for lane in range(lanes)]
                        for one in sums
                    )
                    places = [self.result_place(one) for one in counts]
                    self.finish(places, first_sums, self.part, *others)

    def _total(self, sum_: Element) -> Expr:
        """A sum in the type that sums have elsewhere."""
        return sum_ if self.tiling.step.sum is self.kind else Cast(self.kind, sum_)

    @contextmanager
    def _inside(self, group: AxisGroup, index: Index, run: int = 1) -> Iterator[None]:
        """The block where ``run`` neighbours, which divide the size, lie inside of the result."""
        size = self.contraction.size(group)
        tests = [as_expr(index) < size] if index.high + run > size else []
        with self.f.elements.when(*tests):
            self.counts[group] = narrowed(index, size - run + 1)
            yield


P = TypeVar("P", int, Index)


def _part(load: TileLoad, number: P) -> tuple[P, P]:
    """Which half of 16 along m or n, and of two chunks along k, a matrix of four is."""
    return (number % 2, number // 2) if load.free == "m" else (number // 2, number % 2)


EMITTERS = {"dot-mma": emit, "dot-mma-split-k": emit}
