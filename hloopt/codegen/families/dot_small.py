"""Products of small matrices.

A block reads k columns of the left operands and k rows of the right ones of its products into shared memory;
each thread adds up one result, or a strided share of its k.
"""

from __future__ import annotations

from math import prod

from hloopt.analysis.contraction import AxisGroup, Side
from hloopt.analysis.index import Index, delinearize, narrowed
from hloopt.codegen.families.dot_values import ProductWriter
from hloopt.codegen.writer import FunctionWriter
from hloopt.dataclass import dataclass
from hloopt.kernel_ir.expressions import Array, Var, below, eq
from hloopt.kernel_ir.types import INT
from hloopt.kernels.families.dot_region import product_of
from hloopt.kernels.families.dot_small import block_threads
from hloopt.kernels.families.dot_tiling import oriented

__all__ = ["EMITTERS"]


def emit(f: FunctionWriter) -> None:
    """One launch."""
    product = product_of(f.region)
    _Small(f, product, oriented(product, f.region)).emit()


@dataclass
class _Small(ProductWriter):
    def __post_init__(self) -> None:
        tile = self.f.tile
        self.batches, self.depth, self.slices = tile["batches"], tile["k"], tile["slices"]
        self.size = {group: self.contraction.size(group) for group in self.contraction.axes}
        self.threads = self.f.launch.block[0]
        self.blocks = self.f.launch.grid[0]

    def emit(self) -> None:
        f, e, size = self.f, self.f.elements, self.size
        lhs = f.shared(self.kind, (self.batches * size["m"], self.depth + 1), "lhs_tile")
        rhs = f.shared(self.kind, (self.batches * self.depth, size["n"]), "rhs_tile")
        parts = None
        if self.slices > 1:
            sums = (self.batches * size["m"], self.slices * size["n"])
            parts = f.shared(self.kind, sums, "parts")
        self.first = e.symbol(
            f.block() * self.batches, "first_b", 0, (self.blocks - 1) * self.batches
        )
        dims = (self.batches, size["m"], self.slices, size["n"])
        busy = block_threads(self.contraction, f.tile)
        thread = narrowed(f.thread(), busy)
        places = delinearize(thread, dims)
        batch, m, part, n = (
            e.symbol(index, hint, 0, extent - 1)
            for index, hint, extent in zip(places, ("batch", "m", "part", "n"), dims, strict=True)
        )
        total = f.scope.variable(self.kind, "total", self.zero)
        self.is_busy = below(f.thread(), busy)
        steps = -(-size["k"] // self.depth)
        with e.counting(0, steps, "step") as step:
            self._read(self.contraction.lhs, "m", lhs, step * self.depth)
            self._read(self.contraction.rhs, "n", rhs, step * self.depth)
            f.barrier()
            with e.when(*self.is_busy):
                self._multiply(total, (lhs, rhs), (batch, m, part, n))
            if steps > 1:
                f.barrier()
        self._store(total, parts, (batch, m, part, n))

    def _read(self, side: Side, own: AxisGroup, tile: Array, start: Index) -> None:
        """Read rows or columns of all products of the block; 0 past the last."""
        f, e, contraction = self.f, self.f.elements, self.contraction
        along_k = contraction.quickest(side) == "k"
        inner = (self.size[own], self.depth) if along_k else (self.depth, self.size[own])
        dims = (self.batches, *inner)
        with e.counting(f.thread(), prod(dims), "i", self.threads) as number:
            batch, *pair = delinearize(number, dims)
            at, k = pair if along_k else pair[::-1]
            b = e.symbol(self.first + batch, "b", 0, self.blocks * self.batches - 1)
            last = (-(-self.size["k"] // self.depth)) * self.depth - 1
            bounds: dict[AxisGroup, Index] = {"b": b, "k": e.symbol(start + k, "k", 0, last)}
            tests, counts = [], {own: at}
            for group, index in bounds.items():
                tests += below(index, self.size[group])
                counts[group] = narrowed(index, self.size[group])
            _, place = self.operand_place(side, counts)
            value = self.read_factor(side, tests, place, "element")
            if own == "m":
                e.scope.set(tile[batch * self.size["m"] + at, k], value)
            else:
                e.scope.set(tile[batch * self.depth + k, at], value)

    def _multiply(
        self, total: Var, tiles: tuple[Array, Array], place: tuple[Index, Index, Index, Index]
    ) -> None:
        e = self.f.elements
        batch, m, part, n = place
        with e.counting(part, self.depth, "k", self.slices, type=INT) as k:
            left = tiles[0][batch * self.size["m"] + m, k]
            right = tiles[1][batch * self.depth + k, n]
            a, b = (
                e.scope.declare(self.kind, value, hint)
                for value, hint in ((left, "a"), (right, "b"))
            )
            self.multiply_add(total, a, b)

    def _store(
        self, total: Var, parts: Array | None, place: tuple[Index, Index, Index, Index]
    ) -> None:
        f, e = self.f, self.f.elements
        batch, m, part, n = place
        row = batch * self.size["m"] + m
        tests = [*self.is_busy]
        if parts is not None:
            with e.when(*tests):
                e.scope.set(parts[row, part * self.size["n"] + n], total)
            f.barrier()
            tests.append(eq(part, 0))
        b = e.symbol(self.first + batch, "b", 0, self.blocks * self.batches - 1)
        tests += below(b, self.size["b"])
        with e.when(*tests):
            if parts is not None:
                with e.counting(0, self.slices - 1, "other") as other:
                    at = (other + 1) * self.size["n"] + n
                    self.add(total, parts[row, at])
            counts: dict[AxisGroup, Index] = {"b": narrowed(b, self.size["b"]), "m": m, "n": n}
            self.store([self.result_place(counts)], [total])


EMITTERS = {"dot-small": emit}
