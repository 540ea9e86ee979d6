"""HLO written as arithmetic: what stands in the place of an op that is expanded.

A ``Term`` is an instruction with operators: ``(x << 13 | x >> 19) ^ y`` are four instructions and the
constants.  Numbers and scalars beside an array are broadcast; all that one ``Writer`` makes stands right
before the instruction it replaces and carries that one's metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from hloopt.ir import Computation, Instruction, Module, build, edit
from hloopt.ir.signatures import remove_uncalled
from hloopt.ir.walk import called_computations
from hloopt.rewrite import same_layout
from hloopt.rewrite.regions import combiner_computation
from hloopt.types import (
    Array,
    ArrayShape,
    Dims,
    DType,
    Layout,
    Literal,
    Metadata,
    PaddingDim,
    Shape,
    SliceRange,
    array,
    dtype,
    of_numpy,
)

__all__ = ["Number", "Term", "Writer", "plain"]

Number: TypeAlias = "int | float"
_MARKS = ("sharding", "frontend_attributes", "statistics", "origin")


def _operator(opcode: str, **attributes: str) -> Callable[[Term, Term | Number], Term]:
    """The method that writes a two-operand op."""
    return lambda term, other: term.binary(opcode, other, **attributes)


class Term:
    """An instruction to compute with; what an operator makes goes where its writer writes."""

    __slots__ = ("instruction", "writer")

    def __init__(self, instruction: Instruction, writer: Writer) -> None:
        self.instruction = instruction
        self.writer = writer

    @property
    def shape(self) -> ArrayShape:
        """The shape; raises ``TypeError`` for a tuple."""
        return self.instruction.array

    @property
    def dims(self) -> Dims:
        """The sizes of the dimensions."""
        return self.shape.dims

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.shape.dtype

    __add__ = __radd__ = _operator("add")
    __sub__ = _operator("subtract")
    __mul__ = __rmul__ = _operator("multiply")
    __truediv__ = _operator("divide")
    __and__ = _operator("and")
    __or__ = _operator("or")
    __xor__ = _operator("xor")
    __lshift__ = _operator("shift-left")
    __lt__ = _operator("compare", direction="LT")
    __le__ = _operator("compare", direction="LE")
    __gt__ = _operator("compare", direction="GT")
    __ge__ = _operator("compare", direction="GE")
    # Where the elements are equal, and where not; NaN differs from everything.
    equals = _operator("compare", direction="EQ")
    differs = _operator("compare", direction="NE")

    def __rsub__(self, other: Number) -> Term:
        return self.like(other) - self

    def __rtruediv__(self, other: Number) -> Term:
        return self.like(other) / self

    def __rshift__(self, other: Term | Number) -> Term:
        """Arithmetic for signed integers, logical for the others."""
        signed = self.dtype.kind == "signed"
        return self.binary("shift-right-arithmetic" if signed else "shift-right-logical", other)

    def __neg__(self) -> Term:
        return self.unary("negate")

    def __invert__(self) -> Term:
        return self.unary("not")

    def compare(self, direction: str, other: Term | Number) -> Term:
        """A pred for each element."""
        return self.binary("compare", other, direction=direction)

    def unary(self, opcode: str, **attributes: Any) -> Term:
        """An elementwise op of this alone."""
        return self.writer.make(opcode, self, **attributes)

    def binary(self, opcode: str, other: Term | Number, **attributes: Any) -> Term:
        """An elementwise op; a number or a scalar on either side has its value in every element."""
        right = other if isinstance(other, Term) else self.like(other)
        left = self.spread(right.shape)
        return self.writer.make(opcode, left, right.spread(left.shape), **attributes)

    def like(self, value: Number) -> Term:
        """A number in every element of this shape."""
        return self.writer.splat(self.shape, value)

    def spread(self, target: ArrayShape) -> Term:
        """A scalar in every element of an array's shape; anything else stays as it is."""
        return self if self.dims or not target.dims else self.broadcast(target)

    def broadcast(self, target: ArrayShape, *dimensions: int) -> Term:
        """Repeated along the dimensions of ``target`` that are not named; of this element type."""
        shape = plain(target, self.dtype)
        key = (self.instruction, shape, dimensions)
        known = self.writer.broadcasts.get(key)
        if known is None:
            known = self.writer.make("broadcast", self, shape=shape, dimensions=dimensions)
            self.writer.broadcasts[key] = known
        return known

    def select(self, chosen: Term | Number, other: Term | Number) -> Term:
        """``chosen`` where this is true, ``other`` elsewhere; one of the two has a shape."""
        if isinstance(chosen, Term):
            right = other if isinstance(other, Term) else chosen.like(other)
            left = chosen
        else:
            assert isinstance(other, Term)
            left, right = other.like(chosen), other
        left, right = left.spread(right.shape), right.spread(left.shape)
        left, right = left.spread(self.shape), right.spread(self.shape)
        return self.writer.make("select", self.spread(left.shape), left, right)

    def convert(self, element: str | DType) -> Term:
        """The values in another element type; nothing where it is this one."""
        return self._typed("convert", element)

    def wide(self) -> Term:
        """Floats narrower than f32 as f32; anything else as it is."""
        return self.convert("f32") if self.dtype.is_narrow_float else self

    def bits_as(self, element: str | DType) -> Term:
        """The bits as another element type of the same width; nothing where it is this one."""
        return self._typed("bitcast-convert", element)

    def _typed(self, opcode: str, element: str | DType) -> Term:
        kind = dtype(element) if isinstance(element, str) else element
        if kind is self.dtype:
            return self
        return self.unary(opcode, shape=plain(self.shape, kind))

    def reshape(self, *dims: int) -> Term:
        """The elements in row-major order; nothing where these are the dimensions."""
        if dims == self.dims:
            return self
        return self.writer.make("reshape", self, shape=array(self.dtype, dims))

    def transpose(self, *order: int) -> Term:
        """Dimension i of the result is dimension ``order[i]``; nothing where that is i for all."""
        if order == tuple(range(len(order))):
            return self
        return self.writer.make("transpose", self, dimensions=order)

    def slice(self, *ranges: tuple[int, int] | None) -> Term:
        """From start to limit in each dimension, None for all of it; nothing where it is all."""
        entries = tuple(
            SliceRange(*(given or (0, size))) for given, size in zip(ranges, self.dims, strict=True)
        )
        sizes = tuple(entry.size for entry in entries)
        if sizes == self.dims:
            return self
        shape = ArrayShape(self.dtype, sizes, plain(self.shape).layout)
        return self.writer.make("slice", self, shape=shape, slice=entries)

    def element(self, index: int) -> Term:
        """One element of a vector, as a scalar."""
        return self.slice((index, index + 1)).reshape()

    def pad(self, value: Term, *amounts: tuple[int, int]) -> Term:
        """``value`` put before and behind each dimension."""
        if not any(low or high for low, high in amounts):
            return self
        padding = tuple(PaddingDim(low, high) for low, high in amounts)
        return self.writer.make("pad", self, value, padding=padding)

    def dynamic_slice(self, starts: Sequence[Term], sizes: Sequence[int]) -> Term:
        """``sizes`` elements from ``starts`` on, which are scalars of one type."""
        return self.writer.make("dynamic-slice", self, *starts, dynamic_slice_sizes=tuple(sizes))

    def updated(self, update: Term, starts: Sequence[Term]) -> Term:
        """With ``update`` in the place that begins at ``starts``."""
        return self.writer.make("dynamic-update-slice", self, update, *starts)

    def reduce(self, opcode: str, init: Term | Number, *dimensions: int) -> Term:
        """Folded along dimensions by a binary op."""
        if not dimensions:
            return self
        start = init if isinstance(init, Term) else self.writer.scalar(self.dtype, init)
        region = combiner_computation(self.writer.module, opcode, self.dtype.name)
        return self.writer.make("reduce", self, start, dimensions=dimensions, to_apply=region)

    def part(self, index: int) -> Term:
        """One element of a tuple."""
        return self.writer.make("get-tuple-element", self, index=index)


