"""Values of a contraction: factors, sums of products, and what becomes of a sum."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from hloopt.analysis.contraction import Contraction, Side
from hloopt.analysis.index import Index
from hloopt.codegen.families.dot_finish import finished
from hloopt.codegen.families.dot_index import moved
from hloopt.codegen.loads import VECTOR_BYTES
from hloopt.codegen.positions import position_of
from hloopt.codegen.scalars import convert, literal
from hloopt.codegen.writer import FunctionWriter, Pointee
from hloopt.kernels.families.dot_region import Product

__all__ = [
    "add",
    "factor",
    "multiply_add",
    "read_factor",
    "store_run",
    "store_sums",
    "sum_type_name",
    "zero",
]


_NAME = re.compile(r"[A-Za-z_][\w.\[\]]*")


def sum_type_name(f: FunctionWriter, contraction: Contraction) -> str:
    """The C type of sums and factors."""
    return f.uses.type(contraction.accumulator)


def zero(contraction: Contraction) -> str:
    """The C literal of an empty sum."""
    return literal(0, contraction.accumulator)


def factor(
    f: FunctionWriter, contraction: Contraction, side: Side, place: tuple[Index, ...]
) -> str:
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
        value = e.scope.declare(f.uses.type(kind), f"{value} * {scale}", "scaled")
    return convert(value, kind, wide, f.uses)


def named_factor(
    f: FunctionWriter, contraction: Contraction, side: Side, place: tuple[Index, ...]
) -> str:
    """As ``factor``, a name."""
    value = factor(f, contraction, side, place)
    if _NAME.fullmatch(value):
        return value
    return f.elements.scope.declare(sum_type_name(f, contraction), value, "factor")


def read_factor(
    f: FunctionWriter,
    contraction: Contraction,
    side: Side,
    tests: Sequence[str],
    place: tuple[Index, ...],
    hint: str,
) -> str:
    """An element of an operand as a factor; 0 where a test fails."""
    e = f.elements
    if not tests:
        return factor(f, contraction, side, place)
    name = e.scope.variable(sum_type_name(f, contraction), hint, zero(contraction))
    with e.within(e.scope.when(f"{' && '.join(tests)}")):
        value = factor(f, contraction, side, place)
        e.scope.line(f"{name} = {value};")
    return name


def multiply_add(contraction: Contraction, total: str, left: str, right: str) -> Iterable[str]:
    """The statements of ``total += left * right``; left and right are names."""
    kind = contraction.accumulator
    if kind.is_complex:
        yield f"{total}.re += {left}.re * {right}.re;"
        yield f"{total}.re -= {left}.im * {right}.im;"
        yield f"{total}.im += {left}.re * {right}.im;"
        yield f"{total}.im += {left}.im * {right}.re;"
    elif kind.is_pred:
        yield f"{total} = {total} || ({left} && {right});"
    else:
        yield f"{total} += {left} * {right};"


def add(contraction: Contraction, total: str, other: str) -> Iterable[str]:
    """The statements of ``total += other``."""
    kind = contraction.accumulator
    if kind.is_complex:
        yield f"{total}.re += {other}.re;"
        yield f"{total}.im += {other}.im;"
    elif kind.is_pred:
        yield f"{total} = {total} || {other};"
    else:
        yield f"{total} += {other};"


def store_sums(
    f: FunctionWriter, product: Product, places: Sequence[tuple[Index, ...]], sums: Sequence[str]
) -> None:
    """Store what becomes of sums of the hero, by vectors where the results lie next to each other."""
    values: list[list[tuple[Index, str]]] = [[] for _ in product.routes]
    for place, total in zip(places, sums, strict=True):
        for number, stored in enumerate(_finished(f, product, place, total)):
            values[number].append(stored)
    for number, stores in enumerate(values):
        store_run(f, f.result(number), stores)


def _finished(
    f: FunctionWriter, product: Product, place: tuple[Index, ...], total: str
) -> list[tuple[Index, str]]:
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
        value = e.value(result.instruction, index)
        found.append((position_of(index, result.shape), value))
    return found


def _rounded(f: FunctionWriter, contraction: Contraction, total: str) -> str:
    """A sum as an element of the result: rounded to the type of the products first."""
    kind, wide = contraction.kind, contraction.accumulator
    if kind is not wide:
        total = convert(total, wide, kind, f.uses)
        if kind is not contraction.result_dtype:
            total = f.elements.scope.declare(f.uses.type(kind), total, "rounded")
    return convert(total, kind, contraction.result_dtype, f.uses)


def store_run(f: FunctionWriter, pointee: Pointee, stores: Sequence[tuple[Index, str]]) -> None:
    """Store values, by vectors where they lie next to each other and are aligned."""
    kind, scope = pointee.shape.dtype, f.elements.scope
    first, count = stores[0][0], len(stores)
    neighbours = all(at == first + lane for lane, (at, _) in enumerate(stores))
    width = min(count, VECTOR_BYTES * 8 // kind.bits)
    if width > 1 and count % width == 0 and neighbours and first.is_multiple(width):
        for start in range(0, count, width):
            part = ", ".join(value for _, value in stores[start : start + width])
            vector = f"Vector<{f.uses.storage(kind)}, {width}>"
            name = scope.declare(vector, f"{{{{{part}}}}}", "stored")
            offset = (first + start).factor_text
            scope.line(f"{f.uses.call('store_vector', f'{pointee.name} + {offset}', name)};")
        return
    for at, value in stores:
        f.store(pointee, at, value)
