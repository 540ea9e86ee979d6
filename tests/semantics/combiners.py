"""Computations that combine two sets of scalars: their texts, and what they mean in Python's numbers.

Elements are Python's ``bool``, ``int``, ``float`` or ``complex``; integers wrap, floats are rounded to their
type after every op.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hloopt.types import DTYPES

__all__ = [
    "Combiner",
    "arg_by",
    "argmax",
    "binary",
    "chosen",
    "crossed",
    "python",
    "stored",
    "twice_less",
]

Function = Callable[[Sequence[Any], Sequence[Any]], tuple[Any, ...]]


@dataclass(frozen=True)
class Combiner:
    """``text`` is a computation called ``combine`` of ``kinds`` twice over; ``function(left, right)``."""

    name: str
    text: str
    kinds: tuple[str, ...]
    function: Function

    def __repr__(self) -> str:
        return f"{self.name} of {', '.join(self.kinds)}"


def python(element: Any, kind: str) -> Any:
    """A NumPy element as Python's number."""
    row = DTYPES[kind]
    if row.is_pred:
        return bool(element)
    if row.is_integer:
        return int(element)
    return complex(element) if row.is_complex else float(element)


def stored(number: Any, kind: str) -> Any:
    """Python's number as the type holds it: integers modulo its width, floats rounded.

    Sums and products of two elements are exact in a float of twice the digits, so that one rounding to
    float32 and one to a narrower type is what arithmetic in float32 gives.
    """
    row = DTYPES[kind]
    if row.is_pred:
        return bool(number)
    if row.is_integer:
        low = number % (1 << row.bits)
        return low - (1 << row.bits) if row.kind == "signed" and low >> (row.bits - 1) else low
    with np.errstate(all="ignore"):
        if row.compute == np.float32:
            number = np.float32(number)
        return python(np.asarray(number).astype(row.numpy)[()], kind)


def greater(x: Any, y: Any) -> Any:
    """``maximum``: a NaN, else the larger; +0 is larger than -0."""
    if x != x or y != y:
        return math.nan
    if x == y == 0:
        return max(x, y, key=lambda zero: math.copysign(1, zero)) if isinstance(x, float) else x
    return max(y, x)


def lesser(x: Any, y: Any) -> Any:
    """``minimum``: a NaN, else the smaller; -0 is smaller than +0."""
    if x != x or y != y:
        return math.nan
    if x == y == 0:
        return min(x, y, key=lambda zero: math.copysign(1, zero)) if isinstance(x, float) else x
    return min(y, x)


_OPS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "and": operator.and_,
    "maximum": greater,
    "minimum": lesser,
    "multiply": operator.mul,
    "or": operator.or_,
    "subtract": operator.sub,
    "xor": operator.xor,
}


def _of(name: str, kinds: Sequence[str], body: str, function: Function) -> Combiner:
    """``x0 x1 ... y0 y1 ...`` are the parameters of ``body``."""
    names = [f"{side}{at}" for side in "xy" for at in range(len(kinds))]
    lines = [
        f"  {name_} = {kind}[] parameter({at})"
        for at, (name_, kind) in enumerate(zip(names, [*kinds, *kinds], strict=True))
    ]
    text = "\n".join(["combine {", *lines, body, "}"])
    return Combiner(name, text, tuple(kinds), function)


def binary(op: str, kind: str, *, swapped: bool = False) -> Combiner:
    """One op on both parameters, in either order."""
    order = "y0, x0" if swapped else "x0, y0"
    compute = _OPS[op]

    def function(left: Sequence[Any], right: Sequence[Any]) -> tuple[Any, ...]:
        (x,), (y,) = (right, left) if swapped else (left, right)
        if kind == "pred" and op in ("add", "multiply"):
            return ((x or y) if op == "add" else (x and y),)
        return (stored(compute(x, y), kind),)

    body = f"  ROOT r = {kind}[] {op}({order})"
    return _of(f"{op}({order})", [kind], body, function)


def chosen(which: int, kind: str) -> Combiner:
    """One of the parameters as it is: ``chosen(1, ...)`` is assignment."""
    name = ("x0", "y0")[which]
    combiner = _of(f"parameter {which}", [kind], "", lambda left, right: ((left, right)[which][0],))
    text = combiner.text.replace(f"  {name} =", f"  ROOT {name} =")
    return Combiner(combiner.name, text, combiner.kinds, combiner.function)


def twice_less(kind: str) -> Combiner:
    """2x - y, which neither groups nor commutes."""
    body = f"  s = {kind}[] add(x0, x0)\n  ROOT r = {kind}[] subtract(s, y0)"

    def function(left: Sequence[Any], right: Sequence[Any]) -> tuple[Any, ...]:
        return (stored(stored(left[0] + left[0], kind) - right[0], kind),)

    return _of("2x-y", [kind], body, function)


def crossed(first: str, second: str) -> Combiner:
    """Of two integer types: (x0 - y1, 3 * x1 + y0), each result from both operands."""
    body = f"""
  b = {first}[] convert(y1)
  a = {second}[] convert(y0)
  three = {second}[] constant(3)
  t = {second}[] multiply(three, x1)
  u = {first}[] subtract(x0, b)
  v = {second}[] add(t, a)
  ROOT r = ({first}[], {second}[]) tuple(u, v)"""

    def function(left: Sequence[Any], right: Sequence[Any]) -> tuple[Any, ...]:
        (x0, x1), (y0, y1) = left, right
        u = stored(x0 - stored(y1, first), first)
        return u, stored(3 * x1 + stored(y0, second), second)

    return _of("crossed", [first, second], body, function)


def argmax(kind: str, index: str, direction: str = "GT", *, whole: bool = False) -> Combiner:
    """The greater value (or, with LT, the lesser) and its index: a NaN wins, ties go to the lower index.

    ``whole`` says that the value is that of the same pair as the index; zeros may differ in sign.
    """
    body = f"""
  better = pred[] compare(x0, y0), direction={direction}
  isnan = pred[] compare(x0, x0), direction=NE
  wins = pred[] or(better, isnan)
  equal = pred[] compare(x0, y0), direction=EQ
  lower = pred[] compare(x1, y1), direction=LT
  tie = pred[] and(equal, lower)
  first = pred[] or(wins, tie)
  v = {kind}[] select({"first" if whole else "wins"}, x0, y0)
  i = {index}[] select(first, x1, y1)
  ROOT r = ({kind}[], {index}[]) tuple(v, i)"""

    def function(left: Sequence[Any], right: Sequence[Any]) -> tuple[Any, ...]:
        (x, i), (y, j) = left, right
        wins = (x > y if direction == "GT" else x < y) or x != x
        first = wins or (x == y and i < j)
        return (x if (first if whole else wins) else y), (i if first else j)

    return _of(f"arg {direction}", [kind, index], body, function)


def arg_by(direction: str, kind: str, index: str) -> Combiner:
    """One comparison of the values decides which pair is taken: ties and NaNs as it says."""
    body = f"""
  take = pred[] compare(x0, y0), direction={direction}
  v = {kind}[] select(take, x0, y0)
  i = {index}[] select(take, x1, y1)
  ROOT r = ({kind}[], {index}[]) tuple(v, i)"""
    compare = {"GT": operator.gt, "GE": operator.ge, "LT": operator.lt, "LE": operator.le}[
        direction
    ]

    def function(left: Sequence[Any], right: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(left if compare(left[0], right[0]) else right)

    return _of(f"arg by {direction}", [kind, index], body, function)
