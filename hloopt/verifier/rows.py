"""Each instruction against its row of the op table: operands, attributes, shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hloopt.errors import ShapeError
from hloopt.ir import Computation, Instruction
from hloopt.ir.build import infer_shape
from hloopt.ops import COMMON_ATTRIBUTES, MANY, Attribute, Kind, OpDef
from hloopt.types import (
    UNBOUNDED,
    ArrayShape,
    BufferShape,
    ConvDims,
    IotaList,
    Literal,
    PaddingDim,
    Shape,
    SliceRange,
    Text,
    TupleShape,
    Verbatim,
    Window,
    compatible,
    leaves,
)
from hloopt.verifier.constraints import Fault

__all__ = ["RowChecks"]


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _tuple_of(member: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, tuple) and all(map(member, value))


def _is(*types: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, types)


_is_ints = _tuple_of(_is_int)
_is_groups = _tuple_of(_is_ints)
_is_calls = _tuple_of(_is(Computation))
_MOST_BYTES = 1 << 63
_SHAPES = (ArrayShape, TupleShape, BufferShape)

_CHECKS: dict[Kind, tuple[Callable[[Any], bool], str]] = {
    Kind.INT: (_is_int, "an integer"),
    Kind.FLOAT: (lambda value: isinstance(value, float) or _is_int(value), "a number"),
    Kind.BOOL: (_is(bool), "true or false"),
    Kind.WORD: (lambda value: isinstance(value, str) and not isinstance(value, Text), "a word"),
    Kind.STRING: (_is(str), "a string"),
    Kind.INTS: (_is_ints, "a list of integers"),
    Kind.GROUPS: (
        lambda value: isinstance(value, IotaList | Verbatim) or _is_groups(value),
        "a list of lists of integers",
    ),
    Kind.SLICES: (_tuple_of(_is(SliceRange)), "a list of slice ranges"),
    Kind.WINDOW: (_is(Window), "a window"),
    Kind.PADDING: (_tuple_of(_is(PaddingDim)), "padding"),
    Kind.CONV_DIMS: (_is(ConvDims), "dimension labels"),
    Kind.COMPUTATION: (_is(Computation), "a computation"),
    Kind.COMPUTATIONS: (_is_calls, "a list of computations"),
    Kind.SHAPE: (_is(*_SHAPES), "a shape"),
    Kind.SHAPES: (_tuple_of(_is(*_SHAPES)), "a list of shapes"),
    Kind.LITERAL: (_is(Literal), "a literal"),
    Kind.VERBATIM: (_is(Verbatim), "text kept as it was"),
}


class RowChecks:
    """Checks of instructions; remembers the shapes and the rows it has seen."""

    def __init__(self) -> None:
        # Shapes are shared by many instructions; the value keeps the key's id from being used again.
        self._shapes: dict[int, tuple[Shape, tuple[str, str], bool]] = {}
        self._schemas: dict[str, dict[str, Attribute]] = {}

    def faults(self, instruction: Instruction) -> Iterator[Fault]:
        """The violations of one instruction.  Shapes are inferred only if all that is read is sound."""
        row = instruction.op
        sound = True
        for rule, message in self._row_messages(row, instruction):
            sound = False
            yield Fault(instruction, rule, f"{row.opcode}: {message}")
        if not sound:
            return
        message = self._shape_message(instruction)
        if message:
            yield Fault(instruction, "shape", message)

    def _row_messages(self, row: OpDef, instruction: Instruction) -> Iterator[tuple[str, str]]:
        """The rule and what is wrong."""
        least, most = row.arity
        count = len(instruction.operands)
        if not least <= count <= most:
            wanted = str(least) if least == most else f"{least} or more"
            if least < most < MANY:
                wanted = f"{least} to {most}"
            yield "operand-count", f"takes {wanted} operands, not {count}"
        attributes = instruction.attributes
        schema = self._schema(row)
        for name, value in attributes.items():
            entry = schema.get(name)
            if entry is None:
                # What the parser did not know it kept as text, and said so.
                if not isinstance(value, Verbatim | Computation) and not _is_calls(value):
                    yield "attribute", f"has no attribute {name}"
                continue
            check, wanted = _CHECKS[entry.kind]
            if not check(value):
                yield "attribute", f"attribute {name}={value!r} is not {wanted}"
            elif entry.words and value not in entry.words:
                words = ", ".join(entry.words)
                yield "attribute", f"attribute {name}={value} is not one of {words}"
        for entry in row.attributes:
            if entry.required and attributes.get(entry.name) is None:
                yield "attribute", f"attribute {entry.name}= is missing"
        literal = attributes.get("literal")
        if isinstance(literal, Literal):
            for message in literal_messages(literal):
                yield "literal", message
        (rule, message), _ = self._shape(instruction.shape)
        if message:
            yield rule, message

    def _schema(self, row: OpDef) -> dict[str, Attribute]:
        schema = self._schemas.get(row.opcode)
        if schema is None:
            schema = {entry.name: entry for entry in (*COMMON_ATTRIBUTES, *row.attributes)}
            self._schemas[row.opcode] = schema
        return schema

    def _shape(self, shape: Shape) -> tuple[tuple[str, str], bool]:
        """What is wrong with a shape and by which rule, and whether a size in it is unbounded."""
        known = self._shapes.get(id(shape))
        if known is None:
            known = (shape, _shape_message(shape), _is_unbounded(shape))
            self._shapes[id(shape)] = known
        return known[1], known[2]

    def _shape_message(self, instruction: Instruction) -> str:
        """What inference says against the result shape."""
        shape = instruction.shape
        try:
            inferred = infer_shape(instruction, shape)
        except ShapeError as error:
            return error.message
        if inferred is shape or compatible(inferred, shape):
            return ""
        open_sizes = (self._shape(one.shape)[1] for one in (instruction, *instruction.operands))
        if any(open_sizes):
            return ""
        return f"{instruction.opcode}: the result shape is {shape}, its operands give {inferred}"


def _is_unbounded(shape: Shape) -> bool:
    return any(isinstance(leaf, ArrayShape) and UNBOUNDED in leaf.dims for leaf in _leaves(shape))


def _leaves(shape: Shape) -> Iterable[ArrayShape | BufferShape]:
    """The leaves of a shape, each object once: tuples within tuples have few, however many places."""
    return {id(leaf): leaf for leaf in leaves(shape)}.values()


def _shape_message(shape: Shape) -> tuple[str, str]:
    """Layouts permute the dimensions; sizes are not negative; marks are one a dimension."""
    sound = ("", "")
    for leaf in _leaves(shape):
        inner = leaf.element if isinstance(leaf, BufferShape) else leaf
        # A shape with the wrong number of marks has no text: it must not be printed.
        if inner.dynamic and len(inner.dynamic) != inner.rank:
            return (
                "shape-form",
                f"a shape has {len(inner.dynamic)} dynamic marks for rank {inner.rank}",
            )
        layout = inner.layout
        if layout is not None and sorted(layout.minor_to_major) != list(range(inner.rank)):
            return "layout", f"layout {layout} of {inner} is not a permutation of rank {inner.rank}"
        if any(size < 0 and size != UNBOUNDED for size in inner.dims):
            return "shape-form", f"shape {inner} has a negative size"
        if _is_unmarked(inner):
            return (
                "shape-form",
                f"a size of {inner.dtype.name}{list(inner.dims)} is unbounded, not marked",
            )
        if inner.dims and not inner.dtype.is_array:
            return "shape-form", f"shape {inner} has dimensions, {inner.dtype.name} has none"
        if inner.byte_size >= _MOST_BYTES:
            return (
                "shape-form",
                f"shape {inner} has {inner.byte_size} bytes, more than 64 bits count",
            )
    return sound


def _is_unmarked(shape: ArrayShape) -> bool:
    """Whether a size is unbounded without a mark that says so: such a shape has no text."""
    marks = shape.dynamic or (False,) * shape.rank
    return any(size == UNBOUNDED and not mark for size, mark in zip(shape.dims, marks, strict=True))


def literal_messages(literal: Literal) -> Iterator[str]:
    """A literal's values have the type and the dimensions of its shape."""
    shape = literal.shape
    if literal.elided:
        return
    if isinstance(shape, TupleShape):
        if len(literal.elements) != len(shape.elements):
            yield f"literal of shape {shape} has {len(literal.elements)} elements"
            return
        for element, wanted in zip(literal.elements, shape.elements, strict=True):
            if not compatible(element.shape, wanted):
                yield f"literal element of shape {element.shape} stands for {wanted}"
            yield from literal_messages(element)
        return
    values = literal.array
    if values is None:
        if shape.dtype.is_array:
            yield f"literal of shape {shape} has no values"
    elif values.dtype != shape.dtype.numpy or values.shape != shape.dims:
        yield (
            f"literal of shape {shape} has values of type {values.dtype} and dimensions "
            f"{list(values.shape)}"
        )
