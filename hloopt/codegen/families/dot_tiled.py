"""Matrix products by tiles in shared memory.

A block computes m by n results.  Its threads read k columns of rows of the left operand and k rows of columns
of the right one into shared memory, both with the contracted axis first, and each adds up the products of a
few rows and columns.  What lies outside of an operand is 0 there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from types import MappingProxyType
from typing import Final, TypeAlias

from hloopt.analysis.contraction import Contraction, Group, Side
from hloopt.analysis.index import Index, Symbol, delinearize, linearize, narrowed
from hloopt.codegen.families.dot_index import operand_place, result_place, split_axes
from hloopt.codegen.families.dot_partial import emit_sum
from hloopt.codegen.families.dot_values import (
    factor,
    multiply_add,
    store_run,
    store_sums,
    sum_type_name,
    zero,
)
from hloopt.codegen.writer import EmitFunction, FunctionWriter
from hloopt.dataclass import dataclass
from hloopt.kernels.families.dot_region import Product, product_of
from hloopt.kernels.families.dot_tiling import Tiling, oriented, tiling_of

__all__ = ["EMITTERS", "emit_tiles"]

_UNROLL = "#pragma unroll"
_Write: TypeAlias = Callable[[str, Index, Index], None]


def emit_tiles(f: FunctionWriter) -> None:
    """The one launch, or both of a contracted axis that is cut into parts."""
    product = product_of(f.region)
    assert isinstance(product, Product), product
    contraction = oriented(product, f.region)
    tiling = tiling_of(contraction, f.tile, f.spec.kernel)
    if f.launch.function == "_sum":
        emit_sum(f, product, contraction, tiling.split)
    else:
        _Tiles(f, product, contraction, tiling).emit()


@dataclass
class _Tiles:
    f: FunctionWriter
    product: Product
    contraction: Contraction
    tiling: Tiling
    counts: dict[Group, Index] = field(default_factory=dict)

    def emit(self) -> None:
        f, tiling = self.f, self.tiling
        if tiling.element_bytes > 4:
            f.blocks_per_core = 1
        elif self._is_large:
            f.blocks_per_core = max(1, 512 // tiling.threads)
        kind = sum_type_name(f, self.contraction)
        tiles = {
            "lhs": _Load(self, "lhs", self.contraction.lhs, "m", tiling.m),
            "rhs": _Load(self, "rhs", self.contraction.rhs, "n", tiling.n),
        }
        for load in tiles.values():
            load.declare()
        self._place()
        sums = f.scope.names.fresh("sums")
        f.scope.line(f"{kind} {sums}[{tiling.thread_m}][{tiling.thread_n}] = {{}};")
        for load in tiles.values():
            load.declare_staged()
        self._along_k(tiles, sums)
        self._store(sums)

    @property
    def _is_large(self) -> bool:
        """Whether sums take so many registers that a core has room for two blocks only if told so."""
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

    def _along_k(self, tiles: Mapping[str, _Load], sums: str) -> None:
        """A loop over tiles; with prefetch a tile is read while the one before is multiplied."""
        f, e, tiling = self.f, self.f.elements, self.tiling
        steps = tiling.chunk // tiling.k
        extra = 1 if tiling.prefetch else 0
        name = f.scope.names.fresh("step")
        kind = f.loads.index_type
        if steps == 1 and not extra:
            self._load(tiles, Index(0))
            f.barrier()
            self._multiply(tiles, sums)
            return
        head = f"for ({kind} {name} = 0; {name} < {steps + extra}; ++{name})"
        with e.within(e.scope.block(head)):
            if not extra:
                self._load(tiles, Symbol(name, 0, steps - 1).index)
                f.barrier()
                self._multiply(tiles, sums)
                f.barrier()
                return
            with e.within(e.scope.when(f"{name} < {steps}")):
                for load in tiles.values():
                    load.stage(Symbol(name, 0, steps - 1).index)
            with e.within(e.scope.when(f"{name} > 0")):
                self._multiply(tiles, sums)
            f.barrier()
            with e.within(e.scope.when(f"{name} < {steps}")):
                for load in tiles.values():
                    load.unstage()
            f.barrier()

    def _load(self, tiles: Mapping[str, _Load], step: Index) -> None:
        for load in tiles.values():
            load.direct(step)

    def _multiply(self, tiles: Mapping[str, _Load], sums: str) -> None:
        f, e, tiling = self.f, self.f.elements, self.tiling
        names = f.scope.names
        kind = sum_type_name(f, self.contraction)
        k, a, b = names.fresh("k"), names.fresh("a"), names.fresh("b")
        # Unrolled, the factors of several k would leave room for one block only.
        e.scope.line(f"{_UNROLL} 1" if self._is_large else _UNROLL)
        with e.within(e.scope.block(f"for (int {k} = 0; {k} < {tiling.k}; ++{k})")):
            e.scope.line(f"{kind} {a}[{tiling.thread_m}], {b}[{tiling.thread_n}];")
            self._take(tiles["lhs"].tile, k, a, self.row, "m")
            self._take(tiles["rhs"].tile, k, b, self.column, "n")
            i, j = names.fresh("i"), names.fresh("j")
            e.scope.line(_UNROLL)
            with e.within(e.scope.block(f"for (int {i} = 0; {i} < {tiling.thread_m}; ++{i})")):
                e.scope.line(_UNROLL)
                with e.within(e.scope.block(f"for (int {j} = 0; {j} < {tiling.thread_n}; ++{j})")):
                    lines = multiply_add(
                        self.contraction, f"{sums}[{i}][{j}]", f"{a}[{i}]", f"{b}[{j}]"
                    )
                    for line in lines:
                        e.scope.line(line)

    def _take(self, tile: str, k: str, into: str, start: Index, group: str) -> None:
        """Factors of this thread's rows or columns."""
        e = self.f.elements
        count, run, stride = self._shape(group)
        i = self.f.scope.names.fresh("i")
        at = f"{i}" if count == run else f"{i} / {run} * {stride} + {i} % {run}"
        if run == 1 and count > 1:
            at = f"{i} * {stride}"
        e.scope.line(_UNROLL)
        with e.within(e.scope.block(f"for (int {i} = 0; {i} < {count}; ++{i})")):
            e.scope.line(f"{into}[{i}] = {tile}[{k}][{start} + {at}];")

    def _shape(self, group: str) -> tuple[int, int, int]:
        """Results of a thread along m or n: how many, how many next to each other, and from run to run."""
        tiling = self.tiling
        if group == "m":
            return tiling.thread_m, tiling.run_m, tiling.threads_m * tiling.run_m
        return tiling.thread_n, tiling.run_n, tiling.threads_n * tiling.run_n

    def _store(self, sums: str) -> None:
        e, names = self.f.elements, self.f.scope.names
        count, run, stride = self._shape("m")
        i = names.fresh("i")
        e.scope.line(_UNROLL)
        with e.within(e.scope.block(f"for (int {i} = 0; {i} < {count}; ++{i})")):
            counter = Symbol(i, 0, count - 1).index
            inside = counter // run * stride + counter % run
            m = e.symbol(
                self.first["m"] + self.row + inside,
                "m",
                0,
                self.tiling.blocks_m * self.tiling.m - 1,
            )
            self._guarded("m", m, partial(self._store_row, f"{sums}[{i}]"))

    def _store_row(self, sums: str) -> None:
        e, names = self.f.elements, self.f.scope.names
        count, run, stride = self._shape("n")
        if count == run:
            self._store_run(sums, Index(0), run)
            return
        j = names.fresh("j")
        e.scope.line(_UNROLL)
        with e.within(e.scope.block(f"for (int {j} = 0; {j} < {count // run}; ++{j})")):
            counter = Symbol(j, 0, count // run - 1).index
            self._store_run(sums, counter, run, stride)

    def _store_run(self, sums: str, counter: Index, run: int, stride: int = 0) -> None:
        """Store ``run`` results that lie next to each other along n."""
        e, size = self.f.elements, self.contraction.size("n")
        first = self.first["n"] + self.column + counter * stride
        n = e.symbol(first, "n", 0, self.tiling.blocks_n * self.tiling.n - run)
        at = counter * run

        def store(first_sum: Index, lanes: int) -> None:
            places, values = [], []
            for lane in range(lanes):
                axes = split_axes(self.contraction, {**self.counts, "n": self.counts["n"] + lane})
                places.append(result_place(self.contraction, axes))
                values.append(f"{sums}[{first_sum + lane}]")
            self._sums(places, values)

        if size % run == 0:
            self._guarded("n", n, partial(store, at, run), run)
            return
        for lane in range(run):
            self._guarded("n", n + lane, partial(store, at + lane, 1))

    def _sums(self, places: list[tuple[Index, ...]], values: list[str]) -> None:
        f = self.f
        if f.launch.function != "_partial":
            store_sums(f, self.product, places, values)
            return
        pointee = next(iter(found for found in f.pointees.values() if found.role != "in"))
        elements = self.contraction.hero_elements
        stores = [
            (linearize(place, self.contraction.hero_dims) + self.part * elements, value)
            for place, value in zip(places, values, strict=True)
        ]
        store_run(f, pointee, stores)

    def _guarded(self, group: Group, index: Index, write: Callable[[], None], run: int = 1) -> None:
        """Write inside of ``if (index < size)``, or without where it always is.

        Where ``run`` neighbours from the index on are written it divides the size.
        """
        e, size = self.f.elements, self.contraction.size(group)
        if index.high + run <= size:
            self.counts[group] = index
            write()
            return
        with e.within(e.scope.when(f"{index} < {size}")):
            self.counts[group] = narrowed(index, size - run + 1)
            write()


@dataclass
class _Load:
    """Reading a tile of one operand: ``rows`` along ``group``, and the tiling's k."""

    tiles: _Tiles
    name: str
    side: Side
    group: Group
    rows: int

    def __post_init__(self) -> None:
        tiling, contraction = self.tiles.tiling, self.tiles.contraction
        self.along_k = contraction.quickest(self.side) == "k"
        along: Group = "k" if self.along_k else self.group
        span = tiling.k if self.along_k else self.rows
        self.run = tiling.load_run(contraction.size(along), span)
        self.runs = self.rows * tiling.k // self.run
        self.each = -(-self.runs // tiling.threads)
        self.tile = self.staged = ""

    def declare(self) -> None:
        """The tile in shared memory: k first."""
        f, tiling = self.tiles.f, self.tiles.tiling
        # Runs along k are stored across rows: shifted against each other they meet fewer banks.
        pad = max(1, 16 // tiling.element_bytes) if self.along_k else 0
        kind = sum_type_name(f, self.tiles.contraction)
        self.tile = f.shared(kind, (tiling.k, self.rows + pad), f"{self.name}_tile", aligned=True)

    def declare_staged(self) -> None:
        """Registers for what is read while the tile before is multiplied."""
        f = self.tiles.f
        if self.tiles.tiling.prefetch:
            self.staged = f.scope.names.fresh(f"{self.name}_next")
            kind = sum_type_name(f, self.tiles.contraction)
            f.scope.line(f"{kind} {self.staged}[{self.each}][{self.run}];")

    def direct(self, step: Index) -> None:
        """Read into shared memory."""
        self._each(lambda _, row, k: self._read(step, row, k, ""))

    def stage(self, step: Index) -> None:
        """Read into registers."""
        self._each(lambda at, row, k: self._read(step, row, k, f"{self.staged}[{at}]"))

    def unstage(self) -> None:
        """From registers into shared memory."""

        def write(at: str, row: Index, k: Index) -> None:
            scope = self.tiles.f.elements.scope
            for lane in range(self.run):
                scope.line(f"{self._shared(row, k, lane)} = {self.staged}[{at}][{lane}];")

        self._each(write)

    def _each(self, write: _Write) -> None:
        """For each run this thread reads: its number, its row and its first k."""
        f, e, tiling = self.tiles.f, self.tiles.f.elements, self.tiles.tiling
        if self.each == 1:
            self._one("0", f.thread(), write)
            return
        i = f.scope.names.fresh("i")
        e.scope.line(_UNROLL)
        with e.within(e.scope.block(f"for (int {i} = 0; {i} < {self.each}; ++{i})")):
            counter = Symbol(i, 0, self.each - 1).index
            self._one(i, f.thread() + counter * tiling.threads, write)

    def _one(self, at: str, number: Index, write: _Write) -> None:
        e, tiling = self.tiles.f.elements, self.tiles.tiling
        if number.high >= self.runs:
            name = e.symbol(number, "run", 0, number.high)
            with e.within(e.scope.when(f"{name} < {self.runs}")):
                self._one(at, narrowed(name, self.runs), write)
            return
        if self.along_k:
            row, k = delinearize(number, (self.rows, tiling.k // self.run))
            k = k * self.run
        else:
            k, row = delinearize(number, (tiling.k, self.rows // self.run))
            row = row * self.run
        row = e.symbol(row, f"{self.name}_row", 0, self.rows - 1)
        k = e.symbol(k, f"{self.name}_k", 0, tiling.k - 1)
        write(at, row, k)

    def _shared(self, row: Index, k: Index, lane: int) -> str:
        if self.along_k:
            return f"{self.tile}[{k + lane}][{row}]"
        return f"{self.tile}[{k}][{row + lane}]"

    def _read(self, step: Index, row: Index, k: Index, into: str) -> None:
        """Read one run; 0 for what lies outside of the operand."""
        tiles, tiling = self.tiles, self.tiles.tiling
        e = tiles.f.elements
        last_k = tiling.split * tiling.chunk - (self.run if self.along_k else 1)
        deep = tiles.part * tiling.chunk + step * tiling.k + k
        deep = e.symbol(deep, "k", 0, last_k)
        wide = tiles.first[self.group] + row
        last = self._padded - (1 if self.along_k else self.run)
        wide = e.symbol(wide, self.group, 0, last)
        targets = [
            f"{into}[{lane}]" if into else self._shared(row, k, lane) for lane in range(self.run)
        ]
        tests, symbols = self._bounds(wide, deep)
        lanes = self._lanes(symbols)
        inner = {tuple(found) for found, _ in lanes}
        if len(inner) == 1:
            tests += inner.pop()
            lanes = [([], place) for _, place in lanes]
        if not tests:
            self._set_all(lanes, targets)
            return
        for target in targets:
            e.scope.line(f"{target} = {zero(tiles.contraction)};")
        with e.within(e.scope.when(f"{' && '.join(tests)}")):
            self._set_all(lanes, targets)

    @property
    def _padded(self) -> int:
        tiling = self.tiles.tiling
        return tiling.blocks_m * tiling.m if self.group == "m" else tiling.blocks_n * tiling.n

    def _bounds(self, wide: Index, deep: Index) -> tuple[list[str], dict[Group, Index]]:
        """The tests that a run lies inside, and what is known then; runs divide the extents."""
        contraction = self.tiles.contraction
        tests: list[str] = []
        found: dict[Group, Index] = {}
        for group, index in ((self.group, wide), ("k", deep)):
            size = contraction.size(group)
            is_run = (group == "k") == self.along_k
            found[group] = index
            if index.high >= size:
                tests.append(f"{index} < {size}")
                found[group] = narrowed(index, size - self.run + 1 if is_run else size)
        return tests, found

    def _lanes(self, symbols: Mapping[Group, Index]) -> list[tuple[list[str], tuple[Index, ...]]]:
        """The tests and the place of each element of a run."""
        tiles, contraction = self.tiles, self.tiles.contraction
        along: Group = "k" if self.along_k else self.group
        found = []
        for lane in range(self.run):
            counts = {"b": tiles.counts["b"], **symbols, along: symbols[along] + lane}
            found.append(operand_place(self.side, split_axes(contraction, counts)))
        return found

    def _set_all(
        self, lanes: Sequence[tuple[list[str], tuple[Index, ...]]], targets: Sequence[str]
    ) -> None:
        e = self.tiles.f.elements
        for (tests, place), target in zip(lanes, targets, strict=True):
            if tests:
                e.scope.line(f"{target} = {zero(self.tiles.contraction)};")
                with e.within(e.scope.when(f"{' && '.join(tests)}")):
                    self._set(target, place)
            else:
                self._set(target, place)

    def _set(self, target: str, place: tuple[Index, ...]) -> None:
        f = self.tiles.f
        f.elements.scope.line(f"{target} = {factor(f, self.tiles.contraction, self.side, place)};")


EMITTERS: Final[Mapping[str, EmitFunction]] = MappingProxyType(
    {"dot-tiled": emit_tiles, "dot-split-k": emit_tiles}
)
