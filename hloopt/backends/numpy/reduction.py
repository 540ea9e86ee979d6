"""reduce: NumPy's reductions, chosen when the line is made.

Every form gives the bits of ``interpret.reduction``; what has no form here is folded there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from hloopt.backends.numpy.builder import Builder
from hloopt.backends.numpy.movement import Emitter
from hloopt.backends.numpy.plan import Code, Dims, Function, Slots
from hloopt.dataclass import dataclass
from hloopt.interpret.reducer import Reducer, named_reducer
from hloopt.interpret.reduction import sign_zeros
from hloopt.ir import Instruction
from hloopt.types import DType, TupleShape

__all__ = ["EMITTERS", "named_reducer"]

# NumPy reduces a short innermost dimension with one call of its inner loop a result, some 10 ns each;
# whole columns added to each other take a tenth of that where there are many (measured on Zen 5,
# f32[100000,4]: 1300 us against 150).  From 8 elements on NumPy adds in pairs, which is another order.
_SHORT = 7
_MANY = 2048


def _reduce(builder: Builder, instruction: Instruction, operands: Sequence[int]) -> Slots | None:
    if len(operands) == 4:
        # Loaded for the first of them.
        from hloopt.backends.numpy.arg_extremum import arg_extremum

        return arg_extremum(builder, instruction, operands)
    if len(operands) != 2:
        return None
    out = _single(builder, instruction, operands)
    # One result may still be a tuple, as its region says.
    return (out,) if out is not None and isinstance(instruction.shape, TupleShape) else out


def _single(builder: Builder, instruction: Instruction, operands: Sequence[int]) -> int | None:
    reducer = named_reducer(instruction.attributes["to_apply"])
    if reducer is None:
        return None
    kind = reducer.dtypes[0]
    dims = instruction.operands[0].array.dims
    axes = tuple(sorted(instruction.attributes["dimensions"]))
    carrier = builder.context.carrier(kind)
    found = _form(reducer, carrier, dims, axes)
    if found is None:
        return None
    starts, function = found
    out = builder.line.slot(
        carrier, tuple(size for axis, size in enumerate(dims) if axis not in axes)
    )
    full = builder.full_operands(instruction, operands)
    known = builder.line.constants.get(full[1])
    if known is not None:
        start = known.astype(starts)[()]
        code = _code(function, start, scalar=builder.line.is_scalar(out))
        return builder.line.once(partial(_started, function, start), full[:1], out, code=code)

    def started(array: Any, init: Any) -> Any:
        return function(init.astype(starts)[()], array)

    return builder.line.step(started, full, out)


def _started(function: Function, start: Any, array: Any) -> Any:
    return function(start, array)


@dataclass(frozen=True, slots=True)
class _Reduction:
    """A reduction of a ufunc's, which can be written in place: in type ``dtype``, then as ``carrier``.

    ``straight``: it goes through the elements as they lie in memory, so they have to lie in order.
    """

    reduce: Function
    axes: tuple[int, ...]
    compute: np.dtype[Any]
    dtype: np.dtype[Any]
    carrier: np.dtype[Any]
    straight: bool

    def __call__(self, start: Any, array: Any) -> Any:
        if self.straight:
            array = np.asarray(array, self.compute, order="C")
        found = self.reduce(array, self.axes, self.dtype, None, False, start)
        return found.astype(self.carrier, copy=False)


# Of pred to a single element, from what changes nothing: counting takes a tenth of the time of a reduction.
_ANY = (False, "{r} = {true} if {count}({0}) else {false}")
_ALL = (True, "{r} = {true} if {count}({0}) == {0}.size else {false}")
_COUNTED: Mapping[Any, tuple[bool, str]] = {
    np.bitwise_or: _ANY,
    np.logical_or: _ANY,
    np.maximum: _ANY,
    np.bitwise_and: _ALL,
    np.logical_and: _ALL,
    np.minimum: _ALL,
}


def _code(function: Function, start: Any, *, scalar: bool) -> Code | None:
    if not isinstance(function, _Reduction):
        return None
    counted = _COUNTED.get(getattr(function.reduce, "__self__", None))
    if scalar and function.carrier == np.bool_ and counted is not None and start == counted[0]:
        bound = {"count": np.count_nonzero, "true": np.True_, "false": np.False_}
        return Code(counted[1], scalar=True, bound=bound)
    array = "{asarray}({0}, {compute}, order='C')" if function.straight else "{0}"
    text = f"{{reduce}}({array}, {{axes}}, {{dtype}}, None, False, {{start}})"
    rounds = function.dtype != function.carrier
    if rounds and scalar:
        # An array without dimensions converts what it is given in a quarter of the time of ``astype``.
        text = f"{{b}}[()] = {text}\n{{r}} = {{b}}[()]"
    else:
        text = f"{{r}} = {text}" + (".astype({carrier})" if rounds else "")
    bound = {
        "asarray": np.asarray,
        "axes": function.axes,
        "carrier": function.carrier,
        "compute": function.compute,
        "dtype": function.dtype,
        "reduce": function.reduce,
        "start": start,
    }
    buffer = function.carrier if rounds and scalar else None
    return Code(text, scalar=scalar, bound=bound, buffer=buffer)


def _form(
    reducer: Reducer, carrier: np.dtype[Any], dims: Dims, axes: tuple[int, ...]
) -> tuple[np.dtype[Any], Function] | None:
    """The type of the initial value, and a function of it and an array."""
    kind = reducer.dtypes[0]
    wide = reducer.wide
    if wide is not None:
        return wide, _sum(kind, wide, carrier, dims, axes)
    ufunc = reducer.ufunc()
    if ufunc is not None:
        straight = not reducer.associative
        return carrier, _Reduction(ufunc.reduce, axes, carrier, carrier, carrier, straight)
    if reducer.name in ("maximum", "minimum") and kind.is_float:
        return kind.compute, _extremum(reducer.name == "maximum", kind, carrier, dims, axes)
    return None


def _sum(
    kind: DType, wide: np.dtype[Any], carrier: np.dtype[Any], dims: Dims, axes: tuple[int, ...]
) -> Function:
    """In double precision, rounded once; NumPy adds in the order of memory, so arrays lie straight."""
    compute = kind.compute
    if not kind.is_float or not _is_short(dims, axes):
        return _Reduction(np.add.reduce, axes, compute, wide, carrier, straight=True)

    def short(start: Any, array: Any) -> Any:
        straight = array.astype(compute, copy=False)
        found = straight[..., 0].astype(wide)
        for column in range(1, dims[-1]):
            np.add(found, straight[..., column], out=found)
        np.add(found, start, out=found)
        return found.astype(carrier, copy=False)

    return short


def _is_short(dims: Dims, axes: tuple[int, ...]) -> bool:
    last = len(dims) - 1
    return axes == (last,) and 0 < dims[-1] <= _SHORT and prod(dims[:-1]) >= _MANY


def _extremum(
    largest: bool, kind: DType, carrier: np.dtype[Any], dims: Dims, axes: tuple[int, ...]
) -> Function:
    ufunc = np.maximum if largest else np.minimum
    compute = kind.compute
    reduced: Function = ufunc.reduce

    def long(start: Any, wide: Any) -> Any:
        return np.asarray(reduced(wide, axes, None, None, False, start))

    def short(start: Any, wide: Any) -> Any:
        found = ufunc(start, wide[..., 0])
        for column in range(1, dims[-1]):
            ufunc(found, wide[..., column], out=found)
        return found

    find = short if _is_short(dims, axes) else long

    def extremum(start: Any, array: Any) -> Any:
        wide = array.astype(compute, copy=False)
        found = find(start, wide)
        if np.count_nonzero(found) != found.size:
            sign_zeros(found, wide, start, axes, largest=largest)
        return found.astype(carrier, copy=False)

    return extremum


EMITTERS: Mapping[str, Emitter] = {"reduce": _reduce}
