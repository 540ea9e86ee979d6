"""What the body of a loop computes, for all iterations at once: their dimension is the first of each array.

What is the same in every iteration stays as it is; a counter becomes its numbers, a slice of a row at the
counter the whole array, an op the same op with one dimension more.  What depends on the iteration before is
given from outside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from hloopt.analysis.induction import Affine
from hloopt.dataclass import dataclass
from hloopt.interpret import EVALUATORS
from hloopt.interpret.interpreter import Interpreter
from hloopt.ir import Instruction
from hloopt.ops.traits import VIEWS, op_table
from hloopt.passes.expand.writer import Term, Writer
from hloopt.rewrite.regions import named_combiner
from hloopt.rewrite.site import is_replaceable
from hloopt.types import Array, ArrayShape, Dims, DotDims, SliceRange, array

__all__ = ["AllIterations", "BatchedTerm"]

_ROWS: Final = frozenset({"dynamic-slice", "dynamic-update-slice"})


@dataclass(frozen=True)
class BatchedTerm:
    """A value of the body: ``each`` says whether its first dimension is the iteration.

    numbers  the values themselves, where they are known integers; of a broadcast those of its operand
    """

    term: Term
    each: bool
    numbers: Array | None = None


StateValue: TypeAlias = Callable[[int], BatchedTerm | None]
"""The element of a loop's state with an index, as an iteration finds it."""


