"""Matrix products by tiles in shared memory.

A block computes m by n results.  Its threads read k columns of rows of the left operand and k rows of columns
of the right one into shared memory, both with the contracted axis first, and each adds up the products of a
few rows and columns.  What lies outside of an operand is 0 there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from functools import partial
from typing import TypeAlias

from hloopt.analysis.contraction import AxisGroup, Side
from hloopt.analysis.index import Index, Indices, delinearize, narrowed
from hloopt.codegen.families.dot_values import ProductWriter
from hloopt.codegen.families.sweeping import guarded
from hloopt.codegen.writer import FunctionWriter
from hloopt.dataclass import dataclass
from hloopt.kernel_ir.expressions import Array, Element, Expr, as_expr
from hloopt.kernel_ir.types import INT
from hloopt.kernels.families.dot_region import product_of
from hloopt.kernels.families.dot_tiling import Tiling, oriented, tiling_of

__all__ = ["EMITTERS", "emit_tiles"]

_Target: TypeAlias = Callable[[int], Element]
_Lane: TypeAlias = tuple[list[Expr], Indices]


def emit_tiles(f: FunctionWriter) -> None:
    """The one launch, or both of a contracted axis that is cut into parts."""
    product = product_of(f.region)
    contraction = oriented(product, f.region)
    tiling = tiling_of(contraction, f.tile, f.spec.kernel)
    tiles = _Tiles(f, product, contraction, tiling)
    if f.launch.function == "_sum":
        tiles.emit_sum(tiling.split)
    else:
        tiles.emit()


@dataclass
class _Tiles(ProductWriter):
    tiling: Tiling
    counts: dict[AxisGroup, Index] = field(default_factory=dict)

    def emit(self) -> None:
        f, tiling = self.f, self.tiling
        if tiling.element_bytes > 4:
            f.blocks_per_core = 1
        elif self._is_large:
            f.blocks_per_core = max(1, 512 // tiling.threads)
        tiles = {
            "lhs": _Load(self, "lhs", self.contraction.lhs, "m", tiling.m),
            "rhs": _Load(self, "rhs", self.contraction.rhs, "n", tiling.n),
        }
        for load in tiles.values():
            load.declare()
        self._place()
        shape = (tiling.thread_m, tiling.thread_n)
        sums = f.scope.array(self.kind, shape, "sums", [self.zero])
        for load in tiles.values():
            load.declare_staged()
        self._along_k(tiles, sums)
        self._store(sums)

    @property
    def _is_large(self) -> bool:
        """Whether sums take so many registers that a core has room for two blocks only with a launch bound."""
        return self.tiling.thread_m * self.tiling.thread_n >= 64

    def _place(self) -> None:
        """Which tile this block has, and where in it this thread is."""
        f, tiling, e = self.f, self.tiling, self.f.elements
        batch = self.contraction.size("b")
        sizes = (batch, tiling.split, tiling.blocks_m, tiling.blocks_n)
        b, part, block_m, block_n = delinearize(f.block(), sizes)
        self.counts["b"] = e.symbol(b, "b", 0, batch - 1)
        self.part = e.symbol(part, "part", 0, tiling.split - 1)
        self.first = {
            "m": e.symbol(block_m * tiling.m, "first_m", 0, (tiling.blocks_m - 1) * tiling.m),
            "n": e.symbol(block_n * tiling.n, "first_n", 0, (tiling.blocks_n - 1) * tiling.n),
        }
        row, column = delinearize(f.thread(), (tiling.threads_m, tiling.threads_n))
        self.row = e.symbol(row * tiling.run_m, "row", 0, (tiling.threads_m - 1) * tiling.run_m)
        self.column = e.symbol(
            column * tiling.run_n, "column", 0, (tiling.threads_n - 1) * tiling.run_n
        )

    def _along_k(self, tiles: Mapping[str, _Load], sums: Array) -> None:
        """A loop over tiles; with prefetch a tile is read while the one before is multiplied."""
        f, e, tiling = self.f, self.f.elements, self.tiling
        steps = tiling.chunk // tiling.k
        with e.counting(0, steps + bool(tiling.prefetch), "step") as step:
            if not tiling.prefetch:
                for load in tiles.values():
                    load.direct(step)
                f.barrier()
                self._multiply(tiles, sums)
                if steps > 1:
                    f.barrier()
                return
            with guarded(f, step, steps) as inside:
                for load in tiles.values():
                    load.stage(inside)
            with e.when(as_expr(step) > 0):
                self._multiply(tiles, sums)
            f.barrier()
            with guarded(f, step, steps):
                for load in tiles.values():
                    load.unstage()
            f.barrier()

    def _multiply(self, tiles: Mapping[str, _Load], sums: Array) -> None:
        e, tiling, kind = self.f.elements, self.tiling, self.kind
        # Unrolled, the factors of several k would leave room for one block only.
        unroll = 1 if self._is_large else 0
        with e.counting(0, tiling.k, "k", type=INT, unroll=unroll) as k:
            a = e.scope.array(kind, (tiling.thread_m,), "a")
            b = e.scope.array(kind, (tiling.thread_n,), "b")
            self._take(tiles["lhs"].tile, k, a, self.row, "m")
            self._take(tiles["rhs"].tile, k, b, self.column, "n")
            with (
                e.counting(0, tiling.thread_m, "i", type=INT, unroll=0) as i,
                e.counting(0, tiling.thread_n, "j", type=INT, unroll=0) as j,
            ):
                self.multiply_add(sums[i, j], a[i], b[j])

    def _take(self, tile: Array, k: Index, into: Array, start: Index, group: str) -> None:
        """Factors of this thread's rows or columns."""
        e = self.f.elements
        count, run, stride = self._shape(group)
        with e.counting(0, count, "i", type=INT, unroll=0) as i:
            e.scope.set(into[i], tile[k, start + i // run * stride + i % run])

    def _shape(self, group: str) -> tuple[int, int, int]:
        """Results of a thread along m or n: how many, how many next to each other, and from run to run."""
        tiling = self.tiling
        if group == "m":
            return tiling.thread_m, tiling.run_m, tiling.threads_m * tiling.run_m
        return tiling.thread_n, tiling.run_n, tiling.threads_n * tiling.run_n

    def _store(self, sums: Array) -> None:
        e, last = self.f.elements, self.tiling.blocks_m * self.tiling.m - 1
        count, run, stride = self._shape("m")
        with e.counting(0, count, "i", type=INT, unroll=0) as i:
            place = self.first["m"] + self.row + i // run * stride + i % run
            with self._inside("m", e.symbol(place, "m", 0, last)):
                self._store_row(sums, i)

    def _store_row(self, sums: Array, row: Index) -> None:
        """Store runs of results, which lie next to each other along n."""
        e, size = self.f.elements, self.contraction.size("n")
        count, run, stride = self._shape("n")
        last = self.tiling.blocks_n * self.tiling.n - run
        lanes = run if size % run == 0 else 1
        with e.counting(0, count // run, "j", type=INT, unroll=0) as j:
            first = e.symbol(self.first["n"] + self.column + j * stride, "n", 0, last)
            for at in range(0, run, lanes):
                with self._inside("n", first + at, lanes):
                    places, values = [], []
                    for lane in range(lanes):
                        counts = {**self.counts, "n": self.counts["n"] + lane}
                        places.append(self.result_place(counts))
                        values.append(sums[row, j * run + at + lane])
                    self.finish(places, values, self.part)

    @contextmanager
    def _inside(self, group: AxisGroup, index: Index, run: int = 1) -> Iterator[None]:
        """The block where an index is below the size.

        Where ``run`` neighbours from the index on are written it divides the size.
        """
        size = self.contraction.size(group)
        tests = [as_expr(index) < size] if index.high + run > size else []
        with self.f.elements.when(*tests):
            self.counts[group] = narrowed(index, size - run + 1)
            yield


@dataclass
class _Load:
    """Reading a tile of one operand: ``rows`` along ``group``, and the tiling's k."""

    tiles: _Tiles
    name: str
    side: Side
    group: AxisGroup
    rows: int
    tile: Array = field(init=False)
    staged: Array = field(init=False)

    def __post_init__(self) -> None:
        tiling, contraction = self.tiles.tiling, self.tiles.contraction
        self.along_k = contraction.quickest(self.side) == "k"
        along: AxisGroup = "k" if self.along_k else self.group
        span = tiling.k if self.along_k else self.rows
        self.run = tiling.load_run(contraction.size(along), span)
        self.runs = self.rows * tiling.k // self.run
        self.each = -(-self.runs // tiling.threads)

    def declare(self) -> None:
        """The tile in shared memory: k first."""
        tiling = self.tiles.tiling
        # Runs along k are stored across rows: shifted against each other they meet fewer banks.
        pad = max(1, 16 // tiling.element_bytes) if self.along_k else 0
        shape, hint = (tiling.k, self.rows + pad), f"{self.name}_tile"
        self.tile = self.tiles.f.shared(self.tiles.kind, shape, hint, aligned=True)

    def declare_staged(self) -> None:
        """Registers for what is read while the tile before is multiplied."""
        if self.tiles.tiling.prefetch:
            shape, hint = (self.each, self.run), f"{self.name}_next"
            self.staged = self.tiles.f.scope.array(self.tiles.kind, shape, hint)

    def direct(self, step: Index) -> None:
        """Read into shared memory."""
        with self._runs() as (_, row, k):
            self._read(step, row, k, partial(self._shared, row, k))

    def stage(self, step: Index) -> None:
        """Read into registers."""
        with self._runs() as (at, row, k):
            self._read(step, row, k, lambda lane: self.staged[at, lane])

    def unstage(self) -> None:
        """From registers into shared memory."""
        with self._runs() as (at, row, k):
            for lane in range(self.run):
                target = self._shared(row, k, lane)
                self.tiles.f.elements.scope.set(target, self.staged[at, lane])

    @contextmanager
    def _runs(self) -> Iterator[tuple[Index, Index, Index]]:
        """For each run this thread reads: its number, its row and its first k."""
        f, e, tiling = self.tiles.f, self.tiles.f.elements, self.tiles.tiling
        with e.counting(0, self.each, "i", type=INT, unroll=0) as at:
            number = f.thread() + at * tiling.threads
            if number.high >= self.runs:
                number = e.symbol(number, "run", 0, number.high)
            with guarded(f, number, self.runs) as inside:
                if self.along_k:
                    row, k = delinearize(inside, (self.rows, tiling.k // self.run))
                    k = k * self.run
                else:
                    k, row = delinearize(inside, (tiling.k, self.rows // self.run))
                    row = row * self.run
                row = e.symbol(row, f"{self.name}_row", 0, self.rows - 1)
                k = e.symbol(k, f"{self.name}_k", 0, tiling.k - 1)
                yield at, row, k

    def _shared(self, row: Index, k: Index, lane: int) -> Element:
        return self.tile[k + lane, row] if self.along_k else self.tile[k, row + lane]

    def _read(self, step: Index, row: Index, k: Index, into: _Target) -> None:
        """Read one run; 0 for what lies outside of the operand."""
        tiles, tiling = self.tiles, self.tiles.tiling
        e = tiles.f.elements
        last_k = tiling.split * tiling.chunk - (self.run if self.along_k else 1)
        deep = tiles.part * tiling.chunk + step * tiling.k + k
        deep = e.symbol(deep, "k", 0, last_k)
        wide = tiles.first[self.group] + row
        last = self._padded - (1 if self.along_k else self.run)
        wide = e.symbol(wide, self.group, 0, last)
        targets = [into(lane) for lane in range(self.run)]
        tests, symbols = self._bounds(wide, deep)
        lanes = self._lanes(symbols)
        inner = {tuple(found) for found, _ in lanes}
        if len(inner) == 1:
            tests += inner.pop()
            lanes = [([], place) for _, place in lanes]
        if tests:
            for target in targets:
                e.scope.set(target, tiles.zero)
        with e.when(*tests):
            self._set_all(lanes, targets)

    @property
    def _padded(self) -> int:
        tiling = self.tiles.tiling
        return tiling.blocks_m * tiling.m if self.group == "m" else tiling.blocks_n * tiling.n

    def _bounds(self, wide: Index, deep: Index) -> tuple[list[Expr], dict[AxisGroup, Index]]:
        """The tests that a run lies inside, and what is known then; runs divide the extents."""
        contraction = self.tiles.contraction
        tests: list[Expr] = []
        found: dict[AxisGroup, Index] = {}
        for group, index in ((self.group, wide), ("k", deep)):
            size = contraction.size(group)
            is_run = (group == "k") == self.along_k
            found[group] = index
            if index.high >= size:
                tests.append(as_expr(index) < size)
                found[group] = narrowed(index, size - self.run + 1 if is_run else size)
        return tests, found

    def _lanes(self, symbols: Mapping[AxisGroup, Index]) -> list[_Lane]:
        """The tests and the place of each element of a run."""
        tiles = self.tiles
        along: AxisGroup = "k" if self.along_k else self.group
        found = []
        for lane in range(self.run):
            counts = {"b": tiles.counts["b"], **symbols, along: symbols[along] + lane}
            found.append(tiles.operand_place(self.side, counts))
        return found

    def _set_all(self, lanes: Sequence[_Lane], targets: Sequence[Element]) -> None:
        e = self.tiles.f.elements
        for (tests, place), target in zip(lanes, targets, strict=True):
            if tests:
                e.scope.set(target, self.tiles.zero)
            with e.when(*tests) as inner:
                inner.set(target, self.tiles.factor(self.side, place))


EMITTERS = {"dot-tiled": emit_tiles, "dot-split-k": emit_tiles}
