"""Ops of which an element of the result is many of the operands': folds, products, sorts, bits cut and joined.

Integers and pred are what the arithmetic says.  A sum of floats, with or without products, is added in an order
that HLO leaves open: it is a function of what is added, in whatever order, of which nothing else is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Final

import numpy as np

from hloopt.interpret.bitcast import bitcast
from hloopt.interpret.context import Value, array_of, arrays_of, leaf_arrays
from hloopt.interpret.correlation import Geometry
from hloopt.interpret.linear import sum_type
from hloopt.interpret.regions import combiner
from hloopt.interpret.tiling import is_tiled
from hloopt.interpret.window import window_places
from hloopt.ir import Computation, Instruction
from hloopt.ops.traits import op_table
from hloopt.prover.equivalence.symbolic import Handler, Symbolic
from hloopt.types import (
    Array,
    ArrayShape,
    ConvNumbers,
    DotDims,
    DType,
    TupleShape,
    Window,
    dtype,
)

__all__ = ["COMBINING"]

_MOST_STEPS: Final = 1 << 18
"""Elements that one op combines."""

_ABSENT: Final = -1

Pairs = Iterable[tuple[int, int]]
"""The factors of each product of a sum."""


def _fold(
    symbolic: Symbolic,
    region: Computation,
    inits: Sequence[Array],
    columns: Sequence[Array],
) -> list[Array]:
    """Columns [n, ...] folded along their first dimension from ``inits``; ``_ABSENT`` ones take no part."""
    kinds = [parameter.array.dtype for parameter in region.parameters[: len(inits)]]
    dims = columns[0].shape[1:]
    starts = [np.broadcast_to(init, dims) for init in inits]
    floats = kinds[0].is_float or kinds[0].is_complex
    if combiner(region) == "add" and floats:
        rows = np.concatenate([starts[0][np.newaxis], columns[0]])
        return [_sums(symbolic, rows, kinds[0])]
    for column in zip(*columns, strict=True):
        present = column[0] != _ABSENT
        safe = [np.where(present, part, start) for part, start in zip(column, starts, strict=True)]
        found = leaf_arrays(symbolic.apply(region, [*starts, *safe]))
        starts = [np.where(present, new, start) for new, start in zip(found, starts, strict=True)]
    return starts


def _sums(symbolic: Symbolic, rows: Array, kind: DType) -> Array:
    """The sum of each column of ``rows`` [n, ...]."""
    terms = symbolic.terms

    def one(*numbers: int) -> int:
        added = sorted(number for number in numbers if number != _ABSENT)
        if len(added) == 1:
            return added[0]
        if len(added) == 2:  # rounded once, as an add is
            return terms.make("add", kind, added)
        return terms.make("sum", kind, added)

    return terms.each(one, *rows)


def _results(instruction: Instruction, results: Sequence[Array]) -> Value:
    return tuple(results) if isinstance(instruction.shape, TupleShape) else results[0]


def _converts(region: Computation, instruction: Instruction) -> bool:
    """Whether a region works in other types than the arrays it combines have."""
    count = len(region.parameters) // 2
    kinds = [operand.array.dtype for operand in instruction.operands[:count]] * 2
    return [parameter.array.dtype for parameter in region.parameters] != kinds


def _reduce(
    symbolic: Symbolic, instruction: Instruction, operands: tuple[Value, ...]
) -> Value | None:
    arrays = arrays_of(operands)
    region, count = instruction.attributes["to_apply"], len(arrays) // 2
    if arrays[0].size * count > _MOST_STEPS or _converts(region, instruction):
        return None
    reduced = sorted(instruction.attributes["dimensions"])
    kept = [axis for axis in range(arrays[0].ndim) if axis not in reduced]
    dims = arrays[0].shape
    shape = (prod(dims[axis] for axis in reduced), *(dims[axis] for axis in kept))
    columns = [x.transpose([*reduced, *kept]).reshape(shape) for x in arrays[:count]]
    return _results(instruction, _fold(symbolic, region, arrays[count:], columns))


def _reduce_window(
    symbolic: Symbolic, instruction: Instruction, operands: tuple[Value, ...]
) -> Value | None:
    arrays = arrays_of(operands)
    region, count = instruction.attributes["to_apply"], len(arrays) // 2
    dims = arrays[0].shape
    window = Window.of(instruction.attributes, len(dims))
    output = window.positions(dims)
    if prod(output) * window.size * count > _MOST_STEPS or _converts(region, instruction):
        return None
    places = list(product(*map(window_places, dims, window.dims)))
    columns = [np.full((len(places), *output), _ABSENT) for _ in range(count)]
    for at, place in enumerate(places):
        source = tuple(where for where, _ in place)
        target = tuple(where for _, where in place)
        for column, array in zip(columns, arrays, strict=False):
            column[at][target] = array[source]
    return _results(instruction, _fold(symbolic, region, arrays[count:], columns))


def _factors(
    symbolic: Symbolic, instruction: Instruction, operands: tuple[Value, ...]
) -> tuple[DType, list[Array]]:
    """The type that products are made in, and the operands in it."""
    kinds = [operand.array.dtype for operand in instruction.operands]
    kind, make = sum_type(kinds, instruction.array.dtype), symbolic.terms.make
    return kind, [
        symbolic.terms.each(lambda x: make("convert", kind, (x,)), array_of(value))
        for value in operands
    ]


def _products(
    symbolic: Symbolic, instruction: Instruction, pairs: Iterable[Pairs], kind: DType
) -> Array:
    """The sum of products that each element of the result is, in row-major order."""
    algorithm = instruction.attributes.get("algorithm")
    found = [_sum_of_products(symbolic, list(each), kind, algorithm) for each in pairs]
    result, make = instruction.array.dtype, symbolic.terms.make
    sums = np.array(found, np.int64)
    return symbolic.terms.each(lambda x: make("convert", result, (x,)), sums)


def _dot(symbolic: Symbolic, instruction: Instruction, operands: tuple[Value, ...]) -> Value | None:
    kind, (lhs, rhs) = _factors(symbolic, instruction, operands)
    dims = DotDims.of(instruction.attributes)
    left_free, right_free = dims.lhs_free(lhs.ndim), dims.rhs_free(rhs.ndim)
    batch = prod(lhs.shape[axis] for axis in dims.lhs_batch)
    m = prod(lhs.shape[axis] for axis in left_free)
    n = prod(rhs.shape[axis] for axis in right_free)
    k = prod(lhs.shape[axis] for axis in dims.lhs_contracting)
    if batch * m * n * k > _MOST_STEPS or not batch * m * n:
        return None
    order = [*dims.lhs_batch, *left_free, *dims.lhs_contracting]
    left = lhs.transpose(order).reshape(batch, m, k)
    order = [*dims.rhs_batch, *right_free, *dims.rhs_contracting]
    right = rhs.transpose(order).reshape(batch, n, k)
    pairs = (
        zip(row, column, strict=True)
        for rows, columns in zip(left.tolist(), right.tolist(), strict=True)
        for row in rows
        for column in columns
    )
    return _products(symbolic, instruction, pairs, kind).reshape(instruction.array.dims)


def _convolution(
    symbolic: Symbolic, instruction: Instruction, operands: tuple[Value, ...]
) -> Value | None:
    """Padding takes no part in the sums, as in the interpreter."""
    kind, (lhs, rhs) = _factors(symbolic, instruction, operands)
    numbers = ConvNumbers.of(instruction.attributes)
    geometry = Geometry(lhs.shape, rhs.shape, numbers)
    x, kernel = geometry.operand(lhs), geometry.kernel(rhs)
    result = np.zeros(geometry.shape, np.int64)
    out = geometry.result(result)
    positions, features = kernel.shape[1:-2], kernel.shape[-2]
    if out.size * prod(positions) * features > _MOST_STEPS or not out.size:
        return None
    sums: list[list[tuple[int, int]]] = [[] for _ in range(out.size)]
    number = np.arange(out.size).reshape(out.shape)
    places = list(map(window_places, x.shape[2:-1], numbers.window.dims))
    every = (slice(None), slice(None))
    for position in np.ndindex(*positions):
        met = [along[at] for along, at in zip(places, position, strict=True)]
        rows = x[(*every, *(inside for inside, _ in met))]
        target = number[(*every, *(at for _, at in met))]
        weights = kernel[(slice(None), *position)]
        for index in np.ndindex(*target.shape):
            group, *inner, feature = index
            pairs = zip(rows[(group, *inner)], weights[group, :, feature], strict=True)
            sums[target[index]] += [(int(a), int(b)) for a, b in pairs]
    out[...] = _products(symbolic, instruction, sums, kind).reshape(out.shape)
    return result


def _sum_of_products(
    symbolic: Symbolic, factors: Sequence[tuple[int, int]], kind: DType, algorithm: object
) -> int:
    terms = symbolic.terms
    if kind.is_float or kind.is_complex:
        pairs = sorted((min(pair), max(pair)) for pair in factors)
        data = None if algorithm is None else str(algorithm)
        args = [number for pair in pairs for number in pair]
        return terms.make("sum-of-products", kind, args, data)
    total = terms.constant(0, kind)
    for one in sorted(terms.make("multiply", kind, pair) for pair in factors):
        total = one if terms.value(total) is not None else terms.make("add", kind, (total, one))
    return total


def _sort(
    symbolic: Symbolic, instruction: Instruction, operands: tuple[Value, ...]
) -> Value | None:
    """Each line by itself: a function of its elements."""
    arrays = arrays_of(operands)
    (axis,) = instruction.attributes["dimensions"]
    size = arrays[0].shape[axis]
    if all((np.take(array, [0], axis) == array).all() for array in arrays):
        return _results(instruction, arrays)
    terms = symbolic.terms
    stable = bool(instruction.attributes.get("is_stable"))
    data = ("sort", symbolic.digest(instruction.attributes["to_apply"]), stable)
    lines = [np.moveaxis(array, axis, -1).reshape(-1, size) for array in arrays]
    results = [np.empty_like(line) for line in lines]
    for at, parts in enumerate(zip(*lines, strict=True)):
        whole = terms.make("array", None, [int(x) for part in parts for x in part], data)
        symbolic.unknown.setdefault(whole, instruction)
        for number, (operand, result) in enumerate(zip(instruction.operands, results, strict=True)):
            kind = operand.array.dtype
            result[at] = [
                terms.make("element", kind, (whole,), (number, place)) for place in range(size)
            ]
    rest = np.moveaxis(arrays[0], axis, -1).shape
    return _results(instruction, [np.moveaxis(x.reshape(rest), -1, axis) for x in results])


def _get_dimension_size(
    symbolic: Symbolic, instruction: Instruction, operands: tuple[Value, ...]
) -> Value | None:
    (dimension,) = instruction.attributes["dimensions"]
    size = array_of(operands[0]).shape[dimension]
    return symbolic.terms.constants(np.array(size, np.int32), instruction.array.dtype)


def _set_dimension_size(
    symbolic: Symbolic, instruction: Instruction, operands: tuple[Value, ...]
) -> Value | None:
    """Of a static dimension it can only be its size."""
    (dimension,) = instruction.attributes["dimensions"]
    kind = instruction.operands[1].array.dtype
    if not symbolic.terms.are_constant(array_of(operands[1])):
        return None
    size = int(symbolic.terms.values(array_of(operands[1]), kind))
    return operands[0] if size == instruction.array.dims[dimension] else None


def _bits(
    symbolic: Symbolic, instruction: Instruction, operands: tuple[Value, ...]
) -> Value | None:
    """Elements seen as others: one by one, cut into several or joined of several, lowest bits first."""
    shapes = instruction.operands[0].shape, instruction.shape
    if not all(isinstance(shape, ArrayShape) for shape in shapes):
        return None
    source, target = instruction.operands[0].array, instruction.array
    array, make = array_of(operands[0]), symbolic.terms.make
    kinds = source.dtype, target.dtype
    if kinds[0] is not kinds[1] and any(kind.is_pred or kind.bits < 8 for kind in kinds):
        return None
    one_width = kinds[0].bits == kinds[1].bits
    if instruction.opcode == "bitcast":
        if not one_width or is_tiled(source) or is_tiled(target):
            return None
        array = bitcast(array, source, replace(target, dtype=source.dtype))
    if one_width:
        return symbolic.terms.each(lambda x: make("bits", kinds[1], (x,)), array)
    wide, narrow = (dtype(f"u{bits}") for bits in sorted((kinds[0].bits, kinds[1].bits))[::-1])
    count = wide.bits // narrow.bits
    if kinds[0].is_complex or kinds[1].is_complex:
        return None
    if kinds[0].bits > kinds[1].bits:
        array = symbolic.terms.each(lambda x: make("bits", wide, (x,)), array)
        pieces = [
            symbolic.terms.each(lambda x, at=at: make("piece", narrow, (x,), at), array)
            for at in range(count)
        ]
        return symbolic.terms.each(
            lambda x: make("bits", kinds[1], (x,)), np.stack(pieces, axis=-1)
        )
    array = symbolic.terms.each(lambda x: make("bits", narrow, (x,)), array)
    parts = [array[..., at] for at in range(count)]
    joined = symbolic.terms.each(lambda *args: make("joined", wide, args), *parts)
    return symbolic.terms.each(lambda x: make("bits", kinds[1], (x,)), joined)


COMBINING: Mapping[str, Handler] = op_table(
    {
        "bitcast": _bits,
        "bitcast-convert": _bits,
        "convolution": _convolution,
        "dot": _dot,
        "get-dimension-size": _get_dimension_size,
        "reduce": _reduce,
        "reduce-window": _reduce_window,
        "set-dimension-size": _set_dimension_size,
        "sort": _sort,
    },
    otherwise="evaluated elsewhere, or an unknown function of its operands",
)
