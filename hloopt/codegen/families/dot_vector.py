"""Products of matrices with vectors.

Where the contracted axis moves through neighbours, the threads of a row read it side by side and add up what
each has by exchange inside of warps, then through shared memory.  Elsewhere neighbouring threads have
neighbouring rows, and the parts of the contracted axis are added up in shared memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hloopt.analysis.contraction import AxisGroup
from hloopt.analysis.index import Index, delinearize, narrowed
from hloopt.codegen.families.dot_values import ProductWriter
from hloopt.codegen.writer import FunctionWriter
from hloopt.dataclass import dataclass
from hloopt.kernel_ir.expressions import Element, Expr, Var, as_expr, below, eq
from hloopt.kernel_ir.types import INT
from hloopt.kernels.families.dot_region import product_of
from hloopt.kernels.families.dot_vector import along_rows, with_vector

__all__ = ["EMITTERS"]

_WARP = 32


def emit(f: FunctionWriter) -> None:
    """One launch: a few rows a block."""
    product = product_of(f.region)
    contraction = with_vector(product.contraction)
    writer = _Rows(f, product, contraction)
    if along_rows(contraction):
        writer.across()
    else:
        writer.down()


@dataclass
class _Rows(ProductWriter):
    def __post_init__(self) -> None:
        tile = self.f.tile
        self.rows, self.sharing, self.vector = tile["rows"], tile["threads_k"], tile["vector"]
        self.count = self.contraction.size("m")
        self.blocks = -(-self.count // self.rows)

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
        parts = f.shared(self.kind, (self.rows, warps), "parts") if warps > 1 else None
        local, lane = delinearize(f.thread(), (self.rows, self.sharing))
        lane = e.symbol(lane, "lane", 0, self.sharing - 1)
        row = e.symbol(first + local, "row", 0, self.blocks * self.rows - 1)
        total = f.scope.variable(self.kind, "total", self.zero)
        inside = narrowed(row, self.count)
        tests, vector = below(row, self.count), self.vector
        with (
            e.when(*tests),
            e.counting(lane * vector, k, "k", self.sharing * vector) as start,
        ):
            for step in range(vector):
                self._multiply(total, {"b": b, "m": inside, "k": start + step})
        self._add_lanes(total)
        if parts is not None:
            with e.when(eq(lane % _WARP, 0)):
                e.scope.set(parts[local, lane // _WARP], total)
            f.barrier()
        with e.when(eq(lane, 0), *tests):
            if parts is not None:
                with e.counting(0, warps - 1, "warp") as warp:
                    part = e.scope.declare(self.kind, parts[local, warp + 1], "part")
                    self.add(total, part)
            self._store(b, [inside], [total])

    def _add_lanes(self, total: Var) -> None:
        """Make a variable of each lane the sum over its warp."""
        e = self.f.elements
        loop, distance = e.scope.loop(_WARP // 2, 0, "distance", INT, 2, test=">", change="/=")
        with e.within(loop):
            exchanged = self.f.uses.call("shuffle_xor", total, distance, type=self.kind)
            self.add(total, e.scope.declare(self.kind, exchanged, "other"))

    def down(self) -> None:
        """Neighbouring rows to neighbouring threads; ``threads_k`` of them share a row."""
        f, e, k = self.f, self.f.elements, self.contraction.size("k")
        b, first = self._place()
        vector = self.vector
        shape = (self.sharing, self.rows)
        parts = f.shared(self.kind, shape, "parts") if self.sharing > 1 else None
        part, local = delinearize(f.thread(), (self.sharing, self.rows // vector))
        local = e.symbol(local * vector, "local", 0, self.rows - vector)
        row = e.symbol(first + local, "row", 0, self.blocks * self.rows - vector)
        inside = narrowed(row, self.count - vector + 1)
        array = f.scope.array(self.kind, (vector,), "sums", [self.zero])
        sums = [array[step] for step in range(vector)]
        tests = [as_expr(row) < self.count] if row.high + vector > self.count else []
        with e.when(*tests), e.counting(part, k, "k", self.sharing) as at:
            for step, total in enumerate(sums):
                self._multiply(total, {"b": b, "m": inside + step, "k": at})
        if parts is not None:
            for step, total in enumerate(sums):
                e.scope.set(parts[part, local + step], total)
            f.barrier()
            tests = [eq(part, 0), *tests]
        with e.when(*tests):
            if parts is not None:
                with e.counting(0, self.sharing - 1, "other") as other:
                    for step, total in enumerate(sums):
                        self.add(total, parts[other + 1, local + step])
            self._store(b, [inside + step for step in range(vector)], sums)

    def _multiply(self, total: Var | Element, counts: Mapping[AxisGroup, Index]) -> None:
        factors = []
        for side, own in ((self.contraction.lhs, "m"), (self.contraction.rhs, "n")):
            wanted: dict[AxisGroup, Index] = {"b": counts["b"], "k": counts["k"]}
            wanted["m" if own == "m" else "n"] = counts["m"] if own == "m" else Index(0)
            _, place = self.operand_place(side, wanted)
            factors.append(self.named_factor(side, place))
        left, right = factors
        self.multiply_add(total, left, right)

    def _store(self, b: Index, rows: list[Index], sums: Sequence[Expr]) -> None:
        places = []
        for row in rows:
            counts: dict[AxisGroup, Index] = {"b": b, "m": row, "n": Index(0)}
            places.append(self.result_place(counts))
        self.store(places, sums)


EMITTERS = {"dot-matrix-vector": emit}
