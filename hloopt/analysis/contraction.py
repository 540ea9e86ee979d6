"""Dots and convolutions as one thing: a batch of matrix products whose operands are read by affine indices.

    result[b, m, n] = sum over k of lhs[b, m, k] * rhs[b, k, n]

Each of b, m, n and k counts through a few axes, the last one quickest.  A dimension of an operand is read at
a sum of axes times coefficients; outside of the operand, and in the gaps of a dilated one, there is nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from typing import Final, Literal, TypeAlias

from hloopt.analysis.layout import major_to_minor
from hloopt.dataclass import dataclass
from hloopt.interpret.library_calls import result_shape
from hloopt.interpret.linear import sum_type
from hloopt.ir import Instruction
from hloopt.ops.traits import REARRANGING
from hloopt.types import ArrayShape, DotDims, DType, dtype

__all__ = [
    "EXACT",
    "Axis",
    "AxisGroup",
    "AxisPosition",
    "Contraction",
    "Side",
    "accumulator",
    "at_axis",
    "dot_contraction",
    "exact_dtype",
    "keeps_values",
    "of_dot",
    "of_scaled_dot",
]

AxisGroup: TypeAlias = Literal["b", "m", "n", "k"]
Axis: TypeAlias = tuple[AxisGroup, int]


@dataclass(frozen=True, slots=True)
class AxisPosition:
    """``(sum(coefficient * axis) + constant) / dilation``, where that is a whole number."""

    terms: tuple[tuple[Axis, int], ...] = ()
    constant: int = 0
    dilation: int = 1


@dataclass(frozen=True, slots=True)
class Side:
    """An operand, and where each of its dimensions is read.

    ``scale`` has a factor for each block of elements; ``blocks`` are the sizes of one.
    """

    instruction: Instruction
    positions: tuple[AxisPosition, ...]
    scale: Instruction | None = None
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Contraction:
    """A batch of products.

    hero     the dot, convolution or library call
    axes     the sizes of the axes of b, m, n and k
    lhs, rhs what is multiplied
    result   where each dimension of the hero's result is written
    kind     the type products and sums have (``interpret.linear.sum_type``)
    is_dot   whether every dimension is read at one axis, each element once for each result
    """

    hero: Instruction
    axes: Mapping[AxisGroup, tuple[int, ...]]
    lhs: Side
    rhs: Side
    result: tuple[AxisPosition, ...]
    kind: DType
    is_dot: bool = True

    @property
    def hero_dims(self) -> tuple[int, ...]:
        """The dimensions of the product: of a library call, of its first result."""
        return result_shape(self.hero).dims

    @property
    def hero_elements(self) -> int:
        """How many results the product has."""
        return result_shape(self.hero).elements

    @property
    def result_dtype(self) -> DType:
        """The element type of the product."""
        return result_shape(self.hero).dtype

    def result_extents(self) -> tuple[int, ...]:
        """How far each dimension of the result is written."""
        return tuple(
            position.constant * all(count > 0 for _, count in position.terms)
            + sum(abs(count) * (self.axes[group][at] - 1) for (group, at), count in position.terms)
            + 1
            for position in self.result
        )

    def size(self, group: AxisGroup) -> int:
        """How far b, m, n or k counts."""
        return prod(self.axes[group])

    def tested_axes(self) -> frozenset[Axis]:
        """The axes of k that decide whether there is an element to be read."""
        return frozenset(
            axis
            for side in (self.lhs, self.rhs)
            for position, size in zip(side.positions, side.instruction.array.dims, strict=True)
            if not self._inside(position, size)
            for axis, _ in position.terms
            if axis[0] == "k"
        )

    def always_inside(self) -> bool:
        """Whether every place that is read has an element."""
        return all(
            self._inside(position, size)
            for side in (self.lhs, self.rhs)
            for position, size in zip(side.positions, side.instruction.array.dims, strict=True)
        )

    def _inside(self, position: AxisPosition, size: int) -> bool:
        ends = [
            (count, count * (self.axes[group][at] - 1)) for (group, at), count in position.terms
        ]
        low = position.constant + sum(min(0, end) for _, end in ends)
        high = position.constant + sum(max(0, end) for _, end in ends)
        return low >= 0 and high <= (size - 1) * position.dilation and position.dilation == 1

    @property
    def multiply_adds(self) -> int:
        """Products that are summed, those with padding among them."""
        return prod(self.size(group) for group in self.axes)

    @property
    def accumulator(self) -> DType:
        """The type sums are made in."""
        return accumulator(self.kind)

    def swapped(self) -> Contraction:
        """The same with lhs and rhs, and so m and n, changed for each other."""
        return Contraction(
            self.hero,
            {_OTHER[group]: sizes for group, sizes in self.axes.items()},
            _swapped_side(self.rhs),
            _swapped_side(self.lhs),
            tuple(map(_swapped_position, self.result)),
            self.kind,
            self.is_dot,
        )

    def quickest(self, side: Side) -> AxisGroup:
        """Which of b, m, n and k moves through neighbouring elements of an operand as it lies in memory."""
        found: AxisPosition | None = None
        positions, shape = _in_memory(side)
        for dimension in major_to_minor(shape):
            if shape.dims[dimension] > 1 and positions[dimension] is not None:
                found = positions[dimension]
        groups = [axis[0] for axis, _ in found.terms] if found is not None else []
        for group in ("m", "n", "k"):
            if group in groups:
                return group
        return "b"


def accumulator(kind: DType) -> DType:
    """In which type products of a type are summed: f32 for narrower floats, unsigned for integers.

    Sums of integers wrap, so that any width not below theirs will do, and signs do not matter.
    """
    if kind.is_narrow_float:
        return dtype("f32")
    if kind.is_integer:
        return dtype("u64" if kind.bits == 64 else "u32")
    return kind


_OTHER: Final[Mapping[AxisGroup, AxisGroup]] = {"b": "b", "m": "n", "n": "m", "k": "k"}


def _swapped_side(side: Side) -> Side:
    return replace(side, positions=tuple(map(_swapped_position, side.positions)))


def _swapped_position(position: AxisPosition) -> AxisPosition:
    terms = tuple(((_OTHER[group], at), count) for (group, at), count in position.terms)
    return AxisPosition(terms, position.constant, position.dilation)


def _in_memory(side: Side) -> tuple[list[AxisPosition | None], ArrayShape]:
    """The positions of what an operand is made of, behind transposes, broadcasts and elementwise ops."""
    instruction = side.instruction
    positions: list[AxisPosition | None] = list(side.positions)
    while True:
        dims = instruction.array.dims
        if instruction.opcode == "transpose":
            moved: list[AxisPosition | None] = [None] * len(dims)
            for at, dimension in enumerate(instruction.attributes["dimensions"]):
                moved[dimension] = positions[at]
            positions = moved
        elif instruction.opcode == "broadcast":
            where = instruction.attributes.get("dimensions", ())
            positions = [positions[dimension] for dimension in where]
        elif not instruction.op.is_elementwise or not instruction.operands:
            return positions, instruction.array
        following = next(
            (
                operand
                for operand in instruction.operands
                if instruction.opcode in ("transpose", "broadcast") or operand.array.dims == dims
            ),
            None,
        )
        if following is None:
            return positions, instruction.array
        instruction = following


def of_dot(instruction: Instruction) -> Contraction:
    """The contraction of a dot."""
    return dot_contraction(instruction, DotDims.of(instruction.attributes), instruction.array.dtype)


def of_scaled_dot(instruction: Instruction) -> Contraction:
    """The contraction of a scaled-dot: in f32, each element times the scale of its block."""
    dims = DotDims.of(instruction.attributes)
    plain = dot_contraction(instruction, dims, instruction.array.dtype)
    scales = (*instruction.operands[2:], None, None)
    lhs, rhs = (
        _scaled(side, scale) for side, scale in zip((plain.lhs, plain.rhs), scales, strict=False)
    )
    return replace(plain, lhs=lhs, rhs=rhs, kind=dtype("f32"))


def _scaled(side: Side, scale: Instruction | None) -> Side:
    """A side with its scale; one of rank 0 stands for 1."""
    if scale is None or not scale.array.rank:
        return side
    blocks = tuple(
        size // count if count else 1
        for size, count in zip(side.instruction.array.dims, scale.array.dims, strict=True)
    )
    return replace(side, scale=scale, blocks=blocks)


def dot_contraction(instruction: Instruction, dims: DotDims, result: DType) -> Contraction:
    """The first two operands of an instruction multiplied as a dot.

    The k axes are in the order of the operand that has one of them last, so that the last one moves
    through neighbours.
    """
    lhs, rhs = instruction.operands[:2]
    pairs = list(zip(dims.lhs_contracting, dims.rhs_contracting, strict=True))
    by_rhs = lhs.array.rank - 1 not in dims.lhs_contracting
    pairs.sort(key=lambda pair: pair[by_rhs])
    left: dict[int, Axis] = {one: ("k", at) for at, (one, _) in enumerate(pairs)}
    right: dict[int, Axis] = {other: ("k", at) for at, (_, other) in enumerate(pairs)}
    left.update({one: ("b", at) for at, one in enumerate(dims.lhs_batch)})
    right.update({other: ("b", at) for at, other in enumerate(dims.rhs_batch)})
    m = [dimension for dimension in range(lhs.array.rank) if dimension not in left]
    n = [dimension for dimension in range(rhs.array.rank) if dimension not in right]
    left.update({dimension: ("m", at) for at, dimension in enumerate(m)})
    right.update({dimension: ("n", at) for at, dimension in enumerate(n)})
    axes: dict[AxisGroup, tuple[int, ...]] = {
        "b": tuple(lhs.array.dims[one] for one in dims.lhs_batch),
        "m": tuple(lhs.array.dims[dimension] for dimension in m),
        "n": tuple(rhs.array.dims[dimension] for dimension in n),
        "k": tuple(lhs.array.dims[one] for one, _ in pairs),
    }
    order = [
        *(("b", at) for at in range(len(axes["b"]))),
        *(("m", at) for at in range(len(m))),
        *(("n", at) for at in range(len(n))),
    ]
    return Contraction(
        instruction,
        axes,
        Side(lhs, tuple(at_axis(left[d]) for d in range(lhs.array.rank))),
        Side(rhs, tuple(at_axis(right[d]) for d in range(rhs.array.rank))),
        tuple(at_axis(axis) for axis in order),  # type: ignore[arg-type]
        sum_type((lhs.array.dtype, rhs.array.dtype), result),
    )


def at_axis(axis: Axis) -> AxisPosition:
    """A dimension that is read at one axis."""
    return AxisPosition(((axis, 1),))


_SMALL_FLOATS: Final = frozenset({
    "f8e5m2", "f8e4m3", "f8e4m3fn", "f8e4m3b11fnuz", "f8e3m4", "f8e5m2fnuz", "f8e4m3fnuz", "f4e2m1fn",
})  # fmt: skip
EXACT: Final[Mapping[str, frozenset[str]]] = {
    "f16": _SMALL_FLOATS | {"f16"},
    "bf16": _SMALL_FLOATS | {"bf16"},
    "s8": frozenset({"s2", "s4", "s8"}),
}
"""By the types that matrix units multiply: those whose numbers each of them has."""

_KEEPING: Final = REARRANGING - {"bitcast"} | {"convert"}


def exact_dtype(instruction: Instruction, is_inside: Callable[[Instruction], bool]) -> DType:
    """The narrowest type that has the values of an instruction, as the ops say of which ``is_inside`` holds."""
    found: DType = instruction.array.dtype
    while (
        instruction.opcode in _KEEPING
        and is_inside(instruction)
        and keeps_values(instruction.operands[0].array.dtype, instruction.array.dtype)
    ):
        instruction = instruction.operands[0]
        found = instruction.array.dtype
    return found


def keeps_values(source: DType, target: DType) -> bool:
    """Whether every number of one type is one of another."""
    if source is target:
        return True
    if source.is_float:
        return target.name == "f32" or source.name in EXACT.get(target.name, ())
    return source.kind == target.kind == "signed" and source.bits <= target.bits
