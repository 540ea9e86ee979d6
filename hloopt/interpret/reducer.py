"""The computation that combines two values in reduce, reduce-window and scatter.

How folds associate.  An accumulator starts at the initial value and takes one element after the other, in
row-major order of the reduced dimensions or of the window; every step is rounded to the element type.  So a
product of bf16 is rounded after each factor.  One computation is defined otherwise: a **sum of floats or of
complex numbers** in reduce and reduce-window (the region is an ``add`` of its parameters, perhaps between
conversions to f32 and back) is made in double precision and rounded to the element type once.  XLA's evaluator
sums so in ``reduce``, whatever the type, and XLA's compilers keep at least f32 beside bf16 and f16; what order
they add in is theirs.  The sum in double is made in any order, which shows in f64 and c128 alone.  scatter and
select-and-scatter add one update after the other and round each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.interpret.context import Context, Value, leaf_arrays
from hloopt.interpret.pairs import PairChoice, choice_of
from hloopt.interpret.regions import combiner, is_associative, passed
from hloopt.interpret.scalars import ScalarStep, scalar_function
from hloopt.ir import Computation, Instruction
from hloopt.ops.traits import ASSOCIATIVE, EXTREMA, op_table
from hloopt.types import Array, DType, TupleShape

__all__ = ["Apply", "Reducer", "named_reducer", "reducer_of", "rounded_results"]

Apply: TypeAlias = Callable[[Sequence[Array], Sequence[Array]], list[Array]]

_UFUNCS: Mapping[str, np.ufunc] = op_table(
    {
        "add": np.add,
        "and": np.bitwise_and,
        "maximum": np.maximum,
        "minimum": np.minimum,
        "multiply": np.multiply,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    },
    ASSOCIATIVE,
)


@dataclass(frozen=True, slots=True)
class Reducer:
    """A computation of ``n`` accumulated and ``n`` new values.

    name         as ``regions.combiner`` has it, or None
    dtypes       element types of the ``n`` values
    apply        the computation on whole arrays, element by element
    associative  whether grouping changes no bit of a fold's result
    scalars      gives the computation on scalars, where it has that form
    choice       gives what it chooses, where it chooses between pairs of a value and an index
    """

    name: str | None
    dtypes: tuple[DType, ...]
    apply: Apply
    associative: bool
    scalars: Callable[[], ScalarStep | None] = lambda: None
    choice: Callable[[], PairChoice | None] = lambda: None

    @property
    def wide(self) -> np.dtype[Any] | None:
        """The type in which a sum is accumulated before it is rounded once.

        Sums of floats are: XLA's evaluator does so for ``reduce``, and it is the better
        definition where an executor is free to choose the order.  None: the element type itself.
        """
        if self.name != "add":
            return None
        if self.dtypes[0].is_float:
            return np.dtype(np.float64)
        return np.dtype(np.complex128) if self.dtypes[0].is_complex else None

    def ufunc(self, *, step_by_step: bool = False) -> np.ufunc | None:
        """A ufunc that does what ``apply`` does, bit for bit, on arrays of the storage type.

        Not for types that NumPy lacks, nor for the maximum of floats: NumPy takes either of +0 and -0.  Its
        reductions of f16 round once for many elements; ``step_by_step`` says that they must not be used.
        """
        ufunc = _UFUNCS.get(self.name or "")
        kind = self.dtypes[0]
        if ufunc is None:
            return None
        if kind.is_narrow_float:
            rounds = kind.name == "bf16" or (kind.name == "f16" and step_by_step)
            return ufunc if rounds and self.name in ("add", "multiply") else None
        code = kind.numpy.kind
        ordered = self.name in EXTREMA
        if code not in "biufc" or (ordered and code in "fc"):
            return None
        return None if code == "b" and self.name in ("add", "multiply") else ufunc

    @property
    def groupable(self) -> bool:
        """Whether a fold may be grouped: exactly, or but for the rounding of sums made in ``wide``."""
        return self.associative or self.wide is not None

    @property
    def accumulating(self) -> np.ufunc | None:
        """A ufunc that does what ``apply`` does on accumulators of type ``wide``, if any."""
        return np.add if self.wide is not None else self.ufunc(step_by_step=True)

    def combine(self) -> Apply:
        """``apply``, or a ufunc that does the same, on accumulators of type ``wide``, if any."""
        return self._applied(self.accumulating)

    def stepping(self) -> Apply:
        """``apply``, or a ufunc that does the same, every step rounded to the element type."""
        return self._applied(self.ufunc(step_by_step=True))

    def _applied(self, ufunc: np.ufunc | None) -> Apply:
        if ufunc is None:
            return self.apply
        return lambda left, right: [np.asarray(ufunc(left[0], right[0]))]


def reducer_of(computation: Computation, context: Context, kinds: Sequence[DType] = ()) -> Reducer:
    """The reducer that a computation of an instruction is.

    ``kinds`` are the element types of the values it is used on, where they may differ from those the
    computation works in: each value is then converted, and no ufunc does the same.
    """
    key = ("reducer", tuple(kinds), computation)
    if key not in context.memory:
        count = len(computation.parameters) // 2
        dtypes = tuple(parameter.array.dtype for parameter in computation.parameters[:count])

        def apply(left: Sequence[Array], right: Sequence[Array]) -> list[Array]:
            taken = passed(computation, [*left, *right], context)
            return list(leaf_arrays(context.apply(computation, taken)))

        alike = not kinds or tuple(kinds) == dtypes
        name = combiner(computation) if alike else None
        exact = name is not None and (dtypes[0].is_integer or dtypes[0].is_pred)
        associative = exact or is_associative(computation, context)
        context.memory[key] = Reducer(
            name,
            dtypes,
            apply,
            associative,
            lambda: scalar_function(computation, context) if alike else None,
            lambda: choice_of(computation, context) if alike else None,
        )
    reducer: Reducer = context.memory[key]
    return reducer


def rounded_results(
    results: Sequence[Array], reducer: Reducer, instruction: Instruction, context: Context
) -> Value:
    """The results of folds, each rounded to its type; one may still be a tuple, as its region says."""
    rounded = tuple(map(context.round, results, reducer.dtypes))
    return rounded if isinstance(instruction.shape, TupleShape) else rounded[0]


def named_reducer(region: Computation) -> Reducer | None:
    """The reducer of a region that is a single op NumPy may have; it has no ``apply``."""
    name = combiner(region)
    if name is None or name in ("first", "second"):
        return None
    kind = region.parameters[0].array.dtype
    return Reducer(name, (kind,), _not_applied, kind.is_integer or kind.is_pred)


def _not_applied(*_: Any) -> Any:
    raise AssertionError("a named reducer has only its ufunc")
