"""Reading what an instruction computes as a sum of products, as far as it is linear algebra."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import isfinite
from typing import Any, Final

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction
from hloopt.linear_algebra.masks import (
    SlicedDiagonal,
    compared_dims,
    gathered_diagonal,
    is_masked,
    is_summing,
    sliced_diagonal,
)
from hloopt.linear_algebra.terms import Factor, IndexAxes, IndexAxis, IndexSpace, Sum, TensorTerm
from hloopt.ops.traits import ALL, BITWISE, INDEXING, MODULAR, REARRANGING, op_table
from hloopt.rewrite import splat_literal
from hloopt.types import ArrayShape, DotDims, DType, record_of

__all__ = ["ARITHMETIC", "MOST_FACTORS", "TermReader", "dotted_of", "is_result", "takes"]

MOST_FACTORS: Final = 40
"""Factors of one value, above which what is left is read as it stands."""
_MOST_DEPTH: Final = 60
_MOST_READ: Final = 400
"""Visits of instructions while one value is read: what is read several times counts each time."""
_MOST_POWERS: Final = 3
"""How often one value reads a sum that has other readers, too: x and x x x need it four times."""
ARITHMETIC: Final = MODULAR - BITWISE
_PARTS: Final = INDEXING - {"dynamic-update-slice"}
_VIEWS: Final = REARRANGING - {"bitcast", "reverse"} | _PARTS


def takes(instruction: Instruction) -> bool:
    """Whether a value may be computed in another way: its sizes are known, and nothing is said of its place."""
    return (
        isinstance(instruction.shape, ArrayShape)
        and not instruction.shape.is_dynamic
        and 0 not in instruction.shape.dims
        and instruction.is_understood
        and not instruction.has_control_edges
        and "sharding" not in instruction.attributes
    )


@dataclass(frozen=True)
class _Place:
    """Where a value is read: its ``axes``, how ``deep``, whether it is ``summed``, and ``inside`` of a dot."""

    axes: IndexAxes
    deep: int
    summed: bool
    inside: bool


class TermReader:
    """Reads one value as terms; ``dotted`` are the values that have a dot behind them.

    With ``stops_at_shared`` sums that several read are read as they stand.

    read       the instructions that were followed
    was_cut    whether there were more factors than are read
    dtype      the element type of all that is followed
    precision  what all dots have in common besides their dimensions; None before the first one
    """

    def __init__(
        self,
        space: IndexSpace,
        root: Instruction,
        dotted: AbstractSet[Instruction],
        *,
        stops_at_shared: bool = False,
    ) -> None:
        self.space = space
        self._stops_at_shared = stops_at_shared
        self._dotted = dotted
        self.dtype: DType = root.array.dtype
        self.precision: dict[str, Any] | None = None
        self.read: dict[Instruction, None] = {}
        self.was_cut = False
        self._sums: Counter[Instruction] = Counter()
        self._left = MOST_FACTORS
        self._visits = _MOST_READ

    @property
    def is_polynomial(self) -> bool:
        """Whether a sum was read so often, or so much in all, that its powers are better left unwritten."""
        return self.was_cut or max(self._sums.values(), default=0) > _MOST_POWERS

    @property
    def shares_sums(self) -> bool:
        """Whether a sum was read through that has other readers, too."""
        return bool(self._sums) and not self._stops_at_shared

    def terms(self, value: Instruction, axes: IndexAxes) -> tuple[TensorTerm, ...]:
        """The terms of a value whose dimensions count through ``axes``."""
        return tuple(self._terms(value, axes, _Place(axes, 0, False, False)))

    def _terms(
        self,
        value: Instruction,
        axes: IndexAxes,
        outer: _Place,
        *,
        summed: bool = False,
        inside: bool = False,
    ) -> list[TensorTerm]:
        """What an operand is made of.

        Where no dot is behind them, scalings are followed where they are summed, sums inside of a dot.
        """
        place = _Place(axes, outer.deep + 1, summed or outer.summed, inside or outer.inside)
        found: list[TensorTerm] | None = None
        self._visits -= 1
        if self._left <= 0 or self._visits <= 0 or place.deep > _MOST_DEPTH:
            self.was_cut |= value in self._dotted
        elif takes(value) and value.array.dtype is self.dtype:
            how = _HOW.get(value.opcode)
            if how is not None and self._is_followed(value, place):
                found = how(self, value, place)
        if found is None:
            self._left -= 1
            return [TensorTerm(1, (Factor(value, axes),))]
        self.read[value] = None
        return found

    def _is_followed(self, value: Instruction, place: _Place) -> bool:
        is_sum = value.opcode in ("add", "subtract") and value in self._dotted and place.deep > 1
        if is_sum and sum(value.users.values()) > 1:
            self._sums[value] += 1
            return not self._stops_at_shared
        if value.opcode not in ARITHMETIC or value in self._dotted:
            return True
        return place.inside or (place.summed and value.opcode == "multiply")

    def _product(self, *sides: list[TensorTerm]) -> list[TensorTerm]:
        """The product of sums; a sum of several terms stays one factor."""
        result = TensorTerm(1)
        for terms in sides:
            if not terms:
                return []
            one = terms[0] if len(terms) == 1 else TensorTerm(1, (Factor(Sum(tuple(terms))),))
            result = result.times(one)
        return [result]

    def dot(self, value: Instruction, place: _Place) -> list[TensorTerm] | None:
        """Batch dimensions are shared, contracted ones summed."""
        lhs, rhs = value.operands[:2]
        dims = DotDims.of(value.attributes)
        if not self._joins(value):
            return None
        left, right = (
            {dim: place.axes[at] for dim, at in side.items()}
            for side in dims.places(lhs.array.rank, rhs.array.rank)
        )
        summed: set[int] = set()
        for one, other in zip(dims.lhs_contracting, dims.rhs_contracting, strict=True):
            left[one] = right[other] = self.space.axis(lhs.array.dims[one])
            summed |= set(left[one])
        sides = (
            self._terms(
                operand, tuple(axes[dim] for dim in sorted(axes)), place, summed=True, inside=True
            )
            for operand, axes in ((lhs, left), (rhs, right))
        )
        return [term.summed_over(frozenset(summed)) for term in self._product(*sides)]

    def _joins(self, dot: Instruction) -> bool:
        """Whether a dot has the types and the precision of those before it."""
        if len(dot.operands) != 2 or any("sparsity" in name for name in dot.attributes):
            return False
        if any(operand.array.dtype is not self.dtype for operand in dot.operands):
            return False
        own: dict[str, Any] = {
            name: dot.attributes[name] for name in _PRECISION if name in dot.attributes
        }
        # A plan may exchange the sides of a dot.
        sides = record_of(own, "operand_precision", tuple)
        if "operand_precision" in own and len(set(sides or ())) != 1:
            return False
        if self.precision is None:
            self.precision = own
        return self.precision == own

    def multiply(self, value: Instruction, place: _Place) -> list[TensorTerm] | None:
        """Both sides with the same indices."""
        sides = (self._terms(one, place.axes, place) for one in value.operands)
        return self._product(*sides)

    def add(self, value: Instruction, place: _Place) -> list[TensorTerm] | None:
        """Terms beside each other."""
        return [t for one in value.operands for t in self._terms(one, place.axes, place)]

    def subtract(self, value: Instruction, place: _Place) -> list[TensorTerm] | None:
        """The second with the other sign."""
        first, second = (self._terms(one, place.axes, place) for one in value.operands)
        return first + [term.scaled(-1) for term in second]

    def negate(self, value: Instruction, place: _Place) -> list[TensorTerm] | None:
        """All with the other sign."""
        return [term.scaled(-1) for term in self._terms(value.operands[0], place.axes, place)]

    def copy(self, value: Instruction, place: _Place) -> list[TensorTerm] | None:
        """The same elements."""
        return self._terms(value.operands[0], place.axes, place)

    def transpose(self, value: Instruction, place: _Place) -> list[TensorTerm] | None:
        """The same indices in another order."""
        moved = dict(zip(value.dimensions, place.axes, strict=True))
        return self._terms(value.operands[0], tuple(moved[dim] for dim in sorted(moved)), place)

    def reshape(self, value: Instruction, place: _Place) -> list[TensorTerm] | None:
        """The same indices, several to a dimension where dimensions were joined."""
        operand = value.operands[0]
        grouped = self.space.regrouped(place.axes, operand.array.dims)
        return None if grouped is None else self._terms(operand, grouped, place)

    def broadcast(self, value: Instruction, place: _Place) -> list[TensorTerm] | None:
        """Without the indices along which it is repeated."""
        literal = splat_literal(value)
        if literal is not None and literal.array is not None:
            number = _number(literal.array.reshape(-1)[0])
            return None if number is None else [TensorTerm(number)] if number else []
        kept = tuple(place.axes[dim] for dim in value.dimensions)
        return self._terms(value.operands[0], kept, place)

    def reduce(self, value: Instruction, place: _Place) -> list[TensorTerm] | None:
        """The dimensions that are added up have indices of their own."""
        if not is_summing(value):
            return None
        operand, given = value.operands[0], iter(place.axes)
        axes = tuple(
            self.space.axis(size) if dim in value.dimensions else next(given)
            for dim, size in enumerate(operand.array.dims)
        )
        summed = frozenset(index for dim in value.dimensions for index in axes[dim])
        return [t.summed_over(summed) for t in self._terms(operand, axes, place, summed=True)]

    def slice(self, value: Instruction, place: _Place) -> list[TensorTerm] | None:
        """Windows of the dimensions it shortens; a diagonal, of rows laid out one after the other."""
        diagonal = sliced_diagonal(value)
        if diagonal is not None:
            return self._diagonal(value, place, diagonal)
        ranges = value.attributes["slice"]
        return self._window(value, place, [(part.start, part.stride) for part in ranges])

    def _diagonal(
        self, value: Instruction, place: _Place, diagonal: SlicedDiagonal
    ) -> list[TensorTerm] | None:
        flat, dim = value.operands[0], diagonal.dim
        matrix, axis = flat.operands[0], place.axes[dim]
        both: list[IndexAxis] = []
        for start, size in zip(diagonal.start, matrix.array.dims[dim : dim + 2], strict=True):
            is_whole = value.array.dims[dim] == size
            found = axis if is_whole else self.space.window(axis, start, 1, size)
            if found is None:
                return None
            both.append(found)
        self.read[flat] = None
        return self._terms(matrix, (*place.axes[:dim], *both, *place.axes[dim + 1 :]), place)

    def dynamic_slice(self, value: Instruction, place: _Place) -> list[TensorTerm] | None:
        """The same from starts that are computed."""
        starts = value.operands[1:]
        if len(starts) != value.array.rank or value.operands[0] not in self._dotted:
            return None
        return self._window(value, place, [(start, 1) for start in starts])

    def _window(
        self, value: Instruction, place: _Place, starts: Sequence[tuple[int | Instruction, int]]
    ) -> list[TensorTerm] | None:
        operand, found = value.operands[0], list[IndexAxis]()
        sizes = zip(place.axes, starts, operand.array.dims, value.array.dims, strict=True)
        for axis, (start, stride), size, part in sizes:
            whole = axis if part == size else self.space.window(axis, start, stride, size)
            if whole is None:
                return None
            found.append(whole)
        return self._terms(operand, tuple(found), place)

    def gather(self, value: Instruction, place: _Place) -> list[TensorTerm] | None:
        """A diagonal: dimensions that are read at the same index."""
        found = gathered_diagonal(value)
        if found is None:
            return None
        axes = tuple(place.axes[found[dim]] for dim in sorted(found))
        return self._terms(value.operands[0], axes, place)

    def select(self, value: Instruction, place: _Place) -> list[TensorTerm] | None:
        """``select(diagonal mask, x, 0)``: x times the identity."""
        diagonal = self._identity(value.operands[0], place.axes) if is_masked(value) else None
        if diagonal is None:
            return None
        kept = self._terms(value.operands[1], place.axes, place)
        return self._product([diagonal], kept)

    def convert(self, value: Instruction, place: _Place) -> list[TensorTerm] | None:
        """A diagonal mask as numbers: the identity."""
        diagonal = self._identity(value.operands[0], place.axes)
        return None if diagonal is None else [diagonal]

    def _identity(self, mask: Instruction, axes: IndexAxes) -> TensorTerm | None:
        """The identity over the two axes of which a mask compares the positions."""
        pair = tuple(axes[dim] for dim in compared_dims(mask) or ())
        if not pair or any(index in self.space.windows for axis in pair for index in axis):
            return None
        return TensorTerm(1, (Factor(None, pair),))


def dotted_of(computation: Computation) -> set[Instruction]:
    """The values behind which, through elementwise ops, sums, views and masks alone, there is a dot."""
    found: set[Instruction] = set()
    for value in computation:
        if value.opcode == "dot" or any(one in found for one in _followed(value)):
            found.add(value)
    return found


def _followed(value: Instruction) -> Sequence[Instruction]:
    """The operands that a value is read further to."""
    if value.opcode in ARITHMETIC or value.opcode == "dot":
        return value.operands[:2]
    if value.opcode in _VIEWS or is_summing(value):
        return value.operands[:1]
    if value.opcode == "select" and is_masked(value):
        return value.operands[1:2]
    return ()


def is_result(value: Instruction, dotted: AbstractSet[Instruction]) -> bool:
    """Whether a value with a dot behind it, or a sum, is read by what is not linear algebra itself."""
    if value not in dotted and not is_summing(value):
        return False
    if value.is_root or not value.users:
        return value.is_root
    return any(
        (user not in dotted and not is_summing(user))
        or any(operand is value for operand in user.operands if operand not in _followed(user))
        for user in value.users
    )


def _number(element: Any) -> int | float | None:
    """A number of a constant; None for one that is not finite, or has an imaginary part."""
    if np.issubdtype(np.asarray(element).dtype, np.integer):
        return int(element)
    if complex(element).imag or not isfinite(float(element)):
        return None
    number = float(element)
    return int(number) if number.is_integer() else number


_PRECISION: Final[tuple[str, ...]] = ("operand_precision", "algorithm")
_HOW: Final[Mapping[str, Callable[[TermReader, Instruction, _Place], list[TensorTerm] | None]]] = (
    op_table(
        {
            "add": TermReader.add,
            "broadcast": TermReader.broadcast,
            "convert": TermReader.convert,
            "copy": TermReader.copy,
            "dot": TermReader.dot,
            "dynamic-slice": TermReader.dynamic_slice,
            "gather": TermReader.gather,
            "multiply": TermReader.multiply,
            "negate": TermReader.negate,
            "reduce": TermReader.reduce,
            "reshape": TermReader.reshape,
            "select": TermReader.select,
            "slice": TermReader.slice,
            "subtract": TermReader.subtract,
            "transpose": TermReader.transpose,
        },
        ALL,
        "read as it stands",
    )
)
