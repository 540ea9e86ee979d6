"""What an evaluator sees: values, the context it runs in, and how results are rounded.

An evaluator is a plain function of an instruction, its operands' values and a ``Context``.  Each
family has a table ``EVALUATORS`` of them by opcode; ``hloopt.interpret`` puts the tables together.

Values are logical row-major arrays; layouts play no part.  An array of element type ``t`` has the
NumPy type ``context.carrier(t)``: the storage type ``t.numpy``, except that in excess-precision
mode bf16 and f16 are always carried as float32.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from hloopt.errors import UnsupportedError
from hloopt.interpret.host import Host
from hloopt.interpret.participant import Participant
from hloopt.ir import Computation, Instruction
from hloopt.types import Array, ArrayShape, DType, Shape, TupleShape, of_numpy, rounded

if TYPE_CHECKING:
    from hloopt.interpret.bounding import Bounds
    from hloopt.interpret.progress import Progress
    from hloopt.interpret.rounding import Rounding

__all__ = [
    "Check",
    "Context",
    "Evaluator",
    "Observer",
    "Value",
    "array_of",
    "arrays_of",
    "leaf_arrays",
    "map_arrays",
    "map_floats",
    "token",
]

Value: TypeAlias = "Array | tuple[Value, ...]"
"""An array, or a tuple of values; a token is a 0-d bool array."""

_WIDENED = frozenset({"bf16", "f16"})
_FLOAT32 = np.dtype(np.float32)


class Context(ABC):
    """The state of one evaluation of a module.

    ``excess_precision`` is the named mode in which bf16 and f16 chains keep float32.  ``memory``
    holds what outlives one instruction, by keys that its owners choose.  ``exact`` says that functions of f32
    are computed in f64 and rounded once, as an executor need not do.  ``participant`` is the one
    that evaluates: the only one, or one of several; ``host`` is what it exchanges data with.  ``rounding``
    is another way to round than the definition's, for the judge; ``bounds`` has how far each array may be off,
    where that is wanted; ``progress`` counts the iterations of loops, ``observer`` sees what
    instructions give.
    """

    exact = True

    def __init__(self, *, excess_precision: bool = False) -> None:
        self.excess_precision = excess_precision
        self.memory: dict[Any, Any] = {}
        self.participant = Participant()
        self.host = Host()
        self.rounding: Rounding | None = None
        self.bounds: Bounds | None = None
        self.progress: Progress | None = None
        self.observer: Observer | None = None
        self._wholes: dict[int, tuple[weakref.ref[Array], Array]] = {}

    @abstractmethod
    def call(self, computation: Computation, args: Sequence[Value]) -> Value:
        """Evaluate a computation on its parameters' values."""

    @abstractmethod
    def apply(self, computation: Computation, arrays: Sequence[Value]) -> Value:
        """Apply a region of scalars to whole arrays, element by element, at once.

        The arrays (a parameter that is a tuple takes a tuple of them) broadcast against each
        other; every array of the result has their common shape.
        """

    @abstractmethod
    def unsupported(self, instruction: Instruction, message: str) -> UnsupportedError:
        """An error to raise, with the instruction's name and line."""

    def carrier(self, dtype: DType) -> np.dtype[Any]:
        """The NumPy type in which arrays of an element type are carried."""
        if self.excess_precision and dtype.name in _WIDENED:
            return _FLOAT32
        return dtype.numpy

    def round(self, array: Array, dtype: DType) -> Array:
        """To the carrier of ``dtype``: the rounding of an op's result."""
        return rounded(array, self.carrier(dtype))

    def narrow(self, array: Array, dtype: DType) -> Array:
        """To the storage type of ``dtype``, whatever the mode: for ops that look at bits."""
        return rounded(array, dtype.numpy)

    def widen(self, array: Array, dtype: DType) -> Array:
        """To the type in which arithmetic on ``dtype`` is done."""
        return array.astype(dtype.compute, copy=False)

    def materialize(self, value: Value, shape: Shape) -> Value:
        """The value as a buffer of ``shape`` holds it: excess bits of bf16 and f16 are dropped.

        For the places where XLA must keep a buffer of the type itself: entry results, carries of
        loops, operands and results of conditionals, sort operands, custom calls.  The carrier
        stays.
        """
        if not self.excess_precision:
            return value
        if isinstance(shape, TupleShape):
            assert isinstance(value, tuple)
            return tuple(map(self.materialize, value, shape.elements))
        if not isinstance(shape, ArrayShape) or shape.dtype.name not in _WIDENED:
            return value
        array = array_of(value)
        kept = array.astype(shape.dtype.numpy).astype(_FLOAT32)
        whole = self.known(array)
        if whole is array:
            return kept
        return self.remember(kept, whole.astype(shape.dtype.numpy).astype(_FLOAT32))

    def remember(self, array: Array, whole: Array) -> Array:
        """The array, of which ``whole``, at least as large in each dimension, has the hidden elements.

        XLA keeps arrays with bounded dynamic dimensions at their bounds, so that a smaller size hides elements
        and a larger one shows them again; here an array has its sizes only.  ``set-dimension-size`` and
        ``dynamic-update-slice`` therefore remember what they cut; other ops compute nothing past the sizes.
        """
        if array.shape != whole.shape:
            wholes, key = self._wholes, id(array)
            wholes[key] = (weakref.ref(array, lambda _: wholes.pop(key, None)), whole)
        return array

    def known(self, array: Array) -> Array:
        """The array with the hidden elements that are known: itself, or a larger one."""
        entry = self._wholes.get(id(array))
        return array if entry is None or entry[0]() is not array else entry[1]


def token() -> Array:
    """The value of a token."""
    return np.zeros((), np.bool_)


def map_arrays(function: Callable[..., Array], *values: Value) -> Value:
    """``function`` of the arrays at each leaf of values that have the same structure."""
    first = values[0]
    if isinstance(first, tuple):
        return tuple(map_arrays(function, *parts) for parts in zip(*values, strict=True))
    return function(*values)


def map_floats(function: Callable[[Array], Array], value: Value) -> Value:
    """``function`` of the arrays of floats and of complex numbers at the leaves of a value; others stay."""

    def each(array: Array) -> Array:
        kind = of_numpy(array.dtype)
        return function(array) if kind.is_float or kind.is_complex else array

    return map_arrays(each, value)


def leaf_arrays(value: Value) -> Iterator[Array]:
    """The arrays of a value, depth first."""
    if isinstance(value, tuple):
        for element in value:
            yield from leaf_arrays(element)
    else:
        yield value


def array_of(value: Value) -> Array:
    """The value, which must be an array; raises ``TypeError`` for a tuple."""
    if isinstance(value, tuple):
        raise TypeError("a tuple where an array is needed")
    return value


def arrays_of(values: Sequence[Value]) -> list[Array]:
    """The values, which must all be arrays."""
    return [array_of(value) for value in values]


Evaluator: TypeAlias = Callable[[Instruction, tuple[Value, ...], Context], Value]


class Observer(Protocol):
    """Sees values as they are computed."""

    def observing(self, instruction: Instruction, run: Evaluator) -> Evaluator:
        """What evaluates an instruction as ``run`` does, and is seen: ``run`` itself where nothing is."""


Check: TypeAlias = Callable[[Instruction], str | None]
"""Why an instruction of an opcode that has an evaluator cannot be evaluated, or None: a family
may have a table ``CHECKS`` of these by opcode, which ``supported`` calls before anything runs."""
