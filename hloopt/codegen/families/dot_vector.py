"""Products of matrices with vectors.

Where the contracted axis moves through neighbours, the threads of a row read it side by side and add up what
each has by exchange inside of warps, then through shared memory.  Elsewhere neighbouring threads have
neighbouring rows, and the parts of the contracted axis are added up in shared memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hloopt.analysis.contraction import Contraction, Group
from hloopt.analysis.index import Index, Symbol, delinearize, narrowed
from hloopt.codegen.families.dot_index import operand_place, result_place, split_axes
from hloopt.codegen.families.dot_values import (
    add,
    multiply_add,
    named_factor,
    store_sums,
    sum_type_name,
    zero,
)
from hloopt.codegen.writer import EmitFunction, FunctionWriter
from hloopt.dataclass import dataclass
from hloopt.kernels.families.dot_region import Product, product_of
from hloopt.kernels.families.dot_vector import along_rows, with_vector

__all__ = ["EMITTERS", "add_lanes"]

_WARP = 32


def emit(f: FunctionWriter) -> None:
    """One launch: a few rows a block."""
    product = product_of(f.region)
    assert isinstance(product, Product), product
    contraction = with_vector(product.contraction)
    writer = _Rows(f, product, contraction)
    if along_rows(contraction):
        writer.across()
    else:
        writer.down()


def add_lanes(f: FunctionWriter, contraction: Contraction, total: str) -> None:
    """Make a variable of each lane the sum over its warp."""
    e, kind = f.elements, sum_type_name(f, contraction)
    distance = f.scope.names.fresh("distance")
    head = f"for (int {distance} = {_WARP // 2}; {distance} > 0; {distance} /= 2)"
    with e.within(e.scope.block(head)):
        other = e.scope.declare(kind, f.uses.call("shuffle_xor", total, distance), "other")
        for line in add(contraction, total, other):
            e.scope.line(line)


@dataclass
class _Rows:
    f: FunctionWriter
    product: Product
    contraction: Contraction

    def __post_init__(self) -> None:
        tile = self.f.tile
        self.rows, self.sharing, self.vector = tile["rows"], tile["threads_k"], tile["vector"]
        self.count = self.contraction.size("m")
        self.blocks = -(-self.count // self.rows)
        self.kind = sum_type_name(self.f, self.contraction)

    def _place(self) -> tuple[Index, Index]:
        """The batch index and the first row of this block."""
        e, batch = self.f.elements, self.contraction.size("b")
        b, block = delinearize(self.f.block(), (batch, self.blocks))
        last = (self.blocks - 1) * self.rows
        return e.symbol(b, "b", 0, batch - 1), e.symbol(block * self.rows, "first_row", 0, last)

    def across(self) -> None:
        """``threads_k`` threads a row."""
        f, e, k = self.f, self.f.elements, self.contraction.size("k")
        b, first = self._place()
        warps = self.sharing // _WARP
        parts = f.shared(self.kind, (self.rows, warps), "parts") if warps > 1 else ""
        local, lane = delinearize(f.thread(), (self.rows, self.sharing))
        lane = e.symbol(lane, "lane", 0, self.sharing - 1)
        row = e.symbol(first + local, "row", 0, self.blocks * self.rows - 1)
        total = f.scope.variable(self.kind, "total", zero(self.contraction))
        inside = narrowed(row, self.count)
        scope = e.scope if row.high < self.count else e.scope.when(f"{row} < {self.count}")
        with e.within(scope):
            name = f.scope.names.fresh("k")
            head = f"for ({f.loads.index_type} {name} = {lane * self.vector}; {name} < {k}; "
            with e.within(e.scope.block(f"{head}{name} += {self.sharing * self.vector})")):
                start = Symbol(name, 0, k - self.vector, self.vector).index
                for step in range(self.vector):
                    self._multiply(total, {"b": b, "m": inside, "k": start + step})
        add_lanes(f, self.contraction, total)
        if warps > 1:
            with e.within(e.scope.when(f"{lane % _WARP} == 0")):
                e.scope.line(f"{parts}[{local}][{lane // _WARP}] = {total};")
            f.barrier()
        tests = [f"{lane} == 0", *([f"{row} < {self.count}"] if row.high >= self.count else [])]
        with e.within(e.scope.when(f"{' && '.join(tests)}")):
            if warps > 1:
                block, warp = e.loop(warps - 1, "warp")
                with e.within(block):
                    part = e.scope.declare(self.kind, f"{parts}[{local}][{warp + 1}]", "part")
                    for line in add(self.contraction, total, part):
                        e.scope.line(line)
            self._store(b, [inside], [total])

    def down(self) -> None:
        """Neighbouring rows to neighbouring threads; ``threads_k`` of them share a row."""
        f, e, k = self.f, self.f.elements, self.contraction.size("k")
        b, first = self._place()
        vector = self.vector
        parts = f.shared(self.kind, (self.sharing, self.rows), "parts") if self.sharing > 1 else ""
        part, local = delinearize(f.thread(), (self.sharing, self.rows // vector))
        local = e.symbol(local * vector, "local", 0, self.rows - vector)
        row = e.symbol(first + local, "row", 0, self.blocks * self.rows - vector)
        inside = narrowed(row, self.count - vector + 1)
        sums = f.scope.names.fresh("sums")
        f.scope.line(f"{self.kind} {sums}[{vector}] = {{}};")
        is_inside = row.high + vector <= self.count
        with e.within(e.scope if is_inside else e.scope.when(f"{row} < {self.count}")):
            name = f.scope.names.fresh("k")
            head = f"for ({f.loads.index_type} {name} = {part}; {name} < {k}; "
            with e.within(e.scope.block(f"{head}{name} += {self.sharing})")):
                at = Symbol(name, 0, k - 1).index
                for step in range(vector):
                    self._multiply(f"{sums}[{step}]", {"b": b, "m": inside + step, "k": at})
        if self.sharing > 1:
            for step in range(vector):
                e.scope.line(f"{parts}[{part}][{local + step}] = {sums}[{step}];")
            f.barrier()
        tests = [f"{part} == 0"] if self.sharing > 1 else []
        if not is_inside:
            tests.append(f"{row} < {self.count}")
        with e.within(e.scope.when(f"{' && '.join(tests)}") if tests else e.scope):
            if self.sharing > 1:
                block, other = e.loop(self.sharing - 1, "other")
                with e.within(block):
                    for step in range(vector):
                        at_part = f"{parts}[{other + 1}][{local + step}]"
                        for line in add(self.contraction, f"{sums}[{step}]", at_part):
                            e.scope.line(line)
            lanes = range(vector)
            self._store(b, [inside + step for step in lanes], [f"{sums}[{at}]" for at in lanes])

    def _multiply(self, total: str, counts: Mapping[Group, Index]) -> None:
        e, names = self.f.elements, []
        for side, own in ((self.contraction.lhs, "m"), (self.contraction.rhs, "n")):
            wanted: dict[Group, Index] = {"b": counts["b"], "k": counts["k"]}
            wanted["m" if own == "m" else "n"] = counts["m"] if own == "m" else Index(0)
            _, place = operand_place(side, split_axes(self.contraction, wanted))
            names.append(named_factor(self.f, self.contraction, side, place))
        for line in multiply_add(self.contraction, total, *names):
            e.scope.line(line)

    def _store(self, b: Index, rows: list[Index], sums: list[str]) -> None:
        places = []
        for row in rows:
            counts: dict[Group, Index] = {"b": b, "m": row, "n": Index(0)}
            places.append(result_place(self.contraction, split_axes(self.contraction, counts)))
        store_sums(self.f, self.product, places, sums)


EMITTERS: Final[Mapping[str, EmitFunction]] = MappingProxyType({"dot-matrix-vector": emit})
