"""How far the exact function of an elementwise op moves where its operands do: the rules, by opcode.

An operand that is x in the definition is x' with |x' - x| <= e elsewhere.  Functions that rise or fall
everywhere move as far as at the ends of the interval, computed in f64; the others by a bound on their slope
(N. J. Higham, Accuracy and Stability of Numerical Algorithms, 1.6 and 3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from hloopt.interpret.elementwise import evaluate_op
from hloopt.interpret.perturbation import unit_roundoff
from hloopt.ir import Instruction
from hloopt.ops import ScalarArgs
from hloopt.ops.traits import ELEMENTWISE, INTEGRAL, op_table
from hloopt.types import Array, dtype, of_numpy

__all__ = [
    "EXACT",
    "OF_COMPLEX",
    "REACHES",
    "BoundedStep",
    "ReachRule",
    "clamped",
    "extremum",
    "selected",
]

_F64: Final = dtype("f64")
_DOUBLE: Final = 2.0**-52


class BoundedStep:
    """One op: its operands and result in f64 or c128, and what the operands are off by.

    ``known`` are the operands as they are, ``off`` says where any of them is off.
    """

    __slots__ = ("e", "instruction", "known", "off", "r", "x")

    def __init__(
        self,
        instruction: Instruction,
        x: Sequence[Array],
        e: Sequence[Any],
        r: Array,
        known: Sequence[Array],
    ) -> None:
        self.instruction, self.x, self.e, self.r, self.known = instruction, x, e, r, known
        self.off: Array = np.asarray(sum(e) > 0)


ReachRule: TypeAlias = Callable[[BoundedStep], Any]


def _sum(step: BoundedStep) -> Any:
    return step.e[0] + step.e[1]


def _product(step: BoundedStep) -> Any:
    (a, b), (ea, eb) = map(np.abs, step.x), step.e
    return a * eb + b * ea + ea * eb


def _quotient(step: BoundedStep) -> Any:
    (ea, eb), below = step.e, np.abs(step.x[1]) - step.e[1]
    ratio = np.abs(step.r) * (1 + _DOUBLE) + unit_roundoff(of_numpy(step.known[0].dtype)) * np.abs(
        step.r
    )
    return np.where(below > 0, (ea + ratio * eb) / below, np.inf)


def _first(step: BoundedStep) -> Any:
    return step.e[0]


def extremum(step: BoundedStep, *, sign: int) -> Any:
    """Of a maximum (1) or a minimum (-1)."""
    (a, b), (ea, eb) = step.x, step.e
    return _larger(sign * a, ea, sign * b, eb)


def _larger(a: Array, ea: Any, b: Array, eb: Any) -> Any:
    """Of the larger of two: of either where it is not decided which that is."""
    return np.where(a - ea > b + eb, ea, np.where(b - eb > a + ea, eb, np.maximum(ea, eb)))


def clamped(step: BoundedStep) -> Any:
    """Of a number between two others."""
    (low, x, high), (el, ex, eh) = step.x, step.e
    above = _larger(x, ex, low, el)
    return _larger(-np.maximum(x, low), above, -high, eh)


def selected(step: BoundedStep) -> Any:
    """Of the operand chosen, or of both where it is not decided which."""
    (which, a, b), (ew, ea, eb) = step.x, step.e
    either = np.where(step.known[1] == step.known[2], 0.0, np.abs(a - b)) + np.maximum(ea, eb)
    either = np.where(np.isnan(either), np.inf, either)
    return np.where(np.asarray(ew) > 0, either, np.where(which != 0, ea, eb))


def _parts(step: BoundedStep) -> Any:
    return np.hypot(*step.e)


def _converted(step: BoundedStep) -> Any:
    source = step.instruction.operands[0].array.dtype
    # An undecided truth is 0 or 1, an undecided integer anything.
    return np.minimum(step.e[0], 1.0) if source.is_pred else step.e[0]


def _by_ends(step: BoundedStep, *, low: float = -np.inf, high: float = np.inf) -> Any:
    """Of a function that rises or falls everywhere on its domain; near its ends it may be NaN or infinite."""
    (x,), (e,) = step.x, step.e
    own, *ends = (
        _evaluated(step.instruction, at)
        for at in (x, np.maximum(x - e, low), np.minimum(x + e, high))
    )
    most = np.maximum(*(np.abs(end - own) for end in ends))
    inside = (x - e >= low) & (x + e <= high)
    return np.where(inside, most + 4 * _DOUBLE * np.abs(own), np.inf)


def _evaluated(instruction: Instruction, x: Array) -> Array:
    return evaluate_op(
        instruction.opcode,
        ScalarArgs(_F64, _F64, instruction.attributes),
        [np.asarray(x, np.float64)],
    )


def _steps(step: BoundedStep) -> Any:
    """Of a function that is constant but for its jumps."""
    (x,), (e,) = step.x, step.e
    low, high = (_evaluated(step.instruction, at) for at in (x - e, x + e))
    return np.maximum(np.abs(high - step.r), np.abs(low - step.r))


def _wave(step: BoundedStep) -> Any:
    return np.minimum(step.e[0], 2.0)


def _bowl(step: BoundedStep) -> Any:
    """The hyperbolic cosine, which falls and rises."""
    size, e = np.abs(step.x[0]), step.e[0]
    own = np.cosh(size)
    return (
        np.maximum(np.cosh(size + e) - own, own - np.cosh(np.maximum(size - e, 0)))
        + 4 * _DOUBLE * own
    )


def _tangent(step: BoundedStep) -> Any:
    x, e = step.x[0], step.e[0]
    low, own, high = np.tan(x - e), np.tan(x), np.tan(x + e)
    rises = (e < 1.5) & (low <= own) & (own <= high)
    return np.where(rises, np.maximum(high - own, own - low) + 4 * _DOUBLE * np.abs(own), np.inf)


def _power(step: BoundedStep) -> Any:
    """By the change of ``b log|a|``; near zero, of powers that do not fall, by the ends."""
    (a, b), (ea, eb) = step.x, step.e
    size = np.abs(a)
    away = size > ea
    relative = np.abs(b) * np.log1p(ea / np.where(away, size - ea, 1)) + np.abs(np.log(size)) * eb
    relative = np.where((eb == 0) | np.asarray(np.abs(np.log(size)) < np.inf), relative, np.inf)
    near = np.where(
        (b > 0) & (np.asarray(eb) == 0), (size + ea) ** np.abs(b) + np.abs(step.r), np.inf
    )
    # A negative base has powers for whole exponents only.
    near = np.where((a < 0) & (np.asarray(eb) > 0), np.inf, near)
    return np.where(
        away & ((a > 0) | (np.asarray(eb) == 0)), np.abs(step.r) * np.expm1(relative), near
    )


def _angle(step: BoundedStep) -> Any:
    (y, x), (ey, ex) = step.x, step.e
    off = np.hypot(ex, ey)
    left = np.hypot(x, y) - off
    crosses = (np.abs(y) <= ey) & (x < ex) & (np.asarray(ey) > 0)
    return np.where(crosses | (left <= 0), 2 * np.pi, np.minimum(off / left, 2 * np.pi))


def _rest(step: BoundedStep) -> Any:
    """The remainder of a division, while the quotient's whole part is decided."""
    (a, b), (ea, eb) = step.x, step.e
    size = np.abs(step.r)
    off = ea + np.abs(np.trunc(a / b)) * eb
    inside = (size - off > 0) & (size + off < np.abs(b) - eb)
    return np.where(inside, off, size + np.abs(b) + eb)


