"""Values that are solutions of linear systems: ``step(step(... base))``, each step a map of the same index."""

from __future__ import annotations

from typing import Final

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.linear_algebra.masks import compared_dims, is_zero
from hloopt.linear_algebra.systems.steps import (
    IndexLabel,
    Negation,
    RowOrder,
    SolveStep,
    Triangle,
    triangle_of,
)
from hloopt.rewrite.regions import named_combiner
from hloopt.rewrite.site import is_replaceable

__all__ = [
    "VIEWS",
    "Labels",
    "SolveChain",
    "identity_labels",
    "read_chain",
    "read_steps",
    "viewed_labels",
]

_LONGEST: Final = 64
"""Instructions of a chain that are read: longer ones begin in the middle."""
_MOST_ELEMENTS: Final = 1 << 20
"""Of a constant that is looked at."""

Labels = tuple["IndexLabel | None", ...]


@dataclass(frozen=True)
class SolveChain:
    """A value and the steps it is computed by.

    value   the instruction, whose dimension k has the label k where it has more than one element
    steps   with the instructions that take them, the outermost first
    acted   the index on which all steps act
    batch   the indices that each matrix has besides its own two, in order
    base    what the first step is taken of, with the ``labels`` of its dimensions
    path    the instructions from the value to the last of the steps
    inputs  what each step is taken of, with the labels of its dimensions
    """

    value: Instruction
    steps: tuple[tuple[SolveStep, Instruction], ...]
    acted: IndexLabel
    batch: tuple[IndexLabel, ...]
    base: Instruction
    labels: Labels
    path: tuple[Instruction, ...]
    inputs: tuple[tuple[Instruction, Labels], ...]

    @property
    def triangles(self) -> list[Triangle]:
        """The systems that are solved."""
        return [step for step, _ in self.steps if isinstance(step, Triangle)]

    @property
    def sizes(self) -> dict[IndexLabel, int]:
        """How many values each index of the value has that ``read_chain`` was given."""
        return {k: size for k, size in enumerate(self.value.array.dims) if size > 1}

    @property
    def identity(self) -> IndexLabel | None:
        """The index of the columns where the base is an identity matrix: the value is the inverse."""
        found = identity_labels(self.base, self.labels)
        if found is None or self.acted not in found:
            return None
        other = found[0] if found[1] == self.acted else found[1]
        rest = {label for label in self.labels if label is not None} - {self.acted, other}
        return other if rest <= set(self.batch) else None


def read_chain(value: Instruction) -> SolveChain | None:
    """The chain that computes a value; None where no system is solved for it."""
    if not value.is_array:
        return None
    labels = tuple(k if size > 1 else None for k, size in enumerate(value.array.dims))
    found = _ChainReader(value).read(labels)
    return found if found and found.triangles else None


def read_steps(value: Instruction, labels: Labels) -> SolveChain | None:
    """The same of a value whose dimensions have other labels, with any steps; None where there is none."""
    return _ChainReader(value).read(labels)


