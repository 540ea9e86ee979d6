"""Dimensions that have to agree: classes of them, by union-find.

``analysis.parallel_loop.ties`` says which dimensions an op ties together; contracted dimensions, operands of a
concatenate and the state of a loop have to agree as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

from hloopt.analysis.parallel_loop.ties import relations
from hloopt.graphs import UnionFind
from hloopt.ir import Instruction, Module
from hloopt.ir.walk import called_computations
from hloopt.ops.traits import UPDATING
from hloopt.types import ArrayShape, ConvNumbers, ScatterDims, Shape, TupleShape

__all__ = ["AgreeingDimensions", "LeafDimension", "arrays_of", "size_of"]

LeafDimension: TypeAlias = tuple[Instruction, int, int]
"""A dimension of a leaf of an instruction's shape: the instruction, the leaf's number, the dimension's."""

_KEEPING: Final = frozenset({"reverse", "all-reduce", "cholesky"})
"""Their result has the dimensions of the first operand, beside those that replace a part of it."""


class AgreeingDimensions:
    """Classes of dimensions that agree."""

    def __init__(self, module: Module) -> None:
        self._joined = UnionFind[LeafDimension]()
        for computation in module:
            for instruction in computation:
                self._tie(instruction)

    def of(self, dim: LeafDimension) -> LeafDimension:
        """The dimension that stands for a class."""
        return self._joined.find(dim)

    def _join(self, left: LeafDimension, right: LeafDimension) -> None:
        if size_of(self.of(left)) == size_of(self.of(right)):
            self._joined.join(left, right)

    def _same(self, left: Instruction, right: Instruction) -> None:
        """All dimensions of two values of one shape."""
        for number, shape in enumerate(arrays_of(left.shape)):
            for dim in range(len(getattr(shape, "dims", ()))):
                self._join((left, number, dim), (right, number, dim))

    def _tie(self, one: Instruction) -> None:
        if one.opcode == "tuple":
            for number, operand in enumerate(one.operands):
                self._element(one, number, operand)
        elif one.opcode == "get-tuple-element":
            self._element(one.operands[0], one.tuple_index, one)
        elif one.op.calls in ("sequence", "async", "fused"):
            self._tie_calls(one)
        elif all(operand.is_array for operand in one.operands) and one.operands:
            self._tie_arrays(one)
        elif one.operands and one.operands[0].shape == one.shape:
            self._same(one, one.operands[0])

    def _element(self, whole: Instruction, number: int, element: Instruction) -> None:
        first = sum(len(arrays_of(shape)) for shape in whole.elements[:number])
        for at, shape in enumerate(arrays_of(element.shape)):
            for dim in range(len(getattr(shape, "dims", ()))):
                self._join((whole, first + at, dim), (element, at, dim))

    def _tie_calls(self, one: Instruction) -> None:
        called = list(called_computations(one))
        operands = one.operands[1:] if one.opcode == "conditional" else one.operands
        for number, body in enumerate(called):
            given = operands[number : number + 1] if one.opcode == "conditional" else operands
            for operand, parameter in zip(given, body.parameters, strict=False):
                if operand.shape == parameter.shape:
                    self._same(operand, parameter)
            if body.root.shape == one.shape:
                self._same(one, body.root)
        if one.opcode == "while":
            # An element that no iteration reads is tied by nothing inside.
            self._same(one, one.operands[0])

    def _tie_arrays(self, one: Instruction) -> None:
        results = range(len(arrays_of(one.shape)))
        for relation in relations(one):
            if relation.result is not None:
                source = (one.operands[relation.operand], 0, relation.dim)
                for number in results:
                    if relation.result < len(arrays_of(one.shape)[number].dims):
                        self._join(source, (one, number, relation.result))
        for left, right in _also(one):
            self._join(left, right)


def _also(one: Instruction) -> Iterator[tuple[LeafDimension, LeafDimension]]:
    """Dimensions that agree although elements of the result need several of them."""
    operands = one.operands
    if one.opcode == "dot":
        lhs = one.attributes.get("lhs_contracting_dims", ())
        rhs = one.attributes.get("rhs_contracting_dims", ())
        for left, right in zip(lhs, rhs, strict=True):
            yield (operands[0], 0, left), (operands[1], 0, right)
    elif one.opcode in ("reduce", "sort", "reduce-window"):
        inputs = operands if one.opcode == "sort" else one.fold_inputs
        for other in inputs[1:]:
            for dim in range(other.array.rank):
                yield (inputs[0], 0, dim), (other, 0, dim)
        if one.opcode == "sort":
            for number in range(len(inputs)):
                for dim in range(inputs[0].array.rank):
                    yield (inputs[0], 0, dim), (one, number, dim)
    elif one.opcode == "scatter":
        dims, count = ScatterDims.of(one.attributes), len(operands) // 2
        rows = dims.batch_of(range(operands[count].array.rank))
        for update in range(count + 1, len(operands)):
            batch = dims.batch_dims(operands[update].array.rank)
            for dim, row in zip(batch, rows, strict=True):
                yield (operands[update], 0, dim), (operands[count], 0, row)
    if one.opcode in _KEEPING or one.opcode in UPDATING:
        for dim in range(operands[0].array.rank):
            yield (operands[0], 0, dim), (one, 0, dim)
    elif one.opcode == "convolution":
        numbers = ConvNumbers.of(one.attributes)
        if numbers.feature_groups == numbers.batch_groups == 1:
            labels = numbers.labels
            yield (
                (operands[0], 0, labels.input_feature),
                (operands[1], 0, labels.kernel_input_feature),
            )
    if one.opcode == "cholesky":
        rank = one.array.rank
        yield (one, 0, rank - 2), (one, 0, rank - 1)
    if one.opcode == "triangular-solve":
        rank, at = one.array.rank, -2 if one.attributes.get("left_side", True) else -1
        yield (operands[0], 0, rank - 2), (operands[0], 0, rank - 1)
        yield (operands[0], 0, rank - 1), (operands[1], 0, rank + at)
        for dim in range(rank):
            yield (operands[1], 0, dim), (one, 0, dim)


def arrays_of(shape: Shape) -> Sequence[ArrayShape]:
    """The arrays of a shape; what has no dimensions (a token) is there, too."""
    parts: Any = shape.leaves if isinstance(shape, TupleShape) else (shape,)
    found: Sequence[ArrayShape] = parts
    return found


def size_of(dim: LeafDimension) -> int:
    shape = arrays_of(dim[0].shape)[dim[1]]
    return shape.dims[dim[2]]
