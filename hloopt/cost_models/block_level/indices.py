"""Under which index an operand is read, for an index of the result: the step a tile takes from user to operand.

Indices are those of ``hloopt.analysis.index``.  A reduced dimension, of which all elements are read, is a
separate symbol; a dimension of one element is the index 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from hloopt.analysis.elementwise import is_elementwise
from hloopt.analysis.index import (
    Index,
    Indices,
    Quotient,
    Remainder,
    Symbol,
    delinearize,
    linearize,
)
from hloopt.analysis.layout import major_to_minor
from hloopt.ir import Instruction
from hloopt.ops.traits import SOURCES, op_table
from hloopt.types import ArrayShape

__all__ = ["is_followed", "own_place", "read_places", "without_ones"]

_Step: TypeAlias = Callable[[Instruction, Indices], list[Indices]]


def own_place(dims: tuple[int, ...]) -> tuple[Indices, tuple[Symbol, ...]]:
    """Any element of an array: one symbol a dimension."""
    symbols = tuple(Symbol(f"d{axis}", 0, size - 1) for axis, size in enumerate(dims))
    return tuple(symbol.index for symbol in symbols), symbols


def is_followed(node: Instruction) -> bool:
    """Whether indices of a node's operands are known from those of its result."""
    return node.opcode in _STEPS or is_elementwise(node)


def read_places(node: Instruction, place: Indices) -> list[Indices]:
    """Where the operands of ``node`` are read, in their order, to compute its element at ``place``.

    Raises ``KeyError`` for a node for which ``is_followed`` is false.
    """
    if is_elementwise(node):
        # The bounds of a clamp and the choice of a select may be scalars.
        return [place if operand.array.dims else () for operand in node.operands]
    return _STEPS[node.opcode](node, place)


def without_ones(place: Indices, dims: tuple[int, ...]) -> Indices:
    """An element of an array, dimensions of one element at 0."""
    return tuple(Index(0) if size == 1 else index for size, index in zip(dims, place, strict=True))


def _dims(node: Instruction) -> tuple[int, ...]:
    return node.array.dims


def _nothing(_: Instruction, __: Indices) -> list[Indices]:
    return []


def _broadcast(node: Instruction, place: Indices) -> list[Indices]:
    dimensions = node.attributes.get("dimensions", ())
    sizes = _dims(node.operands[0])
    return [
        tuple(
            Index(0) if size == 1 else place[dimension]
            for size, dimension in zip(sizes, dimensions, strict=True)
        )
    ]


def _transpose(node: Instruction, place: Indices) -> list[Indices]:
    source = [Index(0)] * len(place)
    for index, dimension in zip(place, node.dimensions, strict=True):
        source[dimension] = index
    return [tuple(source)]


def _slice(node: Instruction, place: Indices) -> list[Indices]:
    return [
        tuple(
            index * bounds.stride + bounds.start
            for index, bounds in zip(place, node.attributes["slice"], strict=True)
        )
    ]


def _reshape(node: Instruction, place: Indices) -> list[Indices]:
    """Of bitcasts, too: the position in memory stays, whatever the layouts are."""
    source, result = node.operands[0].array, node.array
    if node.opcode == "reshape":
        return [delinearize(linearize(place, result.dims), source.dims)]
    linear = linearize(*_in_memory(place, result))
    order = major_to_minor(source)
    found = delinearize(linear, tuple(source.dims[axis] for axis in order))
    by_axis = dict(zip(order, found, strict=True))
    return [tuple(by_axis[axis] for axis in range(source.rank))]


def _in_memory(place: Indices, shape: ArrayShape) -> tuple[Indices, tuple[int, ...]]:
    order = major_to_minor(shape)
    return tuple(place[axis] for axis in order), tuple(shape.dims[axis] for axis in order)


def _reduce(node: Instruction, place: Indices) -> list[Indices]:
    reduced = set(node.dimensions)
    taken = _names(place)
    kept = iter(place)
    source: list[Index] = []
    for axis, size in enumerate(_dims(node.operands[0])):
        if axis not in reduced:
            source.append(next(kept))
        elif size == 1:
            source.append(Index(0))
        else:
            name = next(
                name for number in range(len(taken) + 1) if (name := f"s{number}") not in taken
            )
            taken.add(name)
            source.append(Symbol(name, 0, size - 1).index)
    count = len(node.operands) // 2
    return [tuple(source)] * count + [()] * count


def _names(place: Indices) -> set[str]:
    """The symbols that occur in a place."""
    found: set[str] = set()
    pending = list(place)
    while pending:
        for atom, _ in pending.pop().terms:
            if isinstance(atom, Quotient | Remainder):
                pending.append(atom.dividend)
            else:
                found.add(atom.name)
    return found


_STEPS: Final[Mapping[str, _Step]] = op_table({
    **dict.fromkeys(SOURCES, _nothing),
    **dict.fromkeys(("bitcast", "reshape"), _reshape),
    "broadcast": _broadcast,
    "copy": lambda _, place: [place],
    "reduce": _reduce,
    "slice": _slice,
    "transpose": _transpose,
}, otherwise="elementwise, or not in a tiling")  # fmt: skip
