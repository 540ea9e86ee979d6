"""What is known of scores that a mask takes away, and what a kernel has to find out about them.

Bounds are computed in f32 from sizes of operands.  Roundings of what they bound may exceed them by far less
than there is between a limit and the number for which it stands.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from hloopt.analysis.attention.axes import Along, known_along
from hloopt.analysis.attention.form import Attention, ScoreSweep
from hloopt.analysis.attention.places import along_operand, viewed
from hloopt.analysis.attention.rescaling import of_a_row
from hloopt.analysis.attention.tile_bounds import (
    UNDERFLOW,
    Limit,
    TileBound,
    differing,
    heroes_above,
    is_low,
    made_bound,
    reducer_of,
    rises,
    root_of,
)
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.ops.traits import op_table

__all__ = ["MaskedSweep"]

T_co = TypeVar("T_co", covariant=True)

_FINITE: Final = 1e37
"""Sizes up to here are of numbers that f32 and bf16 have, rounded or not."""
_NONZERO: Final = 1e-37
_WIDE: Final = frozenset({"f32", "bf16", "f64"})
_MOST_DEEP: Final = 64


class _Rule(Protocol[T_co]):
    """What is said of a value by what it is computed from."""

    __name__: str

    def __call__(self, one: Instruction, along: Along, deep: int = 0) -> T_co | None:
        """None where nothing is known."""


@dataclass
class MaskedSweep:
    """What one sweep needs besides, where a mask is known."""

    form: Attention
    sweep: ScoreSweep
    number: int
    world: tuple[Instruction, Along, bool]
    made: dict[tuple[str, Instruction, Along], Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.earlier = {one for sweep in self.form.sweeps[: self.number] for one in sweep.heroes}
        rescaling = self.sweep.rescaling
        self.running = None if rescaling is None else rescaling.greatest

    def limits(self) -> tuple[Limit, ...] | None:
        """What must hold; None where that is not known."""
        found: list[Limit] = []
        for hero in self.sweep.heroes:
            source = hero.operands[0]
            along = self.form.along[source]
            own: list[Limit] | None = None
            if reducer_of(hero) == "add":
                own = self.zero(source, along)
            elif reducer_of(hero) == "maximum":
                upper = self.upper(source, along)
                if upper is not None and is_low(upper):
                    places = self.form.along[hero]
                    so_far = TileBound(
                        "value", value=hero, along=places, axes=frozenset(known_along(places))
                    )
                    own = [Limit(TileBound("add", (upper, TileBound("negate", (so_far,)))), 0.0)]
            if own is None:
                return None
            found += own
        for context in self.sweep.contexts:
            weights = context.contraction.lhs.instruction
            own = self.zero(weights, self.form.along[weights])
            if own is None:
                return None
            values = TileBound("size", value=context.contraction.rhs.instruction)
            found += [*own, Limit(values, _FINITE)]
        limits = tuple(dict.fromkeys(found))
        return limits if all(map(self._is_of_one_side, limits)) else None

    def _is_of_one_side(self, limit: Limit) -> bool:
        """Whether a thread can compute it with one row or one column at hand."""
        axes = frozenset().union(*(part.axes for part in limit.bound.walk()))
        return not axes & set(self.form.rows) or not axes & set(self.form.columns)

    # ---- values in masked tiles ---------------------------------------------------------------------

    def known(self, one: Instruction, along: Along, deep: int = 0) -> float | None:
        """The number that all elements are."""
        one, along = root_of(self.form, one, along)
        mask, places, masked = self.world
        if one is mask and along == places:
            return float(masked)
        if one.literal is not None:
            splat = one.literal.splat
            return None if splat is None or np.iscomplexobj(splat) else float(splat)
        if deep > _MOST_DEEP or not one.op.is_elementwise or one in self.form.along:
            return None
        parts = [self._part(self.known, one, along, at, deep) for at in range(len(one.operands))]
        if one.opcode == "select" and parts[0] is not None:
            return parts[1] if parts[0] else parts[2]
        if one.array.dtype.is_pred:
            return _truth(one.opcode, parts)
        given = [part for part in parts if part is not None]
        rule = _NUMBERS.get(one.opcode)
        if rule is None or len(given) < len(parts) or one.array.dtype.is_complex:
            return None
        with np.errstate(all="ignore"):
            return float(np.asarray(rule(*map(np.float64, given))).astype(one.array.dtype.numpy))

    def zero(self, one: Instruction, along: Along, deep: int = 0) -> list[Limit] | None:
        """What must hold for all elements to be zero."""
        number = self.known(one, along)
        if number is not None or deep > _MOST_DEEP:
            return [] if number == 0 else None
        if viewed(one) or one.opcode in ("convert", "negate", "abs"):
            return self._part(self.zero, one, along, 0, deep)
        if one.opcode == "select":
            chosen = self._chosen(one, along)
            return self._all(self._part(self.zero, one, along, at, deep) for at in chosen)
        if one.opcode in ("add", "subtract"):
            return self._all(self._part(self.zero, one, along, at, deep) for at in (0, 1))
        if one.opcode == "exponential":
            upper = self._part(self.upper, one, along, 0, deep)
            return [Limit(upper, UNDERFLOW)] if upper is not None and is_low(upper) else None
        if one.opcode == "multiply":
            for at in (0, 1):
                own = self._part(self.zero, one, along, at, deep)
                size = None if own is None else self._part(self.size, one, along, 1 - at, deep)
                if own is not None and size is not None:
                    return [*own, Limit(size, _FINITE)]
        if one.opcode == "divide":
            own = self._part(self.zero, one, along, 0, deep)
            if own is None or self._is_late(one.operands[1]):
                return own
            divisor = self._outer_part(one, along, 1)
            factor = self._part(self.known, one, along, 1, deep)
            if factor is not None:
                return own if factor and not math.isnan(factor) else None
            if divisor is not None:
                size = TileBound("abs", (divisor,))
                return [*own, Limit(TileBound("negate", (size,)), -_NONZERO)]
        return None

    def upper(self, one: Instruction, along: Along, deep: int = 0) -> TileBound | None:
        """What all elements are at most."""
        number = self.known(one, along)
        if number is not None:
            return TileBound("constant", number=number)
        if deep > _MOST_DEEP:
            return None
        outer = self.outer(one, along)
        if outer is not None:
            return outer
        if viewed(one) or one.opcode == "convert":
            return self._part(self.upper, one, along, 0, deep)
        if one.opcode == "select":
            return self._greatest(self.upper, one, along, self._chosen(one, along), deep)
        if one.opcode in ("maximum", "minimum"):
            return self._greatest(self.upper, one, along, (0, 1), deep)
        if one.opcode == "add":
            parts = [self._part(self.upper, one, along, at, deep) for at in (0, 1)]
            return made_bound("add", parts)
        if one.opcode == "subtract":
            other = self._outer_part(one, along, 1, may_run=True)
            less = None if other is None else TileBound("negate", (other,))
            if less is None:
                less = self._part(self.size, one, along, 1, deep)
            return made_bound("add", [self._part(self.upper, one, along, 0, deep), less])
        if one.opcode == "multiply":
            for at in (0, 1):
                own = along_operand(self.form, one, along, at)
                factor = None if own is None else self.known(one.operands[at], own)
                if factor is not None and 0 < factor < math.inf:
                    part = self._part(self.upper, one, along, 1 - at, deep)
                    return made_bound("multiply", [part, TileBound("constant", number=factor)])
        return self.size(one, along, deep)

    def size(self, one: Instruction, along: Along, deep: int = 0) -> TileBound | None:
        """What the absolute values of all elements are at most."""
        number = self.known(one, along)
        if number is not None:
            return TileBound("constant", number=abs(number)) if math.isfinite(number) else None
        if deep > _MOST_DEEP or one.array.dtype.name not in _WIDE:
            return None
        if self._is_late(one):
            return TileBound("constant", number=1.0)
        outer = self.outer(one, along)
        if outer is not None:
            return TileBound("abs", (outer,))
        product = next((each for each in self.form.scores if each.hero is one), None)
        if product is not None:
            own = product.contraction
            depth = TileBound("constant", number=2.0 * own.size("k"))
            sides = [TileBound("size", value=side.instruction) for side in (own.lhs, own.rhs)]
            return TileBound("multiply", (TileBound("multiply", (depth, sides[0])), sides[1]))
        if viewed(one) or one.opcode in _NO_LARGER:
            return self._part(self.size, one, along, 0, deep)
        if one.opcode == "select":
            return self._greatest(self.size, one, along, self._chosen(one, along), deep)
        if one.opcode in ("add", "subtract", "multiply"):
            op = "multiply" if one.opcode == "multiply" else "add"
            return made_bound(op, [self._part(self.size, one, along, at, deep) for at in (0, 1)])
        if one.opcode == "divide":
            divisor = self._outer_part(one, along, 1)
            less = None if divisor is None else TileBound("abs", (divisor,))
            return made_bound("divide", [self._part(self.size, one, along, 0, deep), less])
        return None

    # ---- parts --------------------------------------------------------------------------------------

    def _part(
        self, rule: _Rule[T_co], one: Instruction, along: Along, number: int, deep: int
    ) -> T_co | None:
        own = along_operand(self.form, one, along, number)
        if own is None:
            return None
        key = (rule.__name__, one.operands[number], own)
        if key not in self.made:
            self.made[key] = rule(one.operands[number], own, deep + 1)
        found: T_co | None = self.made[key]
        return found

    def _all(self, found: Iterable[list[Limit] | None]) -> list[Limit] | None:
        parts: list[Limit] = []
        for own in found:
            if own is None:
                return None
            parts += own
        return list(dict.fromkeys(parts))

    def _chosen(self, select: Instruction, along: Along) -> tuple[int, ...]:
        """Which operands a select may take."""
        own = along_operand(self.form, select, along, 0)
        test = None if own is None else self.known(select.operands[0], own)
        return (1, 2) if test is None else (1,) if test else (2,)

    def _greatest(
        self,
        rule: _Rule[TileBound],
        one: Instruction,
        along: Along,
        numbers: Iterable[int],
        deep: int,
    ) -> TileBound | None:
        parts = [self._part(rule, one, along, at, deep) for at in numbers]
        return parts[0] if len(parts) == 1 else made_bound("maximum", parts)

    def _outer_part(
        self, one: Instruction, along: Along, number: int, *, may_run: bool = False
    ) -> TileBound | None:
        own = along_operand(self.form, one, along, number)
        return None if own is None else self.outer(one.operands[number], own, may_run=may_run)

    def outer(self, one: Instruction, along: Along, *, may_run: bool = False) -> TileBound | None:
        """A float with an element a row, or a column, that is known by now.

        ``may_run`` allows the maximum of the scores so far: that of all columns is at least as large.
        """
        if not one.array.dtype.is_float or one.array.dtype.name not in (*_WIDE, "f16"):
            return None
        axes, form = differing(self.form, one, along), self.form
        if not axes <= {*form.batch, *form.rows} and not axes <= {*form.batch, *form.columns}:
            return None
        above = heroes_above(form, one)
        if not above <= self.earlier:
            is_so_far = may_run and self.running is not None and rises(one, self.running)
            if not is_so_far:
                return None
        return TileBound("value", value=one, along=along, axes=axes)

    def _is_late(self, divisor: Instruction) -> bool:
        """Whether contexts are divided by it when all is known: then it is NaN or 0 for all columns alike."""
        rescaling = self.sweep.rescaling
        if rescaling is None:
            return False
        row = of_a_row(divisor)
        late = rescaling.kept.values()
        return row is not None and any(one is not None and one.value is row for one in late)


def _truth(opcode: str, parts: list[float | None]) -> float | None:
    if opcode == "not":
        return None if parts[0] is None else float(not parts[0])
    if opcode in ("and", "or"):
        decisive = float(opcode == "or")
        if decisive in parts:
            return decisive
        return None if None in parts else 1 - decisive
    return None


_NUMBERS: Final[Mapping[str, Any]] = op_table(
    {
        "convert": lambda value: value,
        "negate": np.negative,
        "add": np.add,
        "subtract": np.subtract,
        "multiply": np.multiply,
        "divide": np.divide,
        "maximum": np.maximum,
        "minimum": np.minimum,
    },
    otherwise="its value is not known",
)

_NO_LARGER: Final[Mapping[str, bool]] = op_table(
    {"convert": True, "negate": True, "abs": True, "tanh": True},
    otherwise="results may be larger than operands",
)
