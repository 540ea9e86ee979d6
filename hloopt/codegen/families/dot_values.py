"""Values of a contraction: factors, sums of products, and what becomes of a sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hloopt.analysis.contraction import AxisGroup, Contraction, Side
from hloopt.analysis.index import Index, Indices, delinearize, linearize
from hloopt.codegen import position_of
from hloopt.codegen.families import loop
from hloopt.codegen.families.dot_finish import finished
from hloopt.codegen.families.dot_index import moved, operand_place, result_place, split_axes
from hloopt.codegen.scalars import convert, literal
from hloopt.codegen.scalars.forms import parts
from hloopt.codegen.writer import FunctionWriter, Pointee
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import Element, Expr, Member, Var, both, either
from hloopt.kernel_ir.types import Type
from hloopt.kernels.families.dot_region import ProductRegion

__all__ = ["ProductWriter", "store_run"]


@dataclass
class ProductWriter:
    """Writes the values of a contraction: factors, sums of products, and what becomes of a sum.

    ``contraction`` is that of the product, or the same with its sides exchanged.
    """

    f: FunctionWriter
    product: ProductRegion
    contraction: Contraction

    @property
    def kind(self) -> Type:
        """The type of sums and factors."""
        return self.f.uses.type(self.contraction.accumulator)

    @property
    def zero(self) -> Expr:
        """An empty sum."""
        return literal(0, self.contraction.accumulator)

    def operand_place(
        self, side: Side, counts: Mapping[AxisGroup, Index]
    ) -> tuple[list[Expr], Indices]:
        """Where an operand is read, and the tests that there is an element."""
        return operand_place(side, split_axes(self.contraction, counts))

    def result_place(self, counts: Mapping[AxisGroup, Index]) -> Indices:
        """The index of a product in the hero's result."""
        return result_place(self.contraction, split_axes(self.contraction, counts))

    def factor(self, side: Side, place: Indices) -> Expr:
        """An element of an operand in the type of the sums, rounded to the type of the products before."""
        e, uses = self.f.elements, self.f.uses
        source = side.instruction.array.dtype
        kind, wide = self.contraction.kind, self.contraction.accumulator
        value = e.value(side.instruction, place)
        if source is not kind:
            value = e.scope.declare(uses.type(kind), convert(value, source, kind, uses), "factor")
        if side.scale is not None:
            block = tuple(at // size for at, size in zip(place, side.blocks, strict=True))
            scale = convert(e.value(side.scale, block), side.scale.array.dtype, kind, uses)
            value = e.scope.declare(uses.type(kind), value * scale, "scaled")
        return convert(value, kind, wide, uses)

    def named_factor(self, side: Side, place: Indices) -> Expr:
        """As ``factor``, a variable or a part of one."""
        value = self.factor(side, place)
        if isinstance(value, Var | Member):
            return value
        return self.f.elements.scope.declare(self.kind, value, "factor")

    def read_factor(self, side: Side, tests: Sequence[Expr], place: Indices, hint: str) -> Expr:
        """An element of an operand as a factor; 0 where a test fails."""
        e = self.f.elements
        if not tests:
            return self.factor(side, place)
        read = e.scope.variable(self.kind, hint, self.zero)
        with e.when(*tests):
            e.scope.set(read, self.factor(side, place))
        return read

    def multiply_add(self, total: Var | Element, left: Expr, right: Expr) -> None:
        """Write ``total += left * right``; left and right are named."""
        kind, scope = self.contraction.accumulator, self.f.elements.scope
        if kind.is_complex:
            (real, imaginary), (a, b), (c, d) = (parts(one, kind) for one in (total, left, right))
            scope.set(real, a * c, "+")
            scope.set(real, b * d, "-")
            scope.set(imaginary, a * d, "+")
            scope.set(imaginary, b * c, "+")
        elif kind.is_pred:
            # The other way round factors would be read in a branch.
            scope.set(total, either([both([left, right]), total]))
        else:
            scope.set(total, left * right, "+")

    def add(self, total: Var | Element, other: Expr) -> None:
        """Write ``total += other``."""
        kind, scope = self.contraction.accumulator, self.f.elements.scope
        if kind.is_complex:
            for part, added in zip(parts(total, kind), parts(other, kind), strict=True):
                scope.set(part, added, "+")
        elif kind.is_pred:
            scope.set(total, either([total, other]))
        else:
            scope.set(total, other, "+")

    def emit_sum(self, parts: int) -> None:
        """The launch ``_sum``, a thread for each result: the sum of its parts, in their order."""
        f, e, elements = self.f, self.f.elements, self.contraction.hero_elements
        thread = loop.bounded(f, f.global_thread("i"), elements)
        partial = f.scratch(0).memory
        total = f.scope.variable(self.kind, "total", partial[thread])
        if parts > 1:
            with e.counting(0, parts - 1, "part") as part:
                other = partial[thread + (part + 1) * elements]
                self.add(total, e.scope.declare(self.kind, other, "next"))
        self.store([delinearize(thread, self.contraction.hero_dims)], [total])

    def finish(
        self,
        places: Sequence[Indices],
        sums: Sequence[Expr],
        part: Index,
        others: Sequence[Expr] = (),
    ) -> None:
        """As ``store``; in the launch ``_partial`` the sums themselves, of one part of the contracted axis."""
        f = self.f
        if f.launch.function != "_partial":
            self.store(places, sums, others)
            return
        dims, elements = self.contraction.hero_dims, self.contraction.hero_elements
        begin = part * elements
        stores = [
            (linearize(place, dims) + begin, value)
            for place, value in zip(places, sums, strict=True)
        ]
        store_run(f, f.scratch(0), stores)

    def store(
        self, places: Sequence[Indices], sums: Sequence[Expr], others: Sequence[Expr] = ()
    ) -> None:
        """Store what becomes of sums of the hero, by vectors where the results lie next to each other.

        ``others`` are those of the second product, where there is one.
        """
        values: list[list[tuple[Index, Expr]]] = [[] for _ in self.product.routes]
        if self.product.second is not None:
            hero = self.product.second.hero
            for place, total in zip(places, others, strict=True):
                self._remember(hero, place, total)
        for place, total in zip(places, sums, strict=True):
            for number, stored in enumerate(self._finished(place, total)):
                values[number].append(stored)
        for number, stores in enumerate(values):
            store_run(self.f, self.f.result(number), stores)

    def _finished(self, place: Indices, total: Expr) -> list[tuple[Index, Expr]]:
        """Where a sum goes in each result, and what is stored there."""
        f, contraction, e = self.f, self.product.contraction, self.f.elements
        hero = contraction.hero
        if hero.opcode == "custom-call":
            at = position_of(place, f.region.results[0].shape)
            return [(at, one) for one in finished(f, contraction, place, total)]
        self._remember(hero, place, total)
        found = []
        for result, route in zip(f.region.results, self.product.routes, strict=True):
            index = moved(place, route)
            found.append((position_of(index, result.shape), e.value(result.instruction, index)))
        return found

    def _remember(self, hero: Instruction, place: Indices, total: Expr) -> None:
        """Name an element of a product, for what reads it."""
        f, e = self.f, self.f.elements
        value = e.scope.declare(f.uses.type(hero.array.dtype), self._rounded(total), hero.name)
        e.remember(hero, place, 0, value)

    def _rounded(self, total: Expr) -> Expr:
        """A sum as an element of the result: rounded to the type of the products first."""
        f, kind, wide = self.f, self.contraction.kind, self.contraction.accumulator
        result = self.contraction.result_dtype
        if kind is not wide:
            total = convert(total, wide, kind, f.uses)
            if kind is not result:
                total = f.elements.scope.declare(f.uses.type(kind), total, "rounded")
        return convert(total, kind, result, f.uses)


def store_run(f: FunctionWriter, pointee: Pointee, stores: Sequence[tuple[Index, Expr]]) -> None:
    """Store values, by vectors where they lie next to each other and are aligned."""
    first = stores[0][0]
    if all(at == first + lane for lane, (at, _) in enumerate(stores)):
        loop.store_run(f, pointee, first, [value for _, value in stores], len(stores))
        return
    for at, value in stores:
        f.store(pointee, at, value)