class Writer:
    """Writes right before an instruction, or at the end of a computation.

    broadcasts   what was broadcast so far, so that nothing is twice
    """

    def __init__(
        self, position: Instruction | Computation, module: Module, metadata: Metadata | None
    ) -> None:
        self.position = position
        self.module = module
        self.metadata = metadata
        self.broadcasts: dict[tuple[Instruction, ArrayShape, Dims], Term] = {}
        self.made: list[Instruction] = []
        self._constants: dict[tuple[ArrayShape, bytes], Term] = {}

    @classmethod
    def before(cls, instruction: Instruction) -> Writer:
        """A writer of what replaces an instruction."""
        return cls(instruction, instruction.module, instruction.metadata)

    def term(self, instruction: Instruction) -> Term:
        """An instruction to compute with."""
        return Term(instruction, self)

    def make(
        self, opcode: str, *operands: Term, shape: Shape | None = None, **attributes: Any
    ) -> Term:
        """Any instruction; its shape is inferred unless given."""
        inputs = tuple(operand.instruction for operand in operands)
        instruction = build.make(
            self.position, opcode, inputs, attributes, shape=shape, metadata=self.metadata
        )
        self.made.append(instruction)
        return Term(instruction, self)

    def scalar(self, kind: DType, value: Number | complex) -> Term:
        """A number as a constant of rank 0."""
        return self.constant(np.array(value).astype(kind.numpy))

    def constant(self, values: Array) -> Term:
        """A constant of the array's element type, in row-major layout; the one there is of the value."""
        shape = array(of_numpy(values.dtype), values.shape)
        key = (shape, values.tobytes())
        known = self._constants.get(key)
        if known is None:
            known = self.make("constant", shape=shape, literal=Literal(shape, values.copy()))
            self._constants[key] = known
        return known

    def splat(self, shape: ArrayShape, value: Number | complex) -> Term:
        """A number in every element of a shape."""
        return self.scalar(shape.dtype, value).spread(shape)

    def iota(self, shape: ArrayShape, dimension: int) -> Term:
        """The index along a dimension."""
        return self.make("iota", shape=shape, iota_dimension=dimension)

    def pack(self, *terms: Term) -> Term:
        """A tuple."""
        return self.make("tuple", *terms)

    def concatenate(self, dimension: int, *terms: Term) -> Term:
        """Terms one after another; nothing where there is only one."""
        if len(terms) == 1:
            return terms[0]
        return self.make("concatenate", *terms, dimensions=(dimension,))

    def fitted(self, result: Term, shape: Shape) -> Term:
        """The result in the layout of a shape: a copy, where it has another one."""
        if same_layout(result.instruction.shape, shape):
            return result
        return self.make("copy", result, shape=shape)

    def replace(self, old: Instruction, result: Term) -> None:
        """Put the result in the place of an instruction, with its layout, marks, name and edges.

        What waited for the instruction waits for the result; what the instruction waited for goes before
        all that was made.
        """
        fitted = self.fitted(result, old.shape)
        if fitted.instruction not in self.made:
            fitted = self.make("copy", fitted, shape=old.shape)
        new = fitted.instruction
        for mark in _MARKS:
            if mark in old.attributes:
                edit.set_attribute(new, mark, old.attributes[mark])
        made = set(self.made)
        for instruction in self.made if old.control_predecessors else ():
            if instruction is not new and made.isdisjoint(instruction.operands):
                for before in old.control_predecessors:
                    edit.add_control_edge(before, instruction)
        called = list(called_computations(old))
        edit.replace_instruction(old, new)
        remove_uncalled(called)


def plain(shape: ArrayShape, element: DType | None = None) -> ArrayShape:
    """The dimensions and their order in memory, without tiles and memory space."""
    layout = shape.layout
    if layout is not None and layout.suffix:
        layout = Layout(layout.minor_to_major)
    return ArrayShape(element or shape.dtype, shape.dims, layout)
