"""Products of small matrices.

A block reads k columns of the left operands and k rows of the right ones of its products into shared memory;
each thread adds up one result, or every so manieth k of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hloopt.analysis.contraction import Contraction, Group, Side
from hloopt.analysis.index import Index, Symbol, delinearize, narrowed
from hloopt.codegen.families.dot_index import operand_place, result_place, split_axes
from hloopt.codegen.families.dot_values import (
    add,
    multiply_add,
    read_factor,
    store_sums,
    sum_type_name,
    zero,
)
from hloopt.codegen.writer import EmitFunction, FunctionWriter
from hloopt.dataclass import dataclass
from hloopt.kernel_ir.scope import Scope
from hloopt.kernels.families.dot_region import Product, product_of
from hloopt.kernels.families.dot_small import block_threads
from hloopt.kernels.families.dot_tiling import oriented

__all__ = ["EMITTERS"]


def emit(f: FunctionWriter) -> None:
    """One launch."""
    product = product_of(f.region)
    assert isinstance(product, Product), product
    _Small(f, product, oriented(product, f.region)).emit()


@dataclass
class _Small:
    f: FunctionWriter
    product: Product
    contraction: Contraction

    def __post_init__(self) -> None:
        tile = self.f.tile
        self.batches, self.depth, self.slices = tile["batches"], tile["k"], tile["slices"]
        self.size = {group: self.contraction.size(group) for group in self.contraction.axes}
        self.threads = self.f.launch.block[0]
        self.kind = sum_type_name(self.f, self.contraction)
        self.blocks = self.f.launch.grid[0]

    def emit(self) -> None:
        f, e, size = self.f, self.f.elements, self.size
        lhs = f.shared(self.kind, (self.batches * size["m"], self.depth + 1), "lhs_tile")
        rhs = f.shared(self.kind, (self.batches * self.depth, size["n"]), "rhs_tile")
        parts = ""
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
        total = f.scope.variable(self.kind, "total", zero(self.contraction))
        idle = f"{f.thread()} < {busy}" if busy < self.threads else ""
        steps = -(-size["k"] // self.depth)
        with e.within(self._steps(steps)):
            start = self.step * self.depth
            self._read(self.contraction.lhs, "m", lhs, start)
            self._read(self.contraction.rhs, "n", rhs, start)
            f.barrier()
            with e.within(e.scope.when(f"{idle}") if idle else e.scope):
                self._multiply(total, (lhs, rhs), (batch, m, part, n))
            if steps > 1:
                f.barrier()
        self._store(total, parts, (batch, m, part, n), idle)

    def _steps(self, steps: int) -> Scope:
        """The block in which a part of k is done; a loop where there are several."""
        scope = self.f.elements.scope
        self.step = Index(0)
        if steps == 1:
            return scope
        name = self.f.scope.names.fresh("step")
        self.step = Symbol(name, 0, steps - 1).index
        kind = self.f.loads.index_type
        return scope.block(f"for ({kind} {name} = 0; {name} < {steps}; ++{name})")

    def _read(self, side: Side, own: Group, tile: str, start: Index) -> None:
        """Read rows or columns of all products of the block; 0 beyond the last."""
        f, e, contraction = self.f, self.f.elements, self.contraction
        along_k = contraction.quickest(side) == "k"
        inner = (self.size[own], self.depth) if along_k else (self.depth, self.size[own])
        dims = (self.batches, *inner)
        count = dims[0] * dims[1] * dims[2]
        name = f.scope.names.fresh("i")
        kind = f.loads.index_type
        head = f"for ({kind} {name} = {f.thread()}; {name} < {count}; {name} += {self.threads})"
        with e.within(e.scope.block(head)):
            batch, *pair = delinearize(Symbol(name, 0, count - 1).index, dims)
            at, k = pair if along_k else pair[::-1]
            b = e.symbol(self.first + batch, "b", 0, self.blocks * self.batches - 1)
            last = (-(-self.size["k"] // self.depth)) * self.depth - 1
            deep = e.symbol(start + k, "k", 0, last)
            tests, counts = [], {own: at}
            for group, index in (("b", b), ("k", deep)):
                counts[group] = narrowed(index, self.size[group])  # type: ignore[index]
                if index.high >= self.size[group]:  # type: ignore[index]
                    tests.append(f"{index} < {self.size[group]}")  # type: ignore[index]
            _, place = operand_place(side, split_axes(contraction, counts))
            value = read_factor(f, contraction, side, tests, place, "element")
            if own == "m":
                e.scope.line(f"{tile}[{batch * self.size['m'] + at}][{k}] = {value};")
            else:
                e.scope.line(f"{tile}[{batch * self.depth + k}][{at}] = {value};")

    def _multiply(
        self, total: str, tiles: tuple[str, str], place: tuple[Index, Index, Index, Index]
    ) -> None:
        e, names = self.f.elements, self.f.scope.names
        batch, m, part, n = place
        k = names.fresh("k")
        head = f"for (int {k} = {part}; {k} < {self.depth}; {k} += {self.slices})"
        with e.within(e.scope.block(head)):
            at = Symbol(k, 0, self.depth - 1).index
            left = f"{tiles[0]}[{batch * self.size['m'] + m}][{at}]"
            right = f"{tiles[1]}[{batch * self.depth + at}][{n}]"
            factors = [
                e.scope.declare(self.kind, value, hint)
                for value, hint in ((left, "a"), (right, "b"))
            ]
            for line in multiply_add(self.contraction, total, *factors):
                e.scope.line(line)

    def _store(
        self, total: str, parts: str, place: tuple[Index, Index, Index, Index], idle: str
    ) -> None:
        f, e = self.f, self.f.elements
        batch, m, part, n = place
        row = batch * self.size["m"] + m
        tests = [idle] if idle else []
        if parts:
            with e.within(e.scope.when(f"{idle}") if idle else e.scope):
                e.scope.line(f"{parts}[{row}][{part * self.size['n'] + n}] = {total};")
            f.barrier()
            tests.append(f"{part} == 0")
        b = e.symbol(self.first + batch, "b", 0, self.blocks * self.batches - 1)
        if b.high >= self.size["b"]:
            tests.append(f"{b} < {self.size['b']}")
        with e.within(e.scope.when(f"{' && '.join(tests)}") if tests else e.scope):
            if parts:
                block, other = e.loop(self.slices - 1, "other")
                with e.within(block):
                    at = (other + 1) * self.size["n"] + n
                    for line in add(self.contraction, total, f"{parts}[{row}][{at}]"):
                        e.scope.line(line)
            counts: dict[Group, Index] = {"b": narrowed(b, self.size["b"]), "m": m, "n": n}
            axes = split_axes(self.contraction, counts)
            store_sums(f, self.product, [result_place(self.contraction, axes)], [total])


EMITTERS: Final[Mapping[str, EmitFunction]] = MappingProxyType({"dot-small": emit})