class AllIterations:
    """Writes values of the body of ``loop``, which runs ``count`` times; None where it cannot."""

    def __init__(
        self,
        loop: Instruction,
        writer: Writer,
        count: int,
        counters: dict[int, Affine],
        state: StateValue,
    ) -> None:
        self.state = loop.body.parameters[0]
        self.writer = writer
        self.count = count
        self.counters = counters
        self.element = state
        self.known: dict[Instruction, BatchedTerm | None] = {}
        self.context = Interpreter(writer.module, EVALUATORS)

    def of(self, wanted: Instruction) -> BatchedTerm | None:
        """The value of an instruction of the body in all iterations, what it needs first."""
        pending = [wanted]
        while pending:
            here = pending[-1]
            missing = [one for one in self._needs(here) if one not in self.known]
            if here in self.known or not missing:
                pending.pop()
                if here not in self.known:
                    self.known[here] = self._made(here)
            else:
                pending += missing
        return self.known[wanted]

    def _needs(self, instruction: Instruction) -> tuple[Instruction, ...]:
        if instruction.opcode == "get-tuple-element":
            return ()
        if instruction.opcode == "select" and instruction.operands[0] in self.known:
            chosen = self._chosen(instruction)
            return instruction.operands if chosen is None else (chosen,)
        return instruction.operands[: 1 if instruction.opcode == "select" else None]

    def _chosen(self, select: Instruction) -> Instruction | None:
        """What a select picks in every iteration, where that is the same operand."""
        chooser = self.known[select.operands[0]]
        if chooser is None or chooser.numbers is None:
            return None
        if chooser.numbers.all():
            return select.operands[1]
        return None if chooser.numbers.any() else select.operands[2]

    def _made(self, instruction: Instruction) -> BatchedTerm | None:
        if instruction.is_element_of(self.state):
            counter = self.counters.get(instruction.tuple_index)
            return (
                self.element(instruction.tuple_index) if counter is None else self._count(counter)
            )
        if instruction.opcode == "get-tuple-element" or not (
            instruction.is_array and is_replaceable(instruction)
        ):
            return None
        if instruction.opcode == "select":
            chosen = self._chosen(instruction)
            if chosen is not None:
                return self.known[chosen]
        given = [self.known[one] for one in instruction.operands]
        operands = [one for one in given if one is not None]
        if len(operands) < len(given):
            return None
        if instruction.opcode in _ROWS:
            return (
                self._row(instruction, operands) if instruction.opcode == "dynamic-slice" else None
            )
        if not any(one.each for one in operands):
            return self._again(instruction, operands)
        rewrite = _EACH.get(instruction.opcode)
        if rewrite is not None:
            return rewrite(self, instruction, operands)
        return self._elementwise(instruction, operands) if instruction.op.is_elementwise else None

    def _count(self, counter: Affine) -> BatchedTerm:
        numbers = np.array([counter.at(step) for step in range(self.count)])
        numbers = numbers.astype(counter.dtype.numpy)
        line = self.writer.iota(array(counter.dtype, (self.count,)), 0)
        term = line * counter.step + counter.first
        return BatchedTerm(term, True, numbers)

    def _again(self, instruction: Instruction, operands: list[BatchedTerm]) -> BatchedTerm | None:
        if not (instruction.op.is_elementwise or instruction.opcode in _PLAIN):
            return None
        term = self._op(instruction, [one.term for one in operands], instruction.array)
        return BatchedTerm(term, False, self._numbers(term.instruction, operands))

    def _op(self, like: Instruction, operands: list[Term], shape: ArrayShape) -> Term:
        return self.writer.make(like.opcode, *operands, shape=shape, **like.attributes)

    def _numbers(self, made: Instruction, operands: list[BatchedTerm]) -> Array | None:
        """The integers that an instruction gives, where those of its operands are known."""
        shape = made.array
        if shape.rank > 1 or not (shape.dtype.is_integer or shape.dtype.is_pred):
            return None
        if made.opcode == "constant":
            return None if made.literal is None else made.literal.array
        values = tuple(one.numbers for one in operands if one.numbers is not None)
        if (
            len(values) < len(operands)
            or not operands
            or not (made.op.is_elementwise or made.opcode in ("broadcast", "reshape"))
        ):
            return None
        with np.errstate(all="ignore"):
            return np.asarray(EVALUATORS[made.opcode](made, values, self.context))

    def shape(self, shape: ArrayShape) -> ArrayShape:
        return array(shape.dtype, (self.count, *shape.dims))

    def spread(self, value: BatchedTerm) -> Term:
        """A value with a dimension for the iterations, repeated where it is the same in all."""
        if value.each:
            return value.term
        shape = self.shape(value.term.shape)
        return value.term.broadcast(shape, *range(1, shape.rank))

    def _elementwise(
        self, instruction: Instruction, operands: list[BatchedTerm]
    ) -> BatchedTerm | None:
        dims = instruction.array.dims
        if any(one.array.dims != dims for one in instruction.operands):
            return None
        spread = [self.spread(one) for one in operands]
        term = self._op(instruction, spread, self.shape(instruction.array))
        given = [
            BatchedTerm(new, True, _repeated(one, self.count))
            for new, one in zip(spread, operands, strict=True)
        ]
        return BatchedTerm(term, True, self._numbers(term.instruction, given))

    def _row(self, instruction: Instruction, operands: list[BatchedTerm]) -> BatchedTerm | None:
        """Row number ``t`` of an array in iteration ``t``, or from the last one on."""
        whole, places = operands[0], operands[1:]
        sizes = instruction.attributes["dynamic_slice_sizes"]
        dims = instruction.operands[0].array.dims
        if whole.each or not dims or sizes[0] != 1 or sizes[1:] != dims[1:]:
            return None
        rows = self.rows(whole.term, places)
        if rows is None:
            return None
        return BatchedTerm(rows.reshape(self.count, *sizes), True)

    def rows(self, whole: Term, places: list[BatchedTerm]) -> Term | None:
        """The rows of an array that is read at ``places``, in the order of the iterations."""
        order = self.order(places, whole.dims)
        if not order:
            return None
        first, step = order
        last = first + step * (self.count - 1)
        low, high = min(first, last), max(first, last)
        ranges = ((low, high + 1), *([None] * (len(whole.dims) - 1)))
        part = whole.slice(*ranges)
        return part if step > 0 else self.writer.make("reverse", part, dimensions=(0,))

    def order(self, places: list[BatchedTerm], dims: Dims) -> tuple[int, int] | None:
        """The row of the first iteration and the step, 1 or -1, where the other indices are 0."""
        first = places[0].numbers
        if first is None or not places[0].each or any(_is_moved(one) for one in places[1:]):
            return None
        clamped = np.clip(first, 0, dims[0] - 1).astype(np.int64)
        steps = np.diff(clamped)
        if not steps.size or abs(int(steps[0])) != 1 or not (steps == steps[0]).all():
            return None
        return int(clamped[0]), int(steps[0])

    def _broadcast(self, instruction: Instruction, operands: list[BatchedTerm]) -> BatchedTerm:
        dimensions = (0, *(dim + 1 for dim in instruction.dimensions))
        shape = self.shape(instruction.array)
        return BatchedTerm(
            operands[0].term.broadcast(shape, *dimensions), True, operands[0].numbers
        )

    def _reshape(self, instruction: Instruction, operands: list[BatchedTerm]) -> BatchedTerm:
        term = operands[0].term.reshape(self.count, *instruction.array.dims)
        return BatchedTerm(term, True, operands[0].numbers if not instruction.array.dims else None)

    def _transpose(self, instruction: Instruction, operands: list[BatchedTerm]) -> BatchedTerm:
        order = (0, *(dim + 1 for dim in instruction.dimensions))
        return BatchedTerm(operands[0].term.transpose(*order), True)

    def _slice(self, instruction: Instruction, operands: list[BatchedTerm]) -> BatchedTerm:
        ranges = (SliceRange(0, self.count), *instruction.attributes["slice"])
        shape = self.shape(instruction.array)
        term = self.writer.make("slice", operands[0].term, shape=shape, slice=ranges)
        return BatchedTerm(term, True)

    def _concatenate(self, instruction: Instruction, operands: list[BatchedTerm]) -> BatchedTerm:
        dimension = instruction.dimensions[0] + 1
        return BatchedTerm(self.writer.concatenate(dimension, *map(self.spread, operands)), True)

    def _reduce(self, instruction: Instruction, operands: list[BatchedTerm]) -> BatchedTerm | None:
        opcode = named_combiner(instruction.to_apply)
        if len(operands) != 2 or not opcode or operands[1].each:
            return None
        dimensions = tuple(dim + 1 for dim in instruction.dimensions)
        return BatchedTerm(operands[0].term.reduce(opcode, operands[1].term, *dimensions), True)

    def _dot(self, instruction: Instruction, operands: list[BatchedTerm]) -> BatchedTerm | None:
        """A product; where one side is the same in all iterations, its own dimensions come last."""
        dims = DotDims.of(instruction.attributes)
        left, right = operands
        if dims.lhs_batch or left.each == right.each:
            return self._products(dims, operands)
        contracting = dims.lhs_contracting, dims.rhs_contracting
        free = [one.array.rank - len(dims.lhs_contracting) for one in instruction.operands]
        if right.each:
            left, right, contracting = right, left, contracting[::-1]
        moved = tuple(dim + 1 for dim in contracting[0])
        term = self.writer.make(
            "dot",
            left.term,
            right.term,
            lhs_contracting_dims=moved,
            rhs_contracting_dims=contracting[1],
        )
        if operands[1].each:
            order = (0, *range(1 + free[1], 1 + sum(free)), *range(1, 1 + free[1]))
            term = term.transpose(*order)
        return BatchedTerm(term, True)

    def _products(self, dims: DotDims, operands: list[BatchedTerm]) -> BatchedTerm:
        """A product for each iteration: one more dimension of a batch."""
        left, right = (self.spread(one) for one in operands)
        term = self.writer.make(
            "dot",
            left,
            right,
            lhs_batch_dims=_behind_first(dims.lhs_batch, batch=True),
            rhs_batch_dims=_behind_first(dims.rhs_batch, batch=True),
            lhs_contracting_dims=_behind_first(dims.lhs_contracting),
            rhs_contracting_dims=_behind_first(dims.rhs_contracting),
        )
        return BatchedTerm(term, True)


_PLAIN: Final = VIEWS | {"constant", "iota"}
_EACH: Final = op_table({
    "broadcast": AllIterations._broadcast,
    "reshape": AllIterations._reshape,
    "transpose": AllIterations._transpose,
    "slice": AllIterations._slice,
    "concatenate": AllIterations._concatenate,
    "reduce": AllIterations._reduce,
    "dot": AllIterations._dot,
}, otherwise="elementwise, a row, or nothing that is written for all iterations")  # fmt: skip


def _behind_first(dims: Dims, *, batch: bool = False) -> Dims:
    """Dimensions of arrays that have one more, the first, which is one of a batch."""
    return (*((0,) if batch else ()), *(dim + 1 for dim in dims))


def _is_moved(place: BatchedTerm) -> bool:
    return place.each or place.numbers is None or bool(np.any(place.numbers))


def _repeated(value: BatchedTerm, count: int) -> Array | None:
    if value.numbers is None or value.each:
        return value.numbers
    return np.broadcast_to(value.numbers, (count, *value.numbers.shape)).copy()
