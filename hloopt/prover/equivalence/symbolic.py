"""Evaluation of a module on parameters that may be anything: the result's elements as terms.

It follows the interpreter: the same plan of called computations, regions applied to whole arrays, and its own
evaluators for everything that only moves elements, on arrays of numbers of terms.  What is constant is
computed by the interpreter itself.  An op without a meaning in terms is a function of all elements of its
operands, of which nothing is known but that equal operands give equal results.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from hashlib import blake2b
from itertools import count
from math import prod
from typing import Any, Final

import numpy as np

from hloopt.interpret.context import (
    Context,
    Value,
    array_of,
    arrays_of,
    leaf_arrays,
    map_arrays,
)
from hloopt.interpret.families import EVALUATORS
from hloopt.interpret.interpreter import Interpreter
from hloopt.interpret.regions import LIFTED, liftable
from hloopt.ir import Computation, Instruction, Module
from hloopt.ir.encode import encoded, rows
from hloopt.ir.normal import normal_attributes
from hloopt.ir.walk import (
    called_computations,
    exchanges,
    execution_order,
    has_side_effect,
    post_order,
)
from hloopt.ops.traits import (
    COLLECTIVE,
    CONSTRAINTS,
    DEVICE_NUMBERS,
    JOINING,
    RANDOM,
    SEQUENTIAL,
    TRANSFERS,
    TUPLES,
    VIEWS,
    WRAPPING,
)
from hloopt.prover.equivalence.terms import ElementTerms, part_of
from hloopt.types import (
    Array,
    ArrayShape,
    DType,
    Literal,
    Shape,
    TupleShape,
    dtype,
    leaves,
    without_layout,
)

__all__ = ["DRAWN", "Handler", "Symbolic"]

Handler = Callable[["Symbolic", Instruction, tuple[Value, ...]], "Value | None"]
"""What an op gives; None where its operands are such that nothing is known of the result."""

_MOST_ELEMENTS: Final = 1 << 17
# The interpreter's evaluators of these look at no element.
_PASSED: Final = (VIEWS | JOINING | TUPLES | CONSTRAINTS | WRAPPING) - {"bitcast"} | {"call", "map"}
_COPIES: Final = frozenset({"copy-done", "copy-start"})
_OF_ELEMENTS: Final = frozenset({"bitcast", "bitcast-convert", "iota"})
_NOT_COMPUTED: Final = COLLECTIVE | DEVICE_NUMBERS | RANDOM | TRANSFERS | {"custom-call"}
# What these say changes no value.
_NOT_MERELY: Final = ("sharding", "frontend_attributes", "backend_config", "result_accuracy")
# Each of two with equal operands is another value.
DRAWN: Final = RANDOM - {"rng-bit-generator"}


class Symbolic(Context):
    """One evaluation; values are arrays of numbers of ``terms``.

    ``handlers`` are what evaluates ops that combine elements of arrays, by opcode.  ``unknown`` are the
    instructions that became unknown functions, by the number of the term.
    """

    def __init__(
        self, module: Module, terms: ElementTerms, handlers: Mapping[str, Handler]
    ) -> None:
        super().__init__()
        self.terms = terms
        self._module = module
        self._handlers = handlers
        self._concrete = Interpreter(module, EVALUATORS)
        self._digests: dict[Computation, str] = {}
        self._lifted = False
        self.unknown: dict[int, Instruction] = {}
        # Tokens, and context words of asynchronous ops, which nothing reads.
        self._nothing = terms.make("nothing", None)
        assert not self._nothing, "an array of zeros is one of these"

    def result(self) -> list[tuple[ArrayShape, Array]]:
        """The arrays of the entry's result."""
        entry = self._module.entry
        for parameter in entry.parameters:
            self._check_size(parameter)
        # Of all parameters one tuple: their arrays are numbered as inputs are.
        parameters = self.fresh(TupleShape(entry.parameter_shapes), "parameter")
        assert isinstance(parameters, tuple)
        value = self.call(entry, parameters)
        shapes = leaves(self._module.entry.root.shape)
        return [
            (shape, leaf)
            for shape, leaf in zip(shapes, leaf_arrays(value), strict=True)
            if isinstance(shape, ArrayShape) and shape.dtype.is_array
        ]

    def _element(self, kind: DType, name: str, place: int, at: int) -> int:
        if not kind.is_complex:
            return self.terms.make(name, kind, (), (place, at, ""))
        parts = [
            self.terms.make(name, part_of(kind), (), (place, at, part)) for part in ("real", "imag")
        ]
        return self.terms.make("complex", kind, parts)

    def call(self, computation: Computation, args: Sequence[Value]) -> Value:
        """The result of a computation."""
        return self._run(computation, args, lifted=False)

    @property
    def run(self) -> Callable[[Computation, Sequence[Value]], Value]:
        """How the computations of the instruction run: on its values, or at each place of a region's."""
        return self.apply if self._lifted else self.call

    def fresh(self, shape: Shape, name: str) -> Value:
        """A value that may be anything."""
        places = count()

        def elements(part: ArrayShape) -> Array:
            place = next(places)
            found = [self._element(part.dtype, name, place, at) for at in range(part.elements)]
            return np.array(found, np.int64).reshape(part.dims)

        return self._filled(shape, elements)

    def apply(self, computation: Computation, arrays: Sequence[Value]) -> Value:
        """A region of scalars on arrays that broadcast against each other."""
        dims = np.broadcast_shapes(*[leaf.shape for leaf in leaf_arrays(tuple(arrays))])
        if liftable(computation):
            result = self._run(computation, arrays, lifted=True)
            return map_arrays(lambda leaf: np.broadcast_to(leaf, dims), result)
        whole = map_arrays(lambda leaf: np.broadcast_to(leaf, dims), tuple(arrays))
        found = []
        for index in np.ndindex(*dims):
            element = map_arrays(lambda leaf, at=index: np.asarray(leaf[at]), whole)
            assert isinstance(element, tuple)
            found.append(self.call(computation, element))
        if not found:
            return self._filled(computation.root.shape, lambda _: np.zeros(dims, np.int64))
        return map_arrays(lambda *parts: np.stack(parts).reshape(dims), *found)

    def round(self, array: Array, dtype: DType) -> Array:
        """Numbers of terms stay as they are."""
        return array

    narrow = round
    widen = round

    def carrier(self, dtype: DType) -> np.dtype[Any]:
        """That of numbers of terms."""
        return np.dtype(np.int64)

    def unsupported(self, instruction: Instruction, message: str) -> Any:
        """An error to raise, with the instruction's name and line."""
        return self._module.unsupported(instruction, message)

    def _run(self, computation: Computation, args: Sequence[Value], *, lifted: bool) -> Value:
        outer, self._lifted = self._lifted, lifted
        try:
            return self._values(computation, args)
        finally:
            self._lifted = outer

    def _values(self, computation: Computation, args: Sequence[Value]) -> Value:
        values: dict[Instruction, Value] = dict(zip(computation.parameters, args, strict=True))
        needed = set(post_order(computation, (computation.root,)))
        for instruction in execution_order(computation):
            effects = has_side_effect(instruction) and instruction.opcode not in COLLECTIVE
            if effects or instruction.opcode in DRAWN:
                raise self.unsupported(instruction, "has an effect beside its result")
            if instruction in values or instruction not in needed:
                continue
            self._check_size(instruction)
            operands = tuple(values[operand] for operand in instruction.operands)
            values[instruction] = self._evaluate(instruction, operands)
        return values[computation.root]

    def _check_size(self, instruction: Instruction) -> None:
        for shape in leaves(instruction.shape):
            if not isinstance(shape, ArrayShape):
                continue
            if shape.is_dynamic:
                raise self.unsupported(instruction, "has a dynamic dimension")
            if prod(shape.dims) > _MOST_ELEMENTS:
                raise self.unsupported(
                    instruction,
                    f"has {prod(shape.dims):,} elements, of which {_MOST_ELEMENTS:,} are the limit",
                )

    def _evaluate(self, instruction: Instruction, operands: tuple[Value, ...]) -> Value:
        opcode = instruction.opcode
        if opcode == "constant":
            literal = instruction.literal
            assert literal is not None
            return self._literal(literal, instruction)
        handler = self._handlers.get(opcode)
        if opcode in SEQUENTIAL and handler is not None:
            found = handler(self, instruction, operands)
            return self._unknown(instruction, operands) if found is None else found
        if self._lifted and opcode in LIFTED and opcode not in _OF_ELEMENTS:
            return LIFTED[opcode](instruction, operands, self)
        if opcode in _PASSED or opcode in _COPIES or (instruction.is_tuple and opcode == "copy"):
            return EVALUATORS[opcode](instruction, operands, self)
        if instruction.op.is_elementwise:
            return self._elementwise(instruction, operands)
        if self._is_constant(instruction, operands):
            return self._computed(instruction, operands)
        found = None if handler is None else handler(self, instruction, operands)
        return self._unknown(instruction, operands) if found is None else found

    def _literal(self, literal: Literal, instruction: Instruction) -> Value:
        if literal.elided:
            raise self.unsupported(instruction, "has a value that the text leaves out")
        if literal.array is None:
            return tuple(self._literal(element, instruction) for element in literal.elements)
        assert isinstance(literal.shape, ArrayShape)
        return self.terms.constants(literal.array, literal.shape.dtype)

    def _elementwise(self, instruction: Instruction, operands: tuple[Value, ...]) -> Value:
        terms, opcode, kind = self.terms, instruction.opcode, instruction.array.dtype
        data = _attributes(instruction) or None
        kinds = [operand.array.dtype for operand in instruction.operands]

        def one(*args: int) -> int:
            if all(terms.value(arg) is not None for arg in args):
                values = [
                    np.asarray(terms.value(arg), kind.numpy)
                    for arg, kind in zip(args, kinds, strict=True)
                ]
                result = EVALUATORS[opcode](instruction, tuple(values), self._concrete)
                return int(terms.constants(array_of(result), kind))
            return terms.make(opcode, kind, args, data)

        arrays = arrays_of(operands)
        if all(map(terms.are_constant, arrays)):
            return self._computed(instruction, tuple(np.broadcast_arrays(*arrays)))
        return terms.each(one, *arrays)

    def _is_constant(self, instruction: Instruction, operands: tuple[Value, ...]) -> bool:
        opcode = instruction.opcode
        if opcode in _NOT_COMPUTED or opcode not in EVALUATORS:
            return False
        return all(map(self.terms.are_constant, leaf_arrays(operands)))

    def _computed(self, instruction: Instruction, operands: tuple[Value, ...]) -> Value:
        """What the interpreter gives for operands that are constants."""
        known = tuple(
            self._known(value, operand.shape)
            for value, operand in zip(operands, instruction.operands, strict=True)
        )
        result = EVALUATORS[instruction.opcode](instruction, known, self._concrete)
        arrays = iter(leaf_arrays(result))
        return self._filled(
            instruction.shape, lambda shape: self.terms.constants(next(arrays), shape.dtype)
        )

    def _known(self, value: Value, shape: Shape) -> Value:
        if isinstance(shape, TupleShape):
            assert isinstance(value, tuple)
            return tuple(map(self._known, value, shape.elements))
        assert isinstance(shape, ArrayShape)
        return self.terms.values(array_of(value), shape.dtype)

    def _filled(self, shape: Shape, make: Callable[[ArrayShape], Array]) -> Value:
        if isinstance(shape, TupleShape):
            return tuple(self._filled(part, make) for part in shape.elements)
        if not isinstance(shape, ArrayShape) or not shape.dtype.is_array:
            return np.zeros((), np.int64)
        return make(shape)

    def choose(self, condition: Array, yes: Value, no: Value, shape: Shape) -> Value:
        """``yes`` where a pred holds, else ``no``; leaf by leaf of values of one shape."""
        left, right = leaf_arrays(yes), leaf_arrays(no)
        select = self.terms.make

        def one(part: ArrayShape) -> Array:
            return self.terms.each(
                lambda *args: select("select", part.dtype, args), condition, next(left), next(right)
            )

        return self._filled(shape, one)

    def equals(self, array: Array, kind: DType, value: int, direction: str = "EQ") -> Array:
        """Whether each element compares so with a value: ``EQ``, or ``LE``."""
        pred = dtype("pred")
        if kind.is_pred:
            return array
        least, greatest = kind.limits
        if not least <= value <= greatest:
            return np.full(array.shape, self.terms.constant(False, pred))
        other = self.terms.constant(value, kind)

        def one(x: int) -> int:
            known = self.terms.value(x)
            if known is None:
                return self.terms.make("compare", pred, (x, other), (direction, False))
            held = int(known) <= value if direction == "LE" else int(known) == value
            return self.terms.constant(held, pred)

        return self.terms.each(one, array)

    def function_of(
        self, instruction: Instruction, operands: tuple[Value, ...], does: Hashable
    ) -> Value:
        """A function of all elements of the operands, of which only what it ``does`` is known.

        In a region it is one of the elements at each place.
        """
        shapes = tuple(str(without_layout(operand.shape)) for operand in instruction.operands)
        data = (instruction.opcode, _attributes(instruction), does, shapes)
        arrays = list(leaf_arrays(operands))
        places = count()

        op = "exchange" if exchanges(instruction) else "array"

        def whole(args: Sequence[int]) -> int:
            number = self.terms.make(op, None, args, data)
            self.unknown.setdefault(number, instruction)
            return number

        def each_place(shape: ArrayShape) -> Array:
            data = next(places), 0
            make = self.terms.make
            return self.terms.each(
                lambda *args: make("element", shape.dtype, (whole(args),), data), *arrays
            )

        if self._lifted and arrays:
            return self._filled(instruction.shape, each_place)
        number = whole([int(one) for array in arrays for one in array.reshape(-1)])

        def elements(shape: ArrayShape) -> Array:
            leaf = next(places)
            found = [
                self.terms.make("element", shape.dtype, (number,), (leaf, at))
                for at in range(shape.elements)
            ]
            return np.array(found, np.int64).reshape(shape.dims)

        return self._filled(instruction.shape, elements)

    def _unknown(self, instruction: Instruction, operands: tuple[Value, ...]) -> Value:
        does = "".join(map(self.digest, called_computations(instruction)))
        return self.function_of(instruction, operands, does)

    def digest(self, computation: Computation) -> str:
        """A text that only equal computations have, in whatever order they are written."""
        found = self._digests.get(computation)
        if found is None:
            own = [*computation.parameters, *post_order(computation, (computation.root,))]
            numbers = {
                callee: self.digest(callee)
                for instruction in own
                for callee in called_computations(instruction)
            }
            lines = "".join(rows(computation, list(dict.fromkeys(own)), numbers))
            found = blake2b(lines.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
            self._digests[computation] = found
        return found


def _attributes(instruction: Instruction) -> Hashable:
    """What of an instruction's attributes says what it computes, without computations."""
    attributes = instruction.attributes
    if instruction.opcode == "compare":
        return attributes["direction"], attributes.get("type") == "TOTALORDER"
    left_out = () if instruction.opcode == "custom-call" else _NOT_MERELY
    return tuple(
        (name, encoded(value, {}))
        for name, value in normal_attributes(instruction).items()
        if name not in left_out and not _names_computations(value)
    )


def _names_computations(value: object) -> bool:
    first = value[0] if isinstance(value, tuple) and value else value
    return isinstance(first, Computation)
