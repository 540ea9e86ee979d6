"""Which elements of a matrix are not zero, where indices say it: one-hot matrices, their sums and products."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.linear_algebra.masks import is_summing, is_zero
from hloopt.types import DotDims, ScatterDims

__all__ = ["ChosenPlaces", "are_distinct", "chosen", "is_nothing"]

_GONE: Final = -1
_MOST: Final = 128


@dataclass(frozen=True)
class ChosenPlaces:
    """Along one dimension, elements are zero but at ``indices``.

    dims  the dimension of the value that each dimension of the indices is; -1 for those that are summed over
    """

    indices: Instruction
    dims: tuple[int, ...]


def chosen(value: Instruction, along: int) -> ChosenPlaces | None:
    """What says where a value is not zero along a dimension; None where nothing does.

    Looks at no more than ``_MOST`` instructions.
    """
    return _Search().of(value, along)


class _Search:
    """Answers by value and dimension: each is found once, however often it is read."""

    def __init__(self) -> None:
        self._known: dict[tuple[Instruction, int], ChosenPlaces | None] = {}

    def of(self, value: Instruction, along: int) -> ChosenPlaces | None:
        key = value, along
        if key not in self._known and len(self._known) < _MOST:
            self._known[key] = None
            self._known[key] = self._find(value, along)
        return self._known.get(key)

    def _find(self, value: Instruction, along: int) -> ChosenPlaces | None:
        match value.opcode:
            case "convert" | "copy":
                return self.of(value.operands[0], along)
            case "multiply" | "and":
                return self.of(value.operands[0], along) or self.of(value.operands[1], along)
            case "select" if is_nothing(value.operands[2]):
                return self.of(value.operands[0], along)
            case "compare" if value.direction == "EQ":
                return _one_hot(value, along)
            case "broadcast" if along in value.dimensions:
                inner = self.of(value.operands[0], value.dimensions.index(along))
                return _moved(inner, dict(enumerate(value.dimensions)))
            case "transpose":
                order = value.dimensions
                inner = self.of(value.operands[0], order[along])
                return _moved(inner, {dim: at for at, dim in enumerate(order)})
            case "reduce" if is_summing(value):
                return self._summed(value, along)
            case "dot":
                return self._product(value, along)
            case "scatter" if value.is_array:
                return _scattered(value, along)
        return None

    def _summed(self, value: Instruction, along: int) -> ChosenPlaces | None:
        source = value.operands[0]
        kept = [dim for dim in range(source.array.rank) if dim not in value.dimensions]
        return _moved(self.of(source, kept[along]), {dim: at for at, dim in enumerate(kept)})

    def _product(self, value: Instruction, along: int) -> ChosenPlaces | None:
        dims = DotDims.of(value.attributes)
        sides = dims.places(*(operand.array.rank for operand in value.operands))
        for operand, places in zip(value.operands, sides, strict=True):
            dim = next((dim for dim, place in places.items() if place == along), None)
            found = None if dim is None else _moved(self.of(operand, dim), places)
            if found is not None:
                return found
        return None


def is_nothing(value: Instruction) -> bool:
    """Whether all elements are zero; conversions and broadcasts of zero count."""
    while value.opcode in ("broadcast", "convert"):
        value = value.operands[0]
    return is_zero(value)


def are_distinct(indices: Instruction) -> bool:
    """Whether the indices of a row differ from each other, as those of a top-k or of a sort do."""
    indices = _unwrapped(indices)
    if indices.array.rank == 1:
        return True
    if indices.opcode == "slice":
        indices = indices.operands[0]
    if indices.opcode != "get-tuple-element" or indices.tuple_index != 1:
        return False
    source = indices.operands[0]
    if source.opcode == "topk":
        return True
    return source.opcode == "sort" and source.operands[1].opcode == "iota"


def _unwrapped(indices: Instruction) -> Instruction:
    """Without ``where(i < 0, i + n, i)``, which indices from 0 on leave as they are."""
    if indices.opcode == "select" and indices.operands[0].opcode == "compare":
        test, _, other = indices.operands
        if test.direction == "LT" and test.operands[0] is other and is_zero(test.operands[1]):
            return other
    return indices


def _one_hot(value: Instruction, along: int) -> ChosenPlaces | None:
    for places, count in (value.operands, value.operands[::-1]):
        if count.opcode == "broadcast" and count.operands[0].opcode == "iota":
            dims = count.dimensions
            counted = dims[count.operands[0].iota_dimension]
        elif count.opcode == "iota":
            counted = count.iota_dimension
        else:
            continue
        if counted == along and places.opcode == "broadcast" and along not in places.dimensions:
            return ChosenPlaces(_unwrapped(places.operands[0]), places.dimensions)
    return None


def _moved(found: ChosenPlaces | None, places: Mapping[int, int]) -> ChosenPlaces | None:
    if found is None:
        return None
    return replace(found, dims=tuple(places.get(dim, _GONE) for dim in found.dims))


def _scattered(value: Instruction, along: int) -> ChosenPlaces | None:
    """Zeros into which a scatter writes numbers at (row, index), with rows from an iota."""
    dims = ScatterDims.of(value.attributes)
    operand, both = value.operands[0], value.operands[1]
    if not is_nothing(operand) or value.array.rank != 2 or dims.update_window_dims:
        return None
    if both.opcode != "concatenate" or both.array.rank != 3 or both.dimensions != (2,):
        return None
    if dims.index_map != (0, 1) or dims.index_vector_dim != 2 or len(both.operands) != 2:
        return None
    rows, indices = both.operands[1 - along], both.operands[along]
    if rows.opcode != "iota" or rows.iota_dimension != 0 or indices.opcode != "reshape":
        return None
    found = indices.operands[0]
    if found.array.dims != both.array.dims[:2] or rows.array.dims[0] != value.array.dims[1 - along]:
        return None
    return ChosenPlaces(_unwrapped(found), (1 - along, _GONE))
