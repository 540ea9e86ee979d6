"""How far the result of an elementwise op may be off: what its operands are off by, and its own rounding.

An element that is x in the definition is x' with |x' - x| <= e elsewhere.  A result f(x) is off by at most
the largest |f(x') - f(x)|, and by a rounding of either side: u |f(x)| for the definition's and some units,
which ``_UNITS`` has by opcode, of a device's.  Infinite bounds are those of which nothing is known.

A pred or an integer is decided (0) or not (infinite).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import ml_dtypes
import numpy as np

from hloopt.interpret.bounds_functions import (
    EXACT,
    OF_COMPLEX,
    REACHES,
    BoundedStep,
    ReachRule,
    clamped,
    extremum,
    selected,
)
from hloopt.interpret.elementwise import evaluate_op
from hloopt.interpret.perturbation import FLUSHED, unit_roundoff
from hloopt.interpret.rounding import exact_results, is_power
from hloopt.ir import Instruction
from hloopt.ops import ScalarArgs
from hloopt.ops.traits import ELEMENTWISE, TRANSCENDENTAL, op_table
from hloopt.types import Array, DType, dtype, rounded

__all__ = ["ErrorBound", "elementwise_bound", "flushed"]

_F64: Final = dtype("f64")

ErrorBound: TypeAlias = "Array | None"
"""f64, of the shape of what it bounds; None: nothing is off."""


def elementwise_bound(
    instruction: Instruction, operands: Sequence[Array], bounds: Sequence[ErrorBound], result: Array
) -> ErrorBound:
    """The bound of an elementwise op's result."""
    kind = instruction.array.dtype
    opcode = instruction.opcode
    inexact = kind.is_float or kind.is_complex
    if all(bound is None for bound in bounds) and (not inexact or opcode in EXACT):
        return None
    step = BoundedStep(
        instruction,
        [_wide(x) for x in operands],
        [0.0 if bound is None else bound for bound in bounds],
        _wide(result),
        operands,
    )
    if inexact:
        bound = _inexact(step, kind, result)
    else:
        rule = _DECIDED.get(opcode)
        bound = np.where(step.off if rule is None else rule(step), np.inf, 0.0)
    if not np.any(bound):
        return None
    return bound if np.shape(bound) == result.shape else np.broadcast_to(bound, result.shape)


def _wide(array: Array) -> Array:
    return array.astype(np.complex128 if np.iscomplexobj(array) else np.float64, copy=False)


def _inexact(step: BoundedStep, kind: DType, result: Array) -> Array:
    """Of a float or a complex number."""
    opcode = step.instruction.opcode
    if opcode in EXACT:
        moved = EXACT[opcode](step)
    else:
        read = [flushed(x, e) for x, e in zip(step.x, step.e, strict=True)]
        step = BoundedStep(step.instruction, step.x, read, step.r, step.known)
        moved = _reach(step)
        if kind.is_float and kind.bits <= 8 and opcode in _ROUNDED_ONCE:
            moved = _between_ends(step, moved, kind, result)
        else:
            moved = moved + _rounding(step, moved, kind, result)
    size = np.abs(step.r)
    if np.isfinite(size).all():
        limit = float(ml_dtypes.finfo(kind.numpy).max)  # type: ignore[no-untyped-call]
        unknown = np.isnan(moved) | ((size + moved > limit) & (np.asarray(moved) > 0))
        return np.where(unknown, np.inf, moved)
    # What is infinite or NaN stays so where an operand is, and surely is.
    fixed = ~np.isfinite(size) & _stays(step)
    return np.where(fixed, 0.0, np.where(np.isnan(moved) | ~np.isfinite(size), np.inf, moved))


def _stays(step: BoundedStep) -> Array:
    """Where a result that is no number is none in any case: of an operand that is none, or at a pole.

    What overflows does not where a wider type is kept.
    """
    exact = [np.asarray(e) == 0 for e in step.e]
    found = ~step.off & (np.isnan(step.r) | (step.x[-1] == 0))
    for x, known in zip(step.x, exact, strict=True):
        found = found | (~np.isfinite(x) & known)
    return np.asarray(found)


def flushed(x: Array, e: Any) -> Any:
    """The bound of an operand that is read as zero where it is below the least normal number of f32."""
    size = np.abs(x)
    small = (size < _TINY) & (size > 0)
    return np.where(small, np.maximum(size, e), e) if small.any() else e


_TINY: Final = float(np.finfo(np.float32).tiny)


def _reach(step: BoundedStep) -> Any:
    """How far the exact function moves."""
    opcode = step.instruction.opcode
    if not any(np.any(e) for e in step.e):
        return np.zeros(())
    rule = REACHES.get(opcode)
    if rule is None or (rule not in OF_COMPLEX and any(map(np.iscomplexobj, step.x))):
        return np.where(step.off, np.inf, 0.0)
    return np.where(step.off, rule(step), 0.0)


