"""Values of a contraction: factors, sums of products, and what becomes of a sum."""

from __future__ import annotations

from collections.abc import Sequence

from hloopt.analysis.contraction import Contraction, Side
from hloopt.analysis.index import Index, Indices
from hloopt.codegen.families import loop
from hloopt.codegen.families.dot_finish import finished
from hloopt.codegen.families.dot_index import moved
from hloopt.codegen.positions import position_of
from hloopt.codegen.scalars import convert, literal
from hloopt.codegen.scalars.forms import parts
from hloopt.codegen.writer import FunctionWriter, Pointee
from hloopt.kernel_ir.expressions import Element, Expr, Member, Var, both, either
from hloopt.kernel_ir.types import Type
from hloopt.kernels.families.dot_region import ProductRegion

__all__ = [
    "add",
    "factor",
    "multiply_add",
    "named_factor",
    "read_factor",
    "store_run",
    "store_sums",
    "sum_type",
    "zero",
]


def sum_type(f: FunctionWriter, contraction: Contraction) -> Type:
    """The type of sums and factors."""
    return f.uses.type(contraction.accumulator)


def zero(contraction: Contraction) -> Expr:
    """An empty sum."""
    return literal(0, contraction.accumulator)


def factor(f: FunctionWriter, contraction: Contraction, side: Side, place: Indices) -> Expr:
    """An element of an operand in the type of the sums, rounded to the type of the products before."""
    e = f.elements
    source = side.instruction.array.dtype
    kind, wide = contraction.kind, contraction.accumulator
    value = e.value(side.instruction, place)
    if source is not kind:
        value = e.scope.declare(f.uses.type(kind), convert(value, source, kind, f.uses), "factor")
    if side.scale is not None:
        block = tuple(at // size for at, size in zip(place, side.blocks, strict=True))
        scale = convert(e.value(side.scale, block), side.scale.array.dtype, kind, f.uses)
        value = e.scope.declare(f.uses.type(kind), value * scale, "scaled")
    return convert(value, kind, wide, f.uses)


def named_factor(f: FunctionWriter, contraction: Contraction, side: Side, place: Indices) -> Expr:
    """As ``factor``, a variable or a part of one."""
    value = factor(f, contraction, side, place)
    if isinstance(value, Var | Member):
        return value
    return f.elements.scope.declare(sum_type(f, contraction), value, "factor")


def read_factor(
    f: FunctionWriter,
    contraction: Contraction,
    side: Side,
    tests: Sequence[Expr],
    place: Indices,
    hint: str,
) -> Expr:
    """An element of an operand as a factor; 0 where a test fails."""
    e = f.elements
    if not tests:
        return factor(f, contraction, side, place)
    read = e.scope.variable(sum_type(f, contraction), hint, zero(contraction))
    with e.when(*tests):
        e.scope.set(read, factor(f, contraction, side, place))
    return read


def multiply_add(
    f: FunctionWriter, contraction: Contraction, total: Var | Element, left: Expr, right: Expr
) -> None:
    """Write ``total += left * right``; left and right are named."""
    kind, scope = contraction.accumulator, f.elements.scope
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


def add(f: FunctionWriter, contraction: Contraction, total: Var | Element, other: Expr) -> None:
    """Write ``total += other``."""
    kind, scope = contraction.accumulator, f.elements.scope
    if kind.is_complex:
        for part, added in zip(parts(total, kind), parts(other, kind), strict=True):
            scope.set(part, added, "+")
    elif kind.is_pred:
        scope.set(total, either([total, other]))
    else:
        scope.set(total, other, "+")


def store_sums(
    f: FunctionWriter,
    product: ProductRegion,
    places: Sequence[Indices],
    sums: Sequence[Expr],
) -> None:
    """Store what becomes of sums of the hero, by vectors where the results lie next to each other."""
    values: list[list[tuple[Index, Expr]]] = [[] for _ in product.routes]
    for place, total in zip(places, sums, strict=True):
        for number, stored in enumerate(_finished(f, product, place, total)):
            values[number].append(stored)
    for number, stores in enumerate(values):
        store_run(f, f.result(number), stores)


def _finished(
    f: FunctionWriter, product: ProductRegion, place: Indices, total: Expr
) -> list[tuple[Index, Expr]]:
    """Where a sum goes in each result, and what is stored there."""
    contraction, e = product.contraction, f.elements
    hero = contraction.hero
    if hero.opcode == "custom-call":
        at = position_of(place, f.region.results[0].shape)
        return [(at, one) for one in finished(f, contraction, place, total)]
    value = e.scope.declare(
        f.uses.type(hero.array.dtype), _rounded(f, contraction, total), hero.name
    )
    e.remember(hero, place, 0, value)
    found = []
    for result, route in zip(f.region.results, product.routes, strict=True):
        index = moved(place, route)
        found.append((position_of(index, result.shape), e.value(result.instruction, index)))
    return found


def _rounded(f: FunctionWriter, contraction: Contraction, total: Expr) -> Expr:
    """A sum as an element of the result: rounded to the type of the products first."""
    kind, wide = contraction.kind, contraction.accumulator
    if kind is not wide:
        total = convert(total, wide, kind, f.uses)
        if kind is not contraction.result_dtype:
            total = f.elements.scope.declare(f.uses.type(kind), total, "rounded")
    return convert(total, kind, contraction.result_dtype, f.uses)


def store_run(f: FunctionWriter, pointee: Pointee, stores: Sequence[tuple[Index, Expr]]) -> None:
    """Store values, by vectors where they lie next to each other and are aligned."""
    first = stores[0][0]
    if all(at == first + lane for lane, (at, _) in enumerate(stores)):
        loop.store_run(f, pointee, first, [value for _, value in stores], len(stores))
        return
    for at, value in stores:
        f.store(pointee, at, value)