EXACT: Final[Mapping[str, ReachRule]] = op_table(
    {
        "clamp": clamped,
        "complex": _parts,
        "copy": _converted,
        "imag": _first,
        "maximum": partial(extremum, sign=1),
        "minimum": partial(extremum, sign=-1),
        "negate": _first,
        "real": _first,
        "select": selected,
        **dict.fromkeys(INTEGRAL, _steps),
    },
    ELEMENTWISE,
    "rounded",
)
"""Of what rounds nothing: a part of an operand, its opposite, a whole number."""

REACHES: Final[Mapping[str, ReachRule]] = op_table(
    {
        "abs": _first,
        "acos": partial(_by_ends, low=-1.0, high=1.0),
        "acosh": partial(_by_ends, low=1.0),
        "add": _sum,
        "asin": partial(_by_ends, low=-1.0, high=1.0),
        "asinh": _by_ends,
        "atan2": _angle,
        "atanh": partial(_by_ends, low=-1.0, high=1.0),
        "cbrt": _by_ends,
        "convert": _converted,
        "cosh": _bowl,
        "cosine": _wave,
        "divide": _quotient,
        "erf": _by_ends,
        "exponential": _by_ends,
        "exponential-minus-one": _by_ends,
        "log": partial(_by_ends, low=0.0),
        "log-plus-one": partial(_by_ends, low=-1.0),
        "logistic": _by_ends,
        "multiply": _product,
        "power": _power,
        "reduce-precision": _first,
        "remainder": _rest,
        "rsqrt": partial(_by_ends, low=0.0),
        "sine": _wave,
        "sinh": _by_ends,
        "sqrt": partial(_by_ends, low=0.0),
        "subtract": _sum,
        "tan": _tangent,
        "tanh": _by_ends,
    },
    ELEMENTWISE,
    "exact; of integers and pred; or nothing is known unless its operands are exact",
)
OF_COMPLEX: Final = frozenset({_converted, _first, _parts, _product, _quotient, selected, _sum})
"""Rules that hold for complex numbers, whose magnitudes they take."""