def _rounding(step: BoundedStep, moved: Any, kind: DType, result: Array) -> Any:
    """What both sides round; nothing where a correctly rounded op is exact."""
    opcode = step.instruction.opcode
    if opcode in ("abs", "remainder") and not np.iscomplexobj(step.x[0]):
        return 0.0
    unit = unit_roundoff(kind)
    theirs = float(_UNITS.get(opcode, 1))
    if opcode in TRANSCENDENTAL and kind.bits <= 16:
        theirs = 1 + theirs * 2.0**-24 / unit
    if kind.is_complex:
        theirs *= 4
    size = np.abs(step.r)
    reach = size + moved
    facts = ml_dtypes.finfo(kind.numpy)  # type: ignore[no-untyped-call]
    tiny = float(facts.tiny)
    floor: Any = 0.0
    if not np.min(size - moved, initial=np.inf) >= 2 * tiny:  # nor NaN
        least = tiny if kind.name in FLUSHED else float(facts.smallest_subnormal)
        floor = np.where(size < 2 * tiny + moved, least, 0.0)
    if opcode == "reduce-precision":
        unit = 2.0 ** -(int(step.instruction.attributes["mantissa_bits"]) + 1)
        return np.where(step.off, np.abs(step.r - step.x[0]) + unit * reach + floor, 0.0)
    bound = theirs * unit * reach
    exact = exact_results(opcode, list(step.known), result)
    if exact is None:
        return bound + unit * size + floor
    if opcode in TRANSCENDENTAL:
        exact = exact & (step.r == np.rint(step.r.real))
    bound = np.where(exact, bound, bound + unit * size) + floor
    exact = exact & ~step.off
    if step.off.any() and opcode in ("multiply", "divide"):
        bound = np.where(_scales(step), floor, bound)
    return np.where(exact, 0.0, bound)


def _between_ends(step: BoundedStep, moved: Any, kind: DType, result: Array) -> Array:
    """Of what is made in f32 and rounded once to few bits: mostly all of its interval is one number."""
    opcode = step.instruction.opcode
    own = evaluate_op(opcode, ScalarArgs(_F64, _F64, step.instruction.attributes), list(step.x))
    off = moved + float(_UNITS.get(opcode, 1)) * 2.0**-24 * np.abs(own)
    if opcode not in _UNITS:
        off = np.where(own.astype(np.float32) == own, moved, off)
    ends = (rounded(np.asarray(own + by), result.dtype).astype(np.float64) for by in (-off, off))
    return np.asarray(np.maximum(*(np.abs(end - step.r) for end in ends)))


_ROUNDED_ONCE: Final = TRANSCENDENTAL | {"convert"}
"""Ops that no rewrite makes of others in another order; XLA keeps no more bits of 8 than there are."""


def _scales(step: BoundedStep) -> Array:
    """Where a factor is exactly a power of two: whatever the other one is, the product is exact."""
    sides = list(zip(step.x, step.e, strict=True))
    if step.instruction.opcode == "divide":
        sides = sides[1:]
    found: Array = np.zeros((), np.bool_)
    for x, e in sides:
        if not np.iscomplexobj(x):
            found = found | (is_power(x) & (np.asarray(e) == 0))
    return found


_UNITS: Final[Mapping[str, int]] = op_table(
    {
        "divide": 3,
        **dict.fromkeys(TRANSCENDENTAL, 8),
        "power": 16,
        "rsqrt": 4,
        "sqrt": 2,
        "tan": 16,
    },
    ELEMENTWISE,
    "rounded once, as IEEE 754 has it",
)
"""Units of rounding that a device may be off: 1 is a correctly rounded result.

A quotient may be a product with the reciprocal (3).  Functions are off by 4 units in the last place, two units
of rounding each, those of 16 bits by as much in f32 and one rounding.
"""


# ---- what is decided ----------------------------------------------------------------------------


def _compared(step: BoundedStep) -> Array:
    (a, b), (ea, eb) = step.x, step.e
    apart = np.abs(a - b) > ea + eb
    return np.asarray(step.off & ~apart)


def _and(step: BoundedStep) -> Array:
    return _unless(step, 0)


def _or(step: BoundedStep) -> Array:
    return _unless(step, 1)


def _unless(step: BoundedStep, decides: int) -> Array:
    """Where an operand is off, and no other one that is exact decides: a false one of ``and``."""
    if not step.instruction.array.dtype.is_pred:
        return step.off
    settled = [(x == decides) & (np.asarray(e) == 0) for x, e in zip(step.x, step.e, strict=True)]
    return np.asarray(step.off & ~settled[0] & ~settled[1])


def _chosen(step: BoundedStep) -> Array:
    return np.asarray(selected(step) > 0)


def _whole(step: BoundedStep) -> Array:
    """Of a float as an integer or a truth: where it may be another one."""
    (x,), (e,) = step.x, step.e
    if np.iscomplexobj(x) or (
        np.isinf(e).any() and step.instruction.operands[0].array.dtype.is_integer
    ):
        return step.off
    if step.instruction.array.dtype.is_pred:
        return np.asarray(step.off & ~(np.abs(x) > e))
    return np.asarray(step.off & ~(np.trunc(x - e) == np.trunc(x + e)))


def _finite(step: BoundedStep) -> Array:
    kind = step.instruction.operands[0].array.dtype
    most = float(ml_dtypes.finfo(kind.numpy).max)  # type: ignore[no-untyped-call]
    return np.asarray(step.off & ~(np.abs(step.x[0]) + step.e[0] < most))


_DECIDED: Final[Mapping[str, ReachRule]] = op_table(
    {
        "and": _and,
        "clamp": lambda step: clamped(step) > 0,
        "compare": _compared,
        "convert": _whole,
        "is-finite": _finite,
        "maximum": lambda step: extremum(step, sign=1) > 0,
        "minimum": lambda step: extremum(step, sign=-1) > 0,
        "or": _or,
        "select": _chosen,
    },
    ELEMENTWISE,
    "not decided where an operand is not, or a float",
)