class _ChainReader:
    def __init__(self, value: Instruction) -> None:
        self.value = value
        self.steps: list[tuple[SolveStep, Instruction]] = []
        self.acted: IndexLabel | None = None
        self.batch: tuple[IndexLabel, ...] | None = None
        self.gathered: list[tuple[IndexLabel, ...]] = []
        self.inputs: list[tuple[Instruction, Labels]] = []

    def read(self, labels: Labels) -> SolveChain | None:
        value = self.value
        path: list[Instruction] = []
        for _ in range(_LONGEST):
            found = self._before(value, labels) if is_replaceable(value) else None
            if found is None:
                break
            path.append(value)
            if len(self.inputs) < len(self.steps):
                self.inputs.append(found)
            value, labels = found
        if self.acted is None:
            return None
        batch = max((*self.gathered, ()), key=len) if self.batch is None else self.batch
        if any(gathered not in ((), batch) for gathered in self.gathered):
            return None
        last = path.index(self.steps[-1][1]) + 1
        return SolveChain(
            self.value,
            tuple(self.steps),
            self.acted,
            batch,
            value,
            labels,
            tuple(path[:last]),
            tuple(self.inputs),
        )

    def _before(self, value: Instruction, labels: Labels) -> tuple[Instruction, Labels] | None:
        """What a value is made of, by one step or a view."""
        if value.opcode in VIEWS:
            before = viewed_labels(value, labels)
            return None if before is None else (value.operands[0], before)
        if value.opcode == "negate":
            self.steps.append((Negation(), value))
            return value.operands[0], labels
        if value.opcode == "gather":
            return self._rows(value, labels)
        if value.opcode == "scatter":
            return self._added_rows(value, labels)
        triangle = triangle_of(value)
        return None if triangle is None else self._triangle(triangle, labels)

    def _acts_on(self, label: IndexLabel | None) -> bool:
        if label is None or self.acted not in (None, label):
            return False
        self.acted = label
        return True

    def _triangle(self, triangle: Triangle, labels: Labels) -> tuple[Instruction, Labels] | None:
        batch = tuple(label for label in labels[:-2] if label is not None)
        if self.batch not in (None, batch):
            return None
        if not self._acts_on(labels[-2] if triangle.left_side else labels[-1]):
            return None
        self.batch = batch
        self.steps.append((triangle, triangle.solve))
        return triangle.solve.operands[1], labels

    def _rows(self, gather: Instruction, labels: Labels) -> tuple[Instruction, Labels] | None:
        """The rows of a matrix in another order."""
        operand, indices = gather.operands
        given = gather.attributes
        if len(given["start_index_map"]) != 1 or indices.array.elements < 2:
            return None
        (row,) = given["start_index_map"]
        batching = tuple(given.get("operand_batching_dims", ()))
        theirs = tuple(given.get("start_indices_batching_dims", ()))
        if tuple(given["collapsed_slice_dims"]) != (row,):
            return None
        whole = [dim for dim in range(operand.array.rank) if dim != row and dim not in batching]
        if any(given["slice_sizes"][dim] != operand.array.dims[dim] for dim in whole):
            return None
        vector = given["index_vector_dim"]
        counted = [dim for dim in range(indices.array.rank) if dim != vector]
        offsets = tuple(given["offset_dims"])
        places = [dim for dim in range(gather.array.rank) if dim not in offsets]
        label_of = dict(zip(counted, (labels[dim] for dim in places), strict=True))
        long = [dim for dim in counted if indices.array.dims[dim] > 1]
        if not long or {dim for dim in long if dim not in theirs} != {long[-1]}:
            return None
        if indices.array.dims[long[-1]] != operand.array.dims[row]:
            return None
        if not self._acts_on(label_of[long[-1]]):
            return None
        before: list[IndexLabel | None] = [None] * operand.array.rank
        before[row] = self.acted
        for dim, other in zip(batching, theirs, strict=True):
            before[dim] = label_of[other]
        for dim, at in zip(whole, offsets, strict=True):
            before[dim] = labels[at]
        found = [label for dim in long[:-1] if (label := label_of[dim]) is not None]
        self.gathered.append(tuple(found))
        self.steps.append((RowOrder(indices), gather))
        return operand, tuple(before)

    def _added_rows(
        self, scatter: Instruction, labels: Labels
    ) -> tuple[Instruction, Labels] | None:
        """The transposed order of rows, as ``RowOrder`` writes it: all of them added to zeros."""
        if len(scatter.operands) != 3 or named_combiner(scatter.to_apply) != "add":
            return None
        zeros, indices, updates = scatter.operands
        given, rank = scatter.attributes, scatter.array.rank
        batch = tuple(range(indices.array.rank - 1))
        row = tuple(given["scatter_dims_to_operand_dims"])
        if updates.array.dims != scatter.array.dims or not is_zero(zeros) or row != (rank - 2,):
            return None
        window = tuple(dim for dim in range(rank) if dim != rank - 2 and dim not in batch)
        is_plain = (
            tuple(given.get("input_batching_dims", ())) == batch
            and tuple(given.get("scatter_indices_batching_dims", ())) == batch
            and tuple(given["inserted_window_dims"]) == row
            and tuple(given["update_window_dims"]) == window
            and given["index_vector_dim"] == indices.array.rank == len(batch) + 1
            and indices.array.dims == (*scatter.array.dims[: len(batch)], scatter.array.dims[-2])
        )
        if not is_plain or not self._acts_on(labels[rank - 2]):
            return None
        found = [label for dim in batch if (label := labels[dim]) is not None]
        self.gathered.append(tuple(found))
        self.steps.append((RowOrder(indices, is_turned=True), scatter))
        return updates, labels


VIEWS: Final = frozenset({"copy", "reshape", "transpose"})


def viewed_labels(view: Instruction, labels: Labels) -> Labels | None:
    """The labels of the operand's dimensions; None where dimensions are split or joined."""
    if view.opcode == "copy":
        return labels
    if view.opcode == "transpose":
        places = dict(zip(view.dimensions, labels, strict=True))
        return tuple(places[dim] for dim in sorted(places))
    before = view.operands[0].array.dims
    long = [size for size in view.array.dims if size > 1]
    if 0 in before or [size for size in before if size > 1] != long:
        return None
    rest = iter([label for label in labels if label is not None])
    return tuple(next(rest) if size > 1 else None for size in before)


def identity_labels(value: Instruction, labels: Labels) -> tuple[IndexLabel, IndexLabel] | None:
    """The two indices of which a value says whether they are equal: 1 where they are, else 0."""
    for _ in range(_LONGEST):
        before: Labels | None = labels
        if value.opcode == "broadcast":
            before = tuple(labels[dim] for dim in value.dimensions)
        elif value.opcode in VIEWS:
            before = viewed_labels(value, labels)
        elif value.opcode == "convert":
            if value.operands[0].array.dtype.name != "pred":
                return None
        else:
            break
        if before is None:
            return None
        value, labels = value.operands[0], before
    if value.opcode == "constant":
        return _constant(value, labels)
    dims = compared_dims(value) if value.opcode == "compare" else None
    if dims is None:
        return None
    one, other = labels[dims[0]], labels[dims[1]]
    return None if one is None or other is None else (one, other)


def _constant(value: Instruction, labels: Labels) -> tuple[IndexLabel, IndexLabel] | None:
    dims = value.array.dims
    if len(dims) != 2 or dims[0] != dims[1] or not 1 < value.array.elements <= _MOST_ELEMENTS:
        return None
    array = value.literal.array if value.literal else None
    one, other = labels
    if array is None or one is None or other is None:
        return None
    return (one, other) if np.array_equal(array, np.eye(dims[0], dtype=array.dtype)) else None
