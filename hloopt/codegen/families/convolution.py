"""Convolutions: by tiles as products of matrices, or output by output."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from itertools import groupby

from hloopt.analysis.contraction import Axis, AxisPosition, Contraction
from hloopt.analysis.index import Index, Indices, delinearize
from hloopt.codegen.families.dot_index import operand_place
from hloopt.codegen.families.dot_tiled import emit_tiles
from hloopt.codegen.families.dot_values import ProductWriter
from hloopt.codegen.families.loop import bounded
from hloopt.codegen.writer import FunctionWriter
from hloopt.dataclass import dataclass
from hloopt.kernel_ir.expressions import Element, Expr
from hloopt.kernels.families.dot_region import product_of

__all__ = ["EMITTERS"]


def emit_direct(f: FunctionWriter) -> None:
    """Each thread: ``outputs`` neighbours, whose windows are traversed together."""
    product = product_of(f.region)
    _Direct(f, product, product.contraction).emit()


@dataclass
class _Direct(ProductWriter):
    def emit(self) -> None:
        f, contraction = self.f, self.contraction
        outputs = f.tile["outputs"]
        runs = contraction.hero_elements // outputs
        run = bounded(f, f.global_thread("i"), runs)
        places = [
            delinearize(run * outputs + lane, contraction.hero_dims) for lane in range(outputs)
        ]
        places = [self._named(place) for place in places]
        array = f.scope.array(self.kind, (outputs,), "sums", [self.zero])
        sums = [array[lane] for lane in range(outputs)]
        self._windows([_axes(contraction, place) for place in places], sums)
        self.store(places, sums)

    def _named(self, place: Indices) -> Indices:
        e, dims = self.f.elements, self.contraction.hero_dims
        return tuple(
            e.symbol(index, f"at_{number}", 0, size - 1)
            for number, (index, size) in enumerate(zip(place, dims, strict=True))
        )

    def _windows(self, lanes: list[dict[Axis, Index]], sums: list[Element]) -> None:
        """Loops over the window, those that padding depends on outside of the others."""
        e, contraction = self.f.elements, self.contraction
        sizes: dict[Axis, int] = {("k", at): size for at, size in enumerate(contraction.axes["k"])}
        outer = contraction.tested_axes()
        inner = [axis for axis in sizes if axis not in outer]
        zeros: dict[Axis, Index] = dict.fromkeys(inner, Index(0))
        with ExitStack() as blocks:
            at: dict[Axis, Index] = {}
            for axis in (axis for axis in sizes if axis in outer):
                at[axis] = blocks.enter_context(e.counting(0, sizes[axis], "w"))
            tests = [self._tests({**lane, **at, **zeros}) for lane in lanes]
            shared = len(set(tests)) == 1
            if shared:
                blocks.enter_context(e.when(*tests[0]))
            for axis in inner:
                at[axis] = blocks.enter_context(e.counting(0, sizes[axis], "c"))
            rows = list(zip(lanes, sums, tests, strict=True))
            for common, group in groupby(rows, lambda row: () if shared else row[2]):
                with e.when(*common):
                    for lane, total, _ in group:
                        self._multiply({**lane, **at}, total)

    def _tests(self, axes: Mapping[Axis, Index]) -> tuple[Expr, ...]:
        return tuple(
            test
            for side in (self.contraction.lhs, self.contraction.rhs)
            for test in operand_place(side, axes)[0]
        )

    def _multiply(self, axes: Mapping[Axis, Index], total: Element) -> None:
        factors = []
        for side in (self.contraction.lhs, self.contraction.rhs):
            _, place = operand_place(side, axes)
            factors.append(self.named_factor(side, place))
        left, right = factors
        self.multiply_add(total, left, right)


def _axes(contraction: Contraction, place: Indices) -> dict[Axis, Index]:
    """The axes of b, m and n at a place of the result."""
    axes: dict[Axis, Index] = {("b", 0): Index(0)}
    for position, index in zip(contraction.result, place, strict=True):
        axes.update(_solved(contraction, position, index))
    return axes


def _solved(contraction: Contraction, position: AxisPosition, index: Index) -> dict[Axis, Index]:
    """The axes of a position that is ``index``: one axis, one reversed, or groups of one."""
    if len(position.terms) == 1:
        ((axis, count),) = position.terms
        return {axis: index if count == 1 else Index(position.constant) - index}
    (group, size), (axis, _) = position.terms
    return {group: index // size, axis: index % size}


EMITTERS = {
    "convolution-1x1": emit_tiles,
    "convolution-implicit-matmul": emit_tiles,
    "convolution-direct": emit_direct,
}
